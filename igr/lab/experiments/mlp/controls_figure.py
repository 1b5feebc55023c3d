"""The figure of the controls: slopes at equal training loss, and how signs depend on the time and on the loss."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from igr.lab.analysis.cohort import Cohort
from igr.lab.analysis.correlation import models
from igr.lab.analysis.strata import stratified
from igr.lab.experiments.mlp.controls import SLOPE, slopes_at, slopes_by_width
from igr.lab.experiments.mlp.runs import fitted_cohort, rule_settings
from igr.lab.plots.scatter import MARKERS, RATE
from igr.lab.plots.style import BLUE, GREY, axes_grid, card_axes, logarithmic
from igr.lab.store.store import Table

TIMES = np.geomspace(0.03, 2, 13)  # of the physical time at which networks are compared
LOSSES = np.geomspace(2, 0.003, 14)
RESAMPLES = 400  # of a point of a curve
BAND = "95 % interval"


def controls_figure(grid: Table) -> Figure:
    """Slopes at equal loss by width; within-width correlations with h against the time, and against the loss."""
    figure, (left, middle, right) = axes_grid(1, 3, size=(3.5, 3.2))
    slopes(left, grid)
    left.set_title("(a) slopes at equal training loss")
    left.legend(loc="center left", bbox_to_anchor=(0, 0.57), fontsize=6.5, title="$n_l$", title_fontsize=6.5, ncols=3)
    time = next(at for rule, at, *_ in rule_settings(grid) if rule == "time" and at is not None)
    times = [share * time for share in TIMES]
    _curve(middle, times, [fitted_cohort(grid, "time", at) for at in times], "r_ig / loss")
    middle.axvline(time, color=GREY, ls=":", lw=1)
    middle.set(xlabel="physical time $T$", title="(b) $R_{IG}/E$ at equal time")
    _curve(right, LOSSES, [slopes_at(grid, level) for level in LOSSES], SLOPE)
    right.set(xlabel="training loss $E$", title="(c) slope at equal loss")
    right.invert_xaxis()
    middle.set_ylabel("correlation with $h$, mean over widths")
    return figure


def slopes(axes: Any, grid: Table) -> None:
    """The median slope over the losses that all networks of a width reach, against h: one line for each width."""
    table = slopes_by_width(grid)
    for width, mark in zip(np.unique(table["width"]), MARKERS, strict=False):
        mine = (table["width"] == width) & np.isfinite(table[SLOPE])
        rates = np.unique(table["learning_rate"][mine])
        middle = [np.median(table[SLOPE][mine & (table["learning_rate"] == h)]) for h in rates]
        shade = 0.75 * (1 - np.searchsorted(np.unique(table["width"]), width) / len(np.unique(table["width"])))
        axes.plot(table["learning_rate"][mine], table[SLOPE][mine], mark, color=str(shade), ms=3, alpha=0.5)
        axes.plot(rates, middle, color=str(shade), marker=mark, ms=3.5, lw=1, label=f"{width:g}")
    logarithmic(axes, "xy")
    axes.set(xlabel=RATE, ylabel=r"slope $|\nabla E|$, geometric mean")


def slopes_card(grid: Table) -> Figure:
    """The first panel alone."""
    figure, axes = card_axes()
    slopes(axes, grid)
    axes.set_ylabel(r"slope $|\nabla E|$ at equal $E$")
    return figure


def _curve(axes: Any, places: Any, tables: list[Cohort], y: str) -> None:
    found = [stratified(t["learning_rate"], t[y], t["width"], models(t), RESAMPLES) for t in tables]
    known = [(x, each) for x, each in zip(places, found, strict=True) if np.isfinite(each.estimate.value)]
    for width in sorted({name for _, each in known for name in each.strata}):
        points = [(x, each.strata[width]) for x, each in known if width in each.strata]
        axes.plot(*zip(*points, strict=True), color="0.8", lw=0.8, zorder=1)
    x = [place for place, _ in known]
    low, high = ([getattr(each.estimate, side) for _, each in known] for side in ("low", "high"))
    axes.fill_between(x, low, high, color=BLUE, alpha=0.2, lw=0, label=BAND)
    axes.plot(x, [each.estimate.value for _, each in known], "o-", color=BLUE, ms=3.5, lw=1.5, label="mean over widths")
    axes.plot([], [], color="0.8", label="one width")
    axes.axhline(0, color=GREY, ls="--", lw=1)
    axes.set_ylim(-1.05, 1.05)
    logarithmic(axes, "x")
    axes.legend(fontsize=7)
