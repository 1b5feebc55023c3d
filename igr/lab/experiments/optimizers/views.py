"""Numbers read off the stored runs, for the figures and the findings."""

import numpy as np

from igr.lab.experiments.optimizers.race import FIELDS as FIELDS
from igr.lab.store.store import Run, Table

PLAIN, MODIFIED, NO_HALF, NO_LAG = range(len(FIELDS))
MEMORYLESS = ("sgd", "lion")  # the lag changes nothing for these
TOLERANCE = {"plain": 0.15, "modified": 0.25}


def of_kind(runs: Table, kind: type) -> list[Run]:
    """The stored runs of one kind of unit."""
    return [run for run in runs if isinstance(run.config, kind)]


def ends(run: Run) -> np.ndarray:
    """The distances at the end of the path: one row for each learning rate, one column for each flow."""
    distance = run.metrics["distance"]
    return distance if distance.ndim == 2 else distance[:, -1]


def orders(run: Run) -> np.ndarray:
    """The observed orders of all flows at the two smallest learning rates."""
    h, distance = run.metrics["learning_rate"][-2:], ends(run)[-2:]
    return np.log(distance[0] / distance[1]) / np.log(h[0] / h[1])


def ratios(run: Run) -> np.ndarray:
    """The distance to the modified flow over that to the plain flow, for each learning rate."""
    return ends(run)[:, MODIFIED] / ends(run)[:, PLAIN]


def follows(run: Run) -> bool:
    """Whether the modified flow has second order, the plain one first, and half of the rule no more than that."""
    found = orders(run)
    right = abs(found[PLAIN] - 1) < TOLERANCE["plain"] and abs(found[MODIFIED] - 2) < TOLERANCE["modified"]
    sharp = found[NO_HALF] < 1.5 and (found[NO_LAG] < 1.5 or run.config.optimizer in MEMORYLESS)
    return bool(right and sharp)
