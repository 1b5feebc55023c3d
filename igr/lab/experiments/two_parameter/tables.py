"""Tables of the two-parameter model for pages: where the runs of table A.1 end, and the boundaries of the regimes."""

import math

from igr.lab.analysis.markdown import markdown
from igr.lab.experiments.two_parameter.model import TABLE, Descent, Flow
from igr.lab.experiments.two_parameter.scans import RateScan
from igr.lab.experiments.two_parameter.views import norm, pick, regimes
from igr.lab.store.store import Table

NAMES = {"moderate": "lazy to moderate", "ricochet": "moderate to ricochet", "divergent": "ricochet to divergent"}


def views(runs: Table) -> dict[str, str]:
    """The tables by name, where their runs are stored."""
    scan = pick(runs, RateScan)
    made = {"two-parameter.ends": ends(runs)}
    if scan:
        found = regimes(scan)
        lines = [
            [NAMES[name], f"{found.observed[name]:.4g}", f"{found.theory[name]:.4g}",
             f"{found.observed[name] / found.theory[name]:.2f}"]
            for name in NAMES if name in found.observed
        ]  # fmt: skip
        made["two-parameter.boundaries"] = markdown(["boundary", "observed", "theory", "observed / theory"], lines)
    return made


def ends(runs: Table) -> str:
    """The last parameters of each path from the starts of table A.1."""
    lines = []
    for row in TABLE:
        for run in runs:
            mine = isinstance(run.config, (Descent, Flow)) and run.config.start == row.start
            if mine and norm(run) < math.hypot(*row.start):  # others diverged
                a, b = run.metrics["params"][-1]
                steps = f"{int(run.metrics['step'][-1]):,}" if isinstance(run.config, Descent) else ""
                lines.append([f"{row.name} {row.start}", run.config.label.partition(", ")[2], f"({a:.6f}, {b:.6f})",
                              f"{norm(run):.3f}", steps])  # fmt: skip
    return markdown(["from", "run", "ends at $(a, b)$", "norm", "steps"], lines)
