"""Small units of work for the tests of the store and of the runs."""

import dataclasses
from pathlib import Path

import numpy as np

from igr.lab.config import Config
from igr.lab.store import Store
from igr.lab.work import Session, Trial


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


class Broken(Counter):
    def compute(self, session: Session):
        raise FloatingPointError("no")


def metrics_file(store: Store, config: Config) -> Path:
    return store.folder("test", config).path / "metrics.npz"
