r"""The modified equation: the field whose flow passes through the steps of an optimizer.

Backward error analysis looks for a field whose flow at time h is exactly one step of the method. It has two forms
here: `modified_terms`, the coefficients $f_0, f_1, \dots$ for explicit Euler (gradient descent) as functions of their
own, and `step_field`, the same field for any step map from its iterates alone.
"""

from collections.abc import Callable
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp

from igr._checks import check_finite, check_order, check_params
from igr._typing import Field, Params, RealScalarLike
from igr.calculus import add_scaled
from igr.compilation import eagerly_compiled
from igr.modified.iterates import log_weights
from igr.modified.taylor import Series, compose, shift


def modified_coefficients(field: Field, order: SupportsIndex) -> Callable[..., list[Params]]:
    r"""All of $f_0, \dots, f_n$ of a `field` at a point in one pass, where n is `order`.

    `modified_terms` and `modified_field` use it.

    The iterates of explicit Euler are power series in h, $\theta_{j+1}(h) = \theta_j(h) + h f(\theta_j(h))$, whose
    coefficients come from Taylor-mode differentiation of f. The pull-back of the step map is
    $e^{h L_{\tilde f}} = 1 + \Delta$, so $h \tilde f = \log(1 + \Delta)\theta$, and its coefficient at $h^{k+1}$ is
    $f_k$. With n + 1 iterates beside $\theta_0$ the first n + 1 coefficients are exact. The cost is that of n Taylor
    evaluations of f, each quadratic in n; the Lie-derivative recursion costs exponentially more.
    """
    order = check_order(order)
    # The one-sided rule loses a bit to rounding with each order. Past eight orders half of the iterates are taken
    # backwards in time instead, which costs more (each is an implicit step) and loses almost nothing.
    back = 0 if order <= 8 else (order + 1) // 2
    ahead = order + 1 - back
    weights = log_weights(ahead, back)

    @eagerly_compiled
    def coefficients(params: Params, *args: object, **kwargs: object) -> list[Params]:
        check_params(params)
        params = jax.tree.map(jnp.asarray, params)

        def bound(p: Params) -> Params:
            return field(p, *args, **kwargs)

        rate = bound(params)
        zeros = jax.tree.map(jnp.zeros_like, rate)
        start = [params, *[zeros] * (order + 1)]  # coefficients of h^0 ... h^(n+1)
        first = [params, rate, *[zeros] * order]  # theta_1 = theta + h f(theta)
        total = _add(start, weights[1], first)
        if order:
            evaluate = compose(bound, params, order)

            def forward(iterate: Series) -> Series:
                return _add(iterate, 1.0, shift(evaluate(iterate[:-1])))

            def backward(iterate: Series) -> Series:
                # y = x - h f(y), solved by substitution: each round makes one more coefficient exact.
                def substitute(_, y):
                    return _add(iterate, -1.0, shift(evaluate(y[:-1])))

                return jax.lax.fori_loop(0, order + 1, substitute, iterate)

            total = _accumulate(forward, first, total, [weights[j] for j in range(2, ahead + 1)])
            total = _accumulate(backward, start, total, [weights[-j] for j in range(1, back + 1)])
        return total[1:]  # the coefficient of h^0 is theta itself and is not wanted

    return coefficients


def _add(series: Series, scale: Any, other: Series) -> Series:
    return [add_scaled(a, scale, b) for a, b in zip(series, other, strict=True)]


def _accumulate(step: Callable[[Series], Series], iterate: Series, total: Series, weights: list[float]) -> Series:
    """The total plus the weighted iterates; a scan, so that the step is compiled once whatever the order."""
    if not weights:
        return total

    def advance(carry, weight):
        iterate, total = carry
        iterate = step(iterate)
        return (iterate, _add(total, weight, iterate)), None

    (_, total), _ = jax.lax.scan(advance, (iterate, total), jnp.asarray(weights, jnp.result_type(float)))
    return total


def modified_terms(field: Field, order: SupportsIndex) -> tuple[Field, ...]:
    r"""The coefficients $f_0, f_1, \dots, f_{order}$ of the modified equation of explicit Euler, each a field.

    $$\tilde f = f_0 + h f_1 + h^2 f_2 + \cdots, \qquad
    f_0 = f,\quad f_1 = -\tfrac12 f'f,\quad f_2 = \tfrac13 f'f'f + \tfrac1{12} f''(f, f),\ \dots$$

    For any smooth field, gradient or not. The flow of $f_0 + \dots + h^n f_n$ for the time h meets the Euler step up to
    $O(h^{n+2})$. For $f = -\nabla E$: $h f_1 = -\nabla \frac h4 |\nabla E|^2$, the paper's regularizer; $f_2$ and the
    later ones are in general not gradients, and the recursion of the paper's appendix, which takes them to be, is wrong
    from $f_3$ on. The field is taken as it is computed: what a loss stops by `jax.lax.stop_gradient` (the target of a
    temporal difference) still moves with the parameters. The series is asymptotic: on a quadratic it converges for
    $h\lambda < 1$ only. Reference: Hairer, Lubich & Wanner, Geometric Numerical Integration, section IX.1;
    normalisation: $f_k$ stands without factorial.

    What is compiled belongs to the functions that are returned: make them once and call them often.

    >>> import jax.numpy as jnp
    >>> f0, f1, f2 = modified_terms(lambda x: -x, order=2)  # log(1 - h)/h = -1 - h/2 - h^2/3 - ...
    >>> [round(float(f(jnp.array(6.0))), 6) for f in (f0, f1, f2)]
    [-6.0, -3.0, -2.0]
    """
    order = check_order(order)

    def term(k: int) -> Field:
        coefficients = modified_coefficients(field, k)
        return lambda params, *args, **kwargs: coefficients(params, *args, **kwargs)[k]

    return (field, *(term(k) for k in range(1, order + 1)))


def modified_field(field: Field, h: RealScalarLike, order: SupportsIndex) -> Field:
    r"""The modified field of explicit Euler, truncated after $h^{order}$.

    $$\tilde f_n(\theta) = \sum_{k=0}^{n} h^k f_k(\theta)$$

    Its flow for the time h meets one Euler step up to $O(h^{n+2})$, and the steps over a fixed time up to $O(h^{n+1})$.
    Order 0 is the field itself (gradient flow), order 1 for a gradient field is minus the gradient of `modified_loss`.

    >>> import jax.numpy as jnp
    >>> G = modified_field(lambda x: -x, h=0.1, order=12)
    >>> bool(jnp.allclose(G(jnp.array(1.0)), jnp.log(0.9) / 0.1, atol=1e-12))
    True
    """
    check_finite("h", h)
    order = check_order(order)
    coefficients = modified_coefficients(field, order)

    def summed(params: Params, *args: object, **kwargs: object) -> Params:
        total, *rest = coefficients(params, *args, **kwargs)
        for k, term in enumerate(rest, start=1):
            total = add_scaled(total, h**k, term)
        return total

    return summed
