"""The cards of the four predictions: one panel each of the controls and of figures 2, 3a and 3b, drawn small."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from igr.lab.analysis.cohort import cohort
from igr.lab.experiments.mlp.controls_figure import slopes_card
from igr.lab.experiments.mlp.runs import NOISE, focus_width, of
from igr.lab.plots.curves import STYLES
from igr.lab.plots.scatter import accuracy_axis, dots, shades
from igr.lab.plots.style import card_axes, logarithmic
from igr.lab.store.store import Table


def cards(runs: Table) -> dict[str, Figure]:
    """The cards that `runs` suffice for."""
    grid, focus = of(runs), focus_width(runs)
    noisy = of(runs, width=focus) if focus else []
    drawn: dict[str, Figure] = {}
    if grid:
        drawn["prediction-1"] = slopes_card(grid)
        drawn["prediction-3"] = _against_lambda(grid, "test_accuracy", "test accuracy", "x")
    if noisy:
        drawn["prediction-2"] = _under_noise(noisy, "noise_slope", r"slope $|\nabla E|$", "y")
        drawn["prediction-4"] = _under_noise(noisy, "noise_test_accuracy", "test accuracy", "")
    return drawn


def _against_lambda(grid: Table, column: str, label: str, decades: str) -> Figure:
    """One dot per network: colour is the learning rate, hollow dots are excluded from the number."""
    table = cohort(grid)
    figure, axes = card_axes()
    dots(axes, table, "implicit_rate", column)
    axes.set(xlabel=r"$\lambda=hm/4$", ylabel=label)
    logarithmic(axes, decades)
    if "y" not in decades:
        accuracy_axis(axes, table)
    return figure


def _under_noise(noisy: Table, column: str, label: str, decades: str) -> Figure:
    """The median over realizations and networks for each learning rate, up to the noise of the headline."""
    sigma, table = noisy[0].metrics["noise_sigma"], cohort(noisy)
    values, keep = np.concatenate([run.metrics[column] for run in noisy]), sigma <= NOISE
    figure, axes = card_axes()
    for i, (rate, shade) in enumerate(shades(table["learning_rate"]).items()):
        mine = values[(table["learning_rate"] == rate) & table["fitted"]]
        if len(mine):
            style: dict[str, Any] = {"color": shade, "ls": STYLES[i % len(STYLES)], "label": f"$h$ = {rate:g}"}
            axes.plot(sigma[keep], np.nanmedian(mine, axis=(0, 2))[keep], **style)
    axes.set(xlabel=r"noise $\sigma$ on the parameters", ylabel=label)
    logarithmic(axes, decades)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside right center", handlelength=1.6)
    return figure
