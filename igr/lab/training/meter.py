"""Measurements of a stack: E, R_IG, slope and accuracy over a whole data set, and the same under parameter noise.

The gradient is averaged over the data set and then squared, R_IG = |grad E|^2 / m, where E is the mean over *all*
images. The average of squared batch gradients would be larger by their variance. Loss, accuracy and gradient come from
one pass, a scan over batches in constant memory, with matrix products at the highest precision, whatever that of the
training is. A replica whose loss is not finite has NaN in all columns, since its arg-max would look like an accuracy of
0.1.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import igr
from igr.lab.models.model import Model
from igr.lab.training.engine import EVERYWHERE, REPLICAS, Engine
from igr.lab.training.gradients import cross_entropy
from igr.lab.training.images import Images, check_images, unit_range
from igr.lab.training.metrics import METRICS, View
from igr.lab.training.precision import matmul_precision

BATCH = 1000  # images at a time; enough to fill a GPU with a few replicas, small enough for a stack of wide networks

Columns = dict[str, Array]


def evaluate(
    model: Model,
    scale: float,
    gradient: bool = True,
    batch_statistics: bool = False,
    batch: int = BATCH,
    average: str = "gradient",
    precision: str = "highest",
) -> Callable[..., Columns]:
    """`measure(params, state, x, y)`: loss and accuracy of one replica on a data set, with `gradient` also r_ig, slope.

    With `batch_statistics`, batch norm uses the statistics of each batch (training mode) instead of the running ones; a
    model without state ignores it. Batches have at most `batch` images and sizes as equal as possible, so that no batch
    has the statistics of a few images. `scale` is the largest pixel value, `precision` that of matrix products. With
    `average` "square", r_ig is the mean of |gradient of a batch|^2 / m.
    """

    def total(params: Any, state: Any, x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
        logits, _ = model.apply(params, state, x, batch_statistics)
        hits = (logits.argmax(axis=-1).astype(y.dtype) == y) & (weight > 0)
        return (cross_entropy(logits, y) * weight).sum(), hits.sum(dtype=jnp.int32)

    def measure(params: Any, state: Any, x: Array, y: Array) -> Columns:
        n = len(y)
        size = -(-n // -(-n // batch))
        data = Images(x, y, scale)

        def add(carry: Any, first: Array) -> tuple[Any, None]:
            index = first + jnp.arange(size, dtype=jnp.int32)
            weight = (index < n).astype(jnp.float32) * np.float32(1 / n)  # the last batch may reach past the end
            images = (*data.pick(jnp.minimum(index, n - 1)), weight)
            if not gradient:
                return jax.tree.map(jnp.add, carry, total(params, state, *images)), None
            (loss, hits), grads = jax.value_and_grad(total, has_aux=True)(params, state, *images)
            if average == "square":  # the batch's mean has the gradient grads / share, and counts by its share
                grads = igr.squared_norm(grads) / weight.sum()
            return jax.tree.map(jnp.add, carry, (loss, hits, grads)), None

        zero = (jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32))
        if gradient:
            zero = (*zero, zero[0] if average == "square" else jax.tree.map(jnp.zeros_like, params))
        with matmul_precision(precision):
            sums, _ = jax.lax.scan(add, zero, jnp.arange(0, n, size, dtype=jnp.int32))
        columns = {"loss": sums[0], "accuracy": sums[1].astype(jnp.float32) / np.float32(n)}
        if gradient:
            norm2 = sums[2] if average == "square" else igr.squared_norm(sums[2])
            columns |= {"r_ig": norm2 / np.float32(igr.num_params(params)), "slope": jnp.sqrt(norm2)}
        bad = ~jnp.isfinite(sums[0])
        return {name: jnp.where(bad, jnp.full((), jnp.nan, jnp.float32), v) for name, v in columns.items()}

    return measure


class Meter:
    """Measures stacks of an engine on its training set, on a test set and on a validation set where there is one.

    What is on the training set, and R_IG everywhere, comes from a pass with gradients in float32: by `model`, which is
    the engine's computed in float32 (or the engine's own), with batch norm using batch or running `statistics`, the
    `average` over batches of at most `batch` images, on the first `images` of the training set (0 is all), and on the
    test set unless `test_gradient` is false. Accuracies and losses of test and validation come from a cheap pass by
    the engine's own model with running statistics, the same at every point. `metrics` names further ones of
    `igr.lab.training.metrics`, each measured on the first `batch` images of the training set.
    """

    def __init__(
        self,
        engine: Engine,
        test: Images,
        validation: Images | None = None,
        model: Model | None = None,
        statistics: str = "batch",
        average: str = "gradient",
        images: int = 0,
        batch: int = BATCH,
        test_gradient: bool = True,
        metrics: Sequence[str] = (),
    ):
        self.engine, self._with_gradient = engine, ["train", "test"] if test_gradient else ["train"]
        train = Images(engine.data.x[:images], engine.data.y[:images], engine.data.scale) if images else engine.data
        sets = {"train": train, "test": test} | ({"validation": validation} if validation else {})
        for each in sets.values():
            check_images(engine.model, each)
        put = jax.sharding.NamedSharding(engine.mesh, EVERYWHERE)
        self._sets = {k: v.put(put) for k, v in sets.items()}
        scale, precision = engine.data.scale, "default" if engine.precision == "bfloat16" else "highest"
        self._measures = {
            True: evaluate(model or engine.model, scale, True, statistics == "batch", batch, average),
            False: evaluate(engine.model, scale, False, False, batch, precision=precision),
        }
        specs = (REPLICAS, REPLICAS, EVERYWHERE, EVERYWHERE)
        self._passes = {
            gradient: engine.sharded(engine.spread(measure, 2), specs) for gradient, measure in self._measures.items()
        }
        state = jax.eval_shape(engine.model.init, jax.random.key(0))[1]
        self._alike = model is None and not jax.tree.leaves(state)  # both passes see the same function
        measured = model or engine.model
        self._metrics = {name: self._metric(METRICS[name], measured, statistics == "batch", batch) for name in metrics}
        norm = engine.spread(lambda params: jnp.sqrt(igr.squared_norm(params)), 1)
        self._norm = engine.sharded(norm, (REPLICAS,))

    def _metric(self, metric: Callable[[View], Array], model: Model, train: bool, batch: int) -> Any:
        """A metric as a compiled program on the first `batch` images of the training set."""

        def measure(params: Any, state: Any, x: Array, y: Array) -> Array:
            images = unit_range(x[:batch], self.engine.data.scale)
            with matmul_precision("highest"):
                number = metric(View(params, images, y[:batch], lambda p, x: model.apply(p, state, x, train)[0]))
            return jnp.asarray(number, jnp.float32)

        return self.engine.sharded(self.engine.spread(measure, 2), (REPLICAS, REPLICAS, EVERYWHERE, EVERYWHERE))

    def _on(self, split: str, params: Any, state: Any, gradient: bool) -> Columns:
        data = self._sets[split]
        columns = self._passes[gradient](params, state, data.x, data.y)
        prefix = "" if split == "train" else f"{split}_"
        return {f"train_{k}" if split == "train" and k == "accuracy" else f"{prefix}{k}": v for k, v in columns.items()}

    def watch(self, params: Any, state: Any) -> Columns:
        """Loss and accuracy on the test and validation sets under `params` and `state`, without gradients."""
        return self._cheap(["test", "validation"], params, state)

    def _cheap(self, splits: Sequence[str], params: Any, state: Any) -> Columns:
        some = [split for split in splits if split in self._sets]
        return {k: v for split in some for k, v in self._on(split, params, state, False).items()}

    def full(self, params: Any, state: Any) -> Columns:
        """All columns for networks with these `params` and `state`.

        They are loss, accuracy, r_ig and slope on the training and test set, the metrics, and the parameter norm.
        """
        columns = {k: v for split in self._with_gradient for k, v in self._on(split, params, state, True).items()}
        known = self._with_gradient if self._alike else ()
        columns |= self._cheap([split for split in ("test", "validation") if split not in known], params, state)
        train = self._sets["train"]
        columns |= {name: program(params, state, train.x, train.y) for name, program in self._metrics.items()}
        return columns | {"param_norm": self._norm(params)}

    def noise(
        self, params: Any, state: Any, seed: int, sigmas: Sequence[float], realizations: int, split: str, gradient: bool
    ) -> dict[str, np.ndarray]:
        """Measurements under multiplicative noise on `params`: columns of shape (replicas, sigmas, realizations).

        They are taken on the set `split`, with the columns of the `gradient` if that is true. Realization k draws from
        the same key of `seed` at every sigma and for every replica, so that curves differ by sigma and network alone.
        """

        def curve(params: Any, state: Any, x: Array, y: Array, keys: Any, sigma: Float[Array, ""]) -> Columns:
            def one(key: Any) -> Columns:
                return self._measures[gradient](igr.perturb(key, params, sigma), state, x, y)

            return jax.lax.map(one, keys)

        specs = (REPLICAS, REPLICAS, EVERYWHERE, EVERYWHERE, EVERYWHERE, EVERYWHERE)
        program = self.engine.sharded(self.engine.spread(curve, 2), specs)
        keys = jax.random.split(jax.random.key(seed), realizations)
        data, rows = self._sets[split], []
        for sigma in sigmas:
            rows.append(jax.device_get(program(params, state, data.x, data.y, keys, np.float32(sigma))))
        return {k: np.stack([row[k] for row in rows], axis=1) for k in rows[0]}
