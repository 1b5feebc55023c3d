"""The card of the theorem: the distances of figure 1a from start I."""

from matplotlib.figure import Figure

from igr.lab.experiments.two_parameter.model import TABLE
from igr.lab.experiments.two_parameter.views import distances
from igr.lab.plots.style import GREEN, ORANGE, card_axes
from igr.lab.store.store import Table


def cards(runs: Table) -> dict[str, Figure]:
    """The card that `runs` suffice for."""
    found = distances(runs, TABLE[0], accurate=True)
    if found is None:
        return {}
    figure, axes = card_axes()
    axes.plot(found.steps, found.gradient, color=GREEN, ls="--", label="gradient flow")
    axes.plot(found.steps, found.modified, color=ORANGE, label="modified flow")
    axes.set(xlabel="step of gradient descent", ylabel="distance to the", ylim=(0, None))
    axes.legend(loc="best")
    return {"theorem": figure}
