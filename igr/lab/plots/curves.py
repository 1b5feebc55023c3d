"""Training curves by learning rate, one panel per quantity, for figures A.3, A.4, A.5 and A.7."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from igr.lab.analysis.stopping import times
from igr.lab.plots.style import axes_grid, logarithmic
from igr.lab.store.store import Table

STYLES = ("-", (0, (6, 1.5)), (0, (1, 1)), "-.", (0, (3, 1, 1, 1, 1, 1)), (0, (8, 2, 1, 2)), (0, (2, 2)))

FEW = 20  # curves with at most this many points are drawn with markers, which show where they were measured

Curves = list[tuple[np.ndarray, np.ndarray]]
Quantity = tuple[str, Callable[[dict[str, Any]], np.ndarray], bool]  # axis label, from the metrics, logarithmic

LOSS: Quantity = ("training loss $E$ (loss)", lambda m: m["loss"], True)
REGULARIZER: Quantity = ("$R_{IG}$ (r_ig)", lambda m: m["r_ig"], True)
RATIO: Quantity = ("$R_{IG}/E$ (r_ig / loss)", lambda m: m["r_ig"] / m["loss"], True)
SLOPE: Quantity = (r"slope $|\nabla E|$ (slope)", lambda m: m["slope"], True)
SHARE: Quantity = (
    r"$\lambda R_{IG}/E$ (implicit_rate r_ig / loss)",
    lambda m: m["learning_rate"] * m["num_params"] / 4 * m["r_ig"] / m["loss"],
    True,
)
NORM: Quantity = (r"parameter norm $|\theta|$ (param_norm)", lambda m: m["param_norm"], False)
FIT: Quantity = ("training accuracy (train_accuracy)", lambda m: m["train_accuracy"], False)
TEST_LOSS: Quantity = ("test loss (test_loss)", lambda m: m["test_loss"], True)
TEST_REGULARIZER: Quantity = ("$R_{IG}$ of the test loss (test_r_ig)", lambda m: m["test_r_ig"], True)
TEST_RATIO: Quantity = ("$R_{IG}/E$, test (test_r_ig / test_loss)", lambda m: m["test_r_ig"] / m["test_loss"], True)
TEST_ACCURACY: Quantity = ("test accuracy (test_accuracy)", lambda m: m["test_accuracy"], False)


def panels(runs: Table, quantities: list[Quantity], what: str, physical: bool = False) -> Figure:
    """One panel for each of the `quantities` against the iteration or, with `physical`, the physical time.

    `what` describes the networks in the title.
    """
    columns = 3 if len(quantities) == 6 else 2
    figure, grid = axes_grid(len(quantities) // columns, columns, size=(3.4, 2.7), sharex=True)
    rates = sorted({h for run in runs for h in run.config.learning_rates})
    seeds = len({s for run in runs for s in run.config.seeds})
    for axes, (label, values, decades), letter in zip(grid.flat, quantities, "abcdef", strict=False):
        followed = 0
        for i, rate in enumerate(rates):
            colour = colormaps["viridis"](0.92 * i / max(1, len(rates) - 1))
            style = {"color": colour, "ls": STYLES[i % len(STYLES)]}
            found, once = paths(_curves(runs, rate, values, physical))
            followed = max(followed, len(found))
            for x, y in found:
                axes.plot(x, y, lw=0.6, alpha=0.35, **style)
            for x, y in once:
                axes.plot(x, y, "o", mfc="none", mec=colour, ms=3.5, mew=0.8, ls="none")
            x, y = median_curve(found)
            axes.plot(x, y, lw=1.6, marker="." if len(x) <= FEW else None, label=f"$h$ = {rate:g}", **style)
        axes.set_ylabel(label)
        axes.set_title(f"({letter})" + (f" path of {followed} of {seeds} seeds" if followed < seeds else ""))
        logarithmic(axes, "y" if decades else "")
    if physical or _decades(runs) > 1.5:  # a short history has too few labels on a logarithmic axis
        for axes in grid.flat:
            logarithmic(axes, "x")
    words = r"physical time $t=ih$ (time)" if physical else "iteration $i$ (step)"
    for axes in grid[-1]:
        axes.set_xlabel(words)
    figure.suptitle(f"{what}, median of {seeds} seeds (faint: each seed)", fontsize=9)
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=7 if columns == 3 else 4)
    return figure


def _decades(runs: Table) -> float:
    """The decades between the first measured step after 0 and the last."""
    steps = [step for run in runs for step in run.metrics["step"].tolist() if step]
    return float(np.log10(max(steps) / min(steps))) if steps else 0.0


def _curves(runs: Table, rate: float, values: Any, physical: bool) -> Curves:
    """A curve for each network of this learning rate where it was measured, without step 0."""
    found = []
    for run in runs:
        with np.errstate(divide="ignore", invalid="ignore"):
            table = values(run.metrics)
        clock = times(run) if physical else np.broadcast_to(run.metrics["step"][:, None], table.shape)
        for k in np.flatnonzero(run.metrics["learning_rate"] == rate):
            keep = np.isfinite(table[:, k]) & (run.metrics["step"] > 0)
            found.append((clock[keep, k], table[keep, k]))
    return found


def paths(curves: Curves) -> tuple[Curves, Curves]:
    """The curves with several points, and those with one point where others have more.

    A median over both would jump at the end, where the second kind is added.

    >>> along, once = paths([(np.array([1, 2]), np.array([5.0, 4.0])), (np.array([2]), np.array([9.0]))])
    >>> len(along), len(once)
    (1, 1)
    """
    longest = max((len(x) for x, _ in curves), default=0)
    once = [curve for curve in curves if len(curve[0]) <= 1 < longest]
    return [curve for curve in curves if len(curve[0]) > 1 or longest <= 1], once


def median_curve(curves: Curves) -> tuple[np.ndarray, np.ndarray]:
    """The median at each point over the curves that were measured there.

    >>> x, y = median_curve([(np.array([1, 2, 4]), np.array([1.0, 2.0, 3.0])), (np.array([4]), np.array([5.0]))])
    >>> x.tolist(), y.tolist()
    ([1, 2, 4], [1.0, 2.0, 4.0])
    """
    points = np.unique(np.concatenate([x for x, _ in curves])) if curves else np.array([])
    return points, np.array([np.median([y[k] for x, y in curves for k in np.flatnonzero(x == p)]) for p in points])
