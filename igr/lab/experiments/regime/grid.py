"""Does the moderate regime overlap with the learning rates that deep learning uses? The regime along training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from igr.lab.experiments.regime.captions import CAPTIONS as CAPTIONS
from igr.lab.experiments.regime.residual import AlongResNet
from igr.lab.experiments.regime.training import Along
from igr.lab.runs.unit import Trial
from igr.lab.store.config import Config, ConfigError, Scale, option
from igr.lab.store.store import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from igr.lab.analysis.findings import Finding

CLAIM = (
    "The moderate regime, where the modified loss describes the steps, overlaps with the learning rates at which "
    "networks are trained."
)

ACTIVATIONS = ("relu", "gelu", "tanh")
KINDS = (*((name, "cross_entropy") for name in ACTIVATIONS), ("tanh", "squared"))
RATES = (0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6)
PAPER_RATES = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5)  # of the paper's section 6
RESNET_RATES = (0.005, 0.02, 0.1, 0.2, 0.8)  # four of the experiment on ResNet-18, and one beyond


@dataclass(frozen=True)
class Options(Config):
    """What may be changed on the command line."""

    seeds: int = option("networks for each activation and learning rate; 0 takes the scale's number", 0)

    def check(self) -> None:
        """A count."""
        if self.seeds < 0:
            raise ConfigError(f"seeds must be 0 or positive, and it is {self.seeds}.")


def trials(scale: Scale, options: Options | None = None) -> list[Trial]:
    """Full-batch descent on digits; at paper scale also the paper's MLPs on MNIST and ResNet-18 on CIFAR-10."""
    wanted = (options or Options()).seeds
    if scale is Scale.SMOKE:
        small: dict[str, Any] = {"width": 8, "depth": 1, "examples": 60, "steps": 30, "samples": 4}
        return [Along(learning_rate=h, activation="tanh", seed=s, **small) for h in (0.03, 2.0) for s in range(3)]
    seeds = wanted or (2 if scale is Scale.QUICK else 5)
    length: dict[str, Any] = {} if scale is Scale.QUICK else {"steps": 3000, "samples": 16}
    grid: list[Trial] = [
        Along(learning_rate=h, activation=activation, loss=loss, seed=seed, **length)
        for activation, loss in KINDS
        for h in RATES
        for seed in range(seeds)
    ]
    return grid + (_paper(seeds) if scale is Scale.PAPER else [])


def _paper(seeds: int) -> list[Trial]:
    """The paper's networks, smallest first: a CPU does the first in minutes, the others are for a GPU."""
    mnist: dict[str, Any] = {"data": "mnist", "depth": 5, "batch_size": 32}
    small: dict[str, Any] = {"width": 50, "examples": 500, "steps": 10_000, "samples": 10}
    large: dict[str, Any] = {"width": 400, "examples": 2000, "steps": 20_000, "samples": 24}
    perceptrons: list[Trial] = [
        Along(learning_rate=h, activation=activation, seed=seed, **mnist, **size)
        for size, some in ((small, 1), (large, min(seeds, 3)))
        for activation in ACTIVATIONS
        for h in PAPER_RATES
        for seed in range(some)
    ]
    residual: list[Trial] = [AlongResNet(learning_rate=h, activation=a) for a in ACTIVATIONS for h in RESNET_RATES]
    return perceptrons + residual


def figures(runs: Table) -> "dict[str, Figure]":
    """The figures that the stored `runs` suffice for, by name."""
    from igr.lab.experiments.regime.figures import figures

    return figures(runs)


def views(runs: Table) -> dict[str, str]:
    """Tables for pages, as Markdown by name."""
    from igr.lab.experiments.regime.tables import views

    return views(runs)


def findings(runs: Table) -> "list[Finding]":
    """The claims with the numbers measured in `runs`."""
    from igr.lab.experiments.regime.findings import findings

    return findings(runs)
