"""The figures of the two-parameter model, from stored runs."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from igr.lab.experiments.two_parameter.model import CONVERGED, TABLE, Descent, Row
from igr.lab.experiments.two_parameter.scans import PenaltyScan, RateScan, crosses
from igr.lab.experiments.two_parameter.views import (
    LEAST_NORM,
    TEST_POINT,
    distances,
    held_out_error,
    leaps,
    path_of,
    pick,
    regimes,
)
from igr.lab.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, arrows, axes_grid, axis_label
from igr.lab.store.store import Table

RATE = axis_label("learning rate", "$h$", "learning_rate")
RATIO = axis_label("$R_{IG}/E$ at the end", "", "r_ig / loss")
MU = axis_label("explicit rate", r"$\mu$ on $R_{IG}$", "mu")
SHADES = {"lazy": "#E8F3EE", "moderate": "#FFF4DC", "ricochet": "#FBE3D6", "divergent": "#E6E6E6"}


def figures(runs: Table) -> dict[str, Figure]:
    """The figures that `runs` suffice for: 1a, 1b, A.1 and A.2, the distances of 1a, and the phases of the rate."""
    scan, penalties = pick(runs, RateScan), pick(runs, PenaltyScan)
    drawn = {}
    if any(isinstance(run.config, Descent) for run in runs):
        drawn |= {"two-parameter-1a": paths(runs), "two-parameter-A1": ricochet(runs)}
    if all(distances(runs, row, accurate) is not None for row in TABLE for accurate in (True, False)):
        drawn["two-parameter-distances"] = distance_curves(runs)
    if scan is not None:
        drawn["two-parameter-1b"] = ratio_by_rate(scan)
        drawn["two-parameter-phases"] = phases(scan)
    if penalties is not None:
        drawn["two-parameter-A2"] = held_out(penalties)
    return drawn


def _plane(axes: Any, left: float, right: float, low: float, high: float) -> None:
    """The parameter plane: the field -grad E, the line of minima a b = y/x, and its point of least norm."""
    axes.set(xlim=(left, right), ylim=(low, high), xlabel="$a$ (params[0])", ylabel="$b$ (params[1])")
    axes.set_aspect("equal", adjustable="box")
    arrows(axes, lambda a, b: (b * (0.6 - a * b), a * (0.6 - a * b)))
    positive, negative = np.geomspace(0.02, right, 400), -np.geomspace(0.02, max(-left, 0.03), 400)
    axes.plot(positive, 0.6 / positive, "k--", lw=1.1, zorder=2, label=r"minima, $ab=y/x$")
    if left < 0:
        axes.plot(negative, 0.6 / negative, "k--", lw=1.1, zorder=2)
    axes.plot(*[np.sqrt(0.6)] * 2, "kx", ms=9, mew=2.2, zorder=6, label="least norm", ls="none")


def _draw(axes: Any, run: Any, **style: Any) -> None:
    """A path and its end. Euler steps that cross the line of minima are thin, since they follow no flow."""
    if run is None:
        return
    params, leapt = run.metrics["params"], 0
    if isinstance(run.config, Descent) and run.config.mu > 0 and leaps(run):
        leapt = 1 + int(np.flatnonzero(crosses(tuple(params[:-1].T), tuple(params[1:].T)))[-1])
        axes.plot(*params[: leapt + 1].T, color=style["color"], lw=0.7, ls=":", zorder=style["zorder"])
    axes.plot(*params[leapt:].T, **style)
    if run.metrics["outcome"] == CONVERGED:
        axes.plot(*params[-1], "o", ms=4.5, color=style["color"], mec="white", mew=0.6, zorder=7)


def _row(axes: Any, runs: Table, row: Row, named: bool, accurate: bool) -> None:
    def label(text: str) -> str | None:
        return text if named else None

    small = pick(runs, Descent, start=row.start, learning_rate=row.small, mu=0.0)
    moderate = pick(runs, Descent, start=row.start, learning_rate=row.moderate, mu=0.0)
    modified, explicit = (path_of(runs, row, mu, accurate) for mu in (row.moderate / 2, row.mu))
    _draw(axes, small, color=GREEN, lw=2.4, zorder=3, label=label("descent, $h_S$"))
    _draw(axes, modified, color=ORANGE, lw=2.4, zorder=3, label=label(r"modified flow, $\lambda=h_M/2$"))
    _draw(axes, moderate, color=RED, lw=1.0, marker=".", ms=4, zorder=4, label=label("descent, $h_M$"))
    _draw(axes, explicit, color=BLUE, ls=(0, (4, 1.6)), lw=1.8, zorder=5, label=label(r"explicit, $\mu$"))


def paths(runs: Table) -> Figure:
    """Figure 1a, with the flows by the paper's Euler steps and by an accurate solver side by side."""
    figure, panels = axes_grid(1, 2, size=(4.3, 4.1), sharey=True)
    for axes, accurate in zip(panels, (False, True), strict=True):
        _plane(axes, 0.0, 4.4, 0.0, 4.4)
        for row in TABLE:
            _row(axes, runs, row, named=row is TABLE[0], accurate=accurate)
        axes.plot(*TABLE[0].start, "s", color="0.25", ms=5, zorder=8)
        axes.annotate("start I", TABLE[0].start, xytext=(-7, 5), textcoords="offset points", fontsize=8, ha="right")
        box = {"fc": "white", "ec": "none", "pad": 1.0}
        axes.text(
            3.95,
            4.24,
            "start II, off the plot: (75, 74.925) $\\nearrow$",
            fontsize=8,
            ha="right",
            va="center",
            bbox=box,
        )
        euler = path_of(runs, TABLE[1], TABLE[1].mu, accurate=False)
        if not accurate and euler is not None and leaps(euler):
            axes.text(
                1.62, 1.8, "first steps cross over", fontsize=7, color=BLUE, rotation=45, ha="center", va="center"
            )
        axes.set_title("flows by Euler steps (paper)" if not accurate else "flows solved accurately")
    panels[1].set_ylabel("")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=6)
    return figure


def ratio_by_rate(scan: Any) -> Figure:
    """Figure 1b: R_IG/E at the end of training against the learning rate, up to where descent diverges."""
    sorted_, rates = regimes(scan), scan.metrics["learning_rate"]
    figure, axes = axes_grid(size=(4.6, 3.7))
    done = sorted_.names != "divergent"
    axes.plot(rates[done], sorted_.ratio[done], color="0.75", lw=0.8, zorder=1)
    size = 3.6 if done.sum() < 300 else 2.2
    for name, marker, colour in (("lazy", "o", GREEN), ("moderate", "s", ORANGE), ("ricochet", "^", RED)):
        keep = sorted_.names == name
        axes.plot(rates[keep], sorted_.ratio[keep], marker, color=colour, ms=size, label=f"descent, {name}", zorder=3)
    axes.plot(rates[done], sorted_.predicted[done], color=BLUE, ls="-.", lw=1.3, label="end of the modified flow")
    axes.axhline(LEAST_NORM**2, color="k", ls=":", lw=1.1)
    axes.text(0.003, LEAST_NORM**2 - 0.12, "least norm, $2y/x$", fontsize=8, va="top")
    edge = sorted_.observed["divergent"]
    top = float(max(sorted_.ratio[done].max(), sorted_.flow_ratio)) * 1.08
    right = 1.1 * edge if np.isfinite(edge) else float(rates[-1])
    if np.isfinite(edge):
        axes.axvspan(edge, right, color=SHADES["divergent"], lw=0, zorder=0)
        axes.text((edge + right) / 2, 0.5 * top, "diverges", rotation=90, ha="center", va="center", fontsize=8)
    axes.set(xlabel=RATE, ylabel=RATIO, xlim=(0, right), ylim=(0, top))
    axes.set_title(f"from start I, {int(done.sum())} learning rates")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def ricochet(runs: Table) -> Figure:
    """Figure A.1: a large learning rate steps over the line of minima, a small one follows the flow."""
    row = TABLE[0]
    figure, axes = axes_grid(size=(4.6, 4.3))
    large = pick(runs, Descent, start=row.start, learning_rate=row.large, mu=0.0)
    limit = 4.2 if large is None else 1.12 * float(np.abs(large.metrics["params"]).max())
    _plane(axes, -limit, limit, -limit, limit)
    small = pick(runs, Descent, start=row.start, learning_rate=row.small, mu=0.0)
    _draw(axes, small, color=GREEN, lw=2.6, zorder=3, label=f"descent, $h_S$ = {row.small:g}")
    if large is not None:
        _draw(axes, large, color=RED, lw=1.2, marker="o", ms=4, zorder=4, label=f"descent, $h_L$ = {row.large:g}")
        for step, (point, offset) in enumerate(
            zip(large.metrics["params"], ((6, 3), (-10, -8), (5, 5), (7, -8)), strict=False)
        ):
            axes.annotate(f"{step}", point, xytext=offset, textcoords="offset points", fontsize=8, color=RED)
    axes.set_title("the ricochet, steps numbered")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def held_out(penalties: Any) -> Figure:
    """Figure A.2: test error against the amount of explicit regularization, at the end and before it."""
    metrics = penalties.metrics
    mu, done = metrics["mu"], metrics["outcome"] == CONVERGED
    figure, (end, before) = axes_grid(1, 2, size=(4.1, 3.5))
    flow_end = metrics["flow_params"][:, -1]
    by_steps = held_out_error(metrics["params"][done])
    end.plot(
        mu[done],
        by_steps,
        "o",
        color=BLUE,
        ms=5,
        mfc="none",
        mew=0.8,
        markevery=max(1, len(mu) // 20),
        label="Euler steps (paper)",
    )
    end.plot(mu, held_out_error(flow_end), color=BLUE, lw=1.2, label="accurate flow")
    x, sigma = TEST_POINT[0], 0.3
    noisy = held_out_error(flow_end) + x**2 * sigma**2 * (np.sum(flow_end**2, axis=-1) + sigma**2) / 2
    end.plot(mu, noisy, color=PURPLE, ls="--", label=rf"mean over noise $\sigma={sigma}$ added to $a$, $b$")
    end.set(xlabel=MU, ylabel=f"test error at $x={x:g}$, $y={TEST_POINT[1]:g}$", ylim=(0, 1.55 * float(noisy.max())))
    end.set_title("(a) at the end of training")
    end.legend(loc="upper right")
    times = metrics["flow_times"][:-1]
    colours, dashes = (SKY, BLUE, GREEN, ORANGE, RED, PURPLE), ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
    for index, t in enumerate(times):
        values = held_out_error(metrics["flow_params"][:, index])
        style = {"color": colours[index % 6], "ls": dashes[index % 6]}
        before.plot(mu, values, label=f"$t={t:g}$", **style)
    before.set(xlabel=MU, ylabel="test error", yscale="log")
    before.set_ylim(3e-6, 3e2)
    before.text(0.97, 0.03, "zero where $ab=1.2$", transform=before.transAxes, fontsize=7.5, ha="right")
    before.set_title("(b) at a fixed time, accurate flow")
    before.legend(ncols=3, loc="upper right")
    return figure


def distance_curves(runs: Table) -> Figure:
    """The distances of figure 1a: from descent at h_M to the gradient flow and to the modified flow."""
    figure, panels = axes_grid(1, 2, size=(3.9, 3.1))
    for axes, row in zip(panels, TABLE, strict=True):
        for accurate, dash, word in ((True, "-", "accurate"), (False, ":", "Euler")):
            found = distances(runs, row, accurate)
            assert found is not None
            steps = np.maximum(found.steps, 0.5)
            axes.plot(steps[1:], found.gradient[1:], ls=dash, color=GREEN, label=f"to the gradient flow, {word}")
            axes.plot(steps[1:], found.modified[1:], ls=dash, color=ORANGE, label=f"to the modified flow, {word}")
        axes.set(
            xscale="log", yscale="log", xlabel="step of gradient descent (step)", ylabel=r"distance $|\theta-\theta'|$"
        )
        axes.set_title(f"start {row.name}, $h_M$ = {row.moderate:g}")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def phases(scan: Any) -> Figure:
    """All learning rates: what was observed, and h times the largest eigenvalue of the Hessian."""
    sorted_, metrics = regimes(scan), scan.metrics
    rates, done = metrics["learning_rate"], sorted_.names != "divergent"
    left = max(float(rates[0]), 1e-3)
    figure, (top, bottom) = axes_grid(2, 1, size=(6.6, 2.7), sharex=True)
    edges = [left, *(sorted_.observed[name] for name in ("moderate", "ricochet", "divergent")), float(rates[-1])]
    for name, low, high in zip(SHADES, edges[:-1], edges[1:], strict=True):
        if np.isfinite(low) and np.isfinite(high):
            for axes in (top, bottom):
                axes.axvspan(low, high, color=SHADES[name], lw=0, zorder=0)
            place = {"transform": top.get_xaxis_transform(), "ha": "center", "va": "bottom", "fontsize": 8.5}
            top.text(np.sqrt(low * high), 1.02, name, **place)
    top.plot(rates[done], sorted_.ratio[done], ".", color=RED, ms=4, zorder=4, label="gradient descent")
    top.plot(rates, sorted_.predicted, color=BLUE, ls="-.", lw=1.4, zorder=3, label="modified flow")
    top.axhline(sorted_.flow_ratio, color=GREEN, ls="--", lw=1.2, zorder=2, label="gradient flow")
    top.plot(rates, 2 / rates, color="k", lw=1.1, zorder=2, label="$2/h$: a minimum above it is unstable")
    top.plot(rates, 1 / rates, color="k", lw=1.1, ls=":", zorder=2, label="$1/h$: above it steps alternate sides")
    top.set(yscale="log", ylim=(1, 40), ylabel="$R_{IG}/E=\\lambda_{max}$ at the end\n(r_ig / loss)")
    top.set_yticks([1, 2, 5, 10, 20], minor=False)
    top.minorticks_off()
    top.legend(loc="upper left")
    largest = metrics["h_sharpness_max"][done]
    bottom.plot(rates[done], largest, color=PURPLE, ls="--", label="largest along the path")
    bottom.plot(rates[done], metrics["h_sharpness_end"][done], ".", color=RED, ms=4, label="at the end")
    bottom.axhline(1, color="k", ls=":", lw=1.1)
    bottom.axhline(2, color="k", lw=1.1)
    bottom.text(left * 1.08, 2.2, "2: stability", fontsize=8, va="bottom")
    bottom.text(left * 1.08, 0.88, "1: end of the modified flow", fontsize=8, va="top")
    for name, dash, text in (("ricochet", ":", "theory 1"), ("divergent", "-", "theory 2")):
        for axes in (top, bottom):
            axes.axvline(sorted_.theory[name], color=GREY, ls=dash, lw=1.0, zorder=1)
        place = {"rotation": 90, "ha": "right", "va": "bottom", "fontsize": 7.5, "color": "0.35"}
        bottom.text(sorted_.theory[name] * 0.98, 0.0062, text, **place)
    bottom.set(xscale="log", yscale="log", xlabel=RATE, ylabel=r"$h\,\lambda_{max}$ (h_sharpness)")
    bottom.set(xlim=(left, float(rates[-1])), ylim=(0.005, 15))
    for axis in (bottom.xaxis, bottom.yaxis, top.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bottom.legend(loc="lower right")
    return figure
