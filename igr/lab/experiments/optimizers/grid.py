"""Beyond the paper: the modified equation of every optimizer, its declared future work."""

from typing import TYPE_CHECKING

from igr.lab.experiments.optimizers.captions import CAPTIONS as CAPTIONS
from igr.lab.experiments.optimizers.constructors import DRAWN, SMOOTH
from igr.lab.experiments.optimizers.predictions import AdamMap, Batches, MomentumRate, Refusals
from igr.lab.experiments.optimizers.problems import ACTIVATIONS
from igr.lab.experiments.optimizers.trials import InPractice, OnNetwork, OnPlane, Path
from igr.lab.runs.unit import Trial
from igr.lab.store.config import Scale
from igr.lab.store.store import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from igr.lab.analysis.findings import Finding

CLAIM = (
    "An optimizer follows its own update rule computed with gradients that are k + 1/2 steps late, k steps ago being "
    "its memory: with second order in the step size, where its plain flow is of first order."
)

RATES = (1e-2, 3e-3, 1e-3, 3e-4)  # of momentum; the others have those of `InPractice`


def trials(scale: Scale) -> list[Trial]:
    """All constructors at paper scale, those of the figures at quick scale, two at smoke scale."""
    if scale is Scale.SMOKE:
        return [Path("momentum"), OnPlane("momentum"), OnPlane("lion"), AdamMap(points=3)]
    if scale is Scale.QUICK:
        return [
            *(Path(name, rate) for name, rate in DRAWN.items()),
            *(OnPlane(name, steps=(128, 256)) for name in DRAWN),
            OnNetwork("momentum", steps=(64, 128)),
            OnNetwork("adam", "gelu", steps=(64, 128)),
            InPractice("momentum", learning_rates=(1e-2, 1e-3)),
            InPractice("adamw", learning_rates=(1e-4, 1e-5)),
            MomentumRate(rates=(1e-3,)),
            AdamMap(points=6),
            Batches(),
            Refusals(),
        ]
    return [
        *(Path(name, rate) for name, rate in DRAWN.items()),
        *(OnPlane(name) for name in SMOOTH),
        *(MomentumRate(activation) for activation in ACTIVATIONS),
        *(Batches(activation, pairs=(8, 16, 32, 64)) for activation in ACTIVATIONS),
        AdamMap(),
        Refusals(),
        *(OnNetwork(name, activation) for name in SMOOTH for activation in ACTIVATIONS),
        *_in_practice(),
    ]


def _in_practice() -> list[Trial]:
    """Where the rule stops being useful: ladders over h in each unit, over b2, eps and the activation.

    Where the modified flow is stiff, one Runge-Kutta step in four optimizer steps diverges: there it is one in one.
    """
    return [
        *(InPractice("adamw", kind) for kind in ACTIVATIONS),
        *(InPractice("adamw", b2=b2) for b2 in (0.9, 0.99)),
        *(InPractice("adamw", eps=eps) for eps in (1e-1, 1e-2)),
        InPractice("adamw", eps=1e-8, substeps=4),
        InPractice("rmsprop"),
        *(
            InPractice(name, kind, learning_rates=RATES, substeps=1 if kind == "tanh" else 4)
            for name in ("momentum", "nesterov")
            for kind in ACTIVATIONS
        ),
        *(InPractice(name, kind) for name in ("muon", "lion") for kind in ("tanh", "gelu")),
    ]


def figures(runs: Table) -> "dict[str, Figure]":
    """The figures that the stored `runs` suffice for, by name."""
    from igr.lab.experiments.optimizers.figures import figures

    return figures(runs)


def findings(runs: Table) -> "list[Finding]":
    """The claims with the numbers measured in `runs`."""
    from igr.lab.experiments.optimizers.findings import findings

    return findings(runs)


def views(runs: Table) -> dict[str, str]:
    """Tables for pages, as Markdown by name."""
    from igr.lab.experiments.optimizers.tables import views

    return views(runs)
