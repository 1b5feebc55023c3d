"""Curvature of a loss: the largest eigenvalue of its Hessian, along a direction, and from forward passes alone."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from igr._checks import check_finite, check_params, check_same_tree, checked, is_whole
from igr._typing import Loss, Params, RealScalarLike, Scalar, Whole
from igr.calculus import add_scaled, gradient, hvp, squared_norm
from igr.compilation import eagerly_compiled
from igr.regimes.lanczos import combination, dot, lanczos, like, random_like, ratio, ritz
from igr.regularization import num_params


class Sharpness(NamedTuple):
    """The largest eigenvalue of a Hessian: `value`, a bound on its `error`, its eigenvector for a warm start."""

    value: Scalar
    error: Scalar
    vector: Params


class CriticalSharpness(NamedTuple):
    """Curvature from a line search: the midpoint `value` of its bracket and half its width, `error`."""

    value: Scalar
    error: Scalar


def check_products(products: Whole) -> int:
    """The number of Hessian-vector products as an int; refuse one below one."""
    if not is_whole(products, 1):
        raise ValueError(f"products must be a positive whole number of Hessian products, but it is {products!r}.")
    return int(products)


def sharpness(loss: Loss, *, products: Whole = 24, start: Params | None = None) -> Callable[..., Sharpness]:
    r"""The sharpness of a loss, the largest eigenvalue of its Hessian, by the Lanczos method.

    $$\lambda_{\max}(\nabla^2 E(\theta)), \qquad |\lambda - \text{value}| \le \text{error for one eigenvalue } \lambda$$

    Called as `sharpness(loss)(params, *args)`, it returns `Sharpness(value, error, vector)`. `products` is the number
    of Hessian-vector products (two to three gradients each, and one vector of memory each). `start` is a vector of the
    shape of `params`, by default a fixed random one: pass the last `vector` while training, and 3 or 4 products
    are enough. `value` never exceeds the true one; `error` bounds the distance to an eigenvalue, and the value is
    usually far closer than that, since its error is quadratic in the residual. Plain gradient descent is stable where
    the sharpness is below `stability_limit(h)`. Cohen et al., Gradient Descent on Neural Networks Typically Occurs at
    the Edge of Stability, ICLR 2021.

    >>> import jax.numpy as jnp
    >>> E = lambda x: 0.5 * jnp.sum(jnp.array([4.0, 1.0, -9.0]) * x**2)
    >>> value, error, vector = sharpness(E)(jnp.ones(3))
    >>> round(float(value), 5), bool(error < 1e-5), abs(vector).round(3).tolist()
    (4.0, True, [1.0, 0.0, 0.0])
    """
    products = check_products(products)
    product = hvp(loss)

    @eagerly_compiled
    def measure(start: Params | None, /, params: Params, *args: object, **kwargs: object) -> Sharpness:
        check_params(params)
        if start is not None:
            check_same_tree("start", start, params)
        params = jax.tree.map(jnp.asarray, params)
        return top(
            lambda v: product(params, like(v, params), *args, **kwargs),
            random_like(params) if start is None else start,
            min(products, num_params(params)),
        )

    return partial(measure, start)


def top(product: Callable[[Params], Params], start: Params, steps: int) -> Sharpness:
    """The largest eigenvalue of a symmetric operator on pytrees."""
    krylov = lanczos(product, start, steps)
    found = ritz(krylov)
    return Sharpness(found.values[-1], found.residuals[-1], combination(found.vectors[:, -1], krylov.basis))


def directional_curvature(loss: Loss, *, direction: Params | None = None) -> Loss:
    r"""The curvature of a loss along a direction, by default its gradient.

    $$\frac{v^\top \nabla^2 E(\theta)\, v}{|v|^2}, \qquad v = \nabla E(\theta)$$

    One Hessian-vector product. Zero where v vanishes.

    >>> import jax.numpy as jnp
    >>> E = lambda x: 0.5 * jnp.sum(jnp.array([4.0, 1.0]) * x**2)
    >>> float(directional_curvature(E)(jnp.array([0.0, 3.0])))
    1.0
    """
    ascent, product = gradient(loss), hvp(loss)

    @eagerly_compiled
    def measure(direction: Params | None, /, params: Params, *args: object, **kwargs: object) -> Scalar:
        check_params(params)
        if direction is not None:
            check_same_tree("direction", direction, params)
        params = jax.tree.map(jnp.asarray, params)
        v = ascent(params, *args, **kwargs) if direction is None else like(direction, params)
        return ratio(dot(v, product(params, v, *args, **kwargs)), squared_norm(v))

    return partial(measure, direction)


def critical_sharpness(
    loss: Loss, *, direction: Params | None = None, guess: RealScalarLike = 0.1, passes: Whole = 16
) -> PyTree:
    r"""Curvature from forward passes alone: two over the smallest step along the update that raises the loss.

    $$\lambda_c = \frac2{\eta_c}, \qquad \eta_c = \min\{\eta > 0 : E(\theta + \eta d) > E(\theta)\}$$

    `direction` is d, by default minus the gradient: then on a quadratic $\lambda_c$ is `directional_curvature`. An
    optimizer's update divided by its learning rate takes the place of d for other optimizers. `guess` is the first
    $\eta$ tried; it grows or shrinks by four until the loss has gone up on one side and down on the other, and the
    bracket is then halved on a logarithmic scale, `passes` forward passes in all. Returns
    `CriticalSharpness(value, error)`, the middle and half the width of the bracket of $\lambda_c$. No second
    derivative: it works where kernels have none. Kalra et al., on scalable measures of curvature, 2026.

    >>> import jax.numpy as jnp
    >>> E = lambda x: 0.5 * jnp.sum(jnp.array([4.0, 1.0]) * x**2)
    >>> value, error = critical_sharpness(E)(jnp.array([1.0, 0.0]))
    >>> abs(float(value) - 4) < float(error) < 0.02
    True
    """
    check_finite("guess", guess)
    if not is_whole(passes, 2):
        raise ValueError(f"passes must be a whole number of at least 2 forward passes, but it is {passes!r}.")
    loss, ascent = checked(loss), gradient(loss)

    @eagerly_compiled
    def measure(direction: Params | None, /, params: Params, *args: object, **kwargs: object) -> CriticalSharpness:
        check_params(params)
        if direction is not None:
            check_same_tree("direction", direction, params)
        params = jax.tree.map(jnp.asarray, params)
        down = jax.tree.map(jnp.negative, ascent(params, *args, **kwargs)) if direction is None else direction
        here = loss(params, *args, **kwargs)
        dtype = jnp.result_type(here)

        def narrow(_: object, bracket: PyTree) -> PyTree:
            low, high = bracket  # the loss is no higher at low, and higher at high
            inner = jnp.sqrt(jnp.where(low > 0, low, 1) * jnp.where(jnp.isfinite(high), high, 1))
            opened = jnp.where(jnp.isfinite(high), high / 4, jnp.where(low > 0, low * 4, jnp.asarray(guess, dtype)))
            eta = jnp.where((low > 0) & jnp.isfinite(high), inner, opened)
            risen = ~(loss(add_scaled(params, eta, down), *args, **kwargs) <= here)  # NaN has risen, too
            return jnp.where(risen, low, eta), jnp.where(risen, eta, high)

        low, high = jax.lax.fori_loop(0, int(passes), narrow, (jnp.zeros((), dtype), jnp.full((), jnp.inf, dtype)))
        return CriticalSharpness(1 / low + 1 / high, 1 / low - 1 / high)

    return partial(measure, direction)
