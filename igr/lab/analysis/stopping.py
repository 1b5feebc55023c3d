"""Stopping rules: the row of a stored history at which each network would have been stopped.

A rule is a function `rule(run, at)` that returns one row per network, or -1 where its condition is never met. A new
rule is one such function and one line in `ROWS`; `igr.lab.analysis.cohort` then takes its name. `at` is the number that
some rules need, a step or a time, and None for the others. The paper's own rule, `max_test`, needs no row: the
parameters at the first maximum of the test accuracy were kept during training and measured in full.

    max_validation   the first maximum of the validation accuracy, where images were held out
    first_fit        the first row with 100 % training accuracy
    end              the last row
    iteration, n     the last row at or before step n
    time, T          the last row at or before the physical time T = i h

A network that diverged before its row has NaN there.
"""

from collections.abc import Callable

import numpy as np

from igr.lab.store.store import Run

Rule = Callable[[Run, float | None], np.ndarray]


def times(run: Run) -> np.ndarray:
    """The physical time t = i h of each row and network of `run`, of shape (rows, networks)."""
    return run.metrics["step"][:, None] * run.metrics["learning_rate"][None, :]


def max_validation(run: Run, at: float | None = None) -> np.ndarray:
    """The row of the first maximum of the validation accuracy, among the rows that were measured in full."""
    if "validation_accuracy" not in run.metrics:
        return np.full(len(run.metrics["seed"]), -1)
    accuracy, full = run.metrics["validation_accuracy"], run.metrics["full"][:, None]
    score = np.where(full & np.isfinite(accuracy), accuracy, -1.0)
    return np.where(score.max(axis=0) >= 0, score.argmax(axis=0), -1)


def first_fit(run: Run, at: float | None = None) -> np.ndarray:
    """The first row with 100 % training accuracy."""
    met = run.metrics["full"][:, None] & (run.metrics["train_accuracy"] == 1)
    return np.where(met.any(axis=0), met.argmax(axis=0), -1)


def end(run: Run, at: float | None = None) -> np.ndarray:
    """The last row."""
    return np.full(len(run.metrics["seed"]), len(run.metrics["step"]) - 1)


def iteration(run: Run, at: float | None = None) -> np.ndarray:
    """The last row at or before step `at`."""
    if at is None:
        raise ValueError("the rule 'iteration' needs to know at what step.")
    return _last_before(run, np.broadcast_to(run.metrics["step"][:, None], times(run).shape), at)


def time(run: Run, at: float | None = None) -> np.ndarray:
    """The last row at or before the physical time `at`."""
    if at is None:
        raise ValueError("the rule 'time' needs to know at what time.")
    return _last_before(run, times(run), at)


def _last_before(run: Run, clock: np.ndarray, at: float) -> np.ndarray:
    met = run.metrics["full"][:, None] & (clock <= at * (1 + 1e-9))
    reached = clock[-1] >= at * (1 - 1e-9)  # a training that ended before is not comparable
    rows = np.where(met, np.arange(len(clock))[:, None], -1).max(axis=0)
    return np.where(reached, rows, -1)


ROWS: dict[str, Rule] = {
    "max_validation": max_validation,
    "first_fit": first_fit,
    "end": end,
    "iteration": iteration,
    "time": time,
}


def stopping_row(run: Run, rule: str, at: float | None = None) -> np.ndarray:
    """The row at which `rule` stops each network of `run`, or -1 where its condition is never met."""
    if rule not in ROWS:
        raise ValueError(f"unknown stopping rule {rule!r}: choose one of max_test, {', '.join(ROWS)}.")
    return ROWS[rule](run, at)
