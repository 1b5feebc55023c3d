"""Training of one stack from the first step to the last measurement, with checkpoints."""

import functools
import time
from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from igr.lab.data import registry as datasets
from igr.lab.runs.unit import Session
from igr.lab.training import recorder
from igr.lab.training.checkpoint import flatten, restore
from igr.lab.training.config import Noise, Schedule, Shape
from igr.lab.training.engine import Engine, Stack
from igr.lab.training.images import Images
from igr.lab.training.meter import Meter
from igr.lab.training.optimizers import Optimizer
from igr.lab.training.recorder import History

NOISE_SEED = 2020
AT = "loop/step"  # in a checkpoint: the step it was kept at
PACE = 0.5  # seconds of training between two looks at whether a checkpoint is due, or more
KEPT = 4  # shapes whose programs are kept: families of one experiment take turns


class Stacked(Protocol):
    """Networks of one shape, each with its rates and its seed."""

    @property
    def shape(self) -> Shape:
        """What all share."""
        ...

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """The step size of each."""
        ...

    @property
    def mus(self) -> tuple[float, ...]:
        """The explicit rate of each."""
        ...

    @property
    def rhos(self) -> tuple[float, ...]:
        """The radius of each, for sharpness-aware minimization; empty otherwise."""
        ...

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each."""
        ...


@functools.lru_cache(maxsize=2)
def _dataset(name: str, train_images: int, validation: int, folder: str | None) -> datasets.Dataset:
    dataset = datasets.load(name, folder)
    if train_images:
        dataset = dataset.subset(train_images, len(dataset.test))
    return dataset.hold_out(validation) if validation else dataset


def keep_programs() -> None:
    """On a GPU, keep compiled programs on disk unless the user already does.

    There XLA chooses kernels by timing them, so two compilations of one program may round differently. A run that is
    resumed in a new process gets the very same program from the cache, and with it the same bits.
    """
    if jax.default_backend() != "cpu" and getattr(jax.config, "jax_compilation_cache_dir") is None:  # noqa: B009
        import pooch

        jax.config.update("jax_compilation_cache_dir", str(pooch.os_cache("igr") / "programs"))


@functools.lru_cache(maxsize=KEPT)
def _engine(shape: Shape, replicas: int, folder: str | None) -> Engine:
    """What trains stacks of a shape, cached with its programs: units of one shape follow each other."""
    keep_programs()
    return Engine(
        shape.build(),
        _images(shape, folder)["train"],
        shape.batch_size,
        shape.method or None,
        shape.precision,
        replicas=replicas,
        augment=shape.augment,
        every=shape.every,
        warm_up=shape.warm_up,
        radius=shape.radius,
        optimizer=shape.optimizer.transformation(),
    )


@functools.lru_cache(maxsize=KEPT)
def _meter(shape: Shape, replicas: int, folder: str | None) -> Meter:
    """What measures stacks of a shape. Shapes that differ only in how they are trained share it."""
    images = _images(shape, folder)
    engine = Engine(shape.build(), images["train"], shape.batch_size, precision=shape.precision, replicas=replicas)
    exact = shape.build("float32") if shape.precision == "bfloat16" else None
    how = shape.measure.to_dict()
    return Meter(engine, images["test"], images.get("validation"), exact, test_gradient=how.pop("test"), **how)


def _images(shape: Shape, folder: str | None) -> dict[str, Images]:
    dataset = _dataset(shape.data, shape.train_images, shape.validation, folder)
    splits = {"train": dataset.train, "test": dataset.test, "validation": dataset.validation}
    return {k: Images(jnp.asarray(s.x), jnp.asarray(s.y), dataset.scale) for k, s in splits.items() if s is not None}


def machine(shape: Shape, replicas: int, folder: str | None = None) -> tuple[Engine, Meter]:
    """What trains and what measures stacks of `replicas` networks of a `shape`, on the data sets in `folder`.

    Both are cached by what they compile, so that the next shape compiles only what differs.
    """
    trains = shape.replace(steps=1, schedule=Schedule(), noise=Noise())  # what is no part of any program
    measures = trains.replace(method="", every=1, warm_up=0, augment=False, radius=0, optimizer=Optimizer())
    return _engine(trains, replicas, folder), _meter(measures, replicas, folder)


def train(run: Stacked, session: Session) -> Mapping[str, Any]:
    """Train the networks of `run` and return their history, the measurements of the best parameters and the noise
    curves.

    `session` keeps the checkpoints, from which an interrupted training resumes, and takes events and progress.
    """
    shape = run.shape
    engine, meter = machine(shape, len(run.seeds), session.data_dir)
    rates = engine.rates(run.learning_rates, run.mus, run.rhos)
    points, full = shape.schedule.points(shape.steps, engine.steps_per_epoch)

    stack = engine.init(run.seeds, rates)
    best = (engine.place(np.full(len(run.seeds), -1, np.float32)), engine.place(np.full(len(run.seeds), -1, np.int32)))
    kept: Any = jax.tree.map(jnp.copy, (stack.params, stack.state))
    history, done, programs = History(), 0, 1
    if (saved := session.load()) is not None:
        stack, best, kept = engine.place(restore(saved, (stack, best, kept)))
        history = History(saved)
        done = int(saved.get(AT, history.steps[-1] if history.steps else 0))

    def checkpoint() -> dict[str, np.ndarray]:
        return history.arrays(recorder.PREFIX) | flatten((stack, best, kept)) | {AT: np.array(done, np.int64)}

    def progress(speed: float) -> None:
        session.progress(0.98 * done / shape.steps, f"step {done:,}, {speed:,.0f} steps/s")

    strength = {"rho": np.array(run.rhos)} if run.rhos else {"mu": np.array(run.mus)}
    identity = {"learning_rate": np.array(run.learning_rates), **strength, "seed": np.array(run.seeds)}
    last = time.monotonic()
    for point, complete in zip(points.tolist(), full.tolist(), strict=True):
        if history.steps and point <= history.steps[-1]:
            continue
        before = done
        while done < point:  # between two measurements may lie hours
            begun, start, done = time.monotonic(), done, engine.after(programs, done, point)
            stack = jax.block_until_ready(engine.advance(stack, rates, run.seeds, start, done))
            took = time.monotonic() - begun
            if took > 4 * PACE:
                programs = max(1, programs // 2)
            elif took < PACE and done < point:
                programs *= 2
            if done < point:
                session.save(checkpoint)
                progress((done - start) / max(took, 1e-9))
        measured = meter.full(stack.params, stack.state) if complete else meter.watch(stack.params, stack.state)
        best, kept = recorder.keep_best(
            best, kept, (stack.params, stack.state), measured["test_accuracy"], np.int32(point)
        )
        history.add(point, numbers := jax.device_get(measured))
        session.emit(point, identity | numbers | {"best_test_accuracy": jax.device_get(best[0])})
        now = time.monotonic()
        session.save(checkpoint)
        progress((point - before) / max(now - last, 1e-9))  # a coarse clock may not have moved
        last = now
    return _results(run, meter, stack, best, kept, history, full)


def _results(run: Stacked, meter: Meter, stack: Stack, best: Any, kept: Any, history: History, full: Any) -> Any:
    params, state = kept
    noise, final = run.shape.noise, jax.device_get(stack.diverged)
    arrays: dict[str, Any] = history.arrays() | {
        "full": full,
        "learning_rate": np.array(run.learning_rates),
        "mu": np.array(run.rhos or run.mus),  # the stored column is `mu` for SAM's radius too, as it was in igr 0.1
        "seed": np.array(run.seeds, np.int64),
        "num_params": np.int64(run.shape.num_params),
        "steps_per_epoch": np.int64(meter.engine.steps_per_epoch),
        "train_size": np.int64(meter.engine.size),
        "diverged": final.astype(np.int64),
        "best_step": np.asarray(jax.device_get(best[1]), np.int64),
    }
    arrays |= {f"best_{name}": value for name, value in jax.device_get(meter.full(params, state)).items()}
    if noise.sigmas:
        slopes = meter.noise(params, state, NOISE_SEED, noise.sigmas, noise.slopes, "train", True)
        accuracies = meter.noise(params, state, NOISE_SEED, noise.sigmas, noise.accuracies, "test", False)
        arrays |= {
            "noise_sigma": np.array(noise.sigmas),
            "noise_slope": slopes["slope"],
            "noise_loss": slopes["loss"],
            "noise_test_accuracy": accuracies["accuracy"],
        }
    return arrays
