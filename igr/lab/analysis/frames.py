"""Stored runs as pandas data frames, for notebooks and for export.

pandas, since that is what users of notebooks, seaborn and statsmodels expect, and since narwhals takes its frames where
another library is preferred. It is imported when a frame is made, so that `igr run` does not need it.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from igr.lab.analysis.cohort import COLUMNS, cohort, fitted, has_history
from igr.lab.analysis.stopping import times
from igr.lab.store.store import Run, Table

if TYPE_CHECKING:
    import pandas

ABOUT = ("data", "model", "width", "activation", "batch_size")
HELD_OUT = ("validation_loss", "validation_accuracy")


def frame(runs: Table, rule: str | None = None, at: float | None = None) -> "pandas.DataFrame":
    """The networks of stored runs as a pandas data frame.

    Without `rule` there is one row per network and measurement: what the network is, the iteration `step`, the physical
    time `time` = step times learning rate, and all columns, NaN where one was not measured. With a stopping rule
    (`igr.lab.analysis.stopping`; `at` is its step or time) there is one row per network, at the time at which the rule
    stops it. Runs without networks, such as those of the two-parameter model, have no rows: `singles` is for them.

        from igr.lab.analysis import frame
        from igr.lab.store.store import Store
        runs, problems = Store("results").runs("mlp")
        frame(runs, "max_test").groupby("learning_rate")["r_ig"].median()
    """
    import pandas

    stacks = [run for run in runs if has_history(run)]
    if rule is not None:
        return pandas.DataFrame(cohort(stacks, rule, at))
    parts = [pandas.DataFrame(history(run)) for run in stacks]
    return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame()


def singles(runs: Table) -> "pandas.DataFrame":
    """A row for each of the runs: the fields of its configuration, and what it measured as single numbers.

    This is the table of an experiment whose trials are no networks. Nested fields are named by their path.

    >>> from igr.lab.experiments.two_parameter.scans import RateScan
    >>> table = singles([Run(RateScan(count=60), {"norm": np.array(1.5), "path": np.zeros(3)}, {})])
    >>> table[["count", "norm"]].to_dict("records")
    [{'count': 60, 'norm': 1.5}]
    """
    import pandas

    return pandas.DataFrame([_single(run) for run in runs])


def _single(run: Run) -> dict[str, Any]:
    numbers = {name: np.asarray(values).item() for name, values in run.metrics.items() if np.ndim(values) == 0}
    return {"unit": run.config.digest()[:16], **_flat(run.config.to_dict()), **numbers}


def _flat(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name, value in values.items():
        parts |= _flat(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
    return parts


def further(run: Run) -> list[str]:
    """The columns of a stack that were measured beside the usual ones, such as metrics of your own."""
    shape = (len(run.metrics["step"]), len(run.metrics["seed"]))
    return [name for name, v in run.metrics.items() if np.shape(v) == shape and name not in (*COLUMNS, *HELD_OUT)]


def history(run: Run) -> dict[str, Any]:
    """All measurements of a stack as columns, network by network."""
    m, shape = run.metrics, run.config.shape
    rows, n, size = len(m["step"]), len(m["seed"]), int(m["num_params"])

    def each(values: Any) -> np.ndarray:
        """A value per network, repeated for its rows."""
        return np.repeat(np.broadcast_to(values, (n,)), rows)

    held_out = [name for name in HELD_OUT if name in m]
    implicit = m["learning_rate"] * size / 4
    columns: dict[str, Any] = {"unit": each(run.config.digest()[:16])}
    columns |= {name: each(getattr(shape, name)) for name in ABOUT}
    sam = shape.method == "sam"  # whose radii are stored under mu
    columns |= {"learning_rate": each(m["learning_rate"]), "mu": each(0.0 if sam else m["mu"])}
    columns |= {"rho": each(m["mu"] if sam else 0.0), "seed": each(m["seed"])}
    columns |= {"num_params": each(size), "implicit_rate": each(implicit), "fitted": each(fitted(run))}
    columns |= {"diverged": each(m["diverged"]), "step": np.tile(m["step"], n), "time": times(run).T.ravel()}
    columns |= {name: m[name].T.ravel() if name in m else np.full(n * rows, np.nan) for name in (*COLUMNS, *held_out)}
    columns |= {name: m[name].T.ravel() for name in further(run)}
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(columns["loss"] != 0, columns["r_ig"] / columns["loss"], np.nan)
    return columns | {"r_ig_over_loss": ratio, "implicit_rate_r_ig_over_loss": columns["implicit_rate"] * ratio}
