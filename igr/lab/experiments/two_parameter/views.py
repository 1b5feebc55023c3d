"""Quantities of the stored two-parameter runs that figures and findings share: distances, regimes, errors."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from igr.lab.experiments.two_parameter.model import CONVERGED, Descent, Flow, Row, loss
from igr.lab.experiments.two_parameter.scans import crosses
from igr.lab.store.store import Run, Table

LEAST_NORM = np.sqrt(2 * 0.6)  # of the minima a b = 0.6: at a = b
LAZY = 0.01  # a rate is lazy where it changes R_IG/E at the end by less than this share of the gradient flow's value
TEST_POINT = (0.5, 0.6)  # (x, y) of Figure A.2


def pick(runs: Table, kind: type, **fields: Any) -> Run | None:
    """The first of the `runs` whose configuration is of this `kind` and has the values `fields`, or None."""
    for run in runs:
        if isinstance(run.config, kind) and all(getattr(run.config, name) == value for name, value in fields.items()):
            return run
    return None


def path_of(runs: Table, row: Row, mu: float, accurate: bool) -> Run | None:
    """The flow of E + mu R_IG from the start of `row`: by the `accurate` solver, else by Euler steps."""
    if accurate:
        return pick(runs, Flow, start=row.start, mu=mu)
    return pick(runs, Descent, start=row.start, mu=mu, learning_rate=row.euler)


def leaps(run: Run) -> int:
    """How many of the first steps of `run`, of which all are kept, crossed the line of minima, as no flow can."""
    params, each = run.metrics["params"], np.diff(run.metrics["step"]) == 1
    with np.errstate(over="ignore", invalid="ignore"):
        over = np.asarray(crosses(tuple(params[:-1].T), tuple(params[1:].T), run.config.x, run.config.y))
    return int(np.sum(over & each))


def norm(run: Run) -> float:
    """The parameter norm at the end of a run."""
    return float(np.linalg.norm(run.metrics["params"][-1]))


@dataclass(frozen=True)
class Distances:
    """The distances of gradient descent at h_M to the modified and to the gradient flow, at the times of its steps."""

    steps: np.ndarray
    modified: np.ndarray
    gradient: np.ndarray

    def ratios(self) -> tuple[float, float]:
        """Modified over gradient flow: of the largest distances and of the last ones."""
        return float(self.modified.max() / self.gradient.max()), float(self.modified[-1] / self.gradient[-1])


def distances(runs: Table, row: Row, accurate: bool) -> Distances | None:
    """The distances from the start of `row`, to flows by the `accurate` solver or by Euler steps.

    They are compared at the steps that were kept; a flow that has reached its end stays there. None without the runs.
    """
    descent = pick(runs, Descent, start=row.start, learning_rate=row.moderate, mu=0.0)
    modified, gradient = (path_of(runs, row, mu, accurate) for mu in (row.moderate / 2, 0.0))
    if descent is None or modified is None or gradient is None:
        return None
    steps, params = descent.metrics["step"], descent.metrics["params"]
    known = np.isin(steps * modified.config.every, modified.metrics["step"])
    known |= steps * modified.config.every >= modified.metrics["step"][-1]
    steps, params = steps[known], params[known]

    def at_same_times(flow: Run) -> np.ndarray:
        index = np.searchsorted(flow.metrics["step"], steps * flow.config.every)
        return flow.metrics["params"][np.minimum(index, len(flow.metrics["step"]) - 1)]

    return Distances(steps, *(np.linalg.norm(params - at_same_times(flow), axis=1) for flow in (modified, gradient)))


@dataclass(frozen=True)
class Regimes:
    """The learning rates of a scan by regime, and the observed and predicted boundaries of the regimes."""

    names: np.ndarray
    ratio: np.ndarray  # R_IG/E at the end, which is the squared norm
    flow_ratio: float
    predicted: np.ndarray  # R_IG/E at the end of the modified flow
    observed: dict[str, float]  # first rate that leaves: lazy, no crossing, convergence
    theory: dict[str, float]


def regimes(run: Run) -> Regimes:
    """Assign a regime to each learning rate of the scan `run`.

    divergent: E left every bound. ricochet: a step passed over the line of minima. lazy: neither, and R_IG/E at the end
    within 1 % of the gradient flow's. moderate: neither, and further off. Theory: the modified flow's own 1 % point,
    h lambda_max = 1 and h lambda_max = 2, with the largest lambda_max along the paths (here it is that of the start).
    """
    metrics, config = run.metrics, run.config
    rates, scale = metrics["learning_rate"], config.x**2
    with np.errstate(over="ignore"):
        ratio = scale * np.sum(metrics["params"] ** 2, axis=1)
    predicted = scale * np.sum(metrics["modified_flow_end"] ** 2, axis=1)
    still = scale * float(np.sum(metrics["gradient_flow_end"] ** 2))
    gone, crossed = metrics["outcome"] != CONVERGED, metrics["crossings"] > 0
    lazy = np.abs(ratio / still - 1) < LAZY
    names = np.select([gone, crossed, lazy], ["divergent", "ricochet", "lazy"], "moderate")
    top = float(np.max(metrics["h_sharpness_max"] / rates, where=~gone, initial=0.0))

    def first(leaves: np.ndarray) -> float:
        return float(rates[np.argmax(leaves)]) if leaves.any() else float("nan")

    return Regimes(
        names,
        ratio,
        still,
        predicted,
        observed={"moderate": first(names != "lazy"), "ricochet": first(crossed | gone), "divergent": first(gone)},
        theory={"moderate": first(np.abs(predicted / still - 1) >= LAZY), "ricochet": 1 / top, "divergent": 2 / top},
    )


def held_out_error(params: np.ndarray) -> np.ndarray:
    """E at the test point of Figure A.2, for parameters along the last axis. It depends on the product a b alone."""
    return loss((params[..., 0], params[..., 1]), *TEST_POINT)
