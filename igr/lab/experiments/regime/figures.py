"""The figures of the regime, drawn from the stored runs alone."""

from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from igr.lab.experiments.regime.views import WORDS, at_rate, best_rate, networks, points, rates, verdicts
from igr.lab.plots.style import BLUE, GREY, ORANGE, RED, axes_grid, axis_label
from igr.lab.store.store import Table

SHADES = ("#009E73", "#F0E442", "#E69F00", "#CC79A7", "#4D4D4D")  # one for each of WORDS
RATE = axis_label("learning rate", "$h$", "learning_rate")


def figures(runs: Table) -> dict[str, Figure]:
    """The map of regimes, the calibration of the errors, and the best truncation order."""
    if not runs:
        return {}
    return {"regime-map": regime_map(runs), "regime-errors": calibration(runs), "regime-orders": best_orders(runs)}


def _panels(runs: Table, size: tuple[float, float], **options: Any) -> tuple[Figure, list]:
    kinds = networks(runs)
    rows = -(-len(kinds) // 3)
    columns = min(len(kinds), 3)
    figure, grid = axes_grid(rows, columns, size=size, squeeze=False, **options)
    panels = [(axes, name, some) for axes, (name, some) in zip(grid.flat, kinds, strict=False)]
    for axes in list(grid.flat)[len(kinds) :]:
        axes.set_visible(False)
    return figure, panels


def _named_rates(axes: Any, tested: list[float], which: str) -> None:
    getattr(axes, f"set_{which}ticks")(range(len(tested)), [f"{h:g}" for h in tested])


def regime_map(runs: Table) -> Figure:
    """The verdict at each step and learning rate."""
    figure, panels = _panels(runs, (4.0, 2.9))
    for axes, name, some in panels:
        tested, seed = rates(some), min(run.config.seed for run in some)
        steps = some[0].metrics["step"]
        grid = np.full((len(tested), len(steps)), np.nan)
        for run in some:
            if run.config.seed == seed and len(run.metrics["step"]) == len(steps):
                row = [WORDS.index(word) for word in verdicts(run.metrics)]
                grid[tested.index(run.config.learning_rate)] = row
        axes.imshow(grid, origin="lower", aspect="auto", cmap=ListedColormap(SHADES), vmin=-0.5, vmax=len(WORDS) - 0.5)
        axes.plot(len(steps) - 1, tested.index(best_rate(some)), "k*", ms=9, mec="white")
        shown = range(0, len(steps), max(1, len(steps) // 5))
        axes.set_xticks(list(shown), [f"{steps[i]}" for i in shown])
        _named_rates(axes, tested, "y")
        axes.set(xlabel=axis_label("step", "$n$", "step"), ylabel=RATE, title=name)
    handles = [Patch(color=colour, label=word) for word, colour in zip(WORDS, SHADES, strict=True)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(WORDS))
    return figure


def calibration(runs: Table) -> Figure:
    """Expected against measured one-step errors."""
    seen = points(runs)
    figure, panels = axes_grid(1, 2, size=(3.9, 3.6), sharex=True, sharey=True)
    for order, (axes, title) in enumerate(zip(panels, ("gradient flow", "modified flow"), strict=True)):
        for word, colour in zip(WORDS, SHADES, strict=True):
            keep = (seen.word == word) & seen.solved[:, order]
            keep &= (seen.measured[:, order] > 0) & (seen.expected[:, order] > 0)
            axes.plot(seen.expected[keep, order], seen.measured[keep, order], ".", color=colour, ms=3, label=word)
        line = np.array([1e-9, 1e2])
        axes.plot(line, line, "--", color="k", lw=0.9)
        for factor in (1.5, 1 / 1.5):
            axes.plot(line, factor * line, ":", color=GREY, lw=0.8)
        axes.set(xscale="log", yscale="log", xlim=(1e-7, 3), ylim=(1e-7, 3), title=title)
        axes.set_xlabel(axis_label("expected error of a step", "", "expected_error"))
    panels[0].set_ylabel(axis_label("measured error of a step", "", "measured_error"))
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, markerscale=3)
    return figure


def best_orders(runs: Table) -> Figure:
    """The share of measurements at which each truncation order misses the step least."""
    figure, panels = _panels(runs, (3.6, 2.7), sharey=True)
    for axes, name, some in panels:
        tested = rates(some)
        shares = np.zeros((len(tested), 3))
        for i, h in enumerate(tested):
            seen = points(at_rate(some, h))
            measured = seen.measured[np.isfinite(seen.measured).all(axis=1) & seen.solved.all(axis=1)]
            if len(measured):
                shares[i] = np.bincount(measured.argmin(axis=1), minlength=3) / len(measured)
        below = np.zeros(len(tested))
        for order, (colour, hatch) in enumerate(((RED, "//"), (ORANGE, ""), (BLUE, ".."))):
            axes.bar(
                range(len(tested)), shares[:, order], bottom=below, color=colour, hatch=hatch, ec="white", lw=0.4,
                label=f"order {order}",
            )  # fmt: skip
            below += shares[:, order]
        _named_rates(axes, tested, "x")
        axes.tick_params(axis="x", labelrotation=45)
        axes.set(xlabel=RATE, title=name)
    panels[0][0].set_ylabel("share of measurements")
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure
