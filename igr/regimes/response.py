"""What an optimizer does with a gradient that alternates in sign: its own stability limit, as a black box."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from igr._typing import Params, RealScalarLike
from igr.regimes.lanczos import wide


def alternating_response(tx: Any, state: PyTree, grads: Params, params: Params, memory: int) -> Params:
    r"""The size of an optimizer's answer, coordinate by coordinate, to a gradient perturbation of alternating sign.

    $$A_i = \sum_{k \ge 0} (-1)^k r_{k, i}, \qquad u_n = u - \sum_k r_k\, \delta g_{n-k}$$

    Period-two oscillation along curvature $\lambda$ is neither damped nor amplified where $A\lambda = 2$. So descent
    with the optimizer is stable where $\lambda_{\max}(A^{1/2} H A^{1/2}) < 2$: with $A = h$ for gradient descent,
    $h/(1+\beta)$ for momentum, $h(1+2\beta)/(1+\beta)$ for Nesterov's and
    $h\frac{1-\beta_1}{1+\beta_1}/(\sqrt{\hat v} + \epsilon)$ for Adam. One `jvp` through `memory` updates from the live
    `state` at a fixed gradient; the optimizer must act coordinate by coordinate (a clipped norm is nearly so).
    """
    leaves, structure = jax.tree.flatten(grads)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    signs = structure.unflatten([jax.random.rademacher(k, g.shape, g.dtype) for k, g in zip(keys, leaves, strict=True)])

    def last(size: RealScalarLike) -> Params:
        def advance(carry: PyTree, k: Array) -> PyTree:
            state, _ = carry
            sign = 1.0 - 2.0 * ((memory - 1 - k) % 2)  # plus one at the last update
            shifted = jax.tree.map(lambda g, s: g + (size * sign).astype(g.dtype) * s, grads, signs)
            updates, state = tx.update(shifted, state, params)
            return (state, jax.tree.map(lambda u, g: u.astype(g.dtype), updates, grads)), None

        (_, updates), _ = jax.lax.scan(advance, (state, jax.tree.map(jnp.zeros_like, grads)), jnp.arange(memory))
        return updates

    one = jnp.ones((), jnp.result_type(float))
    tangent = jax.jvp(last, (0 * one,), (one,))[1]
    # A coordinate whose gradient has always been zero gives 0/0 behind a square root. It has no curvature to excite.
    size = jax.tree.map(lambda t, s: jnp.maximum(jnp.nan_to_num(-t * s, nan=0, posinf=0, neginf=0), 0), tangent, signs)
    return wide(size)
