r"""The modified equation of stochastic gradient descent over an epoch of batches.

Smith, Dherin, Barrett & De, On the Origin of Implicit Regularization in Stochastic Gradient Descent, ICLR 2021.
Everywhere `batches` is a pytree whose arrays have the m batches as their leading axis, $C_k(\theta)$ is
`loss(params, *batch)`, the mean over one batch, and $C = \frac1m \sum_k C_k$. Results come from one or two scans, in
memory that does not grow with m.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from igr._checks import check_finite, check_params
from igr._typing import Field, Loss, Params, RealScalarLike, Scalar
from igr.calculus import gradient, hvp, squared_norm, value_and_gradient


class GradientTerms(NamedTuple):
    """The loss, the squared norm of the mean gradient, and the variance of the gradient between batches."""

    loss: Scalar
    squared_norm: Scalar
    variance: Scalar


def _count(batches: PyTree) -> int:
    lengths = {jnp.shape(x)[:1] for x in jax.tree.leaves(batches)}
    if len(lengths) != 1 or lengths == {()} or lengths == {(0,)}:
        raise ValueError(
            "batches need arrays that all have the same, non-empty leading axis (the batches), "
            f"but their leading axes are {sorted(lengths)}."
        )
    return next(iter(lengths))[0]


def batch_gradient_terms(loss: Loss) -> Callable[..., GradientTerms]:
    r"""The two parts of the mean squared batch gradient.

    $$\frac1m \sum_k |\nabla C_k|^2 = |\nabla C|^2 + \frac1m \sum_k |\nabla C_k - \nabla C|^2$$

    Called with `(params, *batches)`. One pass that keeps a running mean and a running sum of squared deviations
    (Welford's), which does not cancel where the variance is small. The parts can be differentiated.

    >>> import jax.numpy as jnp
    >>> loss = lambda w, x: jnp.mean((w - x) ** 2) / 2  # gradients w - mean(x)
    >>> loss, norm2, variance = batch_gradient_terms(loss)(jnp.array(2.0), jnp.array([[0.0, 0.0], [1.0, 3.0]]))
    >>> float(norm2), float(variance)
    (1.0, 1.0)
    """
    both = value_and_gradient(loss)

    def terms(params: Params, *batches: object) -> GradientTerms:
        check_params(params)
        m = _count(batches)

        @jax.checkpoint  # so that the derivative keeps the means, and not what is inside each gradient
        def add(carry: PyTree, numbered: PyTree) -> PyTree:
            value, mean, spread = carry
            n, batch = numbered
            v, g = both(params, *batch)
            off = jax.tree.map(jnp.subtract, g, mean)
            mean = jax.tree.map(lambda mu, d: mu + d / n.astype(d.dtype), mean, off)
            for d, x, mu in zip(*map(jax.tree.leaves, (off, g, mean)), strict=True):
                spread = spread + jnp.sum(d * (x - mu)).astype(spread.dtype) / m
            return (value + v / m, mean, spread), None

        zeros = jax.tree.map(lambda p: jnp.zeros_like(jnp.asarray(p)), params)
        norm2 = squared_norm(zeros)
        shape = jax.eval_shape(both, params, *jax.tree.map(lambda x: x[0], batches))[0]
        start = (jnp.zeros(shape.shape, shape.dtype), zeros, jnp.zeros_like(norm2))
        (value, mean, spread), _ = jax.lax.scan(add, start, (jnp.arange(1, m + 1), batches))
        return GradientTerms(value, squared_norm(mean), spread)

    return terms


def batch_modified_loss(loss: Loss, h: RealScalarLike, *, replacement: bool = False) -> Loss:
    r"""The loss whose gradient flow the mean epoch of stochastic gradient descent follows.

    $$\tilde C = C + \frac{h}{4m} \sum_k |\nabla C_k|^2
    = C + \frac h4 |\nabla C|^2 + \frac{h}{4m} \sum_k |\nabla C_k - \nabla C|^2$$

    The mean is over all orders of the same batches, each used once an epoch (shuffling); an epoch takes the time m h,
    and its mean end lies within $O(m^3 h^3)$ of the flow. With `replacement`, batches drawn independently, the variance
    term is absent: it is an effect of the anticorrelation of batches within an epoch. Called with `(params, *batches)`.
    Smith et al. (2021), Equations 1 and 22.

    >>> import jax.numpy as jnp
    >>> loss, batches = lambda w, x: jnp.mean((w - x) ** 2) / 2, jnp.array([[0.0, 0.0], [1.0, 3.0]])
    >>> plain = loss(jnp.array(2.0), batches)
    >>> modified = [batch_modified_loss(loss, 0.4, replacement=r)(jnp.array(2.0), batches) for r in (False, True)]
    >>> [round(float(value - plain), 6) for value in modified]
    [0.2, 0.1]
    """
    check_finite("h", h)
    terms = batch_gradient_terms(loss)

    def modified(params: Params, *batches: object) -> Scalar:
        value, norm2, variance = terms(params, *batches)
        penalty = norm2 if replacement else norm2 + variance
        return value + (jnp.asarray(h).astype(penalty.dtype) / 4 * penalty).astype(value.dtype)

    return modified


def epoch_field(loss: Loss, h: RealScalarLike) -> Field:
    r"""The modified field of epochs in one given order, $C_0, C_1, \dots, C_{m-1}$.

    $$F = -\nabla C + h F_1,\qquad
    F_1 = \frac1m \sum_j H_j \Big(\sum_{k<j} g_k - \frac m2\, \nabla C\Big)
    = -\frac1{2m} \sum_k H_k g_k + \frac1{2m} \sum_{k<j} (H_j g_k - H_k g_j)$$

    The flow of F for the time m h meets one epoch up to $O(h^3)$. The commutator is not a gradient, changes sign when
    the order is reversed, and is zero in the mean over orders, which leaves the field of `batch_modified_loss`. Two
    passes over the batches. Called with `(params, *batches)`.

    >>> import jax.numpy as jnp
    >>> loss = lambda w, a: jnp.mean(a) * w**2 / 2  # steps w <- (1 - h a) w, which commute
    >>> field = epoch_field(loss, 0.1)
    >>> round(float(field(jnp.array(1.0), jnp.array([[1.0], [3.0]]))), 6)  # log(0.9 * 0.7) / 0.2 = -2.31
    -2.25
    """
    check_finite("h", h)
    slope, product = gradient(loss), hvp(loss)

    def field(params: Params, *batches: object) -> Params:
        check_params(params)
        m = _count(batches)
        zeros = jax.tree.map(lambda p: jnp.zeros_like(jnp.asarray(p)), params)

        def add(total: Params, batch: PyTree) -> PyTree:
            return jax.tree.map(jnp.add, total, slope(params, *batch)), None

        total, _ = jax.lax.scan(add, zeros, batches)

        def bend(carry: PyTree, batch: PyTree) -> PyTree:
            before, bent = carry
            direction = jax.tree.map(lambda b, t: b - t / 2, before, total)
            bent = jax.tree.map(jnp.add, bent, product(params, direction, *batch))
            return (jax.tree.map(jnp.add, before, slope(params, *batch)), bent), None

        (_, bent), _ = jax.lax.scan(bend, (zeros, zeros), batches)
        return jax.tree.map(lambda t, b: (jnp.asarray(h).astype(b.dtype) * b - t) / m, total, bent)

    return field
