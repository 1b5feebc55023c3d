"""One network, trained by gradient descent in float64, and the regime of its learning rate along the way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import igr
from igr.lab.data.registry import DATASETS, load
from igr.lab.models.mlp import ACTIVATIONS, mlp
from igr.lab.runs.unit import Session, Trial
from igr.lab.store.config import ConfigError, option
from igr.regimes.truncation import measured_errors

ORDERS = 3
SUBSTEPS = 6  # of Runge-Kutta in one step: at h lambda = 2 its error is 1e-4 of the step


LOSSES = ("cross_entropy", "squared")


@dataclass(frozen=True)
class Along(Trial):
    """A training and the steps at which its regime is measured."""

    learning_rate: float = option("step size h", 0.1)
    activation: str = option("relu, gelu or tanh", "tanh")
    seed: int = option("initialization and order of the batches", 0)
    data: str = option("data set", "digits")
    loss: str = option("cross_entropy, or squared distance to the one-hot labels", "cross_entropy")
    width: int = option("units of a hidden layer", 32)
    depth: int = option("hidden layers", 2)
    examples: int = option("images on which the regime is measured; also trained on where batch_size is 0", 300)
    batch_size: int = option("images of a step, drawn from the training set; 0: all examples, no noise", 0)
    steps: int = option("steps of training", 1000)
    samples: int = option("measurements along the way, half evenly in the step, half in its logarithm", 10)

    def check(self) -> None:
        """Values that can be meant."""
        check_sampling(self)
        if self.activation not in ACTIVATIONS or self.data not in DATASETS or self.loss not in LOSSES:
            raise ConfigError(f"No activation {self.activation!r}, no data set {self.data!r} or no loss {self.loss!r}.")
        if min(self.width, self.depth, self.examples) < 1 or self.batch_size < 0:
            raise ConfigError("width, depth and examples must be positive, and batch_size not negative.")

    @property
    def network(self) -> str:
        """What the learning rates are compared on."""
        squared = ", squared loss" if self.loss == "squared" else ""
        return f"{self.data} {self.depth} x {self.width} {self.activation}{squared}"

    @property
    def family(self) -> str:
        """The same as a part of an id: without sizes."""
        kind = "narrow mlp" if self.data != "digits" and self.width < 400 else "mlp"
        return f"{self.data} {kind} {self.activation}" + (" squared" if self.loss == "squared" else "")

    @property
    def label(self) -> str:
        """A few words for the progress display."""
        return f"{self.network}, h = {self.learning_rate:g}, seed {self.seed}"

    @property
    def precision(self) -> str:
        """All of it."""
        return "float64"

    def at(self) -> list[int]:
        """The steps at which the regime is measured."""
        return measured_steps(self.steps, self.samples)

    def compute(self, session: Session) -> Mapping[str, Any]:
        """The regime, the measured errors, the loss and the accuracies at each of these steps."""
        data = load(self.data, session.data_dir)
        with jax.enable_x64(True):
            entry = DATASETS[self.data]
            inputs, classes = int(np.prod(entry.shape)), entry.classes
            train, measure = programs(self.activation, self.batch_size, self.loss)
            model = mlp(self.width, self.depth, self.activation, inputs, classes)
            params = model.init(jax.random.key(self.seed))[0]
            params = jax.tree.map(lambda p: p.astype(jnp.float64), params)
            kept = len(data.train) if self.batch_size else self.examples
            x, y = (jnp.asarray(v) for v in _arrays(data.train, data.scale, kept))
            tests = _arrays(data.test, data.scale, len(data.test))
            rows, before = [], 0
            for step in self.at():
                params = train(params, self.learning_rate, x, y, jax.random.key(self.seed), before, step)
                row = measure(params, self.learning_rate, x[: self.examples], y[: self.examples], *tests)
                rows.append({name: np.asarray(value) for name, value in row.items()})
                before = step
                session.progress((len(rows)) / len(self.at()), f"step {step}")
        columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        return {"step": np.array(self.at()), **columns}


def measured_steps(steps: int, samples: int) -> list[int]:
    """Step 0, then half of the measurements evenly in the logarithm of the step and half evenly in the step.

    >>> measured_steps(100, 7)
    [0, 1, 3, 10, 33, 67, 100]
    """
    slow = samples // 2
    early = np.geomspace(1, max(1, steps / slow), samples - slow)[:-1]
    later = np.linspace(0, steps, slow + 1)[1:]
    return [0, *np.unique(np.concatenate([early, later]).round().astype(int)).tolist()]


def check_sampling(trial: Any) -> None:
    """What every training that is followed needs."""
    if trial.learning_rate <= 0:
        raise ConfigError(f"learning_rate must be positive, and it is {trial.learning_rate}.")
    if trial.steps < 1 or trial.samples < 2:
        raise ConfigError("steps must be positive, and samples at least 2.")


def _arrays(split: Any, scale: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    return split.x[:count].reshape(min(count, len(split)), -1) / scale, split.y[:count]


@cache
def programs(activation: str, batch_size: int, kind: str) -> tuple[Callable, Callable]:
    """(train, measure), compiled once for all networks of an activation: the learning rate is an argument."""
    act = ACTIVATIONS[activation]

    def logits(params: Any, x: Any) -> Any:
        for layer in params[:-1]:
            x = act(x @ layer["w"] + layer["b"][None])
        return x @ params[-1]["w"] + params[-1]["b"][None]

    def loss(params: Any, x: Any, y: Any) -> Any:
        if kind == "squared":
            outputs = logits(params, x)
            return jnp.mean(jnp.sum((outputs - jax.nn.one_hot(y, outputs.shape[1], dtype=outputs.dtype)) ** 2, axis=1))
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits(params, x)), y[:, None], axis=1))

    def accuracy(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean(jnp.argmax(logits(params, x), axis=1).astype(y.dtype) == y)

    @jax.jit
    def train(params: Any, h: Any, x: Any, y: Any, key: Any, first: Any, last: Any) -> Any:
        def step(i: Any, params: Any) -> Any:
            if not batch_size:
                return igr.gradient_step(loss, h)(params, x, y)
            batch = jax.random.randint(jax.random.fold_in(key, i), (batch_size,), 0, len(y))
            return igr.gradient_step(loss, h)(params, x[batch], y[batch])

        return jax.lax.fori_loop(first, last, step, params)

    @jax.jit
    def measure(params: Any, h: Any, x: Any, y: Any, test_x: Any, test_y: Any) -> dict:
        r = igr.regime(loss, h, products=12)(params, x, y)
        measured = measured_errors(igr.gradient_field(loss), h, orders=ORDERS, substeps=SUBSTEPS)(params, x, y)
        return {
            **{name: getattr(r, name) for name in ("q2", "q3", "cosine", "h_star", "h_lambda")},
            "expected_error": r.errors,
            "measured_error": measured,
            "loss": loss(params, x, y),
            "accuracy": accuracy(params, x, y),
            "test_accuracy": accuracy(params, test_x, test_y),
        }

    return train, measure
