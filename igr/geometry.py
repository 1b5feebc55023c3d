"""The loss surface {(theta, E(theta))}: slope, angle, normal, volume, and what parameter noise does on it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from igr._checks import check_finite, check_params
from igr._typing import Field, Loss, LossValue, Params, RealScalarLike
from igr.calculus import accumulation_dtype, squared_norm, value_and_gradient
from igr.regularization import squared_gradient


def slope(loss: Loss, has_aux: bool = False) -> Loss:
    r"""The slope of the loss surface: the tangent of the angle between its tangent plane and the parameter plane.

    $$\mathrm{slope}(\theta) = \tan\alpha(\theta) = \sqrt{m R_{IG}(\theta)} = |\nabla E(\theta)|$$

    Its derivative is taken to be zero where the gradient vanishes. With `has_aux` the loss, and the result, is a pair
    (value, aux). Barrett & Dherin (2021), Corollary A.6.1.

    >>> import jax.numpy as jnp
    >>> float(slope(lambda x: jnp.sum(x * jnp.array([3.0, 4.0])))(jnp.zeros(2)))
    5.0
    """
    square = squared_gradient(loss, has_aux)

    def value(params: Params, *args: object, **kwargs: object) -> LossValue:
        if has_aux:
            norm2, aux = square(params, *args, **kwargs)
            return _safe_sqrt(norm2), aux
        return _safe_sqrt(square(params, *args, **kwargs))

    return value


def _safe_sqrt(x: Array) -> Array:
    """The square root; its derivative at zero is zero, not infinite (which the chain rule would make NaN)."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, jnp.ones_like(x))), jnp.zeros_like(x))


def angle(loss: Loss, has_aux: bool = False) -> Loss:
    r"""The angle between the tangent plane of the loss surface and the parameter plane, in radians.

    $$\alpha(\theta) = \arctan |\nabla E(\theta)|$$

    The same as $\arccos\langle N, \hat z\rangle$, a form that loses all digits near a minimum. `has_aux` is that of
    `slope`. Barrett & Dherin (2021), appendix A.2.

    >>> import jax.numpy as jnp
    >>> round(float(angle(lambda x: x)(jnp.array(0.0))) / jnp.pi, 6)  # slope one: 45 degrees
    0.25
    """
    return _after(jnp.arctan, slope(loss, has_aux), has_aux)


def _after(function: Callable[[Array], Array], value: Loss, has_aux: bool) -> Loss:
    """A function of a value that may come with aux."""

    def both(params: Params, *args: object, **kwargs: object) -> LossValue:
        out = value(params, *args, **kwargs)
        return (function(out[0]), out[1]) if has_aux else function(out)

    return both


def cos_angle(loss: Loss, has_aux: bool = False) -> Loss:
    r"""The cosine of the `angle` of a `loss`: the last component of the unit `normal`.

    $$\cos\alpha(\theta) = \langle N(\theta), \hat z\rangle = \frac1{\sqrt{1 + m R_{IG}(\theta)}}$$

    `has_aux` is that of `slope`. Barrett & Dherin (2021), Proposition A.6.

    >>> import jax.numpy as jnp
    >>> float(cos_angle(lambda x: jnp.sqrt(3.0) * x)(jnp.array(0.0)))
    0.5
    """
    return _after(jax.lax.rsqrt, metric_determinant(loss, has_aux), has_aux)


def normal(loss: Loss, has_aux: bool = False) -> Field:
    r"""The unit normal of the loss surface in $\mathbb R^{m+1}$, as a pair (component along params, component along E).

    $$N(\theta) = \frac{(-\nabla E(\theta),\ 1)}{\sqrt{1 + |\nabla E(\theta)|^2}}$$

    Barrett & Dherin (2021), appendix A.2.

    >>> import jax.numpy as jnp
    >>> across, up = normal(lambda x: 0.75 * x)(jnp.array(1.0))
    >>> round(float(across), 6), round(float(up), 6)
    (-0.6, 0.8)
    """
    both = value_and_gradient(loss, has_aux)

    def value(params: Params, *args: object, **kwargs: object) -> PyTree:
        out, grads = both(params, *args, **kwargs)
        up = jax.lax.rsqrt(1 + squared_norm(grads))
        unit = jax.tree.map(lambda g: -g * up.astype(g.dtype), grads), up
        return (unit, out[1]) if has_aux else unit

    return value


def metric_determinant(loss: Loss, has_aux: bool = False) -> Loss:
    r"""The determinant of the metric $g_{ij} = \delta_{ij} + \partial_i E\,\partial_j E$ of the loss surface.

    $$|g(\theta)| = 1 + |\nabla E(\theta)|^2 = 1 + m R_{IG}(\theta)$$

    Its square root is the volume element. `has_aux` is that of `slope`. Barrett & Dherin (2021), appendix A.2.

    >>> import jax.numpy as jnp
    >>> float(metric_determinant(lambda x: 3.0 * x)(jnp.array(0.0)))
    10.0
    """
    return _after(lambda square: 1 + square, squared_gradient(loss, has_aux), has_aux)


def norm_bound(loss: Loss, h: RealScalarLike, has_aux: bool = False) -> Loss:
    r"""The largest change of the parameter norm that one step of size `h` on `loss` can make.

    $$\big|\, |\theta_{n+1}| - |\theta_n| \,\big| \le h\, \mathrm{slope}(\theta_n)$$

    `has_aux` is that of `slope`. Barrett & Dherin (2021), Proposition A.9.

    >>> import jax.numpy as jnp
    >>> float(norm_bound(lambda x: 2.0 * x, h=0.5)(jnp.array(7.0)))
    1.0
    """
    check_finite("h", h)
    return _after(
        lambda steepness: jnp.abs(jnp.asarray(h)).astype(steepness.dtype) * steepness, slope(loss, has_aux), has_aux
    )


def perturb(key: Key[Array, ""], params: Params, sigma: RealScalarLike) -> Params:
    r"""`params` under multiplicative Gaussian noise, independent for each of them.

    $$\theta_p = \theta (1 + \eta), \qquad \eta \sim \mathcal N(0, \sigma^2)$$

    `sigma` is the standard deviation: 3 is the paper's 300 %. Barrett & Dherin (2021), section 6.

    >>> import jax, jax.numpy as jnp
    >>> perturb(jax.random.key(0), {"w": jnp.zeros(3)}, sigma=1.0)["w"].tolist()  # zero stays zero
    [0.0, 0.0, 0.0]
    """
    check_params(params)
    check_finite("sigma", sigma)
    leaves, structure = jax.tree.flatten(params)

    def noisy(k, x):
        x = jnp.asarray(x)
        wide = accumulation_dtype(x)
        factor = 1 + jnp.asarray(sigma).astype(wide) * jax.random.normal(k, x.shape, wide)
        return (x.astype(wide) * factor).astype(x.dtype)

    keys = jax.random.split(key, len(leaves))
    return structure.unflatten([noisy(k, x) for k, x in zip(keys, leaves, strict=True)])
