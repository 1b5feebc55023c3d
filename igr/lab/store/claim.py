"""A claim on one unit of work: a file that says who works on it, and which the holder keeps fresh.

The system's lock ends with its process, but it may not reach other machines. A claim does: it is made by a hard link,
which is atomic on network file systems too. Its holder touches it every `BEAT` seconds. A claim that was not touched
for `STALE` seconds, by the clock of the process that looks, is taken over. One that a dead process of the same machine
left is taken over at once.

A holder that was suspended may wake up after that. So each claim has a token, and the token is compared before every
write to the unit's folder: who no longer has the claim gets `Taken` and writes nothing.
"""

import contextlib
import functools
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from igr.lab.store import schema
from igr.lab.store.files import Damaged, StoreError, Unreadable, confined, read_bytes, reason, write_atomically
from igr.lab.store.lock import FOLDER

BEAT, STALE = 5.0, 60.0  # seconds
_held: dict[Path, str] = {}  # the claims of this process and their tokens
_seen: dict[Path, tuple[Any, float]] = {}  # claims of other machines: how they looked, and since when
_heart: list[threading.Thread] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_held.clear)  # they are the parent's


class Taken(Exception):
    """Another attempt at the unit took over: this one must not write any more."""


@dataclass(frozen=True)
class Permit:
    """The right to write to a unit's folder, as plain data: it may be handed to a process that works for the holder."""

    path: Path
    token: str

    @property
    def valid(self) -> bool:
        """Whether the claim still has this token."""
        return bool(self.token) and _look(self.path)[0].get("token") == self.token

    def check(self) -> None:
        """Raise `Taken` where it has not."""
        if not self.valid:
            raise Taken(f"{self.path} belongs to another attempt.")

    def renew(self) -> "Permit":
        """A new token for the next attempt; called by the holder. The attempt that has the old one cannot write."""
        self.check()
        new = Permit(self.path, secrets.token_hex(8))
        write_atomically(self.path, _content(new.token), durable=False)
        _held[self.path] = new.token
        return new


def place(root: Path, name: str) -> Path:
    """The file of a claim."""
    return confined(root, root / FOLDER / f"{name}.holder")


@contextlib.contextmanager
def claim(root: Path, name: str, locked: bool) -> Iterator[Permit | None]:
    """Claim a unit until the end of the block; None where another process has it.

    `locked` says that this process holds the system's lock of the same name, so that no other one on this machine can
    have the claim.
    """
    path = place(root, name)
    token = _take(path, locked)
    if token is None:
        yield None
        return
    _held[path] = token
    _beat()
    try:
        yield Permit(path, token)
    finally:
        token = _held.pop(path, token)
        with contextlib.suppress(OSError):
            if _look(path)[0].get("token") == token:
                path.unlink()


def _take(path: Path, locked: bool) -> str | None:
    token = secrets.token_hex(8)
    while True:
        if _make(path, token):
            _seen.pop(path, None)
            return token
        who, mark = _look(path)
        if mark is None:  # it has just been released
            continue
        if not (_is_dead(path, who, locked) or _is_stale(path, mark)):
            return None
        aside = path.with_name(f".tmp-{token}")
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"Could not rename {path}: {reason(error)}.") from error
        other = _look(aside)[1] != mark  # somebody was faster, or its holder woke up: it goes back
        with contextlib.suppress(OSError):
            if other:
                os.link(aside, path)
            os.unlink(aside)
        if other:
            return None


def _make(path: Path, token: str) -> bool:
    """Make the file with all of its content, or return False where there is one already."""
    temporary = path.with_name(f".tmp-{token}-new")
    write_atomically(temporary, _content(token), durable=False)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return _look(path)[0].get("token") == token  # the answer to a link that was made may get lost on its way
    except OSError:  # a file system without hard links: the file is empty for a moment, and then belongs to somebody
        return _make_slowly(path, token)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def _make_slowly(path: Path, token: str) -> bool:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(_content(token))
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreError(f"Could not write {path}: {reason(error)}.") from error
    return True


def _content(token: str) -> bytes:
    about = {"pid": os.getpid(), "host": socket.gethostname(), "since": round(time.time()), "token": token}
    return json.dumps(about | {"machine": _machine(), "start": _start(os.getpid())}).encode()


def _look(path: Path) -> tuple[Mapping[str, Any], Any]:
    """Who holds a claim, and a mark that changes with every beat; an empty dictionary and None where there is none."""
    try:
        data, beat = read_bytes(path, 10_000), os.stat(path).st_mtime_ns
    except (FileNotFoundError, Damaged, Unreadable, OSError) as error:
        return {}, (None if isinstance(error, FileNotFoundError) else type(error).__name__)
    try:
        return schema.parse(data, path), (data, beat)
    except Damaged:
        return {}, (data, beat)


def _is_dead(path: Path, who: Mapping[str, Any], locked: bool) -> bool:
    """Whether the holder was a process of this machine and is no more."""
    if not who or who.get("machine") != _machine():
        return False
    if locked or who.get("pid") == os.getpid():
        return locked or path not in _held
    return _start(who.get("pid")) != who.get("start")


def _is_stale(path: Path, mark: Any) -> bool:
    """Whether a claim has looked the same for `STALE` seconds of ours: no two clocks are compared."""
    before, since = _seen.setdefault(path, (mark, time.monotonic()))
    if before != mark:
        _seen[path] = mark, time.monotonic()
        return False
    return time.monotonic() - since > STALE


@functools.cache
def _machine() -> str:
    """The machine since its last start, and the numbering of its processes: containers have one of their own."""
    found = socket.gethostname()
    with contextlib.suppress(OSError):
        found += " " + Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        found += " " + os.readlink("/proc/self/ns/pid")
    return found


def _start(pid: Any) -> str:
    """When a process started, which tells it from a later one with its number; empty where there is none."""
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, ValueError, TypeError, IndexError):
        return ""


def _beat() -> None:
    """Start the thread that touches the claims, once in a process."""
    if not any(thread.is_alive() for thread in _heart):
        _heart[:] = [threading.Thread(target=_beats, name="igr-claims", daemon=True)]
        _heart[0].start()


def _beats() -> None:
    while True:
        time.sleep(BEAT)
        for path, token in list(_held.items()):
            with contextlib.suppress(OSError):
                if _look(path)[0].get("token") == token:
                    os.utime(path)
