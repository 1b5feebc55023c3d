"""The gradient that a training step uses: of a batch's loss, plain, with a penalty, or that of SAM."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from jaxtyping import Array, Float, Int

import igr
from igr.lab.models.model import Model

KINK_RADIUS = 0.05  # of stored runs, see `stored_radius`


def cross_entropy(logits: Float[Array, "b k"], labels: Int[Array, " b"]) -> Float[Array, " b"]:
    """The negative log probability of each of the `labels` under `logits`.

    It uses a mask instead of a gather, since the derivative of a gather is a slow scatter.

    >>> cross_entropy(jnp.zeros((1, 10)), jnp.array([3]))[0].round(4).item()  # log 10
    2.3026
    """
    hit = labels[:, None] == jnp.arange(logits.shape[-1], dtype=labels.dtype)[None, :]
    return -jnp.where(hit, jax.nn.log_softmax(logits), jnp.zeros((), logits.dtype)).sum(axis=-1)


def batch_loss(model: Model) -> Callable[..., tuple[Array, Any]]:
    """The mean cross entropy of a batch under `model` in training mode: `loss(params, state, x, y) -> (E, state)`."""

    def loss(params: Any, state: Any, x: Array, y: Array) -> tuple[Array, Any]:
        if len(x) != len(y):
            raise ValueError(f"a batch needs a label for each image, but it has {len(x)} images and {len(y)} labels.")
        logits, new = model.apply(params, state, x, True)
        return cross_entropy(logits, y).mean(), new

    return loss


def value_and_grad(
    loss: Callable, method: str | None, mu: Any, has_aux: bool = False, radius: float | None = None
) -> Callable[..., tuple[Any, Any]]:
    """The value of `loss` and the gradient to descend.

    `method` is one of `igr.value_and_grad`, with the explicit rate `mu`, or "sam", with the radius `mu`, or None for
    the plain gradient. `radius` is that of the finite differences; None and 0 stand for `stored_radius`. With `has_aux`
    the loss returns a pair (value, aux).
    """
    if method is None:
        return jax.value_and_grad(loss, has_aux=has_aux)
    if method == "sam":
        return sam(loss, mu, has_aux)

    def evaluate(params: Any, *args: Any) -> tuple[Any, Any]:
        def energy(p: Any) -> Any:
            return loss(p, *args)[0] if has_aux else loss(p, *args)

        length = radius if radius or method == "exact" else stored_radius(energy, params, method)
        # Kinks are crossed, as in all stored runs. axis=(): where a stack is spread over devices, every network has its
        # gradient on one of them.
        penalized = igr.value_and_grad(loss, mu, method, has_aux, radius=length, kinks="cross", axis=())  # pyright: ignore
        return penalized(params, *args)

    return evaluate


def stored_radius(energy: Callable, params: Any, method: str) -> Any:
    r"""The radius that 0 means in a configuration: the default of igr 0.1, with which runs were stored.

    $$\rho = \max\{\epsilon^{1/2}, 0.05 \text{ where the loss has kinks}\}\; \ell, \qquad
    \ell = \min\{\max\{1, \mathrm{rms}(\theta)\}, |\theta|\}$$

    with the rounding unit $\epsilon$ of the loss `energy` at `params`. Where `method` is "central", the cube root
    replaces the square root. A name in the store stands for one computation, so this radius stays when the default of
    `igr.value_and_grad` improves.

    >>> float(stored_radius(lambda x: jax.nn.relu(x).sum(), jnp.full(4, 2.0, jnp.float32), "forward"))
    0.10000000149011612
    """
    unit = igr.resolution(energy, params)
    factor = unit ** (1 / 2 if method == "forward" else 1 / 3)
    if unit > jnp.finfo(jnp.float64).eps and factor < KINK_RADIUS and igr.has_kinks(energy, params):
        factor = KINK_RADIUS
    norm = jnp.sqrt(igr.squared_norm(params))
    rms = norm / igr.num_params(params) ** 0.5
    return factor * jnp.where(norm > 0, jnp.clip(jnp.ones_like(norm), rms, norm), jnp.ones_like(norm))


def sam(loss: Callable, rho: Any, has_aux: bool = False) -> Callable[..., Any]:
    r"""Optax's sharpness-aware minimization of `loss` as a gradient; the value is that of the unperturbed pass.

    $$g \mapsto \nabla E(\theta + \rho\, g / |g|), \qquad g = \nabla E(\theta)$$

    With `has_aux` the loss returns a pair (value, aux). Foret et al. (2021). To first order in rho it is
    `igr.value_and_grad` with mu = rho / (2 |g|).

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
