"""Figures 2, A.6, 3a, 3b and the activations, from stored runs; the curves of A.3 to A.5 are in `curves`.

In all of them colour is the learning rate, dark for small and bright for large, and the marker is the width. Networks
that never fit their training set are hollow and grey; those that diverged are crosses at the upper edge.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from igr.lab.analysis.cohort import cohort, pick
from igr.lab.experiments.mlp.controls import SLOPE, slopes_by_width
from igr.lab.experiments.mlp.controls_figure import controls_figure
from igr.lab.experiments.mlp.curves import curve_figures
from igr.lab.experiments.mlp.runs import focus_width, of
from igr.lab.plots.scatter import ACCURACY, MARKERS, R_IG, RATE, accuracy_axis, dots, legend, shades
from igr.lab.plots.style import BLUE, GREEN, ORANGE, axes_grid, axis_label, logarithmic
from igr.lab.store.store import Table

LAMBDA = axis_label("implicit rate", r"$\lambda=hm/4$", "implicit_rate")
WIDTH = axis_label("units per layer", "$n_l$", "width")


def figures(runs: Table) -> dict[str, Figure]:
    """The figures that the stored `runs` suffice for."""
    grid, focus = of(runs), focus_width(runs)
    drawn: dict[str, Figure] = {}
    if grid:
        drawn["mlp-2"] = regularization_and_accuracy(grid)
        if np.isfinite(slopes_by_width(grid)[SLOPE]).any():  # else no two networks of a width reach one loss
            drawn["mlp-controls"] = controls_figure(grid)
        drawn["mlp-A6"] = six_panels(grid, of(runs, batch_size=None, width=focus))
    focused = of(runs, width=focus)
    if focused and focus:
        drawn["mlp-3a"], drawn["mlp-3b"] = slopes_under_noise(focused), accuracy_under_noise(focused)
        drawn |= curve_figures(focused)
    kinds = {name: of(runs, name, width=focus) for name in ("relu", "tanh", "gelu")}
    if focus and all(kinds.values()):
        drawn["mlp-activations"] = activations(kinds)
    return drawn


def regularization_and_accuracy(grid: Table) -> Figure:
    """Figure 2: R_IG and test accuracy at maximum test accuracy against lambda, one dot per network of `grid`."""
    table = cohort(grid)
    figure, (left, right) = axes_grid(1, 2, size=(3.9, 3.4))
    dots(left, table, "implicit_rate", "r_ig")
    dots(right, table, "implicit_rate", "test_accuracy")
    left.set(xlabel=LAMBDA, ylabel=R_IG)
    right.set(xlabel=LAMBDA, ylabel=ACCURACY)
    logarithmic(left, "xy")
    logarithmic(right, "x")
    accuracy_axis(right, table)
    left.set_title(f"(a) {int(table['fitted'].sum())} of {len(table['fitted'])} networks fit exactly")
    right.set_title("(b) at maximum test accuracy")
    legend(figure, table)
    return figure


def six_panels(grid: Table, batches: Table) -> Figure:
    """Figure A.6: R_IG and accuracy against h and n_l for `grid`, accuracy against R_IG by size of `batches`."""
    table, other = cohort(grid), cohort(batches)
    figure, panels = axes_grid(2, 3, size=(3.5, 3.0))
    dots(panels[0, 0], table, "learning_rate", "r_ig")
    dots(panels[0, 1], table, "learning_rate", "test_accuracy")
    dots(panels[1, 0], table, "width", "r_ig")
    dots(panels[1, 1], table, "width", "test_accuracy")
    dots(panels[1, 2], table, "r_ig", "test_accuracy")
    panels[0, 0].set(xlabel=RATE, ylabel=R_IG)
    panels[0, 1].set(xlabel=RATE, ylabel=ACCURACY)
    panels[1, 0].set(xlabel=WIDTH, ylabel=R_IG)
    panels[1, 1].set(xlabel=WIDTH, ylabel=ACCURACY)
    for axes in (panels[0, 1], panels[1, 1], panels[1, 2]):
        accuracy_axis(axes, table)
    panels[1, 2].set(xlabel=R_IG, ylabel=ACCURACY, title="batch 32, all sizes")
    axes = panels[0, 2]
    sizes = sorted(set(other["batch_size"].tolist()), key=lambda size: size or np.inf) if other else []
    for (size, mark), shade in zip(zip(sizes, MARKERS, strict=False), shades(range(len(sizes))).values(), strict=False):
        mine = pick(other, (other["batch_size"] == size) & other["fitted"])
        name = f"batch {size}" if size else "full batch"
        axes.plot(mine["r_ig"], mine["test_accuracy"], mark, color=shade, ms=4.6, mec="white", mew=0.4, label=name)
    axes.set(
        xlabel=R_IG, ylabel=ACCURACY, title=f"batch sizes, $n_l$ = {other['width'][0]}" if other else "batch sizes"
    )
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best")
    for each, which, letter in zip(panels.flat, ("xy", "x", "x", "xy", "x", "x"), "abcdef", strict=True):
        logarithmic(each, which)
        each.set_title(f"({letter}) {each.get_title(loc='left') or each.get_title()}".strip())
    for each in (panels[1, 0], panels[1, 1]):
        widths = sorted(set(table["width"].tolist()))
        each.set_xticks(widths, [str(w) for w in widths])
        each.minorticks_off()
    legend(figure, table)
    return figure


def _noise_curves(axes: Any, focused: Table, column: str, middle: Any) -> None:
    """Draw `column` against the noise for each learning rate; `middle` gives its centre, low and high (dashed)."""
    sigma = focused[0].metrics["noise_sigma"]
    values = np.concatenate([run.metrics[column] for run in focused])
    table = cohort(focused)
    for i, (rate, shade) in enumerate(shades(table["learning_rate"]).items()):
        mine = values[(table["learning_rate"] == rate) & table["fitted"]]
        if not len(mine):
            continue
        flat = mine.transpose(1, 0, 2).reshape(len(sigma), -1)
        centre, low, high = middle(flat)
        axes.plot(sigma, centre, color=shade, marker=MARKERS[i], ms=3.6, label=f"$h$ = {rate:g}, n = {len(mine)}")
        axes.plot(sigma, low, color=shade, ls="--", lw=0.7)
        axes.plot(sigma, high, color=shade, ls="--", lw=0.7)
    axes.set_xlabel(r"multiplicative noise $\sigma$ (noise_sigma)")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best")


def slopes_under_noise(focused: Table) -> Figure:
    """Figure 3a: the slope at the optimum and around it, by learning rate: median and quartiles over realizations."""
    figure, axes = axes_grid(size=(4.6, 3.7))
    _noise_curves(axes, focused, "noise_slope", lambda v: np.nanquantile(v, [0.5, 0.25, 0.75], axis=1))
    axes.set_ylabel(axis_label("slope", r"$|\nabla E|$", "noise_slope"))
    logarithmic(axes, "y")
    axes.set_title(f"$n_l$ = {focused[0].config.shape.width}, median, quartiles dashed")
    return figure


def accuracy_under_noise(focused: Table) -> Figure:
    """Figure 3b: test accuracy under noise: mean and one standard deviation over realizations and seeds."""

    def middle(values: np.ndarray) -> tuple[Any, Any, Any]:
        mean, deviation = np.nanmean(values, axis=1), np.nanstd(values, axis=1)
        return mean, mean - deviation, mean + deviation

    figure, axes = axes_grid(size=(4.6, 3.7))
    _noise_curves(axes, focused, "noise_test_accuracy", middle)
    axes.set(ylabel="test accuracy (noise_test_accuracy)", ylim=(0, 1.02))
    count = focused[0].metrics["noise_test_accuracy"].shape[2]
    axes.set_title(f"{count} realizations per network, one s.d. dashed")
    return figure


def activations(kinds: dict[str, Table]) -> Figure:
    """R_IG and test accuracy against h for ReLU, tanh and GELU: means over the seeds that fit, and each seed."""
    figure, (left, right) = axes_grid(1, 2, size=(3.9, 3.3))
    for (name, runs), colour, mark in zip(kinds.items(), (BLUE, ORANGE, GREEN), "osD", strict=True):
        table = cohort(runs)
        table = pick(table, table["fitted"])
        rates = np.unique(table["learning_rate"])
        for axes, column in ((left, "r_ig"), (right, "test_accuracy")):
            axes.plot(table["learning_rate"], table[column], mark, color=colour, ms=3.2, alpha=0.6, ls="none")
            means = [table[column][table["learning_rate"] == h].mean() for h in rates]
            axes.plot(rates, means, color=colour, marker=mark, ms=4.6, label=f"{name}, n = {len(table['seed'])}")
    left.set(xlabel=RATE, ylabel=R_IG)
    right.set(xlabel=RATE, ylabel=ACCURACY)
    logarithmic(left, "xy")
    logarithmic(right, "x")
    left.legend()
    left.set_title("at maximum test accuracy, networks that fit")
    return figure
