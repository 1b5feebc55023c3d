"""What a run is going to do, said beforehand: what is stored, what is downloaded, and about how long it takes here.

The time of a stack of R networks of P parameters is guessed from two speeds of the device, measured in a second: F,
that of a matrix product, and B, that of memory. A step on b images costs the larger of what it computes and moves,

    t = max(6 P R b / F, 12 P R / B) / EFFICIENCY + OVERHEAD,

and a measurement computes on all images. A ResNet computes more than it moves: three times the operations of its
forward pass, counted by XLA, at the speed of a product of the training's precision, and of float32 in measurements.
Where the very same unit was stored by this kind of device, its own time is taken. A guess, within a factor of three of
what we have seen. On n workers, the time is that of the last one to end when each takes the longest unit that is left.
"""

import functools
import heapq
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp

from igr.lab.cli.board import duration
from igr.lab.data.fetch import is_cached
from igr.lab.data.registry import DATASETS
from igr.lab.data.registry import load as load_data
from igr.lab.experiments import load
from igr.lab.runs.follow_up import decides, rounds
from igr.lab.runs.unit import Unit
from igr.lab.store.config import ConfigError, Scale
from igr.lab.store.files import Damaged, Unreadable
from igr.lab.store.parallel import each as each_of
from igr.lab.store.provenance import surroundings
from igr.lab.store.store import Store, shipped
from igr.lab.training.config import Noise, Schedule, Shape
from igr.lab.training.precision import PRECISIONS, matmul_precision
from igr.lab.training.stack import StackRun

EFFICIENCY, OVERHEAD, COMPILE = 0.3, 3e-5, 8.0  # of the device's speeds; seconds a step; seconds a stack
CONVOLUTIONS = {"default": 0.4, "highest": 0.6, "bfloat16": 0.4}  # of the speed of a large product
GRADIENTS = {"": 1, "forward": 2, "sam": 2, "exact": 3, "central": 3}  # in a step


@dataclass(frozen=True)
class Speed:
    """What the device does in a second."""

    flops: float  # of a float32 product at default precision
    bytes: float
    products: tuple[float, ...] = ()  # the same of a large product at each of `PRECISIONS`


@dataclass(frozen=True)
class Place:
    """Where units are computed: the device of a worker, its speeds, and how many workers there are."""

    device: str
    speed: Speed
    workers: int = 1


@dataclass(frozen=True)
class Outlook:
    """What is left to do of one experiment."""

    experiment: str
    units: int
    stored: int
    networks: int  # in the units that are left
    downloads: dict[str, int]  # megabytes by name
    seconds: float
    workers: int = 1  # units that are computed at the same time

    def sentence(self) -> str:
        """The plan in words, for people who may want to do something else meanwhile.

        >>> Outlook("mlp", 14, 3, 240, {"mnist": 11}, 7500.0).sentence()
        'mlp: 11 of 14 units left (240 networks), downloads mnist (11 MB), about 2.1 hours'
        >>> Outlook("mlp", 14, 0, 240, {}, 1900.0, 4).sentence()
        'mlp: 14 of 14 units left (240 networks), about 32 minutes on 4 workers'
        >>> Outlook("two-parameter", 20, 20, 0, {}, 0.0).sentence()
        'two-parameter: all 20 units are stored'
        """
        left = self.units - self.stored
        if not left:
            return f"{self.experiment}: all {self.units} units are stored"
        parts = [f"{self.experiment}: {left} of {self.units} units left"]
        parts[0] += f" ({self.networks} networks)" if self.networks else ""
        parts += [f"downloads {name} ({megabytes} MB)" for name, megabytes in self.downloads.items()]
        on = f" on {self.workers} workers" if self.workers > 1 else ""
        return ", ".join([*parts, f"about {duration(self.seconds)}{on}"])


def makespan(seconds: Iterable[float], workers: int) -> float:
    """How long some units take on so many workers, the longest first, each on the worker that is free first.

    >>> makespan([3.0, 3.0, 2.0, 2.0, 2.0], 2), makespan([5.0, 1.0], 4), makespan([], 2)
    (7.0, 5.0, 0.0)
    """
    free = [0.0] * workers
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def here() -> Place:
    """Where this process computes."""
    return Place(surroundings()["device"], measure())


def look_ahead(
    store: Store, scale: Scale, names: Iterable[str], data_dir: str = "", place: Place | None = None
) -> list[Outlook]:
    """What is left to do of each experiment; nothing is computed.

    `place` is where the units will be computed; the default is this process.
    """
    units = {name: [*chain(*rounds(store, name, load(name), scale))] for name in names}
    return [plan(store, name, some, data_dir, shipped(), place) for name, some in units.items()]


def announce(scale: Scale, plans: Sequence[Outlook], place: Place | None = None) -> list[str]:
    """What is going to happen, a line for each experiment, and what to do where there is no GPU and one is wanted."""
    device, seconds = place.device if place else surroundings()["device"], sum(each.seconds for each in plans)
    on = f"{place.workers} workers of {device}" if place and place.workers > 1 else device
    lines = [f"Scale {scale} on {on}, roughly:", *(f"  {each.sentence()}{_more(each)}" for each in plans)]
    if len(plans) > 1 and seconds:
        lines.append(f"  together about {duration(seconds)}")
    on_cpu = "(cpu)" in device
    if scale is Scale.PAPER and on_cpu and any(each.networks for each in plans):
        lines.append(
            "There is no GPU here. `--scale quick` asks the same questions of smaller networks in minutes; with an "
            "NVIDIA GPU, `pip install 'jax[cuda13]'` lets JAX use it. Stop with Ctrl-C: what is finished is kept."
        )
    return lines


def _more(each: Outlook) -> str:
    return (
        "; more units may follow, depending on these results"
        if each.stored < each.units and decides(load(each.experiment))
        else ""
    )


def plan(
    store: Store,
    experiment: str,
    units: Sequence[Unit],
    data_dir: str = "",
    known: Store | None = None,
    place: Place | None = None,
) -> Outlook:
    """Look at what is stored, here and in `known`; compute nothing."""
    left = unfinished(store, experiment, units)
    device, workers = (place.device, place.workers) if place else (surroundings()["device"], 1)

    def seconds(unit: Unit) -> float:
        return _stored_seconds(known, experiment, unit, device) or guess(unit, place.speed if place else measure())

    stacks = [unit for unit in left if isinstance(unit, StackRun)]
    return Outlook(
        experiment,
        len(units),
        len(units) - len(left),
        sum(len(unit.seeds) for unit in stacks),
        {} if data_dir else downloads(left),
        makespan(map(seconds, left), workers),
        workers,
    )


def unfinished(store: Store, experiment: str, units: Iterable[Unit]) -> list[Unit]:
    """The units that are not stored yet."""
    units = list(units)
    found = each_of(lambda unit: store.folder(experiment, unit.config).status(quick=True), units)
    return [unit for unit, status in zip(units, found, strict=True) if status != "finished"]


def is_left(store: Store, scale: Scale, names: Iterable[str]) -> bool:
    """Whether any unit of these experiments is not stored yet."""
    return any(unfinished(store, name, chain(*rounds(store, name, load(name), scale))) for name in names)


def data_names(units: Iterable[Unit]) -> list[str]:
    """The data sets some units train on."""
    return sorted({unit.shape.data for unit in units if isinstance(unit, StackRun)})


def downloads(units: Iterable[Unit]) -> dict[str, int]:
    """The megabytes of each data set that some units need and that is not here yet."""
    sources = {name: DATASETS[name].source for name in data_names(units)}
    return {name: source.megabytes for name, source in sources.items() if source and not is_cached(source)}


def prepare(store: Store, experiment: str, units: Iterable[Unit], data_dir: str = "") -> None:
    """Get the data sets that are needed before anything is computed, so that a missing one is one sentence at once."""
    for name in data_names(unfinished(store, experiment, units)):
        load_data(name, data_dir or None)


def guess(unit: Unit, speed: Speed) -> float:
    """Seconds, from the sizes of a stack; other units are of the order of a second."""
    if not isinstance(unit, StackRun):
        return 1.0
    shape = unit.shape
    images, tests = DATASETS[shape.data].sizes
    images = (shape.train_images or images) - shape.validation
    batch = shape.batch_size or images
    points, full = shape.schedule.points(shape.steps, max(1, images // batch))
    if shape.entry.in_turn:
        return _guess_in_turn(unit, speed, images, tests, int(full.sum()), len(points))
    weights = float(shape.num_params) * len(unit.seeds) * (3 if any(unit.mus) else 1)
    step = max(6 * weights * batch / speed.flops, 12 * weights / speed.bytes) / EFFICIENCY + OVERHEAD
    seen = int(full.sum()) * (images + tests) + len(points) * tests / 3
    seen += len(shape.noise.sigmas) * (shape.noise.slopes * images + shape.noise.accuracies * tests / 3)
    return COMPILE + shape.steps * step + 6 * weights * seen / speed.flops / EFFICIENCY


def _guess_in_turn(unit: StackRun, speed: Speed, images: int, tests: int, full: int, points: int) -> float:
    shape = unit.shape
    speeds = {name: CONVOLUTIONS[name] * flops for name, flops in zip(PRECISIONS, speed.products, strict=True)}
    image = forward_flops(shape.replace(noise=Noise(), schedule=Schedule(), steps=1)) * len(unit.seeds)
    gradients = 1 + (GRADIENTS[shape.method] - 1) / shape.every
    trained = 3 * gradients * shape.steps * shape.batch_size + points * (tests + shape.validation)
    seen = min(images, shape.measure.images or images) + tests * shape.measure.test
    measured = 3 * (full + 1) * seen  # once more at the best
    return COMPILE + image * (trained / speeds[shape.precision] + measured / speeds["highest"])


@functools.cache
def forward_flops(shape: Shape) -> float:
    """Floating-point operations of a forward pass on one image.

    >>> round(forward_flops(Shape(model="resnet18", width=64, data="cifar10")) / 1e9)  # 0.56e9 multiply-adds
    1
    """
    return shape.entry.cost(shape.build("float32"), DATASETS[shape.data].shape)


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


def _stored_seconds(known: Store | None, experiment: str, unit: Unit, device: str) -> float:
    """What the same unit took, where it is stored and was computed by this kind of device."""
    try:
        record = known.folder(experiment, unit.config).record() if known else {}
    except (FileNotFoundError, Damaged, Unreadable, ConfigError):
        return 0.0
    return float(record.get("seconds", 0)) if record.get("device") == device else 0.0
