"""Slopes of the ResNets during training, at equal steps and at equal training loss: prediction 2 before the end.

After equal numbers of steps, networks with a larger learning rate have a smaller loss, and slopes fall with the loss in
any training. A comparison at equal loss removes this effect; it is `igr.lab.analysis.levels`. Networks that were
measured only at their end have no path and get NaN.
"""

import numpy as np

from igr.lab.analysis.cohort import Cohort, cohort
from igr.lab.analysis.levels import slopes_at_equal_loss
from igr.lab.store.store import Table


def grid_table(grid: Table, rule: str = "max_test") -> Cohort:
    """One row per network of `grid` at the time at which `rule` stops it, with the slopes of its path."""
    steps, losses = slopes_at_equal_steps(grid), slopes_at_equal_loss(grid)
    return cohort(grid, rule) | {"path slope": steps, "slope at equal loss": losses}


def slopes_at_equal_steps(grid: Table) -> np.ndarray:
    """The geometric mean of each network's slopes over the steps that all paths have in common.

    Small rates train longer than large ones. Where only the first seeds have a path, the others have NaN.
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
