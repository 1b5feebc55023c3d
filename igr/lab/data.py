"""The data sets: `digits` (embedded, needs no network), `mnist` and `cifar10` (downloaded once, checked, cached).

Images are uint8 arrays in NHWC order, labels int32; `Dataset.scale` is the largest pixel value, by which the engine
divides on the device (the paper's pixels / 255). The SHA-256 of every file's *contents* is checked at each load, so a
mirror may compress as it likes. Nothing is ever unpickled: CIFAR-10 is read from its binary version.

Given a folder (`data_dir`, or the environment variable IGR_DATA_DIR) nothing touches the network.
"""

import dataclasses
import gzip
import hashlib
import os
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from igr.lab.config import ConfigError
from igr.lab.files import reason, write_atomically

SHAPES = {"digits": (8, 8, 1), "mnist": (28, 28, 1), "cifar10": (32, 32, 3)}
SIZES = {"digits": (1437, 360), "mnist": (60_000, 10_000), "cifar10": (50_000, 10_000)}  # training, test
NAMES = tuple(SHAPES)
TIMEOUT = 30.0  # seconds without a byte, after which a mirror is given up


class DataError(ConfigError):
    """Data that cannot be had or is not what it should be: one sentence with the file's name and what to do."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Images of one kind and their labels."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Images and labels for training and testing, and for validation where a part of the training set is held out."""

    name: str
    train: Split
    test: Split
    scale: float
    classes: int = 10
    validation: Split | None = None

    def __post_init__(self):
        for split in (self.train, self.test):
            if split.x.ndim != 4 or split.x.shape[1:] != self.train.x.shape[1:] or len(split.x) != len(split.y):
                raise DataError(f"{self.name}: images of shape {split.x.shape} do not go with {len(split.y)} labels.")
            if len(split) and not 0 <= split.y.min() <= split.y.max() < self.classes:
                raise DataError(f"{self.name}: labels must lie in 0 ... {self.classes - 1}, but reach {split.y.max()}.")

    def subset(self, train: int, test: int) -> "Dataset":
        """The first images of each kind, for trials."""
        cut = (Split(s.x[:n], s.y[:n]) for s, n in ((self.train, train), (self.test, test)))
        return dataclasses.replace(self, train=next(cut), test=next(cut))

    def hold_out(self, count: int, seed: int = 0) -> "Dataset":
        """Move `count` training images, drawn at random by `seed`, to a validation set."""
        if not 0 < count < len(self.train):
            raise DataError(f"{self.name}: cannot hold out {count} of {len(self.train)} training images.")
        order = np.random.default_rng(seed).permutation(len(self.train))
        held, kept = np.sort(order[:count]), np.sort(order[count:])
        part = {name: Split(self.train.x[i], self.train.y[i]) for name, i in (("train", kept), ("validation", held))}
        return dataclasses.replace(self, **part)


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a data set lives: the SHA-256 of each file's contents, and the addresses of its wrappers.

    A wrapper is `FILE.gz` for each file, or one `archive` (.tar.gz) that holds them all.
    """

    folder: str
    files: Mapping[str, str]
    mirrors: tuple[str, ...]
    archive: str | None = None


MNIST = Source(
    "mnist",
    {
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
)
CIFAR10 = Source(
    "cifar-10-batches-bin",
    {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    (
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",  # the home is throttled at times
        "https://www.cs.toronto.edu/~kriz/",
    ),
    archive="cifar-10-binary.tar.gz",
)


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """The data set of this name; downloads it at the first call unless a folder is given.

    >>> digits = load("digits")
    >>> digits.train.x.shape, digits.test.x.shape, digits.scale
    ((1437, 8, 8, 1), (360, 8, 8, 1), 16.0)
    """
    if name == "digits":
        return _digits()
    if name == "mnist":
        images, labels, test_images, test_labels = (_idx(f, b) for f, b in fetch(MNIST, data_dir).items())
        return Dataset(name, _split(images[..., None], labels), _split(test_images[..., None], test_labels), 255.0)
    if name == "cifar10":
        rows = [np.frombuffer(content, np.uint8).reshape(-1, 3073) for content in fetch(CIFAR10, data_dir).values()]
        return Dataset(name, _planar(np.concatenate(rows[:5])), _planar(rows[5]), 255.0)
    raise DataError(f"No data set is called {name!r}: choose one of {', '.join(NAMES)}.")


def fetch(source: Source, data_dir: str | Path | None = None, cache: str | Path | None = None) -> dict[str, bytes]:
    """The contents of a source's files, every one of them checked: from a folder, from the cache, or from a mirror."""
    data_dir = data_dir or os.environ.get("IGR_DATA_DIR")
    if data_dir is not None:
        return {name: _local(Path(data_dir), source, name) for name in source.files}
    import pooch

    folder = Path(cache or pooch.os_cache("igr")) / source.folder
    return {name: _cached(folder, source, name) for name in source.files}


def _local(root: Path, source: Source, name: str) -> bytes:
    for place in (root / source.folder / name, root / name):
        for path in (place, place.with_name(f"{name}.gz")):
            if path.is_file():
                return _checked(path, source.files[name], "replace it, or leave out the data folder to download it")
    raise DataError(
        f"{root / source.folder / name} (plain or .gz) is missing: put it there, or leave out --data-dir and "
        "IGR_DATA_DIR to download it."
    )


def _checked(path: Path, sha256: str, remedy: str) -> bytes:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({reason(error) or 'cut short'}): {remedy}.") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{path} is cut or altered (the SHA-256 of its contents is not {sha256[:12]}...): {remedy}.")
    return content


def _cached(folder: Path, source: Source, name: str) -> bytes:
    path, sha256 = folder / name, source.files[name]
    if path.is_file():
        try:
            return _checked(path, sha256, "it is downloaded again")
        except DataError:
            path.unlink()
    _download(folder, source, name)
    return _checked(path, sha256, "delete it and try again")


def _download(folder: Path, source: Source, name: str) -> None:
    """Put one file (or all, where they share an archive) into the cache from the first mirror whose bytes are right."""
    wrapper = source.archive or f"{name}.gz"
    failures = []
    for mirror in source.mirrors:
        with tempfile.TemporaryDirectory(prefix="igr-") as temporary:
            try:
                archive = _retrieve(mirror + wrapper, Path(temporary) / wrapper)
                contents = _unpacked(archive, source, name)
            except Exception as error:  # whatever a mirror does wrong, the next one may do right
                failures.append(f"{mirror}: {' '.join(str(error).split()) or type(error).__name__}"[:160])
                continue
        for each, content in contents.items():
            write_atomically(folder / each, content)
        return
    raise DataError(
        f"{wrapper} could not be downloaded from any of {len(failures)} places ({'; '.join(failures)}): check the "
        f"network, or put the files into a folder and give it as --data-dir."
    )


def _unpacked(archive: Path, source: Source, name: str) -> dict[str, bytes]:
    if source.archive is None:
        return {name: _checked(archive, source.files[name], "another mirror is tried")}
    contents = {}
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            base = Path(member.name).name
            if member.isfile() and base in source.files and (file := tar.extractfile(member)) is not None:
                contents[base] = file.read()
    for each, sha256 in source.files.items():
        if hashlib.sha256(contents.get(each, b"")).hexdigest() != sha256:
            raise DataError(f"{each} in {archive.name} is missing, cut or altered")
    return contents


def _retrieve(url: str, path: Path) -> Path:
    """Download with pooch, under a progress bar where the output is a terminal."""
    import pooch
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    pooch.get_logger().setLevel("WARNING")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        downloader = pooch.HTTPDownloader(progressbar=_Bar(progress, path.name), timeout=TIMEOUT)  # pyright: ignore
        pooch.retrieve(url, None, path.name, path.parent, downloader=downloader)  # pyright: ignore
    return path


class _Bar:
    """The four names that pooch asks of a progress bar, on a rich one."""

    def __init__(self, progress, name: str):
        self.task = progress.add_task(name, total=None)
        self._progress, self.total = progress, 0

    def update(self, count: int) -> None:
        self._progress.update(self.task, advance=count, total=self.total or None)

    def reset(self) -> None:
        self._progress.reset(self.task)

    def close(self) -> None:
        self._progress.refresh()


def _idx(name: str, content: bytes) -> np.ndarray:
    """An array from the IDX format of MNIST: two zero bytes, a type (8: uint8), the rank, the sizes, the values."""
    rank = content[3] if len(content) > 3 and content[:3] == b"\0\0\x08" else 0
    sizes = struct.unpack_from(f">{rank}I", content, 4) if rank and len(content) >= 4 + 4 * rank else ()
    if not sizes or len(content) != 4 + 4 * rank + int(np.prod(sizes)):
        raise DataError(f"{name} is not an IDX file of unsigned bytes, or it is cut short: get it anew.")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(sizes)


def _split(x: np.ndarray, y: np.ndarray) -> Split:
    return Split(x, y.astype(np.int32))


def _planar(rows: np.ndarray) -> Split:
    """CIFAR's rows: a label byte, then the red, the green and the blue plane of a 32 x 32 image."""
    return _split(np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), rows[:, 0])


def _digits() -> Dataset:
    """The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn, in one fixed split of 1,437 and 360."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = np.asarray(x).reshape(-1, 8, 8, 1).astype(np.uint8), np.asarray(y)
    order = np.random.default_rng(0).permutation(len(x))
    return Dataset("digits", _split(x[order[:1437]], y[order[:1437]]), _split(x[order[1437:]], y[order[1437:]]), 16.0)
