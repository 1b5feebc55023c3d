"""Stamps: what a set of files was made from, so that they are made again only where that has changed."""

import functools
import hashlib
import json
from importlib.metadata import version
from pathlib import Path

from igr.lab.files import write_atomically
from igr.lab.store import Table


def stamp_of(runs: Table) -> str:
    """A name for everything that decides the pictures of some runs: their records, our code and matplotlib."""
    told = hashlib.sha256(_code())
    for run in runs:
        told.update(json.dumps(dict(run.record), sort_keys=True, default=str).encode())
    return told.hexdigest()


@functools.cache
def _code() -> bytes:
    """The laboratory's source, read once: what this process runs does not change under it."""
    told = hashlib.sha256(version("matplotlib").encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        told.update(path.read_bytes())
    return told.digest()


def recall(path: Path, stamp: str) -> list[Path] | None:
    """The files that were made under this stamp, or None where it is another or one of them is gone."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    files = [path.parent / name for name in kept["files"]]
    return files if kept["stamp"] == stamp and all(file.exists() for file in files) else None


def remember(path: Path, stamp: str, files: list[Path]) -> None:
    """Keep the stamp beside the files it belongs to."""
    names = [file.relative_to(path.parent).as_posix() for file in files]
    write_atomically(path, json.dumps({"stamp": stamp, "files": names}).encode())
