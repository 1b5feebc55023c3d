"""Slopes along the way of the ResNets, at equal steps and at equal training loss: prediction 2 before training ends.

A larger step has also come further after as many steps, and slopes fall with the loss in any training. At equal loss
that part is out of the comparison. Networks that were measured at their end alone have no path: NaN.
"""

import numpy as np

from igr.lab.history import Cohort, cohort
from igr.lab.store import Run, Table

LEVELS = 9  # losses at which slopes are compared, evenly spaced in their logarithm


def grid_table(grid: Table, rule: str = "max_test") -> Cohort:
    """One row a network of the grid, with the slopes of its path."""
    steps, losses = slopes_at_equal_steps(grid), slopes_at_equal_loss(grid)
    return cohort(grid, rule) | {"path slope": steps, "slope at equal loss": losses}


def slopes_at_equal_steps(grid: Table) -> np.ndarray:
    """The geometric mean of each network's slopes over the steps all paths have: small rates train longer than large.

    Where only the first seeds have a path the others have NaN.
    """
    steps = [set(run.metrics["step"][run.metrics["full"]].tolist()) for run in grid]
    first = min(min(run.config.seeds) for run in grid)
    common = set.intersection(*(mine for run, mine in zip(grid, steps, strict=True) if first in run.config.seeds))
    means = []
    for run, mine in zip(grid, steps, strict=True):
        rows = np.isin(run.metrics["step"], sorted(common)) if common <= mine else []
        with np.errstate(invalid="ignore", divide="ignore"):
            logarithms = np.log(
                run.metrics["slope"][rows] if len(rows) else np.full((1, len(run.metrics["seed"])), np.nan)
            )
        means.append(np.exp(logarithms.mean(axis=0)))
    return np.concatenate(means)


def slopes_at_equal_loss(grid: Table) -> np.ndarray:
    """The geometric mean of each network's slopes at the losses all paths pass, from the first epoch on.

    Between measurements the logarithm of the slope is linear in that of the loss; where the loss rises again, the
    first time it was as low counts. Diverged networks have NaN and do not decide which losses are passed.
    """
    ways = [way for run in grid for way in _ways(run)]
    there = [way for way in ways if way is not None]
    if not there:
        return np.full(len(ways), np.nan)
    high, low = min(loss[0] for loss, _ in there), max(loss[-1] for loss, _ in there)
    if high <= low:
        return np.full(len(ways), np.nan)
    levels = np.linspace(high, low, LEVELS)
    means = [np.nan if way is None else np.interp(-levels, -way[0], way[1]).mean() for way in ways]
    return np.exp(means)


def _ways(run: Run) -> list[tuple[np.ndarray, np.ndarray] | None]:
    """Logarithms of loss and slope of each network where its loss is lower than ever; None without a path."""
    metrics, ways = run.metrics, []
    for k in range(len(metrics["seed"])):
        loss, slope = metrics["loss"][:, k], metrics["slope"][:, k]
        seen = (metrics["step"] > 0) & (loss > 0) & (slope > 0)  # not where they are NaN: not measured
        x, y = np.log(loss[seen]), np.log(slope[seen])
        lower = x < np.minimum.accumulate(np.concatenate([[np.inf], x[:-1]])) if x.size else np.array([], bool)
        ways.append((x[lower], y[lower]) if lower.sum() > 1 and metrics["diverged"][k] < 0 else None)
    return ways
