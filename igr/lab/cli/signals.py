"""Ctrl-C and SIGTERM: the units keep a checkpoint, one sentence is printed, and the process ends within seconds.

The C handler of Python writes each signal to a pipe at once, and a thread reads it: no exception is raised that a
callback could swallow or an import could print, and nothing waits for the main thread. Where units are `working`, the
first signal sets `stop`, on which they keep a checkpoint and end; where that takes longer than `GRACE`, at a second
signal, and where nothing is being computed, the process ends as it is, which the store is made for. Signals within
`TOGETHER` are one: `timeout` and others send to the process and then to its whole group. A process forked
from this one, such as a worker of `multiprocessing`, gets the system's handlers back. This module imports nothing but
the standard library, so that it can be the first.
"""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

from igr.lab.cli import INTERRUPTED

GRACE = 3.0  # seconds to keep a checkpoint in; a busy machine may take two more to end a process of this size
TOGETHER = 0.2  # seconds; fewer than there are between two strokes of a key
SENTENCE = INTERRUPTED
SIGNALS = (signal.SIGINT, signal.SIGTERM)

stop = threading.Event()
_received: list[int] = []
_installed: list[int] = []  # the ends of the pipe
_working = 0
_mask = threading.local()  # of the signals that a forking thread hears


def install() -> None:
    """Take over both signals; call it first thing in the main thread of a program."""
    if _installed or os.name == "nt":  # Windows has neither the pipe nor SIGTERM as we mean it
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _installed.extend((reading, writing))
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_watch, args=(reading,), name="igr-signals", daemon=True).start()


def _before_fork() -> None:
    """Keep both signals from this thread, so that none reaches the child before it has its own handlers."""
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS) if _installed else None


def _after_fork() -> None:
    if _mask.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _in_child() -> None:
    """The child shares the pipe, so a signal to the child alone would end the parent and not the child."""
    global _working
    if not _installed:
        return
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    for end in _installed:
        os.close(end)
    _installed.clear()
    _received.clear()
    _working = 0
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


@contextlib.contextmanager
def working() -> Iterator[threading.Event]:
    """Around work that ends by itself when `stop` is set, and is given `GRACE` seconds for it."""
    global _working
    _working += 1
    try:
        yield stop
    finally:
        _working -= 1


def code() -> int:
    """The exit code of an interrupted process: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def leave(code: int) -> NoReturn:
    """End the program. After a signal, at once: the teardown of libraries may take long, or abort."""
    if not _received:
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _watch(reading: int) -> None:
    first = None
    while True:
        patience = None if first is None else max(0.0, first + GRACE - time.monotonic())
        if not select.select([reading], [], [], patience)[0]:
            _end()
        for number in os.read(reading, 16):
            if number not in SIGNALS:
                continue
            _received.append(number)
            stop.set()
            first = time.monotonic() if first is None else first
            if time.monotonic() - first > TOGETHER or not _working:
                _end()


def _end() -> NoReturn:
    """Say the sentence and end, from any thread, past everything."""
    show_cursor = "\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{show_cursor}{SENTENCE}\n".encode())
    os._exit(code())
