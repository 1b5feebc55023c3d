"""Small units of work for the tests of the store and of the runs."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np

from igr.lab.runs.unit import Cancelled, Session, Trial
from igr.lab.store.config import Config
from igr.lab.store.store import Store


@dataclasses.dataclass(frozen=True)
class Counter(Trial):
    """Adds 1, 2, ..., `length`, and keeps a checkpoint at every number."""

    length: int = 5
    seed: int = 0

    @property
    def label(self) -> str:
        return f"counter {self.length}"

    def compute(self, session: Session):
        saved = session.load() or {"sums": np.zeros(1)}
        sums = list(saved["sums"])
        for number in range(len(sums), self.length + 1):
            sums.append(sums[-1] + number)
            session.save(lambda: {"sums": np.array(sums)})
            session.progress(number / self.length, f"{number}")
        return {"sums": np.array(sums), "count": len(sums)}


class Slow(Counter):
    """A counter that takes its time, says each of its steps, and takes as long in each process."""

    def compute(self, session: Session):
        saved = session.load() or {"sums": np.zeros(1)}
        sums = list(saved["sums"])
        for number in range(len(sums), self.length + 1):
            time.sleep(0.05)
            sums.append(sums[-1] + number)
            session.emit(number, {"pid": os.getpid()})
            session.save(lambda: {"sums": np.array(sums)})
            session.progress(number / self.length, f"{number}")
        return {"sums": np.array(sums), "count": len(sums)}


class Broken(Counter):
    def compute(self, session: Session):
        raise FloatingPointError("no")


def handles_signals(process: subprocess.Popen) -> bool:
    """Wait until a process has a handler of SIGTERM of its own; False where it ended before."""
    while process.poll() is None:
        with contextlib.suppress(OSError, IndexError):
            caught = Path(f"/proc/{process.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
            if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
                return True
        time.sleep(0.001)
    return False


def contents(root: Path) -> dict[Path, bytes]:
    """The bytes of every file under a folder."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def metrics_file(store: Store, config: Config) -> Path:
    return store.folder("test", config).path / "metrics.npz"


class Stops(Session):
    """A session that saves at every point and is cut off after some of them."""

    def __init__(self, points, saved=None):
        super().__init__(save_every=0.0)
        self.points, self.saved = points, saved

    def load(self):
        return self.saved

    def save(self, arrays):
        self.saved = {name: np.array(value) for name, value in arrays().items()}
        return True

    def progress(self, fraction, text=""):
        self.points -= 1
        if self.points < 0:
            raise Cancelled
