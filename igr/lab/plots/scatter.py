"""Scatter plots with one dot per network, for figures 2, A.6 and A.8: colours, markers and legend.

Colour is the learning rate, dark for small and bright for large. Networks that never fit their training set are hollow;
those that diverged are crosses at the upper edge.
"""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from igr.lab.analysis.cohort import Cohort, pick
from igr.lab.plots.style import axis_label

MARKERS = "osD^vP*X<>"
R_IG = axis_label("", "$R_{IG}$", "r_ig")
ACCURACY = axis_label("test accuracy", "", "test_accuracy")
RATE = axis_label("learning rate", "$h$", "learning_rate")


def shades(values: Any) -> dict[Any, Any]:
    """A colour for each of the `values` by its rank: dark for small, bright for large."""
    ordered = sorted(set(np.asarray(values).tolist()))
    return {v: colormaps["viridis"](0.92 * i / max(1, len(ordered) - 1)) for i, v in enumerate(ordered)}


def dots(axes: Any, table: Cohort, x: str, y: str, excluded: bool = True) -> None:
    """Draw the columns `x` and `y` of `table` with one dot per network.

    A dot is full where the network fits its training set, hollow where it does not, and a cross where it diverged.
    Hollow dots are grey where they are `excluded` from the numbers, else they have the colour of their learning rate.
    """
    marks = dict(zip(sorted(set(table["width"].tolist())), MARKERS, strict=False))
    for width, mark in marks.items():
        for rate, shade in shades(table["learning_rate"]).items():
            mine = (table["width"] == width) & (table["learning_rate"] == rate)
            good = pick(table, mine & table["fitted"])
            axes.plot(good[x], good[y], mark, color=shade, ms=4.6, mec="white", mew=0.4, ls="none", zorder=3)
            rest = pick(table, mine & ~table["fitted"] & (table["diverged"] < 0))
            edge = "0.7" if excluded else shade
            axes.plot(rest[x], rest[y], mark, mfc="none", mec=edge, ms=4.2, mew=0.8, ls="none", zorder=2)
    lost = pick(table, table["diverged"] >= 0)
    if len(lost[x]):
        top = axes.get_xaxis_transform()
        axes.plot(lost[x], np.full(len(lost[x]), 0.985), "x", color="0.3", ms=5, transform=top, zorder=4, clip_on=False)


def legend(figure: Figure, table: Cohort, excluded: bool = True) -> None:
    """Explain colours and markers below the panels; `excluded` is that of `dots`."""
    handles = [
        Line2D([], [], color=c, marker="o", ls="none", label=f"$h$ = {v:g}")
        for v, c in shades(table["learning_rate"]).items()
    ]
    widths = sorted(set(table["width"].tolist()))
    handles += [
        Line2D([], [], color="0.4", marker=m, ls="none", label=f"$n_l$ = {w}")
        for w, m in zip(widths, MARKERS, strict=False)
        if len(widths) > 1
    ]
    if excluded or (~table["fitted"] & (table["diverged"] < 0)).any():
        words = "not fitted: excluded" if excluded else "never fits exactly"
        handles.append(Line2D([], [], mfc="none", mec="0.7", color="0.7", marker="o", ls="none", label=words))
    if (table["diverged"] >= 0).any():
        handles.append(Line2D([], [], color="0.3", marker="x", ls="none", label="diverged"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(7, len(handles)), handlelength=1.0)


def accuracy_axis(axes: Any, table: Cohort) -> None:
    """Limit the axis to the range of the networks that fit, and write how many others lie below it."""
    values = table["test_accuracy"][table["fitted"]]
    if not values.size:
        return
    low, high = float(values.min()), float(values.max())
    margin = max(0.15 * (high - low), 1e-3)
    below = int((table["test_accuracy"] < low - margin).sum())
    axes.set_ylim(low - margin, high + margin)
    if below:
        axes.text(0.02, 0.02, f"{below} not fitted lie below", transform=axes.transAxes, fontsize=7, color="0.4")
