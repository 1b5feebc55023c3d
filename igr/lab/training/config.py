"""The configuration of a training: the shape that networks share, when and how they are measured, and the noise after
it.
"""

import dataclasses
import math

import jax
import numpy as np

from igr.lab.data.registry import DATASETS
from igr.lab.models.model import Model, ModelEntry
from igr.lab.models.registry import MODELS
from igr.lab.store.changes import Changes
from igr.lab.store.config import Config, ConfigError, option
from igr.lab.training.metrics import METRICS
from igr.lab.training.optimizers import Optimizer
from igr.lab.training.precision import PRECISIONS

PENALTIES = ("exact", "forward", "central")
METHODS = ("", *PENALTIES, "sam")
STATISTICS, AVERAGES = ("batch", "running"), ("gradient", "square")


@dataclasses.dataclass(frozen=True)
class Schedule(Config):
    """When to measure: log-spaced in the first epoch, then by epochs, and the test accuracy alone more often.

    Full measurements are `every` epochs apart, or further, so that each step number is at least `stretch` times the
    last; 1 keeps them evenly spaced. `epochs` are further ones. Where `every` is 0, there are only those of `early`,
    those of `epochs` and the last. In full-batch training an epoch is one step.
    """

    early: int = option("measurements in the first epoch, log-spaced", 6)
    every: int = option("epochs between full measurements; 0 leaves only those of early and epochs", 1)
    stretch: float = option("least ratio of the steps of two full measurements after the first epoch", 1.0)
    watch: int = option("epochs between measurements of the test accuracy alone", 1)
    epochs: tuple[int, ...] = option("further epochs after which to measure in full", (), later=True)

    def check(self) -> None:
        """Validate the distances."""
        if min(self.early, self.every, *self.epochs) < 0 or self.watch < 1 or self.stretch < 1:
            raise ConfigError("early, every and epochs must not be negative; watch and stretch must be at least 1.")

    def points(self, steps: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The steps at which to measure in a training of `steps` steps with `epoch` steps an epoch, and which are full.

        The last one is full, and the first one unless `every` is 0.

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
        """Validate the standard deviations and counts."""
        if self.sigmas and (min(self.sigmas) < 0 or self.slopes < 1 or self.accuracies < 1):
            raise ConfigError("sigmas must not be negative, and each needs at least one realization.")


@dataclasses.dataclass(frozen=True)
class Measure(Config):
    """How R_IG is measured; accuracies on test and validation images do not depend on it.

    The default averages the gradient over all training images before it is squared, with batch norm in the mode it was
    trained in. Where `average` is "square", r_ig is the mean of |gradient of a batch|^2 / m instead.
    """

    statistics: str = option("batch norm while R_IG is measured: batch or running", "batch")
    average: str = option("what is averaged over batches: gradient or square (squared gradients)", "gradient")
    images: int = option("number of training images to measure on, the first ones; 0 is all", 0)
    batch: int = option("images in a batch of the measurement, at most", 1000)
    test: bool = option("also R_IG and slope of the test loss", True, later=True)
    metrics: tuple[str, ...] = option("further metrics by name, such as sharpness", (), later=True)

    def check(self) -> None:
        """Validate names and sizes."""
        for name in self.metrics:
            if name not in METRICS:
                raise ConfigError(f"metrics must be among {', '.join(METRICS)}, and one is {name!r}.")
        _check_choices(self, statistics=STATISTICS, average=AVERAGES)
        if self.images < 0 or self.batch < 1:
            raise ConfigError("images must not be negative, and batch must be at least 1.")


@dataclasses.dataclass(frozen=True)
class Shape(Config):
    """What networks must share to be trained in one compiled program, and how they are measured."""

    data: str = option("data set", "digits")
    train_images: int = option("number of training images to use, the first ones; 0 is all", 0)
    validation: int = option("training images held out for validation", 0)
    model: str = option("network: mlp, resnet18 or one of your own", "mlp")
    width: int = option("units in a hidden layer, or channels of the first stage", 400)
    depth: int = option("hidden layers of the MLP", 5)
    activation: str = option("relu, tanh or gelu", "relu")
    stem: str = option("stem of the ResNet: 3x3 or 7x7", "3x3")
    init: str = option("initialization of the ResNet: he or haiku; others have one of their own", "he")
    batch_size: int = option("images in a batch; 0 is all of them", 32)
    steps: int = option("steps of gradient descent", 1000)
    method: str = option("explicit penalty: exact, forward or central; or sam; or empty", "")
    precision: str = option("matrix products in training: default, highest or bfloat16", "default")
    schedule: Schedule = option("when to measure", default_factory=Schedule)  # noqa: RUF009
    noise: Noise = option("parameter noise after training", default_factory=Noise)  # noqa: RUF009
    augment: bool = option("shift and mirror the training images at random", False, later=True)
    every: int = option("apply the penalty every k-th step, scaled by k", 1, later=True)
    warm_up: int = option("steps without penalty at the start", 0, later=True)
    measure: Measure = option("how R_IG is measured", default_factory=Measure, later=True)  # noqa: RUF009
    radius: float = option("length of the step of differences; 0 is that of igr 0.1, as stored", 0.0, later=True)
    optimizer: Optimizer = option("optimizer", default_factory=Optimizer, later=True)  # noqa: RUF009

    def check(self) -> None:
        """Validate names, sizes, and the combination of options."""
        _check_choices(self, data=tuple(DATASETS), model=tuple(MODELS), method=METHODS, precision=PRECISIONS)
        others = {k: v for entry in MODELS.values() for k, v in entry.choices.items()}
        _check_choices(self, **others | dict(self.entry.choices))
        if min(self.width, self.steps) < 1 or min(self.depth, self.batch_size, self.validation, self.train_images) < 0:
            raise ConfigError("width and steps must be positive; depth, batch_size and counts of images not negative.")
        if self.every < 1 or self.warm_up < 0:
            raise ConfigError("every must be at least 1, and warm_up must not be negative.")
        if (self.every, self.warm_up) != (1, 0) and self.method not in PENALTIES:
            raise ConfigError("every and warm_up need a penalty: set method to exact, forward or central.")
        if self.radius < 0 or (self.radius and self.method not in ("forward", "central")):
            raise ConfigError("radius must not be negative, and only forward and central differences have one.")
        if not self.batch_size and (self.augment or self.entry.has_batch_statistics):
            what = "random shifts" if self.augment else "batch statistics"
            raise ConfigError(f"{what} need a batch size, since the full batch is computed in pieces: set batch_size.")

    @property
    def entry(self) -> ModelEntry:
        """The entry of the model in the registry."""
        return MODELS[self.model]

    def build(self, compute: str = "") -> Model:
        """The network; it computes in the dtype that `precision` says, or in `compute`."""
        compute = compute or ("bfloat16" if self.precision == "bfloat16" else "float32")
        data = DATASETS[self.data]
        return self.entry.build(self, data.shape, data.classes, compute)

    @property
    def num_params(self) -> int:
        """The number m of parameters, computed without allocating them."""
        params, _ = jax.eval_shape(self.build().init, jax.random.key(0))
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


@dataclasses.dataclass(frozen=True)
class ShapeChanges(Changes):
    """Changes to the shape of every network of an experiment."""

    SUBJECT = Shape


def _check_choices(config: Config, **choices: tuple[str, ...]) -> None:
    for name, allowed in choices.items():
        if getattr(config, name) not in allowed:
            listed = ", ".join(each for each in allowed if each)
            raise ConfigError(f"{name} must be one of {listed}, and it is {getattr(config, name)!r}.")
