"""Quantities of the stored paths that figures and findings share: observed orders, and who leads for how long."""

from dataclasses import dataclass

import numpy as np

from igr.lab.store.store import Run, Table

TRUSTED = 0.05  # share of a distance that the solver's error may have
FLOOR = 1e-12  # of the distance travelled: below it, rounding counts


@dataclass(frozen=True)
class Architecture:
    """The runs of one architecture on one data set, which differ in their seed alone."""

    name: str
    id: str
    """A part of the ids of findings, the same at every scale: activation, network and data set."""
    smooth: bool
    runs: Table

    @property
    def rates(self) -> np.ndarray:
        """The learning rates, descending."""
        return self.runs[0].metrics["learning_rate"]

    @property
    def time(self) -> float:
        """The time at which paths end."""
        return float(self.runs[0].metrics["time"][-1])


def architectures(runs: Table) -> list[Architecture]:
    """The runs by architecture and data, in the order of the plan."""
    groups: dict[tuple, Table] = {}
    for run in runs:
        c = run.config
        groups.setdefault((c.data, c.examples, c.name, c.rates, c.time), []).append(run)
    return [_architecture(some) for some in groups.values()]


def _architecture(runs: Table) -> Architecture:
    c = runs[0].config
    return Architecture(
        f"{c.name}, {c.examples} images of {c.data}", f"{c.activation}-{c.network}-{c.data}", c.smooth, runs
    )


def trusted(run: Run) -> np.ndarray:
    """Distances by rate, flow and time; NaN where the solver's error or rounding is too large a part of one."""
    m = run.metrics
    d, floor = m["distance"], FLOOR * m["travelled"][:, None]
    with np.errstate(invalid="ignore"):
        good = np.isfinite(d) & (m["solver_error"] < TRUSTED * d) & (d > floor)
    return np.where(good, d, np.nan)


def slopes(values: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """The slopes of log `values` between neighbours on the ladder of `rates`, along the first axis.

    >>> slopes(np.array([16.0, 4.0, 1.0]), np.array([4.0, 2.0, 1.0])).tolist()
    [2.0, 2.0]
    """
    steps = np.diff(np.log(rates)).reshape(-1, *[1] * (values.ndim - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.diff(np.log(values), axis=0) / steps


def order(run: Run, flow: int) -> float:
    """The observed order of the distance to a flow at the final time, from the two smallest rates."""
    return float(slopes(trusted(run)[:, flow, -1], run.metrics["learning_rate"])[-1])


def step_order(run: Run, flow: int) -> float:
    """The observed order of the error of the first step, from the two smallest rates."""
    return float(slopes(run.metrics["step_error"][:, flow], run.metrics["learning_rate"])[-1])


def ratio(run: Run) -> np.ndarray:
    """The distance to the modified flow over that to the gradient flow, by rate and time; NaN at the start."""
    d = run.metrics["distance"]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(d[:, 0] > 0, d[:, 1] / d[:, 0], np.nan)


def lost_at(run: Run) -> np.ndarray:
    """For each rate the first time at which the modified flow is not closer than the gradient flow; NaN if never.

    A path that is no longer finite has lost its lead too.
    """
    behind = ~(ratio(run)[:, 1:] < 1)
    times = run.metrics["time"][1:]
    return np.where(behind.any(axis=1), times[behind.argmax(axis=1)], np.nan)


def peak(run: Run) -> np.ndarray:
    """For each rate the largest h lambda_max of descent along its path."""
    return np.nanmax(np.where(np.isfinite(run.metrics["h_lambda"]), run.metrics["h_lambda"], np.nan), axis=1)
