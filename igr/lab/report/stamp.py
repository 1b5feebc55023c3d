"""Stamps: what a set of files was made from, so that they are made again only after a change."""

import functools
import hashlib
import json
from importlib.metadata import version
from pathlib import Path, PurePath

import igr
from igr.lab.store.files import Damaged, Unreadable, read_bytes, write_atomically
from igr.lab.store.modules import text_of
from igr.lab.store.schema import parse
from igr.lab.store.store import Table


def stamp_of(runs: Table, module: str) -> str:
    """A digest of everything that determines the figures of `runs`: their records, this package, the `module` of the
    experiment (it may be a file outside the package) and matplotlib.
    """
    told = hashlib.sha256(_code() + text_of(module).encode())
    for run in runs:
        told.update(json.dumps(dict(run.record), sort_keys=True, default=str).encode())
    return told.hexdigest()


@functools.cache
def _code() -> bytes:
    """A digest of the package's source, read once, since what this process runs does not change."""
    told = hashlib.sha256(version("matplotlib").encode())
    for path in sorted(Path(igr.__file__).parent.rglob("*.py")):
        told.update(path.read_bytes())
    return told.digest()


def recall(path: Path, stamp: str) -> list[Path] | None:
    """The files that were made under `stamp`, or None where the stamp differs or one of them is missing."""
    try:
        kept = parse(read_bytes(path, 1 << 20), path)
    except (FileNotFoundError, Damaged, Unreadable):
        return None
    names = kept.get("files")
    if kept.get("stamp") != stamp or not isinstance(names, list):
        return None
    if not all(isinstance(name, str) and PurePath(name).name == name and "\0" not in name for name in names):
        return None  # a figure lies beside its stamp, and nowhere else
    files = [path.parent / name for name in names]
    return files if all(file.is_file() for file in files) else None


def remember(path: Path, stamp: str, files: list[Path]) -> None:
    """Store `stamp` and the names of its `files` in `path`, beside the files."""
    names = [file.relative_to(path.parent).as_posix() for file in files]
    write_atomically(path, json.dumps({"stamp": stamp, "files": names}).encode())
