"""Stopping rules as views of one stored history: when would this training have been stopped, and what held there?

A rule picks a row of a network's history; nothing is trained again. The paper's rule is `max_test`, for which the
parameters were kept and measured in full; the others pick among the rows that were measured in full.

    max_test         the (first) maximum of the test accuracy
    max_validation   the (first) maximum of the validation accuracy, where images were held out
    first_fit        the first row with 100 % training accuracy
    end              the last row
    iteration, n     the last row at or before step n
    time, T          the last row at or before the physical time T = i h

A network that never meets a rule's condition has NaN, and so has one that diverged before.
"""

from typing import Any

import numpy as np

from igr.lab.store import Run, Table

RULES = ("max_test", "max_validation", "first_fit", "end", "iteration", "time")
COLUMNS = (
    "loss", "r_ig", "slope", "param_norm", "train_accuracy", "test_loss", "test_r_ig", "test_slope", "test_accuracy",
)  # fmt: skip

Cohort = dict[str, np.ndarray]


def times(run: Run) -> np.ndarray:
    """The physical time t = i h of each row and network, shape (rows, networks)."""
    return run.metrics["step"][:, None] * run.metrics["learning_rate"][None, :]


def fitted(run: Run) -> np.ndarray:
    """Which networks had 100 % training accuracy at some measurement."""
    best = run.metrics["best_train_accuracy"] == 1
    return best | (run.metrics["train_accuracy"] == 1).any(axis=0)


def stopping_row(run: Run, rule: str, at: float | None = None) -> np.ndarray:
    """The row at which each network stops, or -1 where the rule's condition is never met."""
    metrics = run.metrics
    rows, full = np.arange(len(metrics["step"]))[:, None], metrics["full"][:, None]
    if rule == "max_validation":
        if "validation_accuracy" not in metrics:
            return np.full(len(metrics["seed"]), -1)
        score = np.where(full & np.isfinite(metrics["validation_accuracy"]), metrics["validation_accuracy"], -1.0)
        return np.where(score.max(axis=0) >= 0, score.argmax(axis=0), -1)
    if rule == "first_fit":
        met = full & (metrics["train_accuracy"] == 1)
        return np.where(met.any(axis=0), met.argmax(axis=0), -1)
    if rule == "end":
        return np.full(len(metrics["seed"]), len(rows) - 1)
    if rule in ("iteration", "time"):
        if at is None:
            raise ValueError(f"the rule {rule!r} needs to know at what {'step' if rule == 'iteration' else 'time'}.")
        clock = np.broadcast_to(metrics["step"][:, None], full.shape) if rule == "iteration" else times(run)
        clock = np.broadcast_to(clock, (len(rows), len(metrics["seed"])))
        met = full & (clock <= at * (1 + 1e-9))
        reached = clock[-1] >= at * (1 - 1e-9)  # a training that ended before is not comparable
        return np.where(met.any(axis=0) & reached, np.where(met, rows, -1).max(axis=0), -1)
    raise ValueError(f"unknown stopping rule {rule!r}: choose one of {', '.join(RULES)}.")


def cohort(runs: Table, rule: str = "max_test", at: float | None = None) -> Cohort:
    """All networks of some stored stacks at the time a rule stops them: one row a network, one array a column.

    Beside what was measured there, each row has what the network is (width, batch_size, activation, learning_rate, mu,
    seed, num_params), implicit_rate = h m / 4, whether it was ever `fitted`, and the step at which it `diverged` or -1.
    """
    parts = [_of(run, rule, at) for run in runs]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _of(run: Run, rule: str, at: float | None) -> Cohort:
    metrics, shape = run.metrics, run.config.shape
    n, m = len(metrics["seed"]), int(metrics["num_params"])
    columns: dict[str, Any] = {name: metrics[name] for name in ("learning_rate", "mu", "seed", "diverged")}
    columns |= {name: np.full(n, getattr(shape, name)) for name in ("width", "batch_size", "activation")}
    columns |= {
        "num_params": np.full(n, m),
        "implicit_rate": metrics["learning_rate"] * m / 4,
        "fitted": fitted(run),
    }
    columns |= {name: np.full(n, np.nan) for name in COLUMNS}  # of the test loss, R_IG is not always measured
    known = [name for name in COLUMNS if name in metrics]
    if rule == "max_test":
        columns |= {name: metrics[f"best_{name}"] for name in known} | {"step": metrics["best_step"].astype(float)}
    else:
        row = stopping_row(run, rule, at)
        for name in known:
            columns[name] = np.where(row >= 0, metrics[name][row, np.arange(n)], np.nan)
        columns["step"] = np.where(row >= 0, metrics["step"][row], np.nan)
    columns["time"] = columns["step"] * metrics["learning_rate"]
    return columns


def pick(table: Cohort, mask: np.ndarray) -> Cohort:
    """The rows where `mask` holds."""
    return {name: values[mask] for name, values in table.items()}
