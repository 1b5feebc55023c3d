"""What a run is going to do, said beforehand: what is stored, what is downloaded, and about how long it takes here.

The time of a stack of R networks of P parameters is guessed from two speeds of the device, measured in a second: F,
that of a matrix product, and B, that of memory. A step on b images costs the larger of what it computes and moves,

    t = max(6 P R b / F, 12 P R / B) / EFFICIENCY + OVERHEAD,

and a measurement computes on all images. A ResNet computes more than it moves: three times the operations of its
forward pass, counted by XLA, at the speed of a product of the training's precision, and of float32 in measurements.
Where the very same unit was stored by this kind of device, its own time is taken. A guess, within a factor of three of
what we have seen.
"""

import functools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from igr.lab.config import Scale
from igr.lab.data import CIFAR10, MNIST, SHAPES, SIZES
from igr.lab.data import load as load_data
from igr.lab.provenance import surroundings
from igr.lab.rounds import decides, rounds
from igr.lab.store import Store, shipped
from igr.lab.sweep import Shape, StackRun
from igr.lab.train import PRECISIONS, matmul_precision
from igr.lab.work import Unit

EFFICIENCY, OVERHEAD, COMPILE = 0.3, 3e-5, 8.0  # of the device's speeds; seconds a step; seconds a stack
CONVOLUTIONS = {"default": 0.4, "highest": 0.6, "bfloat16": 0.4}  # of the speed of a large product
GRADIENTS = {"": 1, "forward": 2, "sam": 2, "exact": 3, "central": 3}  # in a step
DOWNLOADS = {"mnist": (MNIST, 11), "cifar10": (CIFAR10, 162)}  # megabytes


@dataclass(frozen=True)
class Speed:
    """What the device does in a second."""

    flops: float  # of a float32 product at default precision
    bytes: float
    products: tuple[float, ...] = ()  # the same of a large product at each of `PRECISIONS`


@dataclass(frozen=True)
class Plan:
    """What is left to do of one experiment."""

    experiment: str
    units: int
    stored: int
    networks: int  # in the units that are left
    downloads: tuple[str, ...]
    seconds: float

    def sentence(self) -> str:
        """In words, for people who may want to do something else meanwhile.

        >>> Plan("mlp", 14, 3, 240, ("mnist",), 7500.0).sentence()
        'mlp: 11 of 14 units left (240 networks), downloads mnist (11 MB), about 2.1 hours'
        >>> Plan("two-parameter", 20, 20, 0, (), 0.0).sentence()
        'two-parameter: all 20 units are stored'
        """
        left = self.units - self.stored
        if not left:
            return f"{self.experiment}: all {self.units} units are stored"
        parts = [f"{self.experiment}: {left} of {self.units} units left"]
        parts[0] += f" ({self.networks} networks)" if self.networks else ""
        parts += [f"downloads {name} ({DOWNLOADS[name][1]} MB)" for name in self.downloads]
        return ", ".join([*parts, f"about {duration(self.seconds)}"])


def duration(seconds: float) -> str:
    """Two digits and a unit.

    >>> [duration(s) for s in (3, 100, 7500, 400_000, 1.2e7)]
    ['3 seconds', '1.7 minutes', '2.1 hours', '4.6 days', '140 days']
    """
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{float(f'{seconds / length:.2g}'):,g} {unit}"
    return f"{max(1.0, seconds):.0f} seconds"


def announce(store: Store, scale: Scale, names: Iterable[str], data_dir: str = "") -> list[str]:
    """What is going to happen, a line for each experiment, and what to do where there is no GPU and one is wanted."""
    plans = [plan(store, name, [*chain(*rounds(store, name, scale))], data_dir, shipped()) for name in names]
    device, seconds = surroundings()["device"], sum(each.seconds for each in plans)
    lines = [f"Scale {scale} on {device}, roughly:", *(f"  {each.sentence()}{_more(each)}" for each in plans)]
    if len(plans) > 1 and seconds:
        lines.append(f"  together about {duration(seconds)}")
    if scale is Scale.PAPER and jax.default_backend() == "cpu" and any(each.networks for each in plans):
        lines.append(
            "There is no GPU here. `--scale quick` asks the same questions of smaller networks in minutes; with an "
            "NVIDIA GPU, `pip install 'jax[cuda13]'` lets JAX use it. Stop with Ctrl-C: what is finished is kept."
        )
    return lines


def _more(each: Plan) -> str:
    return "; what these find decides more" if each.stored < each.units and decides(each.experiment) else ""


def plan(store: Store, experiment: str, units: Sequence[Unit], data_dir: str = "", known: Store | None = None) -> Plan:
    """Look at what is stored, here and in `known`; compute nothing."""
    left = [unit for unit in units if store.folder(experiment, unit.config).status() != "finished"]
    stacks = [unit for unit in left if isinstance(unit, StackRun)]
    return Plan(
        experiment,
        len(units),
        len(units) - len(left),
        sum(len(unit.seeds) for unit in stacks),
        () if data_dir else tuple(name for name in data_names(left) if name in DOWNLOADS and not _cached(name)),
        sum(_stored_seconds(known, experiment, unit) or guess(unit, measure()) for unit in left),
    )


def data_names(units: Iterable[Unit]) -> list[str]:
    """The data sets some units train on."""
    return sorted({unit.shape.data for unit in units if isinstance(unit, StackRun)})


def prepare(store: Store, experiment: str, units: Iterable[Unit], data_dir: str = "") -> None:
    """Get the data sets that are needed before anything is computed, so that a missing one is one sentence at once."""
    left = (unit for unit in units if store.folder(experiment, unit.config).status() != "finished")
    for name in data_names(left):
        load_data(name, data_dir or None)


def guess(unit: Unit, speed: Speed) -> float:
    """Seconds, from the sizes of a stack; other units are of the order of a second."""
    if not isinstance(unit, StackRun):
        return 1.0
    shape = unit.shape
    images, tests = SIZES[shape.data]
    images = (shape.train_images or images) - shape.validation
    batch = shape.batch_size or images
    points, full = shape.schedule.points(shape.steps, max(1, images // batch))
    if shape.model == "resnet18":
        return _guess_resnet(unit, speed, images, tests, int(full.sum()), len(points))
    weights = float(shape.num_params) * len(unit.seeds) * (3 if any(unit.mus) else 1)
    step = max(6 * weights * batch / speed.flops, 12 * weights / speed.bytes) / EFFICIENCY + OVERHEAD
    seen = int(full.sum()) * (images + tests) + len(points) * tests / 3
    seen += len(shape.noise.sigmas) * (shape.noise.slopes * images + shape.noise.accuracies * tests / 3)
    return COMPILE + shape.steps * step + 6 * weights * seen / speed.flops / EFFICIENCY


def _guess_resnet(unit: StackRun, speed: Speed, images: int, tests: int, full: int, points: int) -> float:
    shape = unit.shape
    speeds = {name: CONVOLUTIONS[name] * flops for name, flops in zip(PRECISIONS, speed.products, strict=True)}
    image = forward_flops(shape.width, shape.data, shape.stem) * len(unit.seeds)
    gradients = 1 + (GRADIENTS[shape.method] - 1) / shape.every
    trained = 3 * gradients * shape.steps * shape.batch_size + points * (tests + shape.validation)
    seen = min(images, shape.measure.images or images) + tests * shape.measure.test
    measured = 3 * (full + 1) * seen  # once more at the best
    return COMPILE + image * (trained / speeds[shape.precision] + measured / speeds["highest"])


@functools.cache
def forward_flops(width: int, data: str, stem: str) -> float:
    """Floating-point operations of a ResNet's forward pass on one image, as XLA counts them before it compiles.

    >>> round(forward_flops(64, "cifar10", "3x3") / 1e9)  # 0.56e9 multiply-adds
    1
    """
    network = Shape(model="resnet18", width=width, data=data, stem=stem).build()
    params, state = jax.eval_shape(network.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((1, *SHAPES[data]), jnp.float32)
    forward = jax.jit(lambda params, state, x: network.apply(params, state, x, False)[0])
    with jax.default_device(jax.devices("cpu")[0]):  # a GPU's client cannot analyse a program that is not compiled
        return float(forward.lower(params, state, x).cost_analysis()["flops"])  # pyright: ignore


@functools.cache
def measure(size: int = 1024, rounds: int = 3) -> Speed:
    """The device's speeds: of products of matrices, and of a sum of two long arrays."""
    total, long = jax.jit(lambda x: x + 1), jnp.ones(8 * size * size, jnp.float32)
    large = size if jax.default_backend() == "cpu" else 4 * size  # what fills the device
    return Speed(
        _product_speed("default", size, rounds),
        2 * long.nbytes / _seconds(total, long, rounds),
        tuple(_product_speed(precision, large, rounds) for precision in PRECISIONS),
    )


def _product_speed(precision: str, size: int, rounds: int) -> float:
    a = jnp.ones((size, size), jnp.bfloat16 if precision == "bfloat16" else jnp.float32)
    with matmul_precision(precision):
        return 2 * size**3 / _seconds(jax.jit(lambda x: x @ x / size), a, rounds)


def _seconds(function: Any, x: Any, rounds: int) -> float:
    jax.block_until_ready(function(x))
    taken = []
    for _ in range(rounds):
        begun, y = time.perf_counter(), x
        for _ in range(5):
            y = function(y)
        jax.block_until_ready(y)
        taken.append((time.perf_counter() - begun) / 5)
    return max(1e-9, min(taken))


def _stored_seconds(known: Store | None, experiment: str, unit: Unit) -> float:
    """What the same unit took, where it is stored and was computed by this kind of device."""
    folder = known.folder(experiment, unit.config) if known else None
    if folder is None or folder.status() != "finished":
        return 0.0
    record = folder.read().record
    return float(record["seconds"]) if record.get("device") == surroundings()["device"] else 0.0


def _cached(name: str) -> bool:
    import pooch

    source = DOWNLOADS[name][0]
    return all((Path(pooch.os_cache("igr")) / source.folder / file).is_file() for file in source.files)
