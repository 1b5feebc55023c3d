"""Theorem 3.1 on networks: how far descent is from each flow, for a ladder of learning rates.

The paper shows its theorem on the two-parameter model. Here are tanh, GELU and ReLU MLPs and a small CNN, trained on
the full batch in float64, with gradient descent and three flows from one start. ReLU has kinks, at which the theorem's
assumption of a smooth loss fails.
"""

from typing import TYPE_CHECKING

from igr.lab.experiments.theorem.captions import CAPTIONS as CAPTIONS
from igr.lab.experiments.theorem.plan import Options as Options
from igr.lab.experiments.theorem.plan import trials as trials
from igr.lab.store.store import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from igr.lab.analysis.findings import Finding
CLAIM = (
    "Gradient descent on networks stays closer to the flow of the modified loss E + (h/4) |grad E|^2 than to the "
    "gradient flow: over a fixed time its distance to the former is O(h^2), to the latter O(h)."
)


def figures(runs: Table) -> "dict[str, Figure]":
    """The figures that the stored `runs` suffice for, by name."""
    from igr.lab.experiments.theorem.figures import figures

    return figures(runs)


def findings(runs: Table) -> "list[Finding]":
    """The theorem's claims with the numbers measured in `runs`."""
    from igr.lab.experiments.theorem.findings import findings

    return findings(runs)


def views(runs: Table) -> dict[str, str]:
    """Tables for pages, as Markdown by name."""
    from igr.lab.experiments.theorem.tables import views

    return views(runs)


def cards(runs: Table) -> "dict[str, Figure]":
    """The small figure of the theorem, by its key in `PREDICTIONS`."""
    from igr.lab.experiments.theorem.figures import cards

    return cards(runs)
