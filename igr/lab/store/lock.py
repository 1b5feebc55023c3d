"""A lock on one unit of work, which ends with the process that holds it, and who that is.

The lock is the operating system's (`filelock`), on a file outside the unit's folder, so there is no stale lock to
judge. It may not reach other machines, or a network file system may have none: units have a claim as well
(`igr.lab.store.claim`).
"""

import contextlib
import errno
import functools
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import filelock

from igr.lab.store import schema
from igr.lab.store.files import Damaged, StoreError, Unreadable, confined, read_bytes, reason, write_atomically
from igr.lab.store.text import plain

WITHOUT = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
FOLDER = ".locks"


@contextlib.contextmanager
def lock(root: Path, name: str, wait: bool = False) -> Iterator[bool | None]:
    """Yield True where this process holds the lock of this name, False where another one does (never with `wait`).

    None where the file system has no locks: the claim alone decides then, and a warning says so once.
    """
    path = confined(root, root / FOLDER / name)
    ignore = path.parent / ".gitignore"
    if not os.path.lexists(ignore):
        write_atomically(ignore, b"*\n", durable=False)
    held = filelock.FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    try:
        held.acquire(poll_interval=0.1)
    except filelock.Timeout:
        yield False
        return
    except (OSError, NotImplementedError) as error:  # the latter is what `filelock` 3 makes of ENOSYS
        if isinstance(error, OSError) and error.errno not in WITHOUT:
            kind = Unreadable if os.path.lexists(path) else StoreError  # something in the place of this one lock
            raise kind(f"Could not lock {path}: {reason(error)}.") from error
        _say_without(str(root))
        yield None
        return
    try:
        yield True
    finally:
        held.release()


@functools.cache
def _say_without(root: str) -> None:
    warnings.warn(
        f"The file system of {root} has no locks; files in {FOLDER} say who computes what instead. Where a process "
        "of another machine died, its units are taken over after a minute.",
        stacklevel=4,
    )


def holder(root: Path, name: str) -> str:
    """Who holds the lock, in words: "process 123 (stopped), for 40 s"."""
    path = root / FOLDER / f"{name}.holder"
    try:
        who = schema.parse(read_bytes(path, 10_000), path)
        pid, host, since = int(who["pid"]), str(who["host"]), float(who["since"])
        seconds = max(0, round(time.time() - since))
    except (FileNotFoundError, Damaged, Unreadable, KeyError, TypeError, ValueError, OverflowError):
        return "another process"
    if host != socket.gethostname():
        return plain(f"process {pid} on {host}, for {seconds} s")[:200]  # the file may be anybody's
    return f"process {pid}{_state(pid)}, for {seconds} s"[:200]


def _state(pid: int) -> str:
    """What Linux knows of a process: " (stopped: `kill -CONT 123` lets it go on)", or nothing."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError):
        return ""
    return f" (stopped: `kill -CONT {pid}` lets it go on)" if letter in "Tt" else ""
