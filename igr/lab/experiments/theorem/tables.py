"""Tables of the theorem on networks for pages: orders, and how long the modified flow keeps its lead."""

import numpy as np

from igr.lab.analysis.markdown import markdown
from igr.lab.experiments.theorem.paths import FLOWS
from igr.lab.experiments.theorem.views import Architecture, architectures, lost_at, order, peak, ratio, step_order
from igr.lab.store.store import Table


def views(runs: Table) -> dict[str, str]:
    """The tables by name."""
    groups = architectures(runs)
    return {"theorem.orders": orders(groups), "theorem.lead-by-rate": lead(groups)} if groups else {}


def _mean(values: list[float]) -> str:
    known = [value for value in values if np.isfinite(value)]
    return f"{np.mean(known):.2f}" if known else "–"


def orders(groups: list[Architecture]) -> str:
    """The observed orders of each network, means over its seeds."""
    lines = []
    for each in groups:
        steps = [_mean([step_order(run, flow) for run in each.runs]) for flow in range(2)]
        paths = [_mean([order(run, flow) for run in each.runs]) for flow in range(3)]
        lines.append([each.name, str(len(each.runs)), *steps, *paths])
    head = ["network", "seeds", *(f"one step, {name}" for name in FLOWS[:2]), *(f"path, {name}" for name in FLOWS)]
    return markdown(head, lines)


def lead(groups: list[Architecture]) -> str:
    """For each network and learning rate the ratio of distances at the end, and when the lead was lost."""
    lines = []
    for each in groups:
        lost, top = np.array([lost_at(run) for run in each.runs]), np.array([peak(run) for run in each.runs])
        end = np.array([ratio(run)[:, -1] for run in each.runs])
        for i, h in enumerate(each.rates):
            gone = lost[:, i][np.isfinite(lost[:, i])]
            when = f"{len(gone)} of {len(lost)}, at $t$ = {np.median(gone):g}" if gone.size else "none"
            last = np.median(end[:, i])
            size = f"{np.nanmax(top[:, i]):.2g}"
            lines.append([each.name, f"{h:g}", size, f"{last:.2g}" if np.isfinite(last) else "not finite", when])
    head = [
        "network",
        "$h$",
        r"largest $h\lambda_{max}$",
        "distance ratio at the end, median",
        "seeds that lose the lead",
    ]
    return markdown(head, lines)
