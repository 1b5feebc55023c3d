"""Which Python files the user has run here: a store may name a file, and only these are loaded for its sake.

A store can come from somebody else, and to load an experiment's file is to execute it. So the list is kept outside all
stores, in the user's cache folder, and a file gets into it by `igr run FILE` alone.
"""

import contextlib
import json
from pathlib import Path

import filelock

from igr.lab.store.files import Damaged, StoreError, Unreadable, read_bytes, write_atomically
from igr.lab.store.schema import parse


def remember(path: Path) -> None:
    """The user named this file on the command line."""
    name = str(path.resolve())
    if name in _known():
        return
    with contextlib.ExitStack() as held, contextlib.suppress(StoreError, OSError):
        # without a cache folder the file must be named again; without locks two processes may forget one of two files
        with contextlib.suppress(filelock.Timeout, OSError, NotImplementedError):
            _list().parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(filelock.FileLock(f"{_list()}.lock", timeout=5))
        write_atomically(_list(), json.dumps({"files": sorted({*_known(), name})}, indent=1).encode())


def is_trusted(path: Path) -> bool:
    """Whether the user has named this file before."""
    return str(path.resolve()) in _known()


def _known() -> list[str]:
    try:
        files = parse(read_bytes(_list(), 1 << 20), _list()).get("files")
    except (FileNotFoundError, Damaged, Unreadable):
        return []
    return [name for name in files if isinstance(name, str)] if isinstance(files, list) else []


def _list() -> Path:
    import pooch

    return Path(pooch.os_cache("igr")) / "experiments.json"
