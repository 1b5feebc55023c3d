"""What a step of training descends: the gradient of a batch's loss, plain, penalized or SAM's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from jaxtyping import Array, Float, Int

import igr
from igr.lab.models import Model


def cross_entropy(logits: Float[Array, "b k"], labels: Int[Array, " b"]) -> Float[Array, " b"]:
    """The negative log probability of each label; a mask instead of a gather, whose transpose would be a scatter.

    >>> cross_entropy(jnp.zeros((1, 10)), jnp.array([3]))[0].round(4).item()  # log 10
    2.3026
    """
    hit = labels[:, None] == jnp.arange(logits.shape[-1], dtype=labels.dtype)[None, :]
    return -jnp.where(hit, jax.nn.log_softmax(logits), jnp.zeros((), logits.dtype)).sum(axis=-1)


def batch_loss(model: Model) -> Callable[..., tuple[Array, Any]]:
    """The mean cross entropy of a batch: `loss(params, state, x, y) -> (E, new state)`, in training mode."""

    def loss(params: Any, state: Any, x: Array, y: Array) -> tuple[Array, Any]:
        if len(x) != len(y):
            raise ValueError(f"a batch needs a label for each image, but it has {len(x)} images and {len(y)} labels.")
        logits, new = model.apply(params, state, x, True)
        return cross_entropy(logits, y).mean(), new

    return loss


def value_and_grad(
    loss: Callable, method: str | None, mu: Any, has_aux: bool = False, radius: float | None = None
) -> Callable[..., tuple[Any, Any]]:
    """The value of a loss and what to descend: by a method of `igr.value_and_grad`, by "sam", or plainly for None."""
    if method is None:
        return jax.value_and_grad(loss, has_aux=has_aux)
    if method == "sam":
        return sam(loss, mu, has_aux)
    return igr.value_and_grad(loss, mu, method, has_aux, radius=radius)  # pyright: ignore[reportArgumentType]


def sam(loss: Callable, rho: Any, has_aux: bool = False) -> Callable[..., Any]:
    r"""Optax's sharpness-aware minimization as a gradient; value and aux are those of the unperturbed pass.

    $$g \mapsto \nabla E(\theta + \rho\, g / |g|), \qquad g = \nabla E(\theta)$$

    Foret et al. (2021). To first order in rho it is `igr.value_and_grad` with mu = rho / (2 |g|).

    >>> (value, grad) = sam(lambda x: x**2 / 2, rho=0.5)(jnp.array(2.0))
    >>> float(value), float(grad)
    (2.0, 2.5)
    """
    plain = jax.value_and_grad(loss, has_aux=has_aux)
    ascent = optax.chain(optax.contrib.normalize(), optax.sgd(rho))
    optimizer = optax.contrib.sam(optax.identity(), ascent, opaque_mode=True)

    def evaluate(params: Any, *args: Any) -> tuple[Any, Any]:
        out, g = plain(params, *args)
        ahead, _ = optimizer.update(g, optimizer.init(params), params, grad_fn=lambda p, _: plain(p, *args)[1])
        some = igr.squared_norm(g) > 0  # a gradient of zero has no direction, and Optax would divide by its norm
        return out, jax.tree.map(lambda a, b: jnp.where(some, a, b), ahead, g)

    return evaluate
