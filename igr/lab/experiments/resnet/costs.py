"""What explicit regularization costs and what could replace it, from stored runs. Not in the paper."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from igr.lab.experiments.resnet.runs import (
    Outcome,
    best_rate,
    chosen,
    equal_total_rates,
    pairs,
    select,
)
from igr.lab.plots.scatter import shades
from igr.lab.plots.style import BLUE, GREEN, ORANGE, PURPLE, SKY, axes_grid, logarithmic

COST = "epochs of gradients (cost)"
SELECTED = "test accuracy at best validation"
LOOKS = {"penalty": (ORANGE, "s"), "warm-up": (GREEN, "D"), "sam": (PURPLE, "^"), "every": (SKY, "v")}


def costs(found: list[Outcome]) -> Figure:
    """The gain against its cost at one rate, the control of equal total rates, and the other stem."""
    figure, (left, middle, right) = axes_grid(1, 3, size=(3.9, 4.0))
    _cost(left, found)
    _totals(middle, found)
    _stems(right, found)
    return figure


def comparisons(found: list[Outcome]) -> tuple[float, list[str]]:
    """The rate at which alternatives to the penalty at every step were tried, and their kinds."""
    kinds = sorted({each.kind for each in found} - {"plain", "penalty"})
    rates = [each.h for each in found if each.kind in kinds]
    return rates[0] if rates else best_rate(found), kinds


def _cost(axes: Any, found: list[Outcome]) -> None:
    rate, kinds = comparisons(found)
    full, plain = pairs(found, rate)
    budgets = np.unique(np.concatenate([each.cost for each in plain])) if plain else np.array([])
    if budgets.size:
        running = np.array([[each.best(budget)[1] for budget in budgets] for each in plain])
        axes.plot(budgets, running.mean(axis=0), color=BLUE, ls="--", label=f"plain, n = {len(plain)}")
    groups = {"penalty": full} | {
        kind: select(found, kind=kind, h=rate, mu=chosen(found, kind, h=rate)) for kind in kinds
    }
    groups = {kind: group for kind, group in groups.items() if group}
    prices = [group[0].cost[-1] for group in groups.values()]
    for place, (kind, group) in enumerate(groups.items()):
        colour, mark = LOOKS[kind.split()[0]]
        before = prices[:place].count(prices[place])  # marks of equal cost stand side by side
        at, values = prices[place] - 0.03 * before * max(prices), np.array([each.best()[1] for each in group])
        axes.plot(np.full(len(values), at), values, mark, color=colour, ms=3, alpha=0.5, ls="none")
        axes.plot([at], [values.mean()], mark, color=colour, ms=7, mec="white", label=_name(kind, group))
    axes.set(xlabel=COST, ylabel=SELECTED, title=f"(a) gain against cost, $h$ = {rate:g}")
    shown = [line.get_ydata() if line.get_marker() != "None" else line.get_ydata()[-1:] for line in axes.get_lines()]
    if shown:  # of the plain networks only the end, not the start
        values = np.concatenate(shown)
        reach = max(float(values.max() - values.min()), 0.02)
        axes.set_ylim(values.min() - 0.5 * reach, values.max() + 0.4 * reach)
    _legend(axes)


def _legend(axes: Any) -> None:
    """Place the legend below the panel, since no corner inside is always free."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, columnspacing=1.2)


def _name(kind: str, group: list[Outcome]) -> str:
    names = {"sam": f"SAM, $\\rho$ = {group[0].mu:g}", "penalty": f"penalty, $\\mu$ = {group[0].mu:g}"}
    name = names.get(kind, f"penalty, {kind}" + (" steps" if kind.startswith("every") else ""))
    return f"{name}, n = {len(group)}"


def _totals(axes: Any, found: list[Outcome]) -> None:
    plain, ours = select(found, kind="plain"), select(found, kind="penalty")
    for each in plain:
        axes.plot(each.h, each.best()[1], "o", color=BLUE, ms=4.5, mec="white", mew=0.4)
    for h, shade in shades([each.h for each in ours]).items():
        mine = [each for each in ours if each.h == h]
        totals = [each.h + 4 * each.mu for each in mine]
        axes.plot(totals, [each.best()[1] for each in mine], "s", mfc="none", mec=shade, ms=4.5, mew=1.2, ls="none")
        axes.plot([], [], "s", mfc="none", mec=shade, ls="none", label=f"$h$ = {h:g} and penalty")
    axes.plot([], [], "o", color=BLUE, label="plain")
    for small, large in equal_total_rates(found):
        means = [np.mean([each.best()[1] for each in group]) for group in (small, large)]
        axes.annotate("", (large[0].h, means[0]), (large[0].h, means[1]), arrowprops={"arrowstyle": "-|>", "lw": 1.2})
    logarithmic(axes, "x")
    ticks = sorted({each.h for each in plain} | {1.0 for each in ours if each.h + 4 * each.mu > 0.5})
    axes.set_xticks(ticks, [f"{h:g}" for h in ticks])
    axes.minorticks_off()
    axes.set(xlabel=r"total rate $h + 4\mu$", ylabel=SELECTED, title="(b) arrows: equal total rates")
    _legend(axes)


def _stems(axes: Any, found: list[Outcome]) -> None:
    rate = comparisons(found)[0]
    mus = [0.0, *sorted({each.mu for each in found if each.kind == "penalty" and each.h == rate})]
    for stem, mark, colour in (("3x3", "s", ORANGE), ("7x7", "D", PURPLE)):
        cells = [select(found, kind="penalty" if mu else "plain", h=rate, mu=mu, stem=stem) for mu in mus]
        points = [(place, [each.best()[1] for each in cell]) for place, cell in enumerate(cells) if cell]
        for place, values in points:
            axes.plot([place] * len(values), values, mark, color=colour, ms=3.5, alpha=0.5, ls="none")
        if points:
            means = [np.mean(values) for _, values in points]
            axes.plot(
                [place for place, _ in points], means, color=colour, marker=mark, ms=5, lw=1, label=f"{stem} stem"
            )
    axes.set_xticks(range(len(mus)), [f"{mu:g}" for mu in mus])
    axes.set(xlabel=r"explicit rate $\mu$ (mu)", ylabel=SELECTED, title=f"(c) by $\\mu$, $h$ = {rate:g}")
    _legend(axes)
