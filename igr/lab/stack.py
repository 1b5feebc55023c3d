"""Training one stack from its first step to its last measurement, with checkpoints: the inside of a unit of work."""

import functools
import os
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from igr.lab import data as datasets
from igr.lab.measure import Meter
from igr.lab.sweep import Noise, Schedule, Shape, StackRun
from igr.lab.train import Engine, Images, Stack
from igr.lab.work import Session

NOISE_SEED = 2020
KEPT = 4  # shapes whose programs are kept: families of one experiment take turns


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
    """What trains stacks of a shape; kept with its compiled programs, since units of one shape follow each other."""
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
    )


@functools.lru_cache(maxsize=KEPT)
def _meter(shape: Shape, replicas: int, folder: str | None) -> Meter:
    """What measures stacks of a shape; kept longer than the engine, since shapes that only train otherwise share it."""
    images = _images(shape, folder)
    engine = Engine(shape.build(), images["train"], shape.batch_size, precision=shape.precision, replicas=replicas)
    exact = shape.build("float32") if shape.precision == "bfloat16" else None
    how = shape.measure.to_dict()
    return Meter(engine, images["test"], images.get("validation"), exact, test_gradient=how.pop("test"), **how)


def _images(shape: Shape, folder: str | None) -> dict[str, Images]:
    dataset = _dataset(shape.data, shape.train_images, shape.validation, folder)
    splits = {"train": dataset.train, "test": dataset.test, "validation": dataset.validation}
    return {k: Images(jnp.asarray(s.x), jnp.asarray(s.y), dataset.scale) for k, s in splits.items() if s is not None}


def machine(shape: Shape, replicas: int) -> tuple[Engine, Meter]:
    """What trains and what measures stacks of a shape; shapes that follow each other compile what differs alone."""
    folder = os.environ.get("IGR_DATA_DIR")
    trains = shape.replace(steps=1, schedule=Schedule(), noise=Noise())  # what is no part of any program
    measures = trains.replace(method="", every=1, warm_up=0, augment=False, radius=0)
    return _engine(trains, replicas, folder), _meter(measures, replicas, folder)


class History:
    """The measurements so far: a row a point, NaN where a column was not measured there."""

    def __init__(self, saved: Mapping[str, np.ndarray] | None = None):
        self.steps: list[int] = [int(n) for n in saved["history/step"]] if saved else []
        self.columns: dict[str, list[np.ndarray]] = {}
        for name, values in (saved or {}).items():
            if name.startswith("history/") and name != "history/step":
                self.columns[name.removeprefix("history/")] = list(values)

    def add(self, step: int, measured: Mapping[str, np.ndarray]) -> None:
        """A new row; a column seen for the first time is NaN in the rows before."""
        self.steps.append(step)
        width = len(next(iter(measured.values())))
        blank = np.full(width, np.nan, np.float32)
        for name in {**self.columns, **measured}:
            column = self.columns.setdefault(name, [blank] * (len(self.steps) - 1))
            column.append(np.asarray(measured.get(name, blank)))

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Columns of shape (points, replicas), and the steps."""
        steps = {f"{prefix}step": np.array(self.steps, np.int64)}
        return steps | {f"{prefix}{name}": np.stack(rows) for name, rows in sorted(self.columns.items())}


@functools.partial(jax.jit, donate_argnums=(0, 1))
def _keep_best(best: Any, kept: Any, now: Any, accuracy: jax.Array, step: jax.Array) -> tuple[Any, Any]:
    """The best accuracy, its step and the (params, state) there; the first maximum counts, and NaN never wins."""
    better = accuracy > best[0]

    def choose(old: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    value = (choose(best[0], accuracy), choose(best[1], jnp.broadcast_to(step, better.shape)))
    return value, jax.tree.map(choose, kept, now)


def compute(run: StackRun, session: Session) -> Mapping[str, Any]:
    """The measurements of a stack: its history, the best and the last parameters' columns, the noise curves."""
    shape = run.shape
    engine, meter = machine(shape, len(run.seeds))
    rates = engine.rates(run.learning_rates, run.mus)
    points, full = shape.schedule.points(shape.steps, engine.steps_per_epoch)

    stack = engine.init(run.seeds)
    best = (engine.place(np.full(len(run.seeds), -1, np.float32)), engine.place(np.full(len(run.seeds), -1, np.int32)))
    kept: Any = jax.tree.map(jnp.copy, (stack.params, stack.state))
    saved = session.load()
    history = History(saved)
    if saved is not None:
        leaves, structure = jax.tree.flatten((stack, best, kept))
        stack, best, kept = structure.unflatten(engine.place([saved[f"leaf/{i}"] for i in range(len(leaves))]))

    def checkpoint() -> dict[str, np.ndarray]:
        leaves = jax.device_get(jax.tree.leaves((stack, best, kept)))
        return history.arrays("history/") | {f"leaf/{i}": leaf for i, leaf in enumerate(leaves)}

    last = time.monotonic()
    done = history.steps[-1] if history.steps else 0
    for point, complete in zip(points.tolist(), full.tolist(), strict=True):
        if point <= done and history.steps and point <= history.steps[-1]:
            continue
        stack = engine.advance(stack, rates, run.seeds, done, point)
        measured = meter.full(stack.params, stack.state) if complete else meter.watch(stack.params, stack.state)
        best, kept = _keep_best(best, kept, (stack.params, stack.state), measured["test_accuracy"], np.int32(point))
        history.add(point, jax.device_get(measured))
        now = time.monotonic()
        session.save(checkpoint)
        session.progress(0.98 * point / shape.steps, _describe(run, history, best, (point - done) / (now - last)))
        done, last = point, now
    return _results(run, meter, stack, best, kept, history, full)


def _results(run: StackRun, meter: Meter, stack: Stack, best: Any, kept: Any, history: History, full: Any) -> Any:
    params, state = kept
    noise, final = run.shape.noise, jax.device_get(stack.diverged)
    arrays: dict[str, Any] = history.arrays() | {
        "full": full,
        "learning_rate": np.array(run.learning_rates),
        "mu": np.array(run.mus),
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


def _describe(run: StackRun, history: History, best: Any, speed: float) -> str:
    """Steps a second, then a line for each learning rate: loss, R_IG, best test accuracy, means over its replicas."""
    rates, accuracy = np.array(run.learning_rates), jax.device_get(best[0])
    lines = [f"step {history.steps[-1]:,}, {speed:,.0f} steps/s"]
    unknown = np.full(len(rates), np.nan)
    latest = {
        name: next((row for row in reversed(history.columns.get(name, [])) if not np.isnan(row).all()), unknown)
        for name in ("loss", "r_ig")
    }
    for rate in sorted(set(run.learning_rates), reverse=True):
        mine = rates == rate
        loss, r_ig, top = (_mean(values[mine]) for values in (latest["loss"], latest["r_ig"], accuracy))
        lines.append(f"h = {rate:<7g} E = {loss:.3e}  R_IG = {r_ig:.3e}  best test accuracy = {top:.4f}")
    return "\n".join(lines)


def _mean(values: np.ndarray) -> float:
    """The mean over what is finite; NaN where nothing is."""
    good = values[np.isfinite(values)]
    return float(good.mean()) if good.size else float("nan")
