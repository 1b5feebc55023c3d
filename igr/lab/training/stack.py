"""A grid of hyper-parameters as a few units of work: networks of one shape form stacks, and each stack is a unit.

    networks = [Network(Shape(width=w), learning_rate=h, seed=s) for w in widths for h in rates for s in seeds]
    units = stacks(networks)

A `Network` is one trial. Networks that share a `Shape` can run in one compiled program. A `StackRun` is a unit of work
for `igr.lab.runs.local`: it is stored when finished, skipped when stored, and resumed when interrupted.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from igr.lab.runs.unit import Session, Trial
from igr.lab.store.config import Config, ConfigError, option
from igr.lab.training import loop
from igr.lab.training.config import PENALTIES, Shape
from igr.lab.training.optimizers import Optimizer

WORK = 3.2e13  # parameters times replicas times steps in one unit: some minutes on a large GPU


@dataclasses.dataclass(frozen=True)
class Network(Config):
    """One trial: a network and how it is trained."""

    shape: Shape = option("what it shares with the networks of its stack", default_factory=Shape)  # noqa: RUF009
    learning_rate: float = option("step size h", 0.1)
    mu: float = option("explicit rate: multiplies the squared norm of the gradient", 0.0)
    seed: int = option("decides the initial parameters and the batches", 0)
    rho: float = option("radius of sharpness-aware minimization, the method sam", 0.0)

    def check(self) -> None:
        """Validate rates and method."""
        _check_replicas(self.shape, [self.learning_rate], [self.mu], [self.seed], [self.rho])


@dataclasses.dataclass(frozen=True)
class StackRun(Trial):
    """A stack of networks of one shape, trained together: one unit of work.

    `rhos` holds the radii of sharpness-aware minimization (the method sam), and is empty for other methods. Stacks that
    were stored before this field have their radii among the `mus`: they are read as `rhos`, and the digest still counts
    the radii there, so that these units keep their names.
    """

    shape: Shape = option("what all have in common", default_factory=Shape)  # noqa: RUF009
    learning_rates: tuple[float, ...] = option("step size of each replica", (0.1,))
    mus: tuple[float, ...] = option("explicit rate of each replica", (0.0,))
    seeds: tuple[int, ...] = option("seed of each replica", (0,))
    rhos: tuple[float, ...] = option("radius of each replica, with the method sam", (), later=True)

    def check(self) -> None:
        """Validate the rates and their number."""
        if not len(self.learning_rates) == len(self.mus) == len(self.seeds) > 0:
            raise ConfigError("a stack needs as many learning rates and mus as seeds, and at least one.")
        if self.rhos and len(self.rhos) != len(self.seeds):
            raise ConfigError("a stack needs as many rhos as seeds, or none.")
        _check_replicas(self.shape, self.learning_rates, self.mus, self.seeds, self.rhos)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "StackRun":
        """The stack with these values; radii among the mus, as they were stored before `rhos`, become rhos."""
        shape = values.get("shape", {})
        method = shape.method if isinstance(shape, Shape) else shape.get("method", "")
        if method == "sam" and not values.get("rhos"):
            values = {**values, "mus": [0.0] * len(values["mus"]), "rhos": values["mus"]}
        return super().from_dict(values)

    def _values(self, named: bool = False) -> dict[str, Any]:
        values = super()._values(named)
        if named and self.rhos:
            values["mus"] = values.pop("rhos")
        return values

    @property
    def label(self) -> str:
        """A few words for the progress display."""
        s = self.shape
        net = f"{s.data} {s.model} {s.width}"  # then what is not usual
        for name, usual in (("activation", "relu"), ("stem", "3x3"), ("init", "he")):
            net += "" if getattr(s, name) == usual else f" {getattr(s, name)}"
        parts = [net, f"batch {s.batch_size}" if s.batch_size else "full batch"]
        parts += [str(s.optimizer)] if s.optimizer != Optimizer() else []
        parts += [s.method] if s.method else []
        parts += [f"radius {s.radius:g}"] if s.radius else []
        parts += [f"every {s.every} steps"] if s.every > 1 else []
        parts += [f"warm-up {s.warm_up}"] if s.warm_up else []
        parts += ["augmented"] if s.augment else []
        parts += [f"{s.validation} held out"] if s.validation else []
        parts += [f"with {', '.join(s.measure.metrics)}"] if s.measure.metrics else []
        if s.entry.in_turn and len(self.seeds) == 1:
            strength = f", rho = {self.rhos[0]:g}" if self.rhos else f", mu = {self.mus[0]:g}" if s.method else ""
            parts.append(f"h = {self.learning_rates[0]:g}{strength}, seed {self.seeds[0]}")
        else:
            parts += [f"h = {self.learning_rates[0]:g}"] if len(set(self.learning_rates)) == 1 else []
            seeds = ",".join(map(str, sorted(set(self.seeds))))
            count = len(self.seeds)
            parts.append(f"{count} networks, seeds {seeds}" if count > 1 else f"1 network, seed {seeds}")
        return ", ".join(parts)

    @property
    def used(self) -> dict[str, str]:
        """What the networks were where a field of the shape has no say: the initialization of a model with but one."""
        return {"init": self.shape.entry.init or self.shape.init}

    @property
    def precision(self) -> str:
        """Of the training; measurements are in float32 always."""
        training = {"default": "float32 with the device's products", "bfloat16": "bfloat16 with float32 parameters"}
        return training.get(self.shape.precision, "float32")

    def compute(self, session: Session) -> Mapping[str, Any]:
        """Train and measure with `session`; see `igr.lab.training.loop`."""
        return loop.train(self, session)


def _check_replicas(
    shape: Shape, rates: Sequence[float], mus: Sequence[float], seeds: Iterable[int], rhos: Sequence[float]
) -> None:
    if any(h <= 0 for h in rates) or any(mu < 0 for mu in mus) or any(rho < 0 for rho in rhos):
        raise ConfigError("a learning rate must be positive, and mu and rho not negative.")
    if any(value > float(np.finfo(np.float32).max) for value in (*rates, *mus, *rhos)):
        raise ConfigError("a learning rate, mu and rho must be finite in float32: below 3.4e38.")
    if any(mus) and shape.method not in PENALTIES:
        hint = "; the radius of sam is rho" if shape.method == "sam" else ""
        raise ConfigError(f"mu > 0 needs a method: exact, forward or central{hint}.")
    if any(rhos) and shape.method != "sam":
        raise ConfigError("rho > 0 needs the method sam.")
    if any(not 0 <= seed < 2**32 for seed in seeds):
        raise ConfigError("a seed must lie in 0 ... 2^32 - 1.")


def stacks(networks: Iterable[Network], work: float = WORK) -> list[StackRun]:
    """Units of work from `networks`: one stack for each shape, in the order of first appearance, cut to at most `work`.

    Networks without penalty form a stack of their own, which does not compute the penalty. A cut keeps seeds together,
    so that a unit holds all learning rates of its seeds. A network that is trained in turn, such as a ResNet, is a unit
    by itself: units of one shape share their compiled programs, and small units are easily resumed.

    >>> units = stacks(Network(Shape(width=w), h, seed=s) for s in (0, 1) for w in (50, 100) for h in (0.1, 0.5))
    >>> [(unit.shape.width, unit.learning_rates, unit.seeds) for unit in units]
    [(50, (0.1, 0.5, 0.1, 0.5), (0, 0, 1, 1)), (100, (0.1, 0.5, 0.1, 0.5), (0, 0, 1, 1))]
    """
    groups: dict[Shape, list[Network]] = {}
    for network in networks:
        shape = (
            network.shape
            if network.mu or network.rho
            else network.shape.replace(method="", every=1, warm_up=0, radius=0)
        )
        groups.setdefault(shape, []).append(network)
    units = []
    for shape, members in groups.items():
        members = sorted(members, key=lambda each: each.seed)
        most = 1 if shape.entry.in_turn else max(1, int(work / (shape.num_params * shape.steps)))
        parts = -(-len(members) // most)
        for part in np.array_split(np.arange(len(members)), parts):
            some = [members[i] for i in part]
            rates, mus, seeds, rhos = (
                tuple(getattr(each, name) for each in some) for name in ("learning_rate", "mu", "seed", "rho")
            )
            units.append(StackRun(shape, rates, mus, seeds, rhos if shape.method == "sam" else ()))
    return units
