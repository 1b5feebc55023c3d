r"""The second-order term of the modified field of an optimizer: a history that bends."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from igr._typing import Count, Params, Scalar
from igr.optimizers.lag import Point, Transformation, along, at_zeros, last_update


def second_order(
    tx: Transformation, point: Point, series: tuple[Point, Point], length: int, count: Count | None
) -> Params:
    r"""The correction to $u_0$ up to second order in the lag.

    Let $p(t)$ be gradient and parameters along the flow of the modified field G, and $U(\tau)$ the update after the
    history $\{p(\tau - k)\}_k$. A step is the integral of G over the time 1, so $U = \frac{e^D - 1}{D} G$ with
    $D = d/d\tau$, and

    $$G = \frac{D}{e^D - 1} U = U - \tfrac12 \dot U + \tfrac1{12} \ddot U - \cdots \quad\text{at } \tau = 0.$$

    With $p(t) = p + t\,\dot p + \frac{t^2}2 \ddot p$ that is, in derivatives of U with respect to the history,

    $$G = u_0 - U'[\ell_k \dot p] + \tfrac12 U''[\ell_k \dot p, \ell_k \dot p]
    + \tfrac12 U'[(\ell_k^2 - \tfrac1{12}) \ddot p] - \tfrac1{24} U''[\dot p, \dot p],
    \qquad \ell_k = k + \tfrac12 .$$

    `series` is $(\dot p, \ddot p)$. The result leaves out $u_0$.
    """
    point, (speed, bend) = at_zeros(point), series

    def bent(x: Scalar) -> Params:
        def at(k: Array) -> Point:
            lag = k.astype(x.dtype) + 0.5
            return along(point, [(-x * lag, speed), (x * x / 2 * (lag * lag - 1 / 12), bend)])

        return last_update(tx, at, length, count)

    def moved(x: Scalar) -> Params:
        shifted = along(point, [(x, speed)])
        return last_update(tx, lambda k: shifted, length, count)

    first, second = _derivatives(bent)
    _, equal = _derivatives(moved)
    return jax.tree.map(lambda a, b, c: a + b / 2 - c / 24, first, second, equal)


def _derivatives(curve: Any) -> tuple[Params, Params]:
    """The first and second derivative of a curve at 0."""
    zero, one = jnp.zeros(()), jnp.ones(())
    return jax.jvp(lambda x: jax.jvp(curve, (x,), (one,))[1], (zero,), (one,))
