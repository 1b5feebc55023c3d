"""The figures of the theorem on networks, drawn from the stored runs alone."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from igr.lab.experiments.theorem.paths import FLOWS
from igr.lab.experiments.theorem.views import Architecture, architectures, order, ratio, trusted
from igr.lab.plots.scatter import shades
from igr.lab.plots.style import BLUE, GREEN, GREY, ORANGE, axes_grid, axis_label, card_axes, logarithmic
from igr.lab.store.store import Table

LOOKS = ((ORANGE, "s", "--"), (BLUE, "o", "-"), (GREEN, "^", ":"))  # one for each flow
MIDDLE = 1  # the place of the rate whose paths are drawn: the second largest
RATE = axis_label("learning rate", "$h$", "learning_rate")
TIME = axis_label("physical time", "$t = nh$", "time")


def figures(runs: Table) -> dict[str, Figure]:
    """Distances against the learning rate, and along the path."""
    groups = architectures(runs)
    return {"theorem-orders": orders(groups), "theorem-paths": paths(groups)} if groups else {}


def orders(groups: list[Architecture]) -> Figure:
    """The distance to each flow at the final time against the learning rate, one panel for each network."""
    columns = min(len(groups), 4)
    rows = -(-len(groups) // columns)
    figure, grid = axes_grid(rows, columns, size=(2.9, 3.1), squeeze=False, sharey=True)
    for axes, each in zip(grid.flat, groups, strict=False):
        for flow, (colour, mark, _) in enumerate(LOOKS):
            found = [order(run, flow) for run in each.runs]
            for k, run in enumerate(each.runs):
                far = trusted(run)[:, flow, -1]
                label = f"{FLOWS[flow]}" if k == 0 else None
                axes.plot(each.rates, far, mark, color=colour, ls="-", lw=1, ms=4, alpha=0.8, label=label)
            ends = np.array([trusted(run)[-1, flow, -1] for run in each.runs])
            if np.isfinite(ends).any() and np.isfinite(found).any():
                words, at = f"{np.nanmean(found):.2f}", (each.rates[-1], np.nanmedian(ends))
                axes.annotate(words, at, (-4, 0), textcoords="offset points", ha="right", va="center", color=colour,
                              fontsize=8, fontweight="bold")  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel=RATE, title=_short(each))
        axes.set_xlim(each.rates[-1] / 2.3, each.rates[0] * 1.2)
        axes.set_xticks(each.rates, [f"1/{round(1 / h)}" for h in each.rates])
        axes.minorticks_off()
    for axes in list(grid.flat)[len(groups) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel(axis_label("distance to descent at $T$", "", "distance"))
    _legend(figure, grid[0, 0])
    return figure


def cards(runs: Table) -> dict[str, Figure]:
    """The small figure of the theorem: the first smooth architecture's distances against the learning rate."""
    smooth = [each for each in architectures(runs) if each.smooth]
    if not smooth:
        return {}
    figure, axes = card_axes()
    for flow, (colour, mark, _) in enumerate(LOOKS[:2]):
        for k, run in enumerate(smooth[0].runs):
            label = FLOWS[flow] if k == 0 else None
            axes.plot(smooth[0].rates, trusted(run)[:, flow, -1], mark, color=colour, ls="-", lw=1, ms=3.5, label=label)
    axes.set(xlabel="learning rate $h$", ylabel="distance to descent", title=_short(smooth[0]))
    logarithmic(axes, "xy")
    axes.set_xticks(smooth[0].rates, [f"1/{round(1 / h)}" for h in smooth[0].rates])
    axes.minorticks_off()
    axes.legend(loc="lower right")
    return {"theorem": figure}


def paths(groups: list[Architecture]) -> Figure:
    """Above, distances along the path at one rate; below, the ratio of distances for every rate."""
    groups = groups[:4]
    figure, grid = axes_grid(2, len(groups), size=(2.9, 2.6), squeeze=False, sharex="col")
    for column, each in enumerate(groups):
        above, below = grid[:, column]
        for flow, (colour, _, line) in enumerate(LOOKS):
            for k, run in enumerate(each.runs):
                m = run.metrics
                label = FLOWS[flow] if k == 0 else None
                above.plot(m["time"][1:], m["distance"][MIDDLE, flow, 1:], line, color=colour, lw=1.1, label=label)
        above.set(yscale="log", title=f"{_short(each)}, $h$ = {each.rates[MIDDLE]:g}")
        for i, (h, shade) in reversed(list(enumerate(shades(each.rates).items()))):
            place = list(each.rates).index(h)
            values = np.array([ratio(run)[place, 1:] for run in each.runs])
            for line in values:
                below.plot(each.runs[0].metrics["time"][1:], line, color=shade, lw=0.6, alpha=0.5)
            middle = np.median(values, axis=0)
            below.plot(each.runs[0].metrics["time"][1:], middle, color=shade, lw=1.7, label=f"h = {h:g}", zorder=3 + i)
        below.axhline(1, color=GREY, ls="--", lw=1)
        below.set(yscale="log", xlabel=TIME, ylim=(1e-4, 3))  # room for the legend
    grid[0, 0].set_ylabel(axis_label("distance to descent", "", "distance"))
    grid[1, 0].set_ylabel("modified / gradient flow")
    _legend(figure, grid[0, 0])
    grid[1, 0].legend(loc="lower left", fontsize=6.5, ncols=2)
    return figure


def _short(each: Architecture) -> str:
    """The network, and its data where they are not the small digits."""
    name, data = each.name.split(", ")[0], each.runs[0].config.data
    return name if data == "digits" else f"{name}, {data}"


def _legend(figure: Figure, axes: Any) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
