"""Term sizes of the modified equation: where its first correction is best, and the error of one step by order."""

from collections.abc import Callable
from typing import NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from igr._checks import check_finite, check_order, check_params
from igr._typing import Count, Field, Loss, Params, RealScalarLike, Scalar
from igr.calculus import accumulation_dtype, add_scaled, gradient_field
from igr.modified.euler import modified_coefficients, modified_field
from igr.regimes.lanczos import Ritz, norm, ratio


class ModerateBound(NamedTuple):
    """Sizes of the terms of the modified equation at a point: `h_star`, and `norms` of $f_0$, $f_1$ and so on."""

    h_star: Scalar
    norms: Float[Array, " terms"]

    def order(self, h: RealScalarLike) -> Int[Array, ""]:
        r"""The optimal truncation order at a step size: the last term kept is the smallest, $|h^n f_n|$.

        The largest order looked at means that the terms were still falling there.
        """
        powers = jnp.asarray(h).astype(self.norms.dtype) ** jnp.arange(len(self.norms), dtype=self.norms.dtype)
        return jnp.argmin(powers * self.norms)


def moderate_bound(loss: Loss, *, order: SupportsIndex = 3) -> Callable[..., ModerateBound]:
    r"""The upper end of the moderate regime: the learning rate at which the second correction equals the first.

    $$h_* = \frac{|f_1(\theta)|}{|f_2(\theta)|}, \qquad
    f_1 = -\tfrac12 Hg,\quad f_2 = -\tfrac13 H^2g - \tfrac1{12}T[g, g]$$

    Called as `moderate_bound(loss)(params, *args)`, it returns `ModerateBound(h_star, norms)`; its `order(h)` is the
    optimal truncation order at h, up to `order`. Above $h_*$ a second correction makes the modified equation worse, as
    far as term sizes tell: the bound that Barrett & Dherin (2021) leave open (section 3). It costs a few gradients for
    each order. On a quadratic with one curvature it is $3/(2\lambda)$.

    >>> import jax.numpy as jnp
    >>> bound = moderate_bound(lambda x: 2.0 * x**2)(jnp.array(1.0))  # curvature 4
    >>> round(float(bound.h_star), 6)
    0.375
    >>> int(bound.order(0.01)), int(bound.order(0.4))
    (3, 1)
    """
    coefficients = modified_coefficients(gradient_field(loss), check_order(order, least=2))

    def measure(params: Params, *args: object, **kwargs: object) -> ModerateBound:
        norms = jnp.stack([norm(term) for term in coefficients(params, *args, **kwargs)])
        return ModerateBound(norms[1] / norms[2], norms)

    return measure


def mode_error(x: ArrayLike, order: SupportsIndex) -> Array:
    r"""The relative error of one step of the truncated modified flow on a quadratic mode with $x = h\lambda$.

    $$e_n(x) = \Big|1 - \frac{1 - e^{-s_n(x)}}{x}\Big|, \qquad s_n(x) = \sum_{k=1}^{n+1} \frac{x^k}{k}$$

    `order` is n: 0 is the gradient flow, 1 the flow of the modified loss. For small x it is $x^{n+1}/(n+2)$.

    >>> [round(float(mode_error(0.5, n)), 3) for n in range(4)]
    [0.213, 0.071, 0.027, 0.011]
    """
    order = check_order(order)
    x = jnp.asarray(x)
    x = x.astype(accumulation_dtype(x) if jnp.issubdtype(x.dtype, jnp.floating) else float)
    kept = sum(x**k / k for k in range(1, order + 2))
    safe = jnp.where(x == 0, 1, x)
    direct = 1 + jnp.expm1(-jnp.clip(kept, -80, None)) / safe
    # For small x the difference of the two would be rounding: 1 - x = exp(-s_infinity) leaves the tail of the series.
    near = jnp.clip(x, -0.5, 0.5)
    tail = sum(near**k / k for k in range(order + 2, order + 42))
    accurate = (1 - near) * jnp.expm1(tail) / safe
    return jnp.abs(jnp.where(jnp.abs(x) <= 0.5, accurate, direct))


def expected_errors(rates: Array, weights: Array, orders: int) -> Array:
    r"""The relative one-step errors on the quadratic model, by order, from the spectrum the gradient sees.

    $$e_n = \Big(\sum_i w_i\, e_n(x_i)^2\Big)^{1/2}$$

    `rates` are the $x_i$ and `weights` the shares $w_i$ of the squared step in these modes.
    """

    def error(n: int) -> Array:
        return jnp.sqrt(jnp.sum(jnp.where(weights > 0, weights * mode_error(rates, n) ** 2, 0)))

    return jnp.stack([error(n) for n in range(orders)])


def spectral_rates(spectrum: Ritz, h: RealScalarLike, mu: RealScalarLike) -> tuple[Array, Array]:
    r"""The rates $h\lambda(1 + 2\mu\lambda)$ of the modes of a penalized step, and their shares of it."""
    h, mu = (jnp.asarray(c).astype(spectrum.values.dtype) for c in (h, mu))
    factor = 1 + 2 * mu * spectrum.values
    weights = spectrum.weights * factor**2
    return h * spectrum.values * factor, ratio(weights, jnp.sum(weights))


def measured_errors(
    field: Field, h: RealScalarLike, *, orders: SupportsIndex = 3, substeps: int = 32
) -> Callable[..., Array]:
    r"""The measured relative error of one step against the truncated modified flow, by order.

    $$e_n = \frac{|\theta_1 - \tilde\phi^{(n)}_h(\theta_0)|}{|\theta_1 - \theta_0|}, \qquad
    \theta_1 = \theta_0 + hf(\theta_0)$$

    `field` is f, for gradient descent `gradient_field(loss)`. Order 0 is the flow of f itself, order 1 that of the
    modified loss. The flow is solved by `substeps` steps of the classical Runge-Kutta method, which follow it where
    $\sum_{k\le n+1} x^k/k$ with $x = h\lambda_{\max}$ is at most twice their number: 32 are enough for $x = 2$ at order
    4, for $x = 4$ take 200. With too few the solver explodes, and not the flow. Returns an array over the orders 0, 1,
    ..., below `orders`.

    >>> import jax.numpy as jnp
    >>> [round(float(e), 3) for e in measured_errors(lambda x: -x, 0.5)(jnp.array([1.0]))]
    [0.213, 0.071, 0.027]
    """
    check_finite("h", h)
    orders = check_order(orders, least=1)

    def measure(params: Params, *args: object, **kwargs: object) -> Array:
        check_params(params)
        params = jax.tree.map(jnp.asarray, params)
        step = jax.tree.map(lambda f: f * jnp.asarray(h).astype(f.dtype), field(params, *args, **kwargs))
        length = norm(step)

        def error(order: int) -> Scalar:
            truncated = modified_field(field, h, order)
            moved = displacement(lambda p: truncated(p, *args, **kwargs), params, h, substeps)
            return norm(jax.tree.map(lambda a, b: a.astype(b.dtype) - b, step, moved)) / length

        return jnp.stack([error(n) for n in range(orders)])

    return measure


def displacement(field: Field, params: Params, time: RealScalarLike, substeps: Count) -> Params:
    """How far the flow of `field` carries `params` in `time` by `substeps` steps of the classical Runge-Kutta
    method.

    Increments are summed apart, which saves digits in float32.
    """
    dt = jnp.asarray(time).astype(float) / substeps

    def advance(_: object, moved: Params) -> Params:
        here = add_scaled(params, 1.0, moved)

        def stage(
            carry: PyTree, weights: PyTree
        ) -> PyTree:  # a loop, so that the field is compiled once and not four times
            slope, total = carry
            before, after = weights
            slope = field(add_scaled(here, before, slope))
            return (slope, add_scaled(total, after, slope)), None

        zero = jax.tree.map(jnp.zeros_like, params)
        stages = dt * jnp.array([0, 0.5, 0.5, 1]), dt / 6 * jnp.array([1.0, 2, 2, 1])
        (_, total), _ = jax.lax.scan(stage, (zero, zero), stages)
        return add_scaled(moved, 1.0, total)

    return jax.lax.fori_loop(0, substeps, advance, jax.tree.map(jnp.zeros_like, params))
