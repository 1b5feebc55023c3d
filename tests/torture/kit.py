"""What the torture works with: a small unit, its bytes, and processes as `igr run` has them."""

import os
import signal
import time
from collections import Counter as Tally
from collections.abc import Callable
from pathlib import Path

import numpy as np
from units import Counter

from igr.lab.cli import signals
from igr.lab.runs.local import run_units
from igr.lab.store.config import ConfigError
from igr.lab.store.files import Damaged, StoreError
from igr.lab.store.store import Store

OURS = (Damaged, ConfigError, StoreError)
UNIT = Counter(6, seed=1)
Line = tuple[str, Tally]


class Slow(Counter):
    """A counter that takes its time, so that a signal may come at any moment of it."""

    def compute(self, session):
        saved = session.load() or {"sums": np.zeros(1)}
        sums = list(saved["sums"])
        for number in range(len(sums), 40):
            time.sleep(0.002)
            sums.append(sums[-1] + number)
            session.save(lambda: {"sums": np.array(sums)})
            session.progress(number / 40)
        return {"sums": np.array(sums)}


def metrics(store: Store, unit: Counter) -> bytes:
    """The bytes of a finished unit's measurements, after a full check; empty where it is not finished."""
    folder = store.folder("test", unit)
    return (folder.path / "metrics.npz").read_bytes() if folder.status() == "finished" else b""


def forked(work: Callable[[], None]) -> int:
    """The process that does some work, as `igr run` would: under our handlers of signals."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)  # until the child has its handlers
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
        return child
    code = 1
    try:
        signals.install()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.SIGNALS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        code = 0
    except KeyboardInterrupt:
        code = signals.code()
    finally:
        os._exit(code)


def working(root: Path, units: list[Counter]) -> None:
    """Compute some units, with a checkpoint at every number."""
    with signals.working() as stop:
        run_units(Store(root), "test", units, save_every=0.0, stop=stop)
