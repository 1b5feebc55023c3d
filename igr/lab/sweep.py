"""A grid of hyper-parameters as a few units of work: networks of equal shape become stacks, stacks become units.

    networks = [Network(Shape(width=w), learning_rate=h, seed=s) for w in widths for h in rates for s in seeds]
    units = stacks(networks)

A `Network` is one trial. A `Shape` is all that two networks must share to run in one compiled program. A
`StackRun` is a unit of work for `igr.lab.work`: it is stored when done, skipped when stored, resumed when cut.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from igr.lab.config import Config, ConfigError, option
from igr.lab.data import NAMES, SHAPES
from igr.lab.models import ACTIVATIONS, Model, mlp, resnet18
from igr.lab.train import PRECISIONS
from igr.lab.work import Session, Trial

PENALTIES = ("exact", "forward", "central")
METHODS = ("", *PENALTIES, "sam")
STATISTICS, AVERAGES = ("batch", "running"), ("gradient", "square")
WORK = 3.2e13  # parameters times replicas times steps in one unit: some minutes on a large GPU


@dataclasses.dataclass(frozen=True)
class Schedule(Config):
    """When to measure: log-spaced in the first epoch, then by epochs, and the test accuracy alone more often.

    The full measurements are `every` epochs apart, and at least so far that each step number is `stretch` times the
    last; 1 keeps them evenly spaced. `epochs` are further ones; where `every` is 0 they and those in the first epoch
    are all but the last. In full-batch training an epoch is one step.
    """

    early: int = option("measurements in the first epoch, log-spaced", 6)
    every: int = option("epochs between full measurements; 0 leaves only those of early and epochs", 1)
    stretch: float = option("least ratio of the steps of two full measurements after the first epoch", 1.0)
    watch: int = option("epochs between measurements of the test accuracy alone", 1)
    epochs: tuple[int, ...] = option("further epochs after which to measure in full", (), later=True)

    def check(self) -> None:
        """Distances are positive."""
        if min(self.early, self.every, *self.epochs) < 0 or self.watch < 1 or self.stretch < 1:
            raise ConfigError("early, every and epochs must not be negative; watch and stretch must be at least 1.")

    def points(self, steps: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The steps at which to measure, and for each whether in full: the last is, and the first unless `every` is 0.

        >>> points, full = Schedule(early=3, every=2).points(steps=400, epoch=100)
        >>> points.tolist(), points[full].tolist()
        ([0, 1, 5, 22, 100, 200, 300, 400], [0, 1, 5, 22, 200, 400])
        >>> points, full = Schedule(early=0, every=0, epochs=(1, 3, 9)).points(steps=400, epoch=100)
        >>> points.tolist(), points[full].tolist()
        ([0, 100, 200, 300, 400], [100, 300, 400])
        """
        full = {steps} | {int(n) for n in np.geomspace(1, max(epoch, 1), self.early, endpoint=False).round()}
        full |= {n * epoch for n in self.epochs if n * epoch < steps} | ({0} if self.every else set())
        n = self.every
        while n and n * epoch < steps:
            full.add(n * epoch)
            n = max(n + self.every, int(np.ceil(n * self.stretch)))
        points = sorted(full | set(range(0, steps, self.watch * epoch)))
        return np.array(points), np.array([n in full for n in points])


@dataclasses.dataclass(frozen=True)
class Noise(Config):
    """Multiplicative parameter noise after training, at the parameters of maximum test accuracy."""

    sigmas: tuple[float, ...] = option("standard deviations of the noise; 3 is 300 %", ())
    slopes: int = option("realizations for the slope on the training set", 10)
    accuracies: int = option("realizations for the accuracy on the test set", 100)

    def check(self) -> None:
        """Standard deviations are not negative."""
        if self.sigmas and (min(self.sigmas) < 0 or self.slopes < 1 or self.accuracies < 1):
            raise ConfigError("sigmas must not be negative, and each needs at least one realization.")


@dataclasses.dataclass(frozen=True)
class Measure(Config):
    """How R_IG is measured; accuracies on test and validation images do not depend on it.

    The default averages the gradient over all training images before it is squared, with batch norm in the mode it was
    trained in. Where `average` is "square", r_ig is the mean of |gradient of a batch|^2 / m instead.
    """

    statistics: str = option("batch norm while R_IG is measured: batch or running", "batch")
    average: str = option("what is averaged over batches: gradient, or square for squared gradients", "gradient")
    images: int = option("measure on the first so many training images only; 0 is all", 0)
    batch: int = option("images in a batch of the measurement, at most", 1000)
    test: bool = option("also R_IG and slope of the test loss", True, later=True)

    def check(self) -> None:
        """Names are known and sizes are positive."""
        _check_choices(self, statistics=STATISTICS, average=AVERAGES)
        if self.images < 0 or self.batch < 1:
            raise ConfigError("images must not be negative, and batch must be at least 1.")


@dataclasses.dataclass(frozen=True)
class Shape(Config):
    """What networks must share to be trained in one compiled program, and how they are measured."""

    data: str = option("data set", "digits")
    train_images: int = option("use only so many training images; 0 is all", 0)
    validation: int = option("training images held out for validation", 0)
    model: str = option("mlp or resnet18", "mlp")
    width: int = option("units in a hidden layer, or channels of the first stage", 400)
    depth: int = option("hidden layers of the MLP", 5)
    activation: str = option("relu, tanh or gelu", "relu")
    stem: str = option("stem of the ResNet: 3x3 or 7x7", "3x3")
    init: str = option("initialization of the ResNet: he or haiku", "he")
    batch_size: int = option("images in a batch; 0 is all of them", 32)
    steps: int = option("steps of gradient descent", 1000)
    method: str = option("explicit penalty: exact, forward or central; or sam, whose radius mu then is; or empty", "")
    precision: str = option("matrix products in training: default, highest or bfloat16", "default")
    schedule: Schedule = option("when to measure", default_factory=Schedule)  # noqa: RUF009
    noise: Noise = option("parameter noise after training", default_factory=Noise)  # noqa: RUF009
    augment: bool = option("shift and mirror the training images at random", False, later=True)
    every: int = option("apply the penalty at every so many-th step, so many times as strong", 1, later=True)
    warm_up: int = option("steps without penalty at the start", 0, later=True)
    measure: Measure = option("how R_IG is measured", default_factory=Measure, later=True)  # noqa: RUF009
    radius: float = option("length of the step of forward and central differences; 0 is the default", 0.0, later=True)

    def check(self) -> None:
        """Names are known, sizes are positive, and what is asked for goes together."""
        _check_choices(self, data=NAMES, model=("mlp", "resnet18"), activation=tuple(ACTIVATIONS), method=METHODS)
        _check_choices(self, precision=PRECISIONS, stem=("3x3", "7x7"), init=("he", "haiku"))
        if min(self.width, self.steps) < 1 or min(self.depth, self.batch_size, self.validation, self.train_images) < 0:
            raise ConfigError("width and steps must be positive; depth, batch_size and counts of images not negative.")
        if self.every < 1 or self.warm_up < 0:
            raise ConfigError("every must be at least 1, and warm_up must not be negative.")
        if (self.every, self.warm_up) != (1, 0) and self.method not in PENALTIES:
            raise ConfigError("every and warm_up need a penalty: set method to exact, forward or central.")
        if self.radius < 0 or (self.radius and self.method not in ("forward", "central")):
            raise ConfigError("radius must not be negative, and only forward and central differences have one.")
        if not self.batch_size and (self.augment or self.model == "resnet18"):
            what = "random shifts" if self.augment else "batch norm"
            raise ConfigError(f"{what} cannot be had with the full batch, which is computed in pieces: set batch_size.")

    def build(self, compute: str = "") -> Model:
        """The network itself, computing as `precision` says or in another dtype."""
        compute = compute or ("bfloat16" if self.precision == "bfloat16" else "float32")
        height, wide, channels = SHAPES[self.data]
        if self.model == "mlp":
            return mlp(self.width, self.depth, self.activation, height * wide * channels, compute=compute)
        return resnet18(self.stem, self.width, channels=channels, compute=compute, init=self.init)

    @property
    def num_params(self) -> int:
        """m, without making any of them."""
        params, _ = jax.eval_shape(self.build().init, jax.random.key(0))
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


@dataclasses.dataclass(frozen=True)
class Network(Config):
    """One trial: a network and how it is trained."""

    shape: Shape = option("what it shares with the networks of its stack", default_factory=Shape)  # noqa: RUF009
    learning_rate: float = option("step size h", 0.1)
    mu: float = option(
        "explicit rate: multiplies the squared norm of the gradient; with method sam the radius rho", 0.0
    )
    seed: int = option("decides the initial parameters and the batches", 0)

    def check(self) -> None:
        """Rates are positive, and a penalty has a method."""
        _check_replicas(self.shape, [self.learning_rate], [self.mu], [self.seed])


@dataclasses.dataclass(frozen=True)
class StackRun(Trial):
    """A stack of networks of one shape, trained together: one unit of work."""

    shape: Shape = option("what all have in common", default_factory=Shape)  # noqa: RUF009
    learning_rates: tuple[float, ...] = option("step size of each replica", (0.1,))
    mus: tuple[float, ...] = option("explicit rate of each replica", (0.0,))
    seeds: tuple[int, ...] = option("seed of each replica", (0,))

    def check(self) -> None:
        """As many rates as seeds, each of them possible."""
        if not len(self.learning_rates) == len(self.mus) == len(self.seeds) > 0:
            raise ConfigError("a stack needs as many learning rates and mus as seeds, and at least one.")
        _check_replicas(self.shape, self.learning_rates, self.mus, self.seeds)

    @property
    def label(self) -> str:
        """A few words for the progress display."""
        s = self.shape
        net = f"{s.data} {s.model} {s.width}"
        for name, usual in (("activation", "relu"), ("stem", "3x3"), ("init", "he")):
            net += "" if getattr(s, name) == usual else f" {getattr(s, name)}"
        parts = [net, f"batch {s.batch_size}" if s.batch_size else "full batch"]
        parts += [s.method] if s.method else []
        parts += [f"radius {s.radius:g}"] if s.radius else []
        parts += [f"every {s.every} steps"] if s.every > 1 else []
        parts += [f"warm-up {s.warm_up}"] if s.warm_up else []
        parts += ["augmented"] if s.augment else []
        parts += [f"{s.validation} held out"] if s.validation else []
        if s.model == "resnet18" and len(self.seeds) == 1:
            rho = f", {'rho' if s.method == 'sam' else 'mu'} = {self.mus[0]:g}" if s.method else ""
            parts.append(f"h = {self.learning_rates[0]:g}{rho}, seed {self.seeds[0]}")
        else:
            parts.append(f"{len(self.seeds)} networks, seeds {','.join(map(str, sorted(set(self.seeds))))}")
        return ", ".join(parts)

    @property
    def precision(self) -> str:
        """Of the training; measurements are in float32 always."""
        training = {"default": "float32 with the device's products", "bfloat16": "bfloat16 with float32 parameters"}
        return training.get(self.shape.precision, "float32")

    def compute(self, session: Session) -> Mapping[str, Any]:
        """Train and measure; see `igr.lab.stack`."""
        from igr.lab.stack import compute  # the sweep's arithmetic needs no engine

        return compute(self, session)


def _check_choices(config: Config, **choices: tuple[str, ...]) -> None:
    for name, allowed in choices.items():
        if getattr(config, name) not in allowed:
            listed = ", ".join(each for each in allowed if each)
            raise ConfigError(f"{name} must be one of {listed}, and it is {getattr(config, name)!r}.")


def _check_replicas(shape: Shape, rates: Iterable[float], mus: Iterable[float], seeds: Iterable[int]) -> None:
    if any(h <= 0 for h in rates) or any(mu < 0 for mu in mus):
        raise ConfigError("a learning rate must be positive and mu not negative.")
    if any(mus) and not shape.method:
        raise ConfigError("mu > 0 needs a method: exact, forward, central or sam.")
    if any(not 0 <= seed < 2**32 for seed in seeds):
        raise ConfigError("a seed must lie in 0 ... 2^32 - 1.")


def stacks(networks: Iterable[Network], work: float = WORK) -> list[StackRun]:
    """Units of work from trials: one stack for each shape, in the order of first appearance, cut to at most `work`.

    Networks without penalty do not pay for those with one: they form a stack of their own. A cut keeps seeds
    together, so that a unit holds all learning rates of its seeds. A ResNet is a unit by itself: replicas of it run in
    turn anyway, units of one shape share their compiled programs, and small units are easily resumed.

    >>> units = stacks(Network(Shape(width=w), h, seed=s) for s in (0, 1) for w in (50, 100) for h in (0.1, 0.5))
    >>> [(unit.shape.width, unit.learning_rates, unit.seeds) for unit in units]
    [(50, (0.1, 0.5, 0.1, 0.5), (0, 0, 1, 1)), (100, (0.1, 0.5, 0.1, 0.5), (0, 0, 1, 1))]
    """
    groups: dict[Shape, list[Network]] = {}
    for network in networks:
        shape = network.shape if network.mu else network.shape.replace(method="", every=1, warm_up=0, radius=0)
        groups.setdefault(shape, []).append(network)
    units = []
    for shape, members in groups.items():
        members = sorted(members, key=lambda each: each.seed)
        most = 1 if shape.model == "resnet18" else max(1, int(work / (shape.num_params * shape.steps)))
        parts = -(-len(members) // most)
        for part in np.array_split(np.arange(len(members)), parts):
            some = [members[i] for i in part]
            rates, mus, seeds = ([getattr(x, k) for x in some] for k in ("learning_rate", "mu", "seed"))
            units.append(StackRun(shape, tuple(rates), tuple(mus), tuple(seeds)))
    return units
