"""Explicit gradient regularization: E + mu |grad E|^2 as a drop-in for `jax.value_and_grad`."""

from collections.abc import Callable, Sequence
from typing import Literal, SupportsIndex, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from igr._checks import check_finite, check_params, checked, is_zero, whole_number
from igr._jax import is_traced
from igr._typing import Loss, LossValue, Params, RealScalarLike
from igr.calculus import accumulation_dtype
from igr.penalty.differences import Method, Penalized, penalized
from igr.penalty.parts import Axis, Devices, over_microbatches
from igr.penalty.program import Kinks, Point, bound, holds, traced

Value = Literal["loss", "penalized"]
Penalize = Literal["mean", "each"]


def value_and_grad(
    loss: Loss,
    mu: RealScalarLike,
    method: Method = "exact",
    has_aux: bool = False,
    *,
    value: Value = "loss",
    with_norm: bool = False,
    with_share: bool = False,
    radius: RealScalarLike | None = None,
    kinks: Kinks | None = None,
    microbatches: SupportsIndex = 1,
    penalize: Penalize = "mean",
    axis: Axis = None,
    argnums: int | Sequence[int] = 0,
    allow_int: bool = False,
    loss_scale: RealScalarLike | None = None,
) -> Callable[..., tuple[LossValue, Params]]:
    r"""The value of a loss and the gradient of its penalized form, a drop-in for `jax.value_and_grad`.

    $$\nabla\big(E + \mu |\nabla E|^2\big) = g + 2\mu H g, \qquad g = \nabla E,\ H = \nabla^2 E$$

    `mu` multiplies the squared norm (not $R_{IG}$, which is divided by m): gradient descent with step h has $\mu = h/4$
    built in. It may be traced, as a schedule is, and differentiated; where it is 0 the result is the plain gradient,
    bit for bit. The loss is traced once, whatever the method. The three methods differ in how they get $Hg$:

    - `"exact"`: forward over reverse, about 2.7 gradients;
    - `"forward"`: $Hg \approx [\nabla E(\theta + \epsilon g) - g]/\epsilon$, two gradients, error $O(\epsilon)$; with
      the default radius $\epsilon$ is negative at half of the steps, so that these errors cancel over a training;
    - `"central"`: $[\nabla E(\theta + \epsilon g) - \nabla E(\theta - \epsilon g)]/2\epsilon$, three, $O(\epsilon^2)$.

    `radius` is the length $\epsilon|g|$ of the perturbation, as SAM's rho; `default_radius` says how it is chosen from
    the precision and the kinks of the loss where it is None, and `penalty_error` how good that is. A large radius is a
    different regularizer, not a bad approximation: state it with mu. A zero gradient gives a zero penalty.

    `kinks` says what differences do where the gradient jumps (ReLU, max-pooling; see `has_kinks`). `"cross"` includes
    the jumps that are met on the way, which `"exact"` does not see. `"hold"` makes every choice as it is made at the
    parameters, so that the result is that of `"exact"` up to the errors above; it costs one forward pass more, a third
    of a gradient, or none where the compiler finds that it is the first one again. None holds them where the loss
    pools by maxima, since there a training with jumps has little to do with one without, and crosses them elsewhere.

    All three methods differentiate the gradient as it is computed. What the loss passes through
    `jax.lax.stop_gradient` is a constant in g and moves with the parameters in $Hg$; pass a target that is to stay
    where it is as an argument.

    **Parts.** `microbatches=k` splits the other positional arguments along their leading axis into k equal parts and
    scans over them, in memory for one; arguments given by name and scalars go to each part, and aux is stacked along a
    new leading axis. Inside `jax.shard_map` (or `jax.vmap` with a name) `axis` names the mesh axes whose devices share
    the network: the loss is then each device's own mean. Parameters sharded over an axis are recognized with
    `check_vma=True`; without it they must be the same on all devices. `axis=()` says that each device has its own
    network. `penalize="mean"` penalizes the averaged gradient: the same as without parts. `"each"` penalizes the
    gradient of every part, $\mu \frac1D \sum_d |g_d|^2$, which adds $\mu$ times the variance of the $g_d$ and
    costs no synchronization between the passes; the norm is then the mean of $|g_d|^2$.

    Returns what `jax.value_and_grad` does: `(E, gradient)`, or `((E, aux), gradient)` with `has_aux`. Aux (batch-norm
    state, metrics) comes from the unperturbed pass, and every pass gets the same arguments, random keys included.
    `value="penalized"` gives $E + \mu|g|^2$ instead of E. `with_norm=True` puts $|g|^2$, which every method has at
    hand, beside aux: `((E, |g|^2), gradient)`, or `((E, (aux, |g|^2)), gradient)`; divided by m it is $R_{IG}$.
    `with_share=True` adds $|2\mu Hg|/|g|$ after it: how much of the step the penalty is. `argnums` and `allow_int` are
    those of `jax.grad`. `loss_scale` multiplies the loss inside the differentiation alone, so that float16 does not
    underflow; value, norm and gradient come out unscaled. Sums are in float32 or better; the gradient has the dtype of
    `params`. Barrett & Dherin (2021), Equation 8.

    >>> import jax.numpy as jnp
    >>> E = lambda x: x**2 / 2
    >>> value, grads = value_and_grad(E, mu=0.25)(jnp.array(2.0))  # E = 2, gradient (1 + 2 mu) x
    >>> float(value), float(grads)
    (2.0, 3.0)
    """
    words = (("method", method, Method), ("value", value, Value), ("penalize", penalize, Penalize))
    for name, given, known in (*words, ("kinks", "cross" if kinks is None else kinks, Kinks)):
        if given not in get_args(known):
            raise ValueError(f"unknown {name} {given!r}: choose one of {', '.join(get_args(known))}.")
    check_finite("mu", mu)
    for name, length in (("radius", radius), ("loss_scale", loss_scale)):
        if length is not None:
            check_finite(name, length)
            if not is_traced(length) and not length > 0:
                raise ValueError(f"{name} must be positive, but it is {length}.")
    count = whole_number("microbatches", microbatches, least=1)
    places = argnums if isinstance(argnums, int) else tuple(argnums)

    def evaluate(*args: object, **kwargs: object) -> tuple[LossValue, Params]:
        params, function, data = bound(loss, places, args)
        function = checked(function, has_aux)
        leaves, structure = jax.tree.flatten(params)
        if not allow_int:
            check_params(params)
        live = [not allow_int or jnp.issubdtype(jnp.result_type(x), jnp.inexact) for x in leaves]
        point = [x for x, is_live in zip(leaves, live, strict=True) if is_live]
        check_params(point)
        devices = Devices(axis, point)

        def joined(point: Point, others: list) -> PyTree:
            given, other = iter(point), iter(others)
            return structure.unflatten([next(given) if is_live else next(other) for is_live in live])

        fixed = [x for x, is_live in zip(leaves, live, strict=True) if not is_live]

        def energy(point: Point, *batch: object) -> tuple[RealScalarLike, PyTree]:
            out = function(joined(point, fixed), *batch, **kwargs)
            first, aux = out if has_aux else (out, None)
            scaled = first if loss_scale is None else first * jnp.asarray(loss_scale).astype(jnp.result_type(first))
            return scaled, (first, aux)

        def on(*batch: object) -> Callable[[Point], PyTree]:
            """The point -> ((energy, aux), gradient) on a batch."""

            def at(point: Point) -> PyTree:
                (_, rest), g = jax.value_and_grad(energy, has_aux=True)(point, *batch)
                return rest, g if loss_scale is None else [_over(x, loss_scale) for x in g]

            return at

        def step(at: Callable[[Point], PyTree], devices: Devices, point: Point) -> tuple[PyTree, Penalized]:
            """((energy, aux), the rest of it) of one penalty."""
            if is_zero(mu):
                rest, g = at(point)
                norm2 = devices.norm2(g)
                return rest, Penalized(None, norm2, g, jnp.zeros_like(norm2))
            program = traced(at, point)
            hold = method != "exact" and holds(program, kinks)
            done = penalized(program, point, mu, method, radius, devices, hold)
            return program.rest(done.rest), done

        def together() -> tuple[PyTree, Penalized]:
            if count == 1:
                return step(devices.reduced(on(*data)), devices, point)

            def at(point: Point) -> PyTree:
                def part(*batch: object) -> PyTree:
                    (first, aux), g = on(*batch)(point)
                    return (first, g), aux

                (first, g), aux = over_microbatches(part, data, count)
                return (first, aux), g

            return step(devices.reduced(at), devices, point)

        def apart() -> tuple[PyTree, Penalized]:
            here = devices.own(point)

            def part(*batch: object) -> PyTree:
                (first, aux), done = step(on(*batch), Devices((), here), here)
                devices.check_each(first)
                return (first, done.gradient, done.norm2, done.penalty2), aux

            if count == 1:
                (first, g, *norms), aux = part(*data)
            else:
                (first, g, *norms), aux = over_microbatches(part, data, count)
            rest, g, *norms = devices.mean((first, aux), g, *norms)
            return rest, Penalized(None, norms[0], g, norms[1])

        (first, aux), done = together() if penalize == "mean" else apart()
        if not is_zero(mu) or with_norm or with_share:
            devices.check(done.gradient, first)
        if value == "penalized":
            first = first + (jnp.asarray(mu).astype(done.norm2.dtype) * done.norm2).astype(first.dtype)
        extras = ([aux] if has_aux else []) + ([done.norm2] if with_norm else [])
        if with_share:
            safe = jnp.where(done.norm2 > 0, done.norm2, jnp.ones_like(done.norm2))
            extras.append(jnp.sqrt(done.penalty2 / safe))
        zeros = [np.zeros(jnp.shape(x), jax.dtypes.float0) for x in fixed]
        grads = joined(done.gradient, zeros)
        if not extras:
            return first, grads
        return (first, extras[0] if len(extras) == 1 else tuple(extras)), grads

    return evaluate


def _over(x: Array, scale: RealScalarLike) -> Array:
    wide = accumulation_dtype(x)
    return (x.astype(wide) / jnp.asarray(scale).astype(wide)).astype(x.dtype)
