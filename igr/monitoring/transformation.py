"""`igr.monitor`: the last transformation of an optax chain, or a wrapper around an optimizer, that watches it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from igr._checks import check_finite, check_params, is_whole
from igr._jax import is_traced
from igr._typing import Params, RealScalarLike, Whole
from igr.calculus import accumulation_dtype
from igr.monitoring import quantities as q
from igr.monitoring import steps
from igr.regimes.lanczos import dot, random_like
from igr.regimes.sharpness import check_products
from igr.regimes.stability import stability_limit
from igr.regularization import num_params

SENTENCE = (
    "igr.monitor, last in a chain, does not see the gradient: pass it, tx.update(grads, state, params, grad=grads), "
    "or wrap the optimizer, igr.monitor(tx)."
)


class MonitorState(NamedTuple):
    """The count of steps, the readings by name, and what the next step needs of this one."""

    steps: Int[Array, ""]
    readings: dict[str, Array]
    memory: dict[str, PyTree]
    inner: PyTree


def monitor(
    tx: Any = None,
    *,
    learning_rate: RealScalarLike | Callable | None = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    every: Whole = 0,
    products: Whole = 3,
    h_star: bool = False,
    noise: bool = True,
    halves: bool = False,
    decay: float = 0.99,
    sample: Whole | None = 2**14,
    sink: Callable[[int, dict[str, float]], object] | None = None,
    sink_every: Whole = 100,
) -> PyTree:
    r"""An optax transformation that changes nothing and measures the regularizer and the regime while training.

    Last in a chain, `optax.chain(optax.sgd(h), igr.monitor(learning_rate=h))`, it needs the gradient as an extra
    argument: `tx.update(grads, state, params, grad=grads, value=loss)`. Around an optimizer, `igr.monitor(optimizer)`,
    it sees the gradient by itself. The numbers are in `readings(state)`, and each in `optax.tree.get(state, "q2")`.

    At every step: `slope` $|g|$, `r_ig` $|g|^2/m$, `loss` (if `value` is passed), `penalty_share` $\lambda R_{IG}/E$
    (with `learning_rate`, a number or an optax schedule), `update_norm`, and from consecutive updates $u_n$
    `q2` $= |u_n - u_{n-1}|/|u_{n-1}|$ and their `cosine`. **The last two mean nothing under gradient noise.** So there
    are running means (with `decay`, unless `noise=False`) of products of gradients whose noise is independent:
    `signal`, the share of the squared gradient that is not noise, `r_ig_mean`, R_IG without it, and `cosine_mean`. With
    `halves=True` pass the gradients of two halves of the batch, `halves=(a, b)`: the signal and `r_ig_halves`
    then come from their product, which is exact in the mean. What needs an earlier step is taken from at most `sample`
    entries of each array (None for all of them): q2 is then known to a few percent.

    Every `every` steps (never by default), with `grad_fn=` (params to gradient) or `value_fn=` (params to loss)
    passed to `update`: `sharpness` from `products` Hessian products that start where the last ended, its
    `sharpness_error`, `h_lambda` (normalized so that 2 is the stability limit of `momentum` and `nesterov`), `q2_batch`
    and `cosine_batch` from a second gradient of the same batch after the step, which survive noise, and with `h_star`
    the bound of `moderate_bound`. Between two measurements the old values stay.

    No reading ever forces the host to wait. `sink(step, numbers)` does, when given, is called at every `sink_every`-th
    step, also from inside `jit` and `scan`. In a loop without `jit` both schedules wait for the count of steps. A step
    reads the gradients and the updates once more. The memory is three times `sample` numbers for each array, one copy
    of the parameters in float32 with `every`, and for the time of a measurement `products` copies and what the
    linearized gradient keeps.

    >>> import jax.numpy as jnp, optax
    >>> tx = monitor(optax.sgd(0.1), learning_rate=0.1)
    >>> x = jnp.array([3.0, 4.0])
    >>> state = tx.init(x)
    >>> for _ in range(2):
    ...     u, state = tx.update(x, state, x)  # the gradient of |x|^2 / 2
    ...     x = x + u
    >>> now = readings(state)
    >>> round(float(now["slope"]), 6), round(float(now["q2"]), 6), round(float(now["cosine"]), 6)
    (4.5, 0.1, 1.0)
    """
    try:
        import optax
    except ImportError as absent:
        raise ImportError("igr.monitor is an optax transformation: install optax to use it.") from absent
    products = check_products(products)
    for name, count in (("every", every), ("sink_every", sink_every)):
        if not is_whole(count, int(name == "sink_every")):
            raise ValueError(f"{name} must be a whole number of steps, but it is {count!r}.")
    if sample is not None and not is_whole(sample, 1):
        raise ValueError(f"sample must be a positive whole number of entries, or None for all, but it is {sample!r}.")
    every, sink_every, sample = int(every), int(sink_every), None if sample is None else int(sample)
    if not 0 <= decay < 1:
        raise ValueError(f"decay must be at least 0 and below 1, but it is {decay}.")
    if tx is not None and not (hasattr(tx, "init") and hasattr(tx, "update")):
        raise TypeError(f"tx must be an optax transformation, but it is a {type(tx).__name__}.")
    if learning_rate is not None and not callable(learning_rate):
        check_finite("learning_rate", learning_rate)
    inner = None if tx is None else optax.with_extra_args_support(tx)
    names = q.FREE + (q.MEANS if noise or halves else ()) + (q.HALVES if halves else ())
    names += (q.DEAR + (q.BOUND if h_star else ())) if every else ()

    def init(params: Params) -> MonitorState:
        check_params(params)
        dtype = accumulation_dtype(*jax.tree.leaves(params))
        memory: dict[str, PyTree] = {"steps": steps.empty(params, noise, sample)}
        if every:
            memory["vector"] = random_like(params)
        readings = {name: jnp.full((), jnp.nan, dtype) for name in names}
        return MonitorState(jnp.zeros((), jnp.int32), readings, memory, () if inner is None else inner.init(params))

    def update(updates: PyTree, state: PyTree, params: Params | None = None, **extra: Any) -> PyTree:
        gradient, inner_state = extra.get("grad"), state.inner
        if inner is not None:
            gradient = updates
            updates, inner_state = inner.update(updates, state.inner, params, **extra)
        if gradient is None:
            raise ValueError(SENTENCE)
        gradient = _masked_alike(gradient, updates, optax.MaskedNode)
        count, memory = state.steps, dict(state.memory)
        dtype = state.readings["slope"].dtype
        m = num_params(gradient)
        value = q.number(jnp.nan if extra.get("value") is None else extra["value"], dtype)
        rate = learning_rate(count) if callable(learning_rate) else learning_rate
        h = q.number(jnp.nan if rate is None else rate, dtype)

        found = q.of_step(gradient, updates, value, h, m)
        consecutive, lagged, remembered = steps.advance(
            memory["steps"], updates, gradient, count, state.readings, sample
        )
        found |= consecutive
        if noise or halves:
            both = _product_of_halves(extra) if halves else None
            remembered = steps.average(remembered, found["slope"], lagged, both, count, decay)
            found |= steps.of_means(remembered, m, halves, count)
        memory["steps"] = remembered
        if every:
            grad_fn = _grad_fn(extra, params)
            kept = {name: state.readings[name] for name in q.DEAR + (q.BOUND if h_star else ())}

            def measure(vector: Params) -> PyTree:
                dear, vector = q.of_schedule(grad_fn, params, updates, vector, min(products, m), h_star)
                limit = jnp.nan if rate is None else stability_limit(h, momentum=momentum, nesterov=nesterov)
                dear["h_lambda"] = 2 * dear["sharpness"] / limit
                return {name: q.number(dear[name], dtype) for name in kept}, vector

            dear, memory["vector"] = _at_every(every, count, measure, lambda vector: (kept, vector), memory["vector"])
            found |= dear
        found = {name: q.number(found[name], dtype) for name in names}
        if sink is not None:
            _send(sink, sink_every, count, found)
        return updates, MonitorState(count + 1, found, memory, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def _masked_alike(gradient: Params, updates: Params, hole: type) -> Params:
    """The gradient of the parameters that the updates are of: `optax.masked` and its like leave holes in these."""
    return jax.tree.map(
        lambda u, g: u if isinstance(u, hole) else g, updates, gradient, is_leaf=lambda x: isinstance(x, hole)
    )


def _product_of_halves(extra: dict) -> Array:
    if extra.get("halves") is None:
        raise ValueError("with halves=True pass the gradients of two half-batches, halves=(a, b), to update.")
    return dot(*extra["halves"])


def _grad_fn(extra: dict, params: PyTree) -> PyTree:
    if params is None:
        raise ValueError("igr.monitor(every=...) needs the parameters: tx.update(grads, state, params, grad_fn=...).")
    if extra.get("grad_fn") is not None:
        return extra["grad_fn"]
    if extra.get("value_fn") is not None:
        return jax.grad(extra["value_fn"])
    raise ValueError(
        "igr.monitor(every=...) measures curvature: pass grad_fn (params to gradient) or value_fn (params to loss) "
        "to tx.update."
    )


def _send(sink: Any, sink_every: int, count: Array, found: dict[str, Array]) -> None:
    def receive(step: Array | np.ndarray, numbers: dict[str, Array | np.ndarray]) -> None:
        sink(int(step), {name: float(number) for name, number in numbers.items()})

    def call() -> None:
        jax.debug.callback(receive, count, found)

    _at_every(sink_every, count, call, lambda: None)


def _at_every(k: int, count: Array, due: Callable, otherwise: Callable, *args: PyTree) -> PyTree:
    """`due(*args)` at every k-th step; in a loop without `jit` Python chooses, since `cond` would compile each time."""
    if is_traced(count):
        return jax.lax.cond(count % k == 0, due, otherwise, *args)
    return due(*args) if int(count) % k == 0 else otherwise(*args)


def readings(state: PyTree) -> dict[str, Array]:
    r"""The numbers of `monitor` from the state of an optimizer, by name.

    `state` is any optimizer state that contains a monitor's: of a chain, of a wrapper, of `nnx.Optimizer.opt_state`.
    The values are arrays on the device, and nothing waits for them; `float(value)` does. Before the first step all are
    NaN.

    >>> import jax.numpy as jnp, optax
    >>> state = optax.chain(optax.sgd(0.1), monitor()).init(jnp.zeros(3))
    >>> sorted(readings(state))[:3]
    ['cosine', 'cosine_mean', 'loss']
    """
    found = [
        leaf
        for leaf in jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, MonitorState))
        if isinstance(leaf, MonitorState)
    ]
    if len(found) != 1:
        raise ValueError(
            f"an optimizer state with one igr.monitor in it is needed, but this one has {len(found)}: pass the part of "
            "the state that holds the monitor you want."
        )
    return {name: jnp.asarray(value) for name, value in found[0].readings.items()}
