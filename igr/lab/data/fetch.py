"""Get files from a folder, from the cache or from a mirror. Each is checked by the SHA-256 of its contents.

The check is of the contents, not of the compressed file, so each mirror may compress in its own way. Downloads are
limited: at most `Source.largest` bytes are unpacked from a file and `Source.most_bytes` are downloaded, and a mirror
slower than `SLOWEST` bytes a second after `PATIENCE` seconds is given up.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import os
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from igr.lab.store.config import ConfigError
from igr.lab.store.files import reason, write_atomically

TIMEOUT = 30.0  # seconds without a byte, after which a mirror is given up
PATIENCE, SLOWEST = 30.0, 20_000  # seconds, and then the least bytes a second on average
CHUNK = 1 << 16


class DataError(ConfigError):
    """Data are missing or wrong. The message names the file and says what to do."""


@dataclasses.dataclass(frozen=True)
class Source:
    """The files of a data set: the SHA-256 of the contents of each, and the mirrors.

    A mirror has a `FILE.gz` for each file, or one `archive` (.tar.gz) with all of them. `folder` is their folder in the
    cache, `megabytes` the size of the whole download, `largest` the most bytes that one file may unpack to.
    """

    folder: str
    files: Mapping[str, str]
    mirrors: tuple[str, ...]
    archive: str | None = None
    megabytes: int = 64
    largest: int = 64_000_000

    @property
    def most_bytes(self) -> int:
        """The largest number of bytes that is downloaded."""
        return 2_000_000 * self.megabytes


def fetch(source: Source, data_dir: str | Path | None = None, cache: str | Path | None = None) -> dict[str, bytes]:
    """The checked contents of the files of a `source`: from the folder `data_dir`, from `cache`, or from a mirror.

    Without `data_dir` the environment variable IGR_DATA_DIR is read.
    """
    data_dir = data_dir or os.environ.get("IGR_DATA_DIR") or None  # an empty string means none, not the current folder
    if data_dir is not None:
        return {name: _local(Path(data_dir), source, name) for name in source.files}
    folder = cache_folder(source, cache)
    found: dict[str, bytes] = {}
    for name in source.files:
        if name not in found:
            found |= _cached(folder, source, name)
    return {name: found[name] for name in source.files}


def cache_folder(source: Source, cache: str | Path | None = None) -> Path:
    """The folder for downloads of this `source`, in `cache` or in the user's cache."""
    import pooch

    return Path(cache or pooch.os_cache("igr")) / source.folder


def is_cached(source: Source) -> bool:
    """Whether every file of `source` is in the cache. Their contents are not checked."""
    return all((cache_folder(source) / name).is_file() for name in source.files)


def _local(root: Path, source: Source, name: str) -> bytes:
    for place in (root / source.folder / name, root / name):
        for path in (place, place.with_name(f"{name}.gz")):
            if path.is_file():
                return _checked(path, source, name, "replace it, or leave out the data folder to download it")
    raise DataError(
        f"{root / source.folder / name} (plain or .gz) is missing: put it there, or leave out --data-dir and "
        "IGR_DATA_DIR to download it."
    )


def _checked(path: Path, source: Source, name: str, remedy: str) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(source.largest + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({reason(error) or 'cut short'}): {remedy}.") from error
    if len(content) > source.largest:
        raise DataError(f"{path} has more than {source.largest:,} bytes of contents: {remedy}.")
    if hashlib.sha256(content).hexdigest() != source.files[name]:
        sum = source.files[name][:12]
        raise DataError(f"{path} is cut or altered (the SHA-256 of its contents is not {sum}...): {remedy}.")
    return content


def _cached(folder: Path, source: Source, name: str) -> dict[str, bytes]:
    """The contents of a file in the cache, or of all files that were downloaded with it.

    A damaged file is replaced by the next download and never removed: another process may have just replaced it.
    """
    if (folder / name).is_file():
        with contextlib.suppress(DataError):  # a damaged copy is replaced by a new one
            return {name: _checked(folder / name, source, name, "it is downloaded again")}
    return _download(folder, source, name)


def _download(folder: Path, source: Source, name: str) -> dict[str, bytes]:
    """Download a file, or all of a shared archive, into the cache, from the first mirror with the right bytes."""
    wrapper = source.archive or f"{name}.gz"
    failures = []
    for mirror in source.mirrors:
        with tempfile.TemporaryDirectory(prefix="igr-", ignore_cleanup_errors=True) as temporary:
            try:
                archive = retrieve(mirror + wrapper, Path(temporary) / wrapper, source.most_bytes)
                contents = _unpacked(archive, source, name)
            except Exception as error:  # the next mirror may work
                failures.append(f"{mirror}: {' '.join(str(error).split()) or type(error).__name__}"[:160])
                continue
        for each, content in contents.items():
            write_atomically(folder / each, content)
        return contents
    raise DataError(
        f"{wrapper} could not be downloaded from any of {len(failures)} places ({'; '.join(failures)}): check the "
        f"network, or put the files into a folder and give it as --data-dir."
    )


def _unpacked(archive: Path, source: Source, name: str) -> dict[str, bytes]:
    if source.archive is None:
        return {name: _checked(archive, source, name, "another mirror is tried")}
    contents, most = {}, (len(source.files) + 1) * source.largest
    with _Bounded(archive, most) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            base = Path(member.name).name
            if member.isfile() and base in source.files and (file := tar.extractfile(member)) is not None:
                contents[base] = file.read(source.largest)
    for each, sha256 in source.files.items():
        if hashlib.sha256(contents.get(each, b"")).hexdigest() != sha256:
            raise DataError(f"{each} in {archive.name} is missing, cut or altered")
    return contents


class _Bounded(gzip.GzipFile):
    """A wrapper that ends with an error after so many bytes: a header of an archive may be as long as a file."""

    def __init__(self, path: Path, most: int):
        super().__init__(path, "rb")
        self.left = most

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes."""
        data = super().read(size)
        self.left -= len(data)
        if self.left < 0:
            raise DataError("it unpacks to more than its files have")
        return data


def retrieve(url: str, path: Path, most: int) -> Path:
    """Download up to `most` bytes from `url` to `path`, with a progress bar where the output is a terminal.

    A thread reads, so that a mirror that sends its headers or contents too slowly is given up on time.
    """
    state: dict[str, int] = {"received": 0, "total": 0, "stopped": 0}
    failure: list[str] = []

    def read() -> None:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as response, path.open("wb") as file:
                state["total"] = int(response.headers.get("Content-Length") or 0)
                while not state["stopped"] and (chunk := response.read1(CHUNK)):
                    state["received"] += len(chunk)
                    if state["received"] > most:
                        raise DataError(f"more than {most:,} bytes")
                    file.write(chunk)
            if state["received"] < state["total"]:
                raise DataError(f"cut short after {state['received']:,} of {state['total']:,} bytes")
        except Exception as error:  # passed on as text: the exception holds a connection, which ends with this thread
            failure.append(str(error) or type(error).__name__)
            if isinstance(error, urllib.error.HTTPError):
                error.close()

    reader = threading.Thread(target=read, name="igr-download", daemon=True)
    begun = time.monotonic()
    reader.start()
    try:
        with _Bar(path.name) as show:
            while reader.is_alive():
                reader.join(0.1)
                show(state["received"], state["total"])
                late = time.monotonic() - begun - PATIENCE
                if reader.is_alive() and late > 0 and state["received"] < late * SLOWEST:
                    raise DataError(f"only {state['received']:,} bytes in {late + PATIENCE:.0f} seconds")
    finally:
        state["stopped"] = 1
    if failure:
        raise DataError(failure[0])
    return path


class _Bar:
    """A progress bar on the terminal, or silence where there is none: `with _Bar(name) as show: show(done, total)`."""

    def __init__(self, name: str):
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.progress.add_task(name, total=None)

    def __enter__(self) -> Callable[[int, int], None]:
        self.progress.start()
        return lambda done, total: self.progress.update(self.task, completed=done, total=total or None)

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
