"""Figures A.7, A.8 and 3c, from stored runs; the cost of explicit regularization is in `costs`.

In the figures of explicit regularization blue is plain and orange penalized; thin lines and small dots are seeds,
strong ones their mean. Accuracies are those at the epoch of best validation accuracy, unless the axis is time.
"""

from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from igr.lab.analysis.cohort import cohort
from igr.lab.experiments.resnet.boosts import PAPER_BOOST
from igr.lab.experiments.resnet.costs import COST, costs
from igr.lab.experiments.resnet.runs import (
    Outcome,
    best_rate,
    chosen,
    gains,
    grid_runs,
    outcomes,
    pairs,
    select,
    table_rates,
)
from igr.lab.plots.curves import FIT, LOSS, NORM, REGULARIZER, SLOPE, TEST_ACCURACY, panels
from igr.lab.plots.scatter import ACCURACY, R_IG, RATE, dots, legend
from igr.lab.plots.style import BLUE, GREY, ORANGE, RED, axes_grid, logarithmic
from igr.lab.store.store import Table


def figures(runs: Table) -> dict[str, Figure]:
    """The figures that the stored `runs` suffice for."""
    grid, found = grid_runs(runs), outcomes(runs)
    drawn: dict[str, Figure] = {}
    if grid:
        shape = grid[0].config.shape
        what = f"ResNet-18 of width {shape.width}, {shape.data}, batch {shape.batch_size}"
        drawn["resnet-A7"] = panels(grid, [TEST_ACCURACY, REGULARIZER, SLOPE, NORM, LOSS, FIT], what)
        drawn["resnet-A8"] = rates_and_accuracy(grid)
    if table_rates(found)[0]:
        drawn["resnet-3c"] = explicit(found)
        drawn["resnet-3c-cost"] = costs(found)
    return drawn


def rates_and_accuracy(grid: Table) -> Figure:
    """Figure A.8: R_IG and accuracy against h, accuracy against R_IG, at maximum test accuracy; one dot per network."""
    table = cohort(grid)
    kept = table["diverged"] < 0
    table["fitted"] &= kept
    figure, (left, middle, right) = axes_grid(1, 3, size=(3.5, 3.1))
    columns = (("learning_rate", "r_ig"), ("learning_rate", "test_accuracy"), ("r_ig", "test_accuracy"))
    for axes, (x, y) in zip((left, middle, right), columns, strict=True):
        dots(axes, table, x, y, excluded=False)
    left.set(xlabel=RATE, ylabel=R_IG, title="(a) at maximum test accuracy")
    middle.set(xlabel=RATE, ylabel=ACCURACY, title=f"(b) {int(kept.sum())} networks")
    right.set(xlabel=R_IG, ylabel=ACCURACY, title=f"(c) {int(table['fitted'].sum())} of them fit exactly")
    for axes, which in ((left, "xy"), (middle, "x"), (right, "x")):
        logarithmic(axes, which)
    legend(figure, table, excluded=False)
    return figure


def explicit(found: list[Outcome]) -> Figure:
    """Figure 3c: curves with and without penalty at the best rate, the whole search, and the boost by rate."""
    figure, (left, middle, right) = axes_grid(1, 3, size=(3.9, 3.3))
    _curves(left, found)
    heat_map(middle, found)
    _boosts(right, found)
    return figure


def _curves(axes: Any, found: list[Outcome]) -> None:
    rate = best_rate(found)
    ours, plain = pairs(found, rate)
    for group, kind, style in ((plain, "plain", "--"), (ours, "penalty", "-")):
        colour = BLUE if kind == "plain" else ORANGE
        for each in group:
            axes.plot(each.cost, each.test, color=colour, ls=style, lw=0.6, alpha=0.4)
        if group:
            name = f"$\\mu$ = {group[0].mu:g}" if kind == "penalty" else "no penalty"
            mean = np.nanmean([each.test for each in group], axis=0)
            axes.plot(group[0].cost, mean, color=colour, ls=style, label=f"{name}, n = {len(group)}")
    axes.set(xlabel=COST, ylabel=ACCURACY, title=f"(a) $h$ = {rate:g}")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right")


def heat_map(axes: Any, found: list[Outcome]) -> None:
    """Best validation accuracy for each learning rate and mu of the search, the best mu of a rate framed."""
    rates, mus = table_rates(found)
    mus = [0.0, *mus]
    table = np.full((len(rates), len(mus)), np.nan)
    marks: dict[tuple[int, int], str] = {}
    for i, h in enumerate(rates):
        for j, mu in enumerate(mus):
            seeds = select(found, kind="penalty" if mu else "plain", h=h, mu=mu)
            if seeds:
                table[i, j] = seeds[0].best()[0]
                marks[i, j] = f"{table[i, j]:.3f}" + ("*" if seeds[0].diverged else "")
    low = np.nanmin(table)
    axes.imshow(table, cmap="viridis", aspect="auto", origin="lower", vmin=low, vmax=np.nanmax(table))
    outline = [patheffects.withStroke(linewidth=1.8, foreground="black")]
    for (i, j), text in marks.items():
        axes.text(j, i, text, ha="center", va="center", color="white", fontsize=8, path_effects=outline)
        if mus[j] and mus[j] == chosen(found, mus=mus, h=rates[i]):
            axes.add_patch(_frame(j, i))
    axes.set_xticks(range(len(mus)), [f"{mu:g}" for mu in mus])
    axes.set_yticks(range(len(rates)), [f"{h:g}" for h in rates])
    axes.set(xlabel=r"explicit rate $\mu$ (mu)", ylabel=RATE)
    starred = ", * diverged later" if any("*" in text for text in marks.values()) else ""
    axes.set_title(f"(b) best validation accuracy{starred}")


def _frame(x: int, y: int) -> Any:
    return Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, ec=RED, lw=2.2)


def _boosts(axes: Any, found: list[Outcome]) -> None:
    for place, h in enumerate(table_rates(found)[0]):
        ours, plain = pairs(found, h)
        values = gains(ours, plain)
        if values.size:
            axes.plot(np.full(values.size, place), values, "s", color=ORANGE, ms=4, alpha=0.6, ls="none")
            axes.plot([place - 0.25, place + 0.25], [values.mean()] * 2, color=ORANGE, lw=2)
            note = f"$\\mu$ = {ours[0].mu:g}"
            axes.annotate(note, (place, values.max()), xytext=(0, 6), textcoords="offset points", ha="center", size=7.5)
    rates = table_rates(found)[0]
    axes.axhline(0, color=GREY, lw=0.8)
    axes.axhline(PAPER_BOOST, color=GREY, lw=0.8, ls="--")
    axes.annotate("the paper's 12 points", (0.02, PAPER_BOOST), xycoords=("axes fraction", "data"), xytext=(0, 2),
                  textcoords="offset points", size=7.5, color="0.4")  # fmt: skip
    axes.set_xticks(range(len(rates)), [f"{h:g}" for h in rates])
    axes.set(xlabel=RATE, ylabel="boost of test accuracy, points", title="(c) best mu against none, by seed")
    axes.set_xlim(-0.6, len(rates) - 0.4)
    axes.margins(y=0.15)
