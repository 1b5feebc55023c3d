"""ResNet-18, trained by stochastic gradient descent, and the regime of its learning rate along the way, in float32."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import igr
from igr.calculus import add_scaled
from igr.lab.data.registry import DATASETS, load
from igr.lab.experiments.regime.training import ORDERS, check_sampling, measured_steps
from igr.lab.models.mlp import ACTIVATIONS
from igr.lab.models.model import DTYPES
from igr.lab.models.resnet18 import resnet18
from igr.lab.runs.unit import Session, Trial
from igr.lab.store.config import ConfigError, option
from igr.regimes.lanczos import norm, ratio
from igr.regimes.truncation import measured_errors

SUBSTEPS = 4  # of Runge-Kutta in one step
TESTED = 500  # images at once


@dataclass(frozen=True)
class AlongResNet(Trial):
    """A training of ResNet-18 and the steps at which its regime is measured, on one fixed batch in float32."""

    learning_rate: float = option("step size h", 0.1)
    activation: str = option("relu, gelu or tanh", "relu")
    seed: int = option("initialization and order of the batches", 0)
    data: str = option("data set", "cifar10")
    width: int = option("channels of the first block", 64)
    dtype: str = option("float32, or bfloat16 for the training's convolutions; measured is in float32", "bfloat16")
    examples: int = option("images of the batch on which the regime is measured", 128)
    batch_size: int = option("images of a step, drawn from the training set", 512)
    steps: int = option("steps of training", 2000)
    samples: int = option("measurements along the way, half evenly in the step, half in its logarithm", 8)
    products: int = option("Hessian products for each of two Lanczos runs", 8)

    def check(self) -> None:
        """Values that can be meant."""
        check_sampling(self)
        if self.activation not in ACTIVATIONS or self.data not in DATASETS or self.dtype not in DTYPES:
            raise ConfigError(
                f"No activation {self.activation!r}, no data set {self.data!r} or no dtype {self.dtype!r}."
            )
        if min(self.width, self.examples, self.batch_size, self.products) < 1:
            raise ConfigError("width, examples, batch_size and products must be positive.")

    @property
    def network(self) -> str:
        """What the learning rates are compared on."""
        return f"{self.data} ResNet-18 {self.activation}" + (f", width {self.width}" if self.width != 64 else "")

    @property
    def family(self) -> str:
        """The same as a part of an id: without sizes."""
        return f"{self.data} resnet18 {self.activation}"

    @property
    def label(self) -> str:
        """A few words for the progress display."""
        return f"{self.network}, h = {self.learning_rate:g}, seed {self.seed}"

    @property
    def precision(self) -> str:
        """Of the measurements; `dtype` is that of the training."""
        return "float32"

    def at(self) -> list[int]:
        """The steps at which the regime is measured."""
        return measured_steps(self.steps, self.samples)

    def compute(self, session: Session) -> Mapping[str, Any]:
        """The regime, the measured errors, their rounding, the loss and the test accuracy at each of these steps."""
        data = load(self.data, session.data_dir)
        init, train, measure, score = programs(self.activation, self.width, self.dtype, self.products, self.data)
        x, y = jnp.asarray(data.train.x), jnp.asarray(data.train.y)
        key = jax.random.key(self.seed)
        carry = init(key)
        structure = jax.tree.structure(carry)
        rows: list[dict[str, np.ndarray]] = []
        saved = session.load()
        if saved is not None:
            carry = structure.unflatten([jnp.asarray(saved[f"leaf{i}"]) for i in range(structure.num_leaves)])
            columns = [name for name in saved if name.startswith("column/")]
            count = len(saved[columns[0]]) if columns else 0
            rows = [{name.removeprefix("column/"): saved[name][i] for name in columns} for i in range(count)]

        def joined() -> dict[str, np.ndarray]:
            return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

        def checkpoint() -> dict[str, np.ndarray]:
            leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(carry))}
            return {**leaves, **{f"column/{name}": column for name, column in joined().items()}}

        at = self.at()
        for done in range(len(rows), len(at)):
            before, step = (0 if done == 0 else at[done - 1]), at[done]
            carry = train(carry, self.learning_rate, x, y, data.scale, key, before, step, self.batch_size)
            row = measure(carry, self.learning_rate, x[: self.examples], y[: self.examples], data.scale)
            rows.append({name: np.asarray(value) for name, value in row.items()})
            rows[-1]["test_accuracy"] = _accuracy(score, carry, data.test, data.scale)
            session.save(checkpoint)
            session.progress((done + 1) / len(at), f"step {step}")
        return {"step": np.array(at), **joined()}


def _accuracy(score: Callable, carry: Any, split: Any, scale: float) -> np.ndarray:
    size = min(TESTED, len(split))
    starts = range(0, len(split) - size + 1, size)  # whole batches, so that one program serves all
    return np.asarray(np.mean([score(carry, split.x[i : i + size], split.y[i : i + size], scale) for i in starts]))


@cache
def programs(activation: str, width: int, dtype: str, products: int, data: str) -> tuple[Callable, ...]:
    """(init, train, measure, score), compiled once for all networks of a shape: the learning rate is an argument."""
    entry = DATASETS[data]
    shape = {"width": width, "classes": entry.classes, "channels": entry.shape[-1], "activation": activation}
    trained, exact = resnet18(compute=dtype, **shape), resnet18(**shape)

    def loss(model: Any, params: Any, statistics: Any, x: Any, y: Any) -> tuple[Any, Any]:
        logits, statistics = model.apply(params, statistics, x, True)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)), statistics

    @partial(jax.jit, static_argnames="batch_size")
    def train(carry: Any, h: Any, x: Any, y: Any, scale: Any, key: Any, first: Any, last: Any, batch_size: int) -> Any:
        def step(i: Any, carry: Any) -> Any:
            params, statistics = carry
            batch = jax.random.randint(jax.random.fold_in(key, i), (batch_size,), 0, len(y))
            images = x[batch].astype(jnp.float32) / jnp.float32(scale)
            grads, statistics = jax.grad(lambda p: loss(trained, p, statistics, images, y[batch]), has_aux=True)(params)
            return add_scaled(params, -jnp.float32(h), grads), statistics

        return jax.lax.fori_loop(first, last, step, carry)

    @jax.jit
    def measure(carry: Any, h: Any, x: Any, y: Any, scale: Any) -> dict:
        params, statistics = carry
        x = x.astype(jnp.float32) / jnp.float32(scale)

        def batch_loss(p: Any, x: Any, y: Any) -> Any:
            return loss(exact, p, statistics, x, y)[0]

        with jax.default_matmul_precision("highest"):
            ascent = igr.gradient_field(batch_loss)
            r = igr.regime(batch_loss, h, products=products)(params, x, y)
            measured = measured_errors(ascent, h, orders=ORDERS, substeps=SUBSTEPS)(params, x, y)
            # The same gradient, its sums over images taken in another order: how far float32 is to be trusted.
            here, again = ascent(params, x, y), ascent(params, x[::-1], y[::-1])
            return {
                **{name: getattr(r, name) for name in ("q2", "q3", "cosine", "h_star", "h_lambda")},
                "expected_error": r.errors,
                "measured_error": measured,
                "rounding": ratio(norm(jax.tree.map(jnp.subtract, here, again)), norm(here)),
                "loss": batch_loss(params, x, y),
            }

    @jax.jit
    def score(carry: Any, x: Any, y: Any, scale: Any) -> Any:
        params, statistics = carry
        logits, _ = trained.apply(params, statistics, x.astype(jnp.float32) / jnp.float32(scale), False)
        return jnp.mean(jnp.argmax(logits, axis=1) == y)

    return jax.jit(trained.init), train, measure, score
