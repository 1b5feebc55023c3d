"""The modified field of any step map from its iterates alone: the logarithm of the map."""

from collections.abc import Callable
from math import comb
from typing import SupportsIndex

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from igr._checks import check_order, check_params, whole_number
from igr._jax import is_traced
from igr._typing import Params, Step
from igr.compilation import eagerly_compiled


def log_weights(ahead: int, back: int = 0) -> dict[int, float]:
    r"""The weights of the iterates $x_{-p}, \dots, x_q$ in the truncated logarithm of a step map; q is `ahead`, p
    `back`.

    $$\sum_{k=1}^q \frac{(-1)^{k+1}}{k} \Delta^k x_0 = \sum_{j} w_j x_j, \qquad
    w_j = \frac{(-1)^{j+1}}{j}\, \frac{p!\, q!}{(p + j)!\, (q - j)!}\ (j \ne 0), \qquad \sum_j w_j = 0$$

    The left side is for p = 0. In general it is the derivative at j = 0 of the polynomial through the iterates, of
    which the one-sided rule is the case that needs no inverse step.

    >>> log_weights(2)
    {0: -1.5, 1: 2.0, 2: -0.5}
    >>> log_weights(1, back=1)
    {0: 0.0, -1: -0.5, 1: 0.5}
    """
    p, q = back, ahead
    nodes = [j for j in range(-p, q + 1) if j]
    pairs = comb(p + q, p)
    weights = {j: (-1) ** (j + 1) / j * comb(p + q, p + j) / pairs for j in nodes}
    return {0: 0.0 - sum(weights.values()), **weights}


def step_field(
    step: Step, order: SupportsIndex, of: Callable[[PyTree], Params] | None = None, *, every: SupportsIndex = 1
) -> Callable[[PyTree], Params]:
    r"""The modified field of any step map close to the identity, from its iterates alone.

    $$G(x) = \sum_{k=1}^n \frac{(-1)^{k+1}}{k} \Delta^k x, \qquad \Delta x = \Phi(x) - x$$

    The flow of G for the time **1** is the step $\Phi$ up to $O(h^{n+1})$; divide by h for a field in the time t = nh.
    It costs exactly `order` evaluations of the step and no derivative, so the step may be anything: an optax update,
    an epoch, a black box. Source of the idea: Gelfreich & Vieiro, Nonlinearity 31 (2018) 4263.

    An optimizer with memory has a state that is not close to the identity (momentum shrinks by a factor each step),
    and on the full state the error does not fall with h at all. Let `step` map the whole state, take the parameters
    out of it with `of`, and evaluate at a state that has been run in: after $K \gtrsim \log(tol)/\log\beta$ steps of
    momentum $\beta$ the orders are those of a method without memory.

    An optimizer that gathers gradients (`optax.MultiSteps`) moves at every k-th call only. Take `every=k`: the map is
    then k calls, and the flow for the time 1 is that of a whole cycle. Without it such a step is refused, or NaN where
    its values are not known yet (under `jax.jit`).

    It breaks where the logarithm does: in a direction with $h\lambda > 1$ the terms grow; in float32 nothing is gained
    beyond order 2 (the weights amplify rounding by 4, 7, 11, 17, ... on an increment of size h); gradient noise is
    amplified the same way; and a step that is not smooth (sign, clipping, a ReLU kink, a schedule that changes from
    step to step) has no higher orders to find.

    >>> import jax.numpy as jnp
    >>> G = step_field(lambda x: x - 0.1 * x, order=12)
    >>> bool(jnp.allclose(G(jnp.array(1.0)), jnp.log(0.9), atol=1e-12))
    True
    """
    order, every = check_order(order, least=1), whole_number("every", every, least=1)
    weights = log_weights(order)
    # sum_j w_j x_j = sum_j W_j (x_j - x_{j-1}) with W_j = w_j + ... + w_n, as the weights sum to zero. The increments
    # are small, the iterates are not: this form does not cancel.
    tails = jnp.asarray([sum(weights[i] for i in range(j, order + 1)) for j in range(1, order + 1)], float)
    part = (lambda state: state) if of is None else of

    def whole_step(state: PyTree) -> PyTree:
        return step(state) if every == 1 else jax.lax.fori_loop(0, every, lambda _, s: step(s), state)

    @eagerly_compiled
    def summed(state: PyTree) -> tuple[Params, PyTree]:
        def advance(carry, weight):
            state, total, idle = carry
            following = whole_step(state)
            total = jax.tree.map(
                lambda t, new, old: t + weight.astype(t.dtype) * (new - old), total, part(following), part(state)
            )
            return (following, total, idle | _gathers(state, following, part)), None

        zeros = jax.tree.map(jnp.zeros_like, part(state))
        (_, total, idle), _ = jax.lax.scan(advance, (state, zeros, jnp.array(False)), tails)
        return jax.tree.map(lambda t: jnp.where(idle, jnp.full_like(t, jnp.nan), t), total), idle

    def field(state: PyTree) -> Params:
        state = jax.tree.map(jnp.asarray, state)
        check_params(part(state))
        total, idle = summed(state)
        if not is_traced(idle) and idle:
            raise ValueError(
                "step_field met a step that changed the state and not the parameters, as optax.MultiSteps does "
                "while it gathers gradients: pass every=k, the number of calls between two updates."
            )
        return total

    return field


def _gathers(before: PyTree, after: PyTree, part: Callable[[PyTree], Params]) -> Array:
    """Whether a step left the parameters as they were although its floating-point memory moved."""
    return _same(part(before), part(after)) & ~_same(before, after)


def _same(before: PyTree, after: PyTree) -> PyTree:
    leaves = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    same = [jnp.all(a == b) for a, b in leaves if jnp.issubdtype(a.dtype, jnp.floating)]
    return jnp.all(jnp.stack(same)) if same else jnp.array(True)
