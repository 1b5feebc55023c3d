"""Explicit gradient regularization: E + mu |grad E|^2 as a drop-in for `jax.value_and_grad`."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax.core import Tracer

from igr._checks import check_finite, is_zero
from igr._typing import Loss, Params, Scalar
from igr.calculus import add_scaled, squared_norm, value_and_gradient
from igr.kinks import has_kinks
from igr.regularizer import num_params
from igr.resolution import resolution

Method = Literal["exact", "forward", "central"]
Value = Literal["loss", "penalized"]

# The shortest way of a difference over kinks. Its mean square error falls as one over the way, until the curvature of
# the smooth parts shows: measured in docs/log.md.
KINK_RADIUS = 0.05


def value_and_grad(
    loss: Loss,
    mu: Any,
    method: Method = "exact",
    has_aux: bool = False,
    *,
    value: Value = "loss",
    with_norm: bool = False,
    radius: Any = None,
) -> Callable[..., tuple[Any, Params]]:
    r"""The value of a loss and the gradient of its penalized form, a drop-in for `jax.value_and_grad`.

    $$\nabla\big(E + \mu |\nabla E|^2\big) = g + 2\mu H g, \qquad g = \nabla E,\ H = \nabla^2 E$$

    `mu` multiplies the squared norm (not $R_{IG}$, which is divided by m): gradient descent with step h has $\mu = h/4$
    built in. It may be traced, as a schedule is; where it is 0 the result is the plain gradient, bit for bit, and costs
    no more. The three methods differ in how they get $Hg$:

    - `"exact"`: forward over reverse, about 2.7 gradients;
    - `"forward"`: $Hg \approx [\nabla E(\theta + \epsilon g) - g]/\epsilon$, two gradients, error $O(\epsilon)$;
    - `"central"`: $[\nabla E(\theta + \epsilon g) - \nabla E(\theta - \epsilon g)]/2\epsilon$, three, $O(\epsilon^2)$.

    `radius` is the length $\epsilon|g|$ of the perturbation, as SAM's rho. By default it is the square root (forward)
    or the cube root (central) of the loss's rounding unit (see `resolution`: float32, TF32 and bfloat16 differ), times
    a length taken from the parameters: 1, but no more than their norm and no less than their root mean square. A large
    radius is a different regularizer, not a bad approximation: state it with mu. A zero gradient gives a zero penalty.
    With kinks (ReLU, max-pooling; see `has_kinks`) the factor is 0.05 at least, but for float64: a shorter difference
    meets a kink less often, and is then a jump divided by that shorter way, far off. What it estimates includes the
    kinks, which `"exact"` does not see: the two differ by about as much as $Hg$ itself in small ReLU networks.

    Returns what `jax.value_and_grad` does: `(E, gradient)`, or `((E, aux), gradient)` with `has_aux`. Aux (batch-norm
    state, metrics) comes from the unperturbed pass, and every pass gets the same arguments, random keys included.
    `value="penalized"` gives $E + \mu|g|^2$ instead of E. `with_norm=True` puts $|g|^2$, which every method has at
    hand, beside aux: `((E, |g|^2), gradient)`, or `((E, (aux, |g|^2)), gradient)`; divided by m it is $R_{IG}$. Sums
    are in float32 or better; the gradient has the dtype of `params`. Barrett & Dherin (2021), Equation 8.

    >>> import jax.numpy as jnp
    >>> E = lambda x: x**2 / 2
    >>> value, grads = value_and_grad(E, mu=0.25)(jnp.array(2.0))  # E = 2, gradient (1 + 2 mu) x
    >>> float(value), float(grads)
    (2.0, 3.0)
    """
    if method not in get_args(Method):
        raise ValueError(f"unknown method {method!r}: choose one of {', '.join(get_args(Method))}.")
    if value not in get_args(Value):
        raise ValueError(f"unknown value {value!r}: choose one of {', '.join(get_args(Value))}.")
    check_finite("mu", mu)
    if radius is not None:
        check_finite("radius", radius)
        if not isinstance(radius, Tracer) and not radius > 0:
            raise ValueError(f"radius must be positive, but it is {radius}.")
    plain = value_and_gradient(loss, has_aux)

    def penalized(params: Params, g: Params, norm2: Scalar, at: Any, energy_at: Loss) -> Params:
        def gradient(p: Params) -> Params:
            return at(p)[1]

        if method == "exact":
            hg = jax.jvp(gradient, (params,), (g,))[1]
            return add_scaled(g, 2 * _as(mu, norm2), hg)
        scale = _length(energy_at, params, method) if radius is None else _as(radius, norm2)
        eps = scale / jnp.sqrt(jnp.where(norm2 > 0, norm2, jnp.ones_like(norm2)))
        ahead = gradient(add_scaled(params, eps, g))
        if method == "forward":
            return add_scaled(g, 2 * _as(mu, norm2) / eps, jax.tree.map(jnp.subtract, ahead, g))
        behind = gradient(add_scaled(params, -eps, g))
        return add_scaled(g, _as(mu, norm2) / eps, jax.tree.map(jnp.subtract, ahead, behind))

    def evaluate(params: Params, *args: Any, **kwargs: Any) -> tuple[Any, Params]:
        def at(p: Params) -> Any:
            return plain(p, *args, **kwargs)

        def energy_at(p: Params) -> Any:
            return loss(p, *args, **kwargs)[0] if has_aux else loss(p, *args, **kwargs)

        def unpenalized() -> tuple[Any, Scalar, Params]:
            out, g = at(params)
            return out, squared_norm(g), g

        def both() -> tuple[Any, Scalar, Params]:
            out, norm2, g = unpenalized()
            return out, norm2, penalized(params, g, norm2, at, energy_at)

        def scheduled() -> tuple[Any, Scalar, Params]:
            """A schedule that is zero at this step pays for nothing, and gets g itself."""
            if method == "exact":  # the derivative of the gradient shares its pass, but only within one branch
                return jax.lax.cond(mu == 0, unpenalized, both)
            out, norm2, g = unpenalized()
            return out, norm2, jax.lax.cond(mu == 0, lambda: g, lambda: penalized(params, g, norm2, at, energy_at))

        gradients = unpenalized if is_zero(mu) else scheduled if isinstance(mu, Tracer) else both
        out, norm2, grads = gradients()
        energy, aux = out if has_aux else (out, None)
        if value == "penalized":
            energy = energy + (_as(mu, norm2) * norm2).astype(energy.dtype)
        extras = ([aux] if has_aux else []) + ([norm2] if with_norm else [])
        if not extras:
            return energy, grads
        return (energy, extras[0] if len(extras) == 1 else tuple(extras)), grads

    return evaluate


def _as(x: Any, like: Scalar) -> Any:
    return jnp.asarray(x).astype(like.dtype)


def _length(value: Loss, params: Params, method: str) -> Any:
    """The length of the perturbation: above rounding, and short enough for a difference to be a derivative."""
    unit = resolution(value, params)
    factor = unit ** (1 / 2 if method == "forward" else 1 / 3)
    if unit > jnp.finfo(jnp.float64).eps and factor < KINK_RADIUS and has_kinks(value, params):
        factor = KINK_RADIUS
    norm = jnp.sqrt(squared_norm(params))
    rms = norm / num_params(params) ** 0.5
    length = jnp.where(norm > 0, jnp.clip(jnp.ones_like(norm), rms, norm), jnp.ones_like(norm))
    return factor * length
