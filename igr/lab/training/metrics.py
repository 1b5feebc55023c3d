"""Further metrics by name, measured with R_IG on training images. A new one is a function and a line in `METRICS`.

A metric is a function of a `View`, which is one network on some images, and returns a number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

import igr
from igr.lab.training.gradients import cross_entropy


class View(NamedTuple):
    """One network on the first images of the training set: its parameters, the images and their labels."""

    params: Any
    x: Float[Array, "n h w c"]
    y: Int[Array, " n"]
    apply: Callable[[Any, Array], Array]  # (params, x) -> logits

    def logits(self, params: Any) -> Float[Array, "n k"]:
        """The logits of the images under `params`."""
        return self.apply(params, self.x)

    def loss(self, params: Any) -> Float[Array, ""]:
        """The mean cross entropy under `params`."""
        return cross_entropy(self.logits(params), self.y).mean()


def confidence(view: View) -> Float[Array, ""]:
    """The mean probability of the predicted class over the images of `view`."""
    return jnp.exp(jax.nn.log_softmax(view.logits(view.params)).max(axis=-1)).mean()


def sharpness(view: View, iterations: int = 30) -> Float[Array, ""]:
    """The eigenvalue of the Hessian of the loss of `view` that is largest in absolute value.

    Power iteration from the gradient, `iterations` times.
    """

    def normalized(v: Any) -> Any:
        length = jnp.sqrt(igr.squared_norm(v))
        return jax.tree.map(lambda leaf: leaf / jnp.where(length > 0, length, jnp.ones_like(length)), v)

    def iterate(_: Any, v: Any) -> Any:
        return normalized(igr.hvp(view.loss)(view.params, v))

    v = jax.lax.fori_loop(0, iterations, iterate, normalized(jax.grad(view.loss)(view.params)))
    products = jax.tree.map(lambda a, b: jnp.vdot(a, b), v, igr.hvp(view.loss)(view.params, v))
    return jax.tree.reduce(jnp.add, products)


def trace(view: View, probes: int = 8) -> Float[Array, ""]:
    r"""The trace of the Hessian of the loss of `view` by Hutchinson's estimator.

    It is the mean of $v^\top H v$ over `probes` vectors v of random signs.
    """

    def one(key: Array) -> Array:
        leaves, structure = jax.tree.flatten(view.params)
        keys = jax.random.split(key, len(leaves))
        signs = [jax.random.rademacher(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
        v = structure.unflatten(signs)
        products = jax.tree.map(jnp.vdot, v, igr.hvp(view.loss)(view.params, v))
        return jax.tree.reduce(jnp.add, products)

    return jax.lax.map(one, jax.random.split(jax.random.key(0), probes)).mean()


def batch_r_ig(size: int) -> Callable[[View], Float[Array, ""]]:
    r"""The mean of the squared gradients of batches over m, which mini-batch descent's modified loss has for $R_{IG}$.

    $$\frac1K \sum_{k=1}^{K} \frac{|\nabla E_k|^2}{m}$$

    over as many whole batches of `size` images as there are. Smith et al., On the Origin of Implicit Regularization in
    Stochastic Gradient Descent, ICLR 2021.
    """

    def measure(view: View) -> Array:
        count = len(view.y) // size
        if not count:
            raise ValueError(
                f"batches of {size} images need as many to measure on: set measure's batch to {size} or more."
            )

        def squared(k: Array) -> Array:
            x = jax.lax.dynamic_slice_in_dim(view.x, k * size, size)
            y = jax.lax.dynamic_slice_in_dim(view.y, k * size, size)
            return igr.squared_norm(jax.grad(lambda p: cross_entropy(view.apply(p, x), y).mean())(view.params))

        return jax.lax.map(squared, jnp.arange(count, dtype=jnp.int32)).mean() / igr.num_params(view.params)

    return measure


METRICS: dict[str, Callable[[View], Array]] = {
    "confidence": confidence,
    "sharpness": sharpness,
    "trace": trace,
    "batch_r_ig_32": batch_r_ig(32),
    "batch_r_ig_512": batch_r_ig(512),
}
