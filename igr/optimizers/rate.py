r"""The modified loss of optimizers that are linear in the gradient, as two numbers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from igr._jax import is_traced
from igr._typing import Count, RealScalarLike, Whole
from igr.optimizers.history import check_history, history_length
from igr.optimizers.lag import Point, Transformation, check_transformation, last_update


class Rate(NamedTuple):
    r"""An optimizer follows the gradient flow of $s\,(E + c\,|\nabla E|^2)$, time counted in steps."""

    s: RealScalarLike
    c: RealScalarLike


def modified_rate(
    tx: Transformation, *, history: Whole | None = None, count: Count | None = None, tol: float = 1e-12
) -> Rate:
    r"""The numbers s and c of a transformation that is linear in the gradient, such as momentum.

    $$\dot\theta = -s\,\nabla\big(E + c\,|\nabla E|^2\big), \qquad
    s = \sum_k w_k, \quad c = \frac s4 + \frac12 \sum_k k\,w_k \quad\text{for } u = -\sum_k w_k g_k$$

    The time counts steps, so s is the effective learning rate. Gradient descent has s = h and c = h/4, the paper's
    rate. Heavy ball has $s = h/(1-\beta)$ and $c = \frac s4 \frac{1+\beta}{1-\beta}$: with $\beta = 0.9$ its penalty is
    19 times that of gradient descent with the same effective rate. `optax.ema`, `trace`, Nesterov and optimistic
    gradients are linear, too; for others `modified_field` is the general rule. `history`, `count` (the step, for
    schedules) and `tol` are those of `modified_field`.

    >>> import optax
    >>> s, c = modified_rate(optax.sgd(0.1, momentum=0.9))
    >>> round(float(s), 6), round(float(c / (s / 4)), 6)
    (1.0, 19.0)
    """
    check_transformation(tx)
    count = check_history(history, count)
    if is_traced(count):
        raise ValueError("count must be a number here, and not traced: call modified_rate outside of jax.jit.")
    step, given = (None if x is None else int(x) for x in (count, history))
    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        length = history_length(tx, jnp.zeros(2), tol, step, given)
        length = length if step is None else min(length, step + 1)
        # Coordinate k sees a gradient of one, k steps before the last, and so ends with the weight of that lag.
        zeros = jnp.zeros(length)
        weights = -last_update(tx, lambda k: (zeros.at[k].set(1.0), zeros), length, step)
        if not is_traced(weights):
            _check_linear(tx, np.asarray(weights), step)
        lags = jnp.arange(length, dtype=weights.dtype)
        s = jnp.sum(weights)
        c = s / 4 + jnp.sum(lags * weights) / 2
    if is_traced(s):  # as of a traced learning rate, which alone has no history to be found: give history=
        return Rate(*(x.astype(jnp.result_type(float)) for x in (s, c)))
    return Rate(float(s), float(c))


def _check_linear(tx: Transformation, weights: np.ndarray, count: int | None) -> None:
    """Compare with the weighted sum on random gradients and parameters, in a matrix and a vector."""
    rng = np.random.default_rng(5)
    length = min(len(weights), 64)  # the newest gradients; older ones are zero
    grads = {"a": jnp.asarray(rng.normal(size=(length, 2, 3))), "b": jnp.asarray(10 * rng.normal(size=(length, 2)))}
    params = jax.tree.map(lambda g: g[0] + 1, grads)

    def at(k: Array) -> Point:  # as many as the weights have: a bias correction counts the zeros, too
        newest = jnp.minimum(k, length - 1)
        return jax.tree.map(lambda g: jnp.where(k < length, g[newest], 0.0), grads), params

    update = last_update(tx, at, len(weights), count)
    expected = jax.tree.map(lambda g: -jnp.tensordot(jnp.asarray(weights[:length]), g, 1), grads)
    scale = max(float(np.abs(weights).sum()), 1e-300) * 10
    for u, e in zip(jax.tree.leaves(update), jax.tree.leaves(expected), strict=True):
        if not np.max(np.abs(np.asarray(u - e))) < 1e-6 * scale:
            raise ValueError(
                "modified_rate needs a transformation whose update is a weighted sum of past gradients, and this one "
                "is not linear in them or depends on the parameters: use igr.optimizers.modified_field."
            )
