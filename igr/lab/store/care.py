"""Looking after a store: checking every byte of it, and removing what is left over."""

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from igr.lab.store import schema
from igr.lab.store.claim import claim
from igr.lab.store.config import ConfigError
from igr.lab.store.files import Damaged, StoreError, Unreadable, read_bytes, reason
from igr.lab.store.lock import FOLDER, lock
from igr.lab.store.provenance import older
from igr.lab.store.reading import RECORD_BYTES, read_run
from igr.lab.store.store import Store

OLD = 3600.0  # seconds after which a file that was being written no longer is


@dataclass(frozen=True)
class Checked:
    """What `verify` found of one unit: `sound`, `damaged`, `unreadable`, `unknown` (of another version) or `cut`."""

    path: Path
    status: str
    words: str = ""
    older: bool | None = None  # whether other code computed it; None: its record does not say


def verify(root: Path) -> Iterator[Checked]:
    """Read every unit and every index under an output folder, each once; change nothing.

    The classes of the experiments must have been imported; a unit of another is `unknown`.
    """
    for name in Store(root).experiments():
        path = root / name / "index.json"
        try:
            schema.index(read_bytes(path, RECORD_BYTES), path)
            os.listdir(path.parent)  # below, a folder that the system does not list would look empty
        except FileNotFoundError:
            yield Checked(path, "damaged", f"{path} is a link to nothing.")
        except (Damaged, Unreadable, ConfigError) as error:
            status = {Damaged: "damaged", Unreadable: "unreadable"}.get(type(error), "unknown")
            yield Checked(path, status, str(error))
        except OSError as error:
            yield Checked(path.parent, "unreadable", f"Could not list {path.parent}: {reason(error)}.")
    for path in sorted(root.glob("*/" + "[0-9a-f]" * 16)):
        try:
            run = read_run(path)
            yield Checked(path, "sound", older=older(run.record, run.config))
        except Damaged as error:
            yield Checked(path, "damaged", str(error))
        except Unreadable as error:
            yield Checked(path, "unreadable", str(error))
        except ConfigError as error:
            yield Checked(path, "unknown", str(error))
        except FileNotFoundError:
            yield Checked(path, "cut")


def leftovers(root: Path) -> list[Path]:
    """What no run needs any more: files half written by killed processes, what was set aside, lock files."""
    now, found = time.time(), []
    for pattern in (".tmp-*", "*/.tmp-*", "*/*/.tmp-*", "*/*/*/.tmp-*"):
        found += [path for path in root.glob(pattern) if _age(path, now) > OLD]
    found += [*root.glob("*/.damaged-*"), *(root / FOLDER).glob("[!.]*")]  # not .gitignore, nor what is being written
    return sorted({path for path in found if not _beyond_a_link(root, path)})


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder that can be reached; links are not followed."""
    waiting, total = [str(path)], 0
    while waiting:  # folders may lie in each other deeper than Python's calls
        with contextlib.suppress(OSError):
            about = os.lstat(top := waiting.pop())
            if not stat.S_ISDIR(about.st_mode):
                total += about.st_size
                continue
            with os.scandir(top) as entries:
                waiting += [entry.path for entry in entries]
    return total


def remove(root: Path, path: Path) -> bool:
    """Remove something left over; False where it is in use, such as the lock of a unit that is being computed."""
    try:
        if path.parent == root / FOLDER and not path.name.startswith(".tmp-"):
            holds = path.suffix == ".holder"
            with lock(root, path.stem if holds else path.name) as mine:
                if mine is False:
                    return False
                if holds:
                    with claim(root, path.stem, mine is True) as permit:  # its end removes the file
                        return permit is not None
                path.unlink(missing_ok=True)  # where the file system has no locks, it is none
                return True
        if path.is_dir() and not path.is_symlink():
            _remove_folder(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"Could not remove {path}: {reason(error)}.") from error
    return True


def _remove_folder(top: Path) -> None:
    """Remove a folder with all that is in it; links are not followed.

    Inner folders are first moved up into `top`: they may lie in each other deeper than the calls of `shutil.rmtree` go,
    and deeper than a path may be long.
    """
    waiting = [top]
    while waiting:
        folder, inner = waiting[-1], []
        with os.scandir(folder) as found:
            for entry in [*found]:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                elif folder == top:
                    inner.append(Path(entry.path))
                else:
                    inner.append(top / f".tmp-{secrets.token_hex(8)}")
                    os.rename(entry.path, inner[-1])
        waiting += inner
        if not inner:
            os.rmdir(waiting.pop())


def _beyond_a_link(root: Path, path: Path) -> bool:
    """Whether a path is reached through a link in the store: what lies there is not the store's."""
    return any((root / folder).is_symlink() for folder in path.relative_to(root).parents)


def _age(path: Path, now: float) -> float:
    try:
        return now - os.lstat(path).st_mtime
    except OSError:
        return 0.0
