r"""The modified equation: the field whose flow passes through the steps of an optimizer.

Backward error analysis looks for a field whose flow at time h is exactly one step of the method. It has two forms
here: `modified_terms`, the coefficients $f_0, f_1, \dots$ for explicit Euler (gradient descent) as functions of their
own, and `step_field`, the same field for any step map from its iterates alone.
"""

from collections.abc import Callable
from math import comb
from typing import Any

import jax
import jax.numpy as jnp

from igr._checks import check_finite, check_order, check_params
from igr._typing import Field, Params, Step
from igr.calculus import add_scaled
from igr.taylor import compose, shift


def log_weights(order: int) -> list[float]:
    r"""The weights of the iterates in the truncated logarithm of a step map.

    $$\sum_{k=1}^n \frac{(-1)^{k+1}}{k} \Delta^k x_0 = \sum_{j=0}^n w_j x_j,
    \qquad w_0 = -\sum_{k=1}^n \frac1k,\quad w_j = \frac{(-1)^{j+1}}{j} \binom nj$$

    They sum to zero.

    >>> log_weights(2)
    [-1.5, 2.0, -0.5]
    """
    tail = [(-1) ** (j + 1) / j * comb(order, j) for j in range(1, order + 1)]
    return [-sum(1 / k for k in range(1, order + 1)), *tail]


def modified_coefficients(field: Field, order: int) -> Callable[..., list[Params]]:
    r"""All of $f_0, \dots, f_n$ at a point, in one pass; what `modified_terms` and `modified_field` are made of.

    The iterates of explicit Euler are polynomials in h, $\theta_{j+1}(h) = \theta_j(h) + h f(\theta_j(h))$, whose
    Taylor coefficients at h = 0 come from Taylor-mode differentiation of f. The pull-back of the step map is $e^{h
    L_{\tilde f}} = 1 + \Delta$, so $h \tilde f = \log(1 + \Delta)\theta$, and its coefficient at $h^{k+1}$ is $f_k$.
    With n + 1 iterates the first n + 1 coefficients are exact. The cost is that of n Taylor evaluations of f, each
    quadratic in n; the Lie-derivative recursion costs exponentially more.
    """
    check_order(order)
    count = order + 1
    weights = log_weights(count)[1:]  # theta_0 does not depend on h: its weight meets only the coefficient of h^0

    def coefficients(params: Params, *args: Any) -> list[Params]:
        check_params(params)
        params = jax.tree.map(jnp.asarray, params)

        def bound(p: Params) -> Params:
            return field(p, *args)

        start = bound(params)
        zeros = jax.tree.map(jnp.zeros_like, start)
        iterate = [
            params,
            start,
            *[zeros] * (count - 1),
        ]  # theta_1 = theta + h f(theta), as coefficients of h^0 ... h^n
        total = [jax.tree.map(lambda x: weights[0] * x, c) for c in iterate[1:]]
        if order == 0:
            return total

        evaluate = compose(bound, params, order)

        # A scan, so that the Taylor evaluation is compiled once whatever the order.
        def advance(carry, weight):
            iterate, total = carry
            rate = evaluate(iterate[: order + 1])
            iterate = [jax.tree.map(jnp.add, a, b) for a, b in zip(iterate, shift(rate), strict=True)]
            total = [
                jax.tree.map(lambda t, c: t + weight.astype(c.dtype) * c, t, c)
                for t, c in zip(total, iterate[1:], strict=True)
            ]
            return (iterate, total), None

        (_, total), _ = jax.lax.scan(advance, (iterate, total), jnp.asarray(weights[1:], jnp.result_type(float)))
        return total

    return coefficients


def modified_terms(field: Field, order: int) -> tuple[Field, ...]:
    r"""The coefficients $f_0, f_1, \dots, f_{order}$ of the modified equation of explicit Euler, each a field.

    $$\tilde f = f_0 + h f_1 + h^2 f_2 + \cdots, \qquad
    f_0 = f,\quad f_1 = -\tfrac12 f'f,\quad f_2 = \tfrac13 f'f'f + \tfrac1{12} f''(f, f),\ \dots$$

    For any smooth field, gradient or not. The flow of $f_0 + \dots + h^n f_n$ for the time h meets the Euler step up to
    $O(h^{n+2})$. For $f = -\nabla E$: $h f_1 = -\nabla \frac h4 |\nabla E|^2$, the paper's regularizer; $f_2$ and the
    later ones are in general not gradients, and the recursion of the paper's appendix, which takes them to be, is wrong
    from $f_3$ on. The series is asymptotic: on a quadratic it converges for $h\lambda < 1$ only. Reference: Hairer,
    Lubich & Wanner, Geometric Numerical Integration, section IX.1; normalisation: $f_k$ stands without factorial.

    >>> import jax.numpy as jnp
    >>> f0, f1, f2 = modified_terms(lambda x: -x, order=2)  # log(1 - h)/h = -1 - h/2 - h^2/3 - ...
    >>> [round(float(f(jnp.array(6.0))), 6) for f in (f0, f1, f2)]
    [-6.0, -3.0, -2.0]
    """
    check_order(order)

    def term(k: int) -> Field:
        coefficients = modified_coefficients(field, k)
        return lambda params, *args: coefficients(params, *args)[k]

    return (field, *(term(k) for k in range(1, order + 1)))


def modified_field(field: Field, h: Any, order: int) -> Field:
    r"""The modified field of explicit Euler, truncated after $h^{order}$.

    $$\tilde f_n(\theta) = \sum_{k=0}^{n} h^k f_k(\theta)$$

    Its flow for the time h meets one Euler step up to $O(h^{n+2})$, and n steps over a fixed time up to $O(h^{n+1})$.
    Order 0 is the field itself (gradient flow), order 1 for a gradient field is minus the gradient of `modified_loss`.

    >>> import jax.numpy as jnp
    >>> G = modified_field(lambda x: -x, h=0.1, order=12)
    >>> bool(jnp.allclose(G(jnp.array(1.0)), jnp.log(0.9) / 0.1, atol=1e-12))
    True
    """
    check_finite("h", h)
    check_order(order)
    coefficients = modified_coefficients(field, order)

    def summed(params: Params, *args: Any) -> Params:
        total, *rest = coefficients(params, *args)
        for k, term in enumerate(rest, start=1):
            total = add_scaled(total, h**k, term)
        return total

    return summed


def step_field(step: Step, order: int, of: Callable[[Any], Params] | None = None) -> Callable[[Any], Params]:
    r"""The modified field of any step map close to the identity, from its iterates alone.

    $$G(x) = \sum_{k=1}^n \frac{(-1)^{k+1}}{k} \Delta^k x, \qquad \Delta x = \Phi(x) - x$$

    The flow of G for the time **1** is the step $\Phi$ up to $O(h^{n+1})$; divide by h for a field in the time t = nh.
    It costs exactly `order` evaluations of the step and no derivative, so the step may be anything: an optax update,
    an epoch, a black box. Source of the idea: Gelfreich & Vieiro, Nonlinearity 31 (2018) 4263.

    An optimizer with memory has a state that is not close to the identity (momentum shrinks by a factor each step),
    and on the full state the error does not fall with h at all. Let `step` map the whole state, take the parameters
    out of it with `of`, and evaluate at a state that has been run in: after $K \gtrsim \log(tol)/\log\beta$ steps of
    momentum $\beta$ the orders are those of a method without memory.

    It breaks where the logarithm does: in a direction with $h\lambda > 1$ the terms grow; in float32 nothing is gained
    beyond order 2 (the weights amplify rounding by 4, 7, 11, 17, ... on an increment of size h); gradient noise is
    amplified the same way; and a step that is not smooth (sign, clipping, a ReLU kink, a schedule that changes from
    step to step) has no higher orders to find.

    >>> import jax.numpy as jnp
    >>> G = step_field(lambda x: x - 0.1 * x, order=12)
    >>> bool(jnp.allclose(G(jnp.array(1.0)), jnp.log(0.9), atol=1e-12))
    True
    """
    check_order(order, least=1)
    weights = log_weights(order)
    # sum_j w_j x_j = sum_j W_j (x_j - x_{j-1}) with W_j = w_j + ... + w_n, as the weights sum to zero. The increments
    # are small, the iterates are not: this form does not cancel.
    tails = jnp.asarray([sum(weights[j:]) for j in range(1, order + 1)], jnp.result_type(float))
    part = (lambda state: state) if of is None else of

    def field(state: Any) -> Params:
        state = jax.tree.map(jnp.asarray, state)
        check_params(part(state))

        def advance(carry, weight):
            state, total = carry
            following = step(state)
            total = jax.tree.map(
                lambda t, new, old: t + weight.astype(t.dtype) * (new - old), total, part(following), part(state)
            )
            return (following, total), None

        zeros = jax.tree.map(jnp.zeros_like, part(state))
        (_, total), _ = jax.lax.scan(advance, (state, zeros), tails)
        return total

    return field
