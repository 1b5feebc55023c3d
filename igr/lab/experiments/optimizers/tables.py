"""The table of all constructors: observed orders by problem, and what is refused."""

from collections.abc import Iterator

from matplotlib.figure import Figure

from igr.lab.experiments.optimizers.predictions import MomentumRate, Refusals
from igr.lab.experiments.optimizers.trials import InPractice, OnNetwork, OnPlane
from igr.lab.experiments.optimizers.views import MODIFIED, PLAIN, follows, of_kind, orders, ratios
from igr.lab.plots.style import BLUE, GREY, RED, axes_grid
from igr.lab.store.store import Run, Table

Cell = tuple[str, bool | None]  # words, and whether they are as predicted


def rows(plane: list[Run], networks: list[Run], refusals: list[Run]) -> tuple[list[str], dict[str, list[Cell]]]:
    """The columns, and for each constructor its cells: the order for the plain and for the modified flow."""
    places = {"two parameters": plane}
    for run in networks:
        places.setdefault(f"{run.config.activation} network", []).append(run)
    table: dict[str, list[Cell]] = {}
    for i, group in enumerate(places.values()):
        for run in group:
            cells = table.setdefault(run.config.optimizer, [("", None)] * len(places))
            found = orders(run)
            cells[i] = f"{found[PLAIN]:.2f} → {found[MODIFIED]:.2f}", follows(run)
    for name, reason in _refused(refusals):
        table[name] = [("refused: " + short(reason) if reason else "not refused", bool(reason))]
    return list(places), table


def _refused(refusals: list[Run]) -> Iterator[tuple[str, str]]:
    for run in refusals:
        yield from zip(map(str, run.metrics["names"]), map(str, run.metrics["reasons"]), strict=True)


def short(reason: str) -> str:
    """The first clause of a refusal.

    >>> short("this transformation does not forget: 32768 steps after its gradients became equal, ...")
    'does not forget'
    >>> short("this transformation has no modified field: its update changes by 1.0e+00 of its length while ...")
    'its update changes under a constant gradient'
    """
    if "update changes" in reason:
        return "its update changes under a constant gradient"
    return reason.removeprefix("this transformation ").partition(":")[0]


def orders_table(plane: list[Run], networks: list[Run], refusals: list[Run]) -> Figure:
    """The table as a figure; red where it is not as predicted."""
    columns, table = rows(plane, networks, refusals)
    figure, axes = axes_grid(size=(2.0 + 1.5 * max(len(columns), 2), 0.7 + 0.21 * len(table)))
    axes.set_axis_off()
    axes.set(xlim=(0, 1.4 + len(columns)), ylim=(len(table), -1.6))
    for i, words in enumerate(["optimizer", *columns]):
        axes.text(0 if i == 0 else 0.4 + i, -1.1, words, weight="bold", va="center", fontsize=8.5)
    for y, (name, cells) in enumerate(table.items()):
        if y % 2:
            axes.axhspan(y - 0.5, y + 0.5, color="0.95", lw=0)
        axes.text(0, y, name, va="center", fontsize=8.5)
        for x, (words, right) in enumerate(cells):
            colour = GREY if words.startswith("refused") else BLUE if right else RED
            axes.text(1.4 + x, y, words, va="center", fontsize=8.5, color=colour)
    return figure


def views(runs: Table) -> dict[str, str]:
    """Tables for pages, as Markdown by name."""
    columns, table = rows(of_kind(runs, OnPlane), of_kind(runs, OnNetwork), of_kind(runs, Refusals))
    made = {
        "optimizers.orders": [
            ["optimizer", *columns],
            *(
                [f"`{name}`", *(words if right or right is None else f"*{words}*" for words, right in cells)]
                for name, cells in table.items()
            ),
        ],
        "optimizers.practice": [
            ["optimizer", "activation", "$h$", "distance to modified over plain flow", "correction over $u_0$"],
            *(
                [run.config.name, run.config.activation, f"{h:g}", f"{ratio:.3f}", f"{size:.4f}"]
                for run in of_kind(runs, InPractice)
                for h, ratio, size in zip(run.metrics["learning_rate"], ratios(run), run.metrics["ratio"], strict=True)
            ),
        ],
        "optimizers.momentum": [
            ["network", "effective rate", "b = 0.5", "b = 0.8", "b = 0.9", "b = 0.95"],
            *(
                [run.config.activation, f"{rate:g}", *(f"{each:.2f}" for each in times)]
                for run in of_kind(runs, MomentumRate)
                for rate, times in zip(run.metrics["rates"], run.metrics["times"], strict=True)
            ),
        ],
    }
    return {name: _markdown(lines) for name, lines in made.items() if len(lines) > 1}


def _markdown(lines: list[list[str]]) -> str:
    width = len(lines[0])
    whole = [line + [""] * (width - len(line)) for line in (lines[0], ["---"] * width, *lines[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in whole)
