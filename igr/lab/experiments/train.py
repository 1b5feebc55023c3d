"""Any training: networks of one shape with your learning rates, seeds and optimizer, measured as the paper's are.

    igr run train --data digits --model mlp --optimizer adamw,b2=0.95 --learning-rates 0.001,0.003 --seeds 0,1,2

Every field of `igr.lab.training.config.Shape` is a flag, the nested ones as `--schedule.every 2`.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from igr.lab.analysis.findings import Finding
from igr.lab.plots.captions import Caption
from igr.lab.store.config import ConfigError, Scale, option
from igr.lab.store.store import Table
from igr.lab.training.config import Shape
from igr.lab.training.stack import Network, StackRun, stacks

CLAIM = "Networks of your choice: any data set, model, optimizer and penalty, measured while they train."
SMOKE_STEPS = 20
COLUMNS = {"loss": "loss $E$", "r_ig": "$R_{IG}$ (r_ig)", "test_accuracy": "test accuracy (test_accuracy)"}
CAPTIONS = {"train": Caption("Loss, R_IG and test accuracy by step", "One line for each network.")}


@dataclass(frozen=True)
class Options(Shape):
    """A shape, and the networks that have it: each learning rate with each mu (or rho) and each seed."""

    learning_rates: tuple[float, ...] = option("step sizes", (0.1,))
    mus: tuple[float, ...] = option("explicit rates, with a method that has a penalty", (0.0,))
    rhos: tuple[float, ...] = option("radii, with the method sam", (0.0,))
    seeds: tuple[int, ...] = option("seeds of initial parameters and batches", (0,))

    def check(self) -> None:
        """There is at least one network."""
        super().check()
        if not (self.learning_rates and self.mus and self.rhos and self.seeds):
            raise ConfigError("learning_rates, mus, rhos and seeds need at least one value each.")

    @property
    def shape(self) -> Shape:
        """What the networks have in common."""
        return Shape(**{field.name: getattr(self, field.name) for field in fields(Shape)})


def trials(scale: Scale, options: Options | None = None) -> list[StackRun]:
    """The networks that are asked for; at smoke scale with 20 steps at most."""
    options = options or Options()
    shape = options.shape
    if scale is Scale.SMOKE:
        shape = shape.replace(steps=min(shape.steps, SMOKE_STEPS))
    return stacks(
        Network(shape, h, mu, seed, rho)
        for seed in options.seeds
        for mu in options.mus
        for rho in options.rhos
        for h in options.learning_rates
    )


def figures(runs: Table) -> dict[str, Any]:
    """The three columns against the step."""
    from igr.lab.plots.style import axes_grid, logarithmic  # here, so that `igr list` needs no matplotlib

    figure, grid = axes_grid(1, len(COLUMNS), size=(3.6, 3.0))
    for axes, (name, label) in zip(grid, COLUMNS.items(), strict=True):
        for run in runs:
            values = run.metrics[name]
            for k, h in enumerate(run.metrics["learning_rate"]):
                there = np.isfinite(values[:, k])
                axes.plot(run.metrics["step"][there], values[there, k], ".-", lw=0.8, ms=3, label=f"h = {h:g}")
        axes.set(xlabel="step", ylabel=label)
        if name != "test_accuracy":
            logarithmic(axes, "y")
    lines, labels = grid[0].get_legend_handles_labels()
    shown = dict(zip(labels, lines, strict=True))
    if len(shown) <= 8:
        grid[0].legend(shown.values(), shown.keys())
    return {"train": figure}


def findings(runs: Table) -> list[Finding]:
    """None: a training of your own claims nothing. Its numbers are in the store, in the CSV files and in the figure."""
    del runs
    return []
