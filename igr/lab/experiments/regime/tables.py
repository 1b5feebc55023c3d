"""Tables of the page on the regime, from the stored runs."""

import numpy as np

from igr.lab.analysis.markdown import markdown
from igr.lab.experiments.regime.views import (
    WORDS,
    at_rate,
    best_rate,
    mean_accuracy,
    networks,
    points,
    rates,
)
from igr.lab.store.store import Table


def views(runs: Table) -> dict[str, str]:
    """The tables by name, where there are runs."""
    return {"regime.by-rate": by_rate(runs), "regime.by-verdict": by_verdict(runs)} if runs else {}


def by_rate(runs: Table) -> str:
    """For each network and learning rate the shares of the training by verdict, and the test accuracy at the end."""
    lines = []
    for name, some in networks(runs):
        best = best_rate(some)
        for h in rates(some):
            seen = points(at_rate(some, h))
            cells = [f"{seen.share(word):.0%}" if seen.share(word) else "" for word in WORDS]
            accuracy = f"{mean_accuracy(some, h):.3f}"
            shown = f"**{accuracy}**" if h == best else accuracy
            lines.append([name, f"{h:g}", *cells, shown, str(len(at_rate(some, h)))])
    return markdown(["network", "$h$", *WORDS, "test accuracy", "n"], lines)


def by_verdict(runs: Table) -> str:
    """What a verdict is worth: the measured errors of one step, for smooth networks and for ReLU."""
    lines = []
    for kind, kinked in (("smooth", False), ("ReLU", True)):
        some = [run for run in runs if (run.config.activation == "relu") == kinked]
        seen = points(some)
        for word in WORDS if some else ():
            mine = seen.measured[(seen.word == word) & seen.trusted]
            if len(mine):
                sizes = [f"{size:.2g}" for n in range(2) for size in (np.median(mine[:, n]), mine[:, n].max())]
                lines.append([kind, word, *sizes, str(len(mine))])
    head = ["activation", "verdict", "gradient flow, median", "largest", "modified flow, median", "largest", "n"]
    return markdown(head, lines)
