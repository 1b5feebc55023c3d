"""Which paths are computed: the networks, their sizes at each scale, and the learning rates of the ladder."""

from dataclasses import dataclass
from typing import Any

from igr.lab.experiments.theorem.paths import Paths
from igr.lab.runs.unit import Trial
from igr.lab.store.config import Config, ConfigError, Scale, option

NETWORKS: tuple[dict[str, Any], ...] = (
    {"activation": "tanh"},
    {"activation": "gelu"},
    {"network": "cnn", "activation": "gelu", "width": 4},
    {"activation": "relu"},
)
SIZES: dict[Scale, dict[str, Any]] = {
    Scale.SMOKE: {"width": 4, "depth": 1, "examples": 20, "rates": (0.25, 0.125, 0.0625), "time": 2.0, "samples": 4},
    Scale.QUICK: {"width": 8, "examples": 100, "rates": (0.5, 0.25, 0.125, 0.0625), "time": 8.0, "samples": 16},
    Scale.PAPER: {"width": 16, "examples": 100, "rates": (0.5, 0.25, 0.125, 0.0625, 0.03125), "time": 16.0,
                  "samples": 32},
}  # fmt: skip
LARGE: dict[str, Any] = {"data": "mnist", "width": 64, "examples": 5000, "rates": (0.25, 0.125, 0.0625, 0.03125),
                         "time": 16.0, "samples": 64}  # fmt: skip


@dataclass(frozen=True)
class Options(Config):
    """The options of `igr run theorem`."""

    seeds: int = option("seeds for each network; 0 takes three", 0)

    def check(self) -> None:
        """Validate the count."""
        if self.seeds < 0:
            raise ConfigError(f"seeds must not be negative, and it is {self.seeds}.")


def trials(scale: Scale, options: Options | None = None) -> list[Trial]:
    """Each network with each seed on digits; at paper scale also larger ones on 5,000 images of MNIST, for a GPU."""
    seeds = (options or Options()).seeds or (1 if scale is Scale.SMOKE else 3)
    networks = NETWORKS[:1] if scale is Scale.SMOKE else NETWORKS
    units: list[Trial] = [Paths(**{**SIZES[scale], **n}, seed=s) for n in networks for s in range(seeds)]
    if scale is Scale.PAPER:
        units += [
            Paths(**{**LARGE, **n, **({"width": 8} if "network" in n else {})}, seed=s)
            for n in networks
            for s in range(seeds)
        ]
    return units
