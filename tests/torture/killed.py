"""Processes that die: at every file operation, at random moments, one of many on one folder."""

import errno
import fcntl
import functools
import itertools
import os
import random
import signal
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torture.kit import Line, Slow, forked, metrics, working
from units import Counter

from igr.lab.runs.local import run_units
from igr.lab.store.store import Store

LONG = Counter(17, seed=1)  # more than 140 operations on files


def dying(root: Path, moment: int) -> None:
    """Compute a unit, and kill this process before (or, where the moment is odd, after) a file operation of it."""
    numbers = itertools.count()  # of the operations, over all threads

    def counted(real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        last = next(numbers) == moment // 2
        if last and not moment % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return real(*arguments, **options)
        finally:  # one that fails is an operation too
            if last:
                os.kill(os.getpid(), signal.SIGKILL)

    for name in ("open", "replace", "fsync", "unlink", "mkdir", "rename", "link"):
        setattr(os, name, functools.partial(counted, getattr(os, name)))
    run_units(Store(root), "test", [LONG], save_every=0.0)


def operations(root: Path) -> Iterator[Line]:
    """Kill before and after every single file operation of a unit, and start again."""
    run_units(Store(root / "long"), "test", [LONG])
    good, tally = metrics(Store(root / "long"), LONG), Tally()
    for moment in range(10_000):
        where = root / f"operation{moment}"
        child = forked(lambda where=where, moment=moment: dying(where, moment))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:  # there were fewer operations than that
            break
        tally["attempts"] += 1
        tally["errors not ours"] += code != -signal.SIGKILL
        found = metrics(Store(where), LONG)
        tally["lost or changed"] += bool(found) and found != good
        run_units(Store(where), "test", [LONG], save_every=0.0)
        tally["lost or changed"] += metrics(Store(where), LONG) != good
    yield "process killed before and after each file operation of a unit", tally


def moments(root: Path, draw: random.Random) -> Iterator[Line]:
    """Signals at random moments, then once more to the end."""
    unit = Slow(3)
    working(root / "whole", [unit])
    good = metrics(Store(root / "whole"), unit)
    for number, count in ((signal.SIGKILL, 60), (signal.SIGINT, 40), (signal.SIGTERM, 40)):
        tally, ends = Tally(), set()
        for attempt in range(count):
            where = root / f"{number.name}{attempt}"
            child = forked(lambda where=where: working(where, [unit]))
            time.sleep(draw.uniform(0, 0.25))
            os.kill(child, number)
            ends.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            done = metrics(Store(where), unit)
            tally["attempts"] += 1
            tally["lost or changed"] += bool(done) and done != good
            run_units(Store(where), "test", [unit])
            tally["lost or changed"] += metrics(Store(where), unit) != good
        allowed = {0, -number} if number == signal.SIGKILL else {0, 128 + number, -number}
        tally["errors not ours"] += len(ends - allowed)
        yield f"{number.name} at a random moment", tally


def crowd(root: Path, units: list[Slow], locks: bool) -> None:
    """One of several processes, perhaps on a file system that has no locks."""

    def missing(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if not locks:
        fcntl.flock = missing
    working(root, units)


def crowds(root: Path, draw: random.Random) -> Iterator[Line]:
    """Several processes on one folder, some of them killed."""
    units = [Slow(3, seed=seed) for seed in range(6)]
    working(root / "alone", units)
    good = {unit: metrics(Store(root / "alone"), unit) for unit in units}
    for size, locks, times in ((2, True, 7), (4, True, 7), (8, True, 7), (4, False, 4)):
        tally = Tally()
        for attempt in range(times):
            where = root / f"crowd{size}-{attempt}-{locks}"
            children = [forked(lambda where=where, locks=locks: crowd(where, units, locks)) for _ in range(size)]
            time.sleep(draw.uniform(0.05, 0.4))
            for child in children[: size // 2]:
                os.kill(child, signal.SIGKILL)
            for child in children:
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                tally["attempts"] += 1
                tally["errors not ours"] += code not in (0, -signal.SIGKILL)
            tally["lost or changed"] += sum(metrics(Store(where), unit) != good[unit] for unit in units)
        yield f"{size} processes on one folder{'' if locks else ' without locks'}, half of them killed", tally
