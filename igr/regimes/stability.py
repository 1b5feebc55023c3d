"""The curvature above which descent is unstable, with an explicit penalty and with momentum, and the largest mu."""

import jax.numpy as jnp
import numpy as np

from igr._checks import check_finite
from igr._jax import is_traced
from igr._typing import RealScalarLike


def _check(name: str, value: RealScalarLike, positive: bool = False, below: float | None = None) -> None:
    check_finite(name, value)
    if is_traced(value):
        return
    smallest = float(np.min(np.asarray(value)))
    if smallest < 0 or (positive and smallest == 0):
        raise ValueError(f"{name} must be {'positive' if positive else 'zero or more'}, but it is {value}.")
    if below is not None and float(np.max(np.asarray(value))) >= below:
        raise ValueError(f"{name} must be below {below}, but it is {value}.")


def _without_penalty(h: RealScalarLike, momentum: RealScalarLike, nesterov: bool) -> RealScalarLike:
    return 2 * (1 + momentum) / (h * (1 + 2 * momentum if nesterov else 1))


def stability_limit(
    h: RealScalarLike, mu: RealScalarLike = 0.0, *, momentum: RealScalarLike = 0.0, nesterov: bool = False
) -> RealScalarLike:
    r"""The curvature above which (penalized) descent is unstable.

    $$\lambda_* = \frac{\sqrt{1 + 8\mu L} - 1}{4\mu} \to L \ (\mu \to 0), \qquad
    L = \frac2h,\ \frac{2(1+\beta)}h \text{ (momentum)},\ \frac{2(1+\beta)}{(1+2\beta)h} \text{ (Nesterov)}$$

    On a quadratic with curvature $\lambda$ the penalty $\mu|\nabla E|^2$ multiplies the gradient by $1 + 2\mu\lambda$,
    so descent is stable where $\lambda(1 + 2\mu\lambda) < L$. `h` is the learning rate, `mu` the penalty's, `momentum`
    is $\beta$ of the trace $v \leftarrow \beta v + g$ (for an average, $v \leftarrow \beta v + (1-\beta)g$, pass
    $h(1-\beta)$). Compare it with `sharpness`. Adam has the limit of momentum for its preconditioned Hessian; `regime`
    takes any optimizer. Cohen et al., ICLR 2021, appendix B.

    >>> stability_limit(0.25), stability_limit(0.25, momentum=0.5)
    (8.0, 12.0)
    >>> round(float(stability_limit(0.1, mu=0.025)), 4)  # mu = h/4 is the built-in penalty once more
    12.3607
    """
    _check("h", h, positive=True)
    _check("mu", mu)
    _check("momentum", momentum, below=1.0)
    limit = _without_penalty(h, momentum, nesterov)
    if not is_traced(mu) and not is_traced(limit) and np.ndim(mu) == 0 and float(mu) == 0:
        return limit
    # The form of the solution that does not cancel for a small mu.
    return 2 * limit / (1 + jnp.sqrt(jnp.asarray(1 + 8 * mu * limit)))


def largest_mu(
    h: RealScalarLike, curvature: RealScalarLike, *, momentum: RealScalarLike = 0.0, nesterov: bool = False
) -> RealScalarLike:
    r"""The largest penalty with which descent is stable at a curvature: the inverse of `stability_limit`.

    $$\mu_* = \frac{L/\lambda - 1}{2\lambda}, \qquad \lambda_*(h, \mu_*) = \lambda$$

    `curvature` is $\lambda$, usually the `sharpness`. Zero where descent is unstable without a penalty, infinite where
    the curvature is not positive. Above it a penalty throws the network out of the minimum it is in. $L$ is as in
    `stability_limit`.

    >>> round(float(largest_mu(0.1, 10.0)), 6)
    0.05
    >>> round(float(stability_limit(0.1, mu=0.05)), 4)
    10.0
    """
    _check("h", h, positive=True)
    _check("momentum", momentum, below=1.0)
    check_finite("curvature", curvature)
    curvature = jnp.asarray(curvature)
    positive = curvature > 0
    safe = jnp.where(positive, curvature, 1)
    mu = (_without_penalty(h, momentum, nesterov) / safe - 1) / (2 * safe)
    return jnp.where(positive, jnp.maximum(mu, 0), jnp.inf)
