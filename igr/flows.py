"""Discrete steps and continuous flow from one start, sampled at the same times, and how far apart they are."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsIndex

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree

from igr._checks import check_finite, check_params, whole_number
from igr._jax import is_eager, is_traced, spec_of
from igr._typing import Field, Params, RealScalarLike, Step
from igr.calculus import accumulation_dtype, squared_norm


def descend(step: Step, state: PyTree, n: SupportsIndex, every: SupportsIndex = 1) -> PyTree:
    r"""Iterate a step map: the states $x_0, x_{k}, x_{2k}, \dots, x_n$ stacked along a new leading axis.

    $$x_{i+1} = \Phi(x_i)$$

    `state` is what `step` maps to its next value: parameters, or parameters with an optimizer's memory. Of the `n`
    steps every k-th state is kept, where k is `every` and must divide `n`; so the memory does not grow with the number
    of steps. One compiled scan.

    >>> import jax.numpy as jnp
    >>> descend(lambda x: x / 2, jnp.array(8.0), 3).tolist()
    [8.0, 4.0, 2.0, 1.0]
    """
    n, every = whole_number("n", n), whole_number("every", every, least=1)
    if n % every:
        raise ValueError(f"n must be a multiple of every, and both positive, but n = {n} and every = {every}.")
    state = jax.tree.map(jnp.asarray, state)
    # Under a transformation the step may close over what is traced, which must not outlive it in a cache.
    run = _compiled_descend if is_eager() and isinstance(step, Hashable) else _descend
    return run(step, state, n, every)


def _descend(step: Step, state: PyTree, n: int, every: int) -> PyTree:
    def advance(x, _):
        x = jax.lax.fori_loop(0, every, lambda _, y: step(y), x)
        return x, x

    def advance_one(x, _):  # a fori_loop of one step would not be differentiable in reverse
        x = step(x)
        return x, x

    _, path = jax.lax.scan(advance if every > 1 else advance_one, state, length=n // every)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), state, path)


_compiled_descend = partial(jax.jit, static_argnums=(0, 2, 3))(_descend)


@dataclass(frozen=True)
class _Autonomous:
    """A field with the signature that diffrax asks for; equal for equal fields, so that diffrax compiles it once."""

    field: Field
    structure: Any

    def __call__(self, _: object, leaves: list, args: tuple) -> list:
        rates = self.field(self.structure.unflatten(leaves), *args)
        return jax.tree.leaves(rates)


def flow(
    field: Field,
    params: Params,
    ts: ArrayLike | Sequence[float],
    *,
    args: tuple = (),
    rtol: RealScalarLike | None = None,
    atol: RealScalarLike | None = None,
    solver: diffrax.AbstractSolver | None = None,
    max_steps: int | None = 1_000_000,
    adjoint: diffrax.AbstractAdjoint | None = None,
) -> Params:
    r"""The solution of $\dot\theta = f(\theta)$ through `params` at `ts[0]`, sampled at the times `ts`.

    Solved by diffrax with an adaptive step (Dormand-Prince 8(7)), so that its error is the caller's `rtol` and `atol`
    and not another discretization of order h: by default 1e-10 and 1e-12 in float64, 1e-5 and 1e-7 in float32. The
    result has the shape of `descend`'s: a pytree with a leading axis over `ts`. The field is called as
    `field(params, *args)`. Called again with the same field it compiles nothing: make the field once, and pass what
    changes (data, rates) in `args`, whose floating-point numbers count as arrays; inside a loop of your own use
    `jax.jit`. For a stiff field pass `solver=diffrax.Kvaerno5()`, for forward-mode derivatives
    `adjoint=diffrax.ForwardMode()`. More than `max_steps` steps of the solver are an error.

    >>> import jax.numpy as jnp
    >>> path = flow(lambda x: -x, jnp.array(1.0), jnp.array([0.0, 1.0, 2.0]))
    >>> bool(jnp.allclose(path, jnp.exp(-jnp.array([0.0, 1.0, 2.0])), rtol=1e-6))
    True
    """
    check_params(params)
    params = jax.tree.map(jnp.asarray, params)
    dtype = accumulation_dtype(*jax.tree.leaves(params))
    times = jnp.asarray(ts).astype(dtype)
    if times.ndim != 1 or times.size < 1:
        raise ValueError(f"ts must be a list of times, but its shape is {times.shape}.")
    if not is_traced(times) and not (
        np.all(np.isfinite(times)) and (np.all(np.diff(times) > 0) or np.all(np.diff(times) < 0))
    ):
        raise ValueError("ts must be finite times in strict order.")
    if times.size == 1:
        return jax.tree.map(lambda p: p[None], params)
    if any(any(spec_of(p)[1]) for p in jax.tree.leaves(params)):
        raise ValueError(
            "flow cannot solve for parameters sharded over an explicit mesh, which diffrax does not know: "
            "give the mesh axes of type Auto."
        )
    double = dtype == jnp.float64
    leaves, structure = jax.tree.flatten(params)  # diffrax trips over empty containers
    # A rate given as a number may change from call to call; diffrax would compile each value anew.
    args = jax.tree.map(lambda a: jnp.asarray(float(a)) if isinstance(a, float | np.floating) else a, args)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(_Autonomous(field, structure)),
        diffrax.Dopri8() if solver is None else solver,
        t0=times[0],
        t1=times[-1],
        dt0=None,
        y0=leaves,
        args=args,
        saveat=diffrax.SaveAt(ts=times),
        # Steps end at every requested time: between them diffrax would interpolate, less accurately than it solves.
        stepsize_controller=diffrax.ClipStepSizeController(
            diffrax.PIDController(
                rtol=(1e-10 if double else 1e-5) if rtol is None else rtol,  # pyright: ignore[reportArgumentType]
                atol=(1e-12 if double else 1e-7) if atol is None else atol,  # pyright: ignore[reportArgumentType]
            ),
            step_ts=times,
        ),
        max_steps=max_steps,
        adjoint=diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
    )
    return structure.unflatten(solution.ys)


def distance(path: Params, other: Params) -> Array:
    r"""The Euclidean distance between two paths at each of their common times.

    $$d_i = |\theta_i - \theta'_i|$$

    `path` and `other` are pytrees with the same leading axis, as `descend` and `flow` return them.

    >>> import jax.numpy as jnp
    >>> distance({"x": jnp.array([[0.0, 0.0], [3.0, 4.0]])}, {"x": jnp.zeros((2, 2))}).tolist()
    [0.0, 5.0]
    """
    lengths = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves((path, other))}
    if len(lengths) != 1 or lengths == {()}:
        raise ValueError(f"two paths need the same number of times, but their leading axes are {sorted(lengths)}.")
    if jax.tree.structure(path) != jax.tree.structure(other):
        raise ValueError("two paths need the same structure: one is not a pytree like the other.")
    shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in (path, other)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"two paths need arrays of the same shapes, but they are {shapes[0]} and {shapes[1]}.")
    difference = jax.tree.map(lambda a, b: jnp.asarray(a) - jnp.asarray(b), path, other)
    return jnp.sqrt(jax.vmap(squared_norm)(difference))


def observed_order(error: Callable[[float], RealScalarLike], hs: Sequence[float]) -> np.ndarray:
    r"""The observed order of an error that should behave like $h^p$: the slope in the log-log plot, pair by pair.

    $$p_i = \frac{\log e(h_i) - \log e(h_{i+1})}{\log h_i - \log h_{i+1}}$$

    `error(h)` is called for each h of `hs`. The last entry, at the smallest h, is the estimate; the others show whether
    it has converged.

    >>> observed_order(lambda h: 3 * h**2, [0.1, 0.05, 0.025]).round(6).tolist()
    [2.0, 2.0]
    """
    steps = np.asarray(hs, dtype=float)
    if steps.ndim != 1 or steps.size < 2 or not np.all(steps > 0) or np.any(np.diff(steps) == 0):
        raise ValueError("observed_order needs at least two different positive step sizes.")
    for h in steps:
        check_finite("h", float(h))
    errors = np.array([float(error(float(h))) for h in steps])
    if not np.all(np.isfinite(errors)) or not np.all(errors > 0):
        raise ValueError(
            f"the errors are {errors.tolist()}, but an order can be read only off positive, finite ones: "
            "take larger steps, above rounding, and inside the method's radius."
        )
    return np.diff(np.log(errors)) / np.diff(np.log(steps))
