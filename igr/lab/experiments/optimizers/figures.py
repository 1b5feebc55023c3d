"""The figures of the optimizers, from stored runs."""

from typing import Any

import numpy as np
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from igr.lab.experiments.optimizers.constructors import DRAWN
from igr.lab.experiments.optimizers.predictions import AdamMap, Batches, MomentumRate, Refusals
from igr.lab.experiments.optimizers.tables import orders_table
from igr.lab.experiments.optimizers.trials import InPractice, OnNetwork, OnPlane, Path
from igr.lab.experiments.optimizers.views import FIELDS, MODIFIED, PLAIN, ends, of_kind, orders, ratios
from igr.lab.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, axes_grid
from igr.lab.store.store import Run, Table

RATE = "learning rate $h$ (learning_rate)"
LOOKS = ((GREY, "o--"), (BLUE, "s-"), (ORANGE, "^:"), (GREEN, "v-."))
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY)
MARKS = "os^vDP*"


def figures(runs: Table) -> dict[str, Figure]:
    """The figures of the runs that are stored."""
    plane, networks = of_kind(runs, OnPlane), of_kind(runs, OnNetwork)
    practice, momentum = of_kind(runs, InPractice), of_kind(runs, MomentumRate)
    made: dict[str, Figure] = {}
    if drawn := of_kind(runs, Path):
        made["optimizers-paths"] = _paths(drawn)
    if plane:
        made["optimizers-orders"] = _panels(plane, _distances)
        made["optimizers-table"] = orders_table(plane, networks, of_kind(runs, Refusals))
    if networks:
        made["optimizers-networks"] = _panels(
            [run for run in networks if run.config.optimizer in DRAWN], _distances, named=True
        )
    if practice:
        made["optimizers-practice"] = _practice(practice)
        made["optimizers-along"] = _along(practice)
    if momentum:
        made["optimizers-momentum"] = _momentum(momentum)
    for run in of_kind(runs, AdamMap)[:1]:
        made["optimizers-map"] = _map(run)
    if batches := of_kind(runs, Batches):
        made["optimizers-batches"] = _batches(batches)
    return made


def _panels(runs: list[Run], draw: Any, size: tuple[float, float] = (2.3, 2.2), named: bool = False) -> Figure:
    columns = min(7 if named and len(runs) > 7 else 4 if len(runs) < 13 else 6, len(runs))
    rows = -(-len(runs) // columns)
    figure, grid = axes_grid(rows, columns, size=size, squeeze=False)
    for axes in grid.flat[len(runs) :]:
        axes.set_axis_off()
    for i, (axes, run) in enumerate(zip(grid.flat, runs, strict=False)):
        draw(axes, run)
        axes.set_title(f"{run.config.optimizer}, {run.config.activation}" if named else run.config.optimizer)
        if i % columns:
            axes.set_ylabel("")
        if i + columns < len(runs):
            axes.set_xlabel("")
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _paths(runs: list[Run]) -> Figure:
    """Above, the paths; below, their last steps, with the three places of one time joined."""
    last = 3
    figure, grid = axes_grid(2, len(runs), size=(2.1, 2.2), squeeze=False)
    for run, (above, below) in zip(runs, grid.T, strict=True):
        optimizer, plain, modified = np.moveaxis(run.metrics["paths"], 1, 0)
        for axes, since in ((above, 0), (below, len(plain) - last)):
            axes.plot(*plain[since:].T, "--" if not since else "o--", color=GREY, label="plain flow")
            axes.plot(*modified[since:].T, "-" if not since else "s-", color=BLUE, lw=2, label="modified flow")
            axes.plot(*optimizer[since:].T, "." if not since else ".:", lw=0.8, color=RED, ms=6, label="optimizer")
        low, high = above.get_xlim(), above.get_ylim()
        a = np.linspace(max(low[0], 0.05), low[1], 200)
        above.plot(a, 0.6 / a, "k:", lw=1, label="minima")
        above.set(xlim=low, ylim=high, title=f"{run.config.optimizer}\nh = {run.config.learning_rate:g}")
        below.set(xlabel="$a$")
        below.locator_params(nbins=4)
        below.set_title(f"steps {len(plain) - last} to {len(plain) - 1}", weight="normal", fontsize=8)
    for axes in grid[:, 0]:
        axes.set_ylabel("$b$")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _distances(axes: Any, run: Run) -> None:
    h = run.metrics["learning_rate"]
    for column, (name, order) in enumerate(zip(FIELDS, orders(run), strict=True)):
        colour, look = LOOKS[column]
        axes.loglog(h, ends(run)[:, column], look, color=colour, label=name)
        if column in (PLAIN, MODIFIED):
            axes.annotate(f"{order:.2f}", (h[0], ends(run)[0, column]), (5, -3), textcoords="offset points",
                          color=colour, fontsize=8, fontweight="bold", annotation_clip=False)  # fmt: skip
    axes.set(xlabel="learning rate $h$", ylabel="distance")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(h[[0, -1]], [f"{x:.1e}".replace("e-0", "e-") for x in h[[0, -1]]])
    axes.xaxis.set_minor_locator(NullLocator())


def _practice(runs: list[Run]) -> Figure:
    """The ratio of distances against the learning rate, a panel for each question."""
    adamw = [run for run in runs if run.config.optimizer == "adamw" and run.config.activation == "tanh"]
    linear = [run for run in runs if run.config.optimizer in ("momentum", "nesterov")]
    known = [*(adamw if len(adamw) > 1 else []), *linear]  # a single one has no panel of its own
    others = [run for run in runs if run not in known]
    panels = {
        "momentum 0.9": linear,
        "AdamW by $b_2$, eps 1e-3": sorted(
            (run for run in adamw if run.config.eps == 1e-3), key=lambda run: run.config.b2
        ),
        "AdamW by eps, $b_2$ = 0.95": sorted(
            (run for run in adamw if run.config.b2 == 0.95), key=lambda run: -run.config.eps
        ),
        "others on tanh": [run for run in others if run.config.activation == "tanh"],
        "other activations": [run for run in others if run.config.activation != "tanh"],
    }
    panels = {title: group for title, group in panels.items() if len(group) > ("by" in title)}
    figure, grid = axes_grid(1, len(panels), size=(3.1, 4.1), squeeze=False, sharey=True)
    for axes, (title, group) in zip(grid[0], panels.items(), strict=True):
        for i, run in enumerate(group):
            label = run.config.name.removeprefix("adamw, ") if "AdamW" in title else run.config.name
            label += f", {run.config.activation}" if run in linear or run.config.activation != "tanh" else ""
            axes.loglog(run.metrics["learning_rate"], ratios(run), MARKS[i % 7] + "-", color=COLOURS[i % 7],
                        label=label)  # fmt: skip
        axes.axhline(1, color="k", ls=":", lw=1)
        axes.set(xlabel="learning rate $h$", title=title)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    grid[0, 0].set_ylabel("distance to modified over plain flow")
    return figure


def _along(runs: list[Run]) -> Figure:
    """Distances along the way at one learning rate of each optimizer."""
    first: dict[str, Run] = {}
    for run in runs:
        c = run.config
        if c.activation == "tanh" and (c.optimizer not in first or (c.b2, c.eps) == (0.95, 1e-3)):
            first[c.optimizer] = run
    figure, grid = axes_grid(1, len(first), size=(2.5, 2.6), squeeze=False)
    for axes, run in zip(grid[0], first.values(), strict=True):
        h, distance = run.metrics["learning_rate"], run.metrics["distance"]
        at = len(h) // 2
        steps = np.arange(1, distance.shape[1] + 1) * run.config.steps / distance.shape[1]
        for column, (name, (colour, look)) in enumerate(zip(FIELDS, LOOKS, strict=True)):
            axes.semilogy(steps, distance[at, :, column], look[1:], color=colour, label=name)
        name, _, rest = run.config.name.partition(", ")  # two lines, which do not meet those of the neighbours
        axes.set(xlabel="step", title=name + "\n" + ", ".join(filter(None, (rest, f"h = {h[at]:g}"))))
    grid[0, 0].set_ylabel("distance")
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _momentum(runs: list[Run]) -> Figure:
    figure, axes = axes_grid(size=(4.4, 3.4))
    smooth = np.linspace(0.45, 0.955, 100)
    axes.semilogy(smooth, (1 + smooth) / (1 - smooth), "k-", lw=1, label="$(1 + b)/(1 - b)$")
    for i, run in enumerate(runs):
        for k, rate in enumerate(run.metrics["rates"]):
            axes.semilogy(run.metrics["decays"], run.metrics["times"][k], MARKS[i], color=COLOURS[k], fillstyle="none",
                          ms=5 + 2 * i, label=f"{run.config.activation}, $h/(1 - b)$ = {rate:g}")  # fmt: skip
    axes.set(xlabel="decay rate $b$ of momentum", ylabel="penalty, times that of descent")
    axes.set_yticks([3, 9, 19, 39], ["3", "9", "19", "39"])
    axes.yaxis.set_minor_locator(NullLocator())
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure


def _map(run: Run) -> Figure:
    figure, grid = axes_grid(1, 2, size=(4.4, 3.5))
    rates = run.metrics["rates"]
    where, ticks = -np.log10(1 - rates), np.array([0.5, 0.8, 0.9, 0.95, 0.99])
    parts = {
        "the correction over the update": (run.metrics["signed"], "RdBu"),
        f"the one-norm at Adam after {run.config.steps} steps": (run.metrics["one_norm_gained"], "RdBu_r"),
    }
    for axes, (title, (values, colours)) in zip(grid, parts.items(), strict=True):
        top = float(np.abs(values).max())
        norm = SymLogNorm(linthresh=top / 100, vmin=-top, vmax=top)
        image = axes.pcolormesh(where, where, values, cmap=colours, norm=norm, shading="nearest")
        axes.plot(where, where, "k:", lw=1)
        axes.set_xticks(-np.log10(1 - ticks), [f"{t:g}" for t in ticks])
        axes.set_yticks(-np.log10(1 - ticks), [f"{t:g}" for t in ticks])
        axes.set(xlabel="$b_1$", ylabel="$b_2$", title=title)
        bar = figure.colorbar(image, ax=axes, ticks=[-top, -top / 10, 0, top / 10, top])
        bar.ax.set_yticklabels([f"{t:.1g}" for t in (-top, -top / 10, 0, top / 10, top)])
        bar.ax.minorticks_off()
    return figure


def _batches(runs: list[Run]) -> Figure:
    figure, grid = axes_grid(1, len(runs), size=(3.0, 3.0), squeeze=False, sharey=True)
    names = ("the loss", "with the penalty of descent", "with the penalty of batches")
    for axes, run in zip(grid[0], runs, strict=True):
        h = run.metrics["learning_rate"]
        looks = (LOOKS[0], LOOKS[2], LOOKS[1])
        for column, (name, (colour, look)) in enumerate(zip(names, looks, strict=True)):
            axes.loglog(h, ends(run)[:, column], look, color=colour, label=name)
        axes.set(xlabel=RATE, title=f"{run.config.activation} network")
        axes.set_xticks(h, [f"1/{1 / x:.3g}" for x in h])
        axes.xaxis.set_minor_locator(NullLocator())
    grid[0, 0].set_ylabel("distance to the flow of")
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
