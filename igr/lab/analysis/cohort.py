"""Cohorts: all networks of some stored stacks at the time at which a stopping rule stops them.

Nothing is trained again. The rules are in `igr.lab.analysis.stopping`; `max_test`, the first maximum of the test
accuracy, is the paper's.
"""

from typing import Any

import numpy as np

from igr.lab.analysis.stopping import stopping_row
from igr.lab.store.store import Run, Table

COLUMNS = (
    "loss", "r_ig", "slope", "param_norm", "train_accuracy", "test_loss", "test_r_ig", "test_slope", "test_accuracy",
)  # fmt: skip

Cohort = dict[str, np.ndarray]


def has_history(run: Run) -> bool:
    """True for stacks of networks, whose metrics are columns over steps and networks."""
    return all(name in run.metrics for name in ("step", "full", "seed", "test_accuracy"))


def fitted(run: Run) -> np.ndarray:
    """Which networks had 100 % training accuracy at some measurement."""
    best = run.metrics["best_train_accuracy"] == 1
    return best | (run.metrics["train_accuracy"] == 1).any(axis=0)


def cohort(runs: Table, rule: str = "max_test", at: float | None = None) -> Cohort:
    """One row per network of `runs` at the time at which `rule` stops it; one array per column.

    `at` is the step or the time of the rules that need one. Beside the measurements, each row has what the network is
    (width, batch_size, activation, learning_rate, mu, seed, num_params), implicit_rate = h m / 4, whether it was ever
    `fitted`, and the step at which it `diverged`, or -1. Where the rule's condition is never met, the row has NaN.
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
    columns |= {name: np.full(n, np.nan) for name in COLUMNS}  # R_IG of the test loss is not always measured
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
    """The rows of `table` where `mask` holds."""
    return {name: values[mask] for name, values in table.items()}
