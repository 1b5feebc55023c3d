r"""The last update of an optimizer as a function of the history of gradients and parameters it was given."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from igr._typing import Count, Params, RealScalarLike, Scalar


@runtime_checkable
class Transformation(Protocol):
    """An optimizer as optax has it: `init(params) -> state` and `update(grads, state, params) -> (updates, state)`."""

    @property
    def init(self) -> Callable[..., PyTree]:
        """The memory before the first step, from the parameters."""
        ...

    @property
    def update(self) -> Callable[..., PyTree]:
        """The increment of the parameters and the next memory."""
        ...


Point = tuple[Params, Params]  # (gradient, parameters)


def check_transformation(tx: object) -> None:
    """Refuse what has no `init` and `update`, such as a constructor that was not called."""
    if not (callable(getattr(tx, "init", None)) and callable(getattr(tx, "update", None))):
        raise TypeError(
            f"tx must have init and update, as optax.sgd(0.1) has, but it is a {type(tx).__name__}: "
            "call the constructor with its learning rate."
        )


def along(base: Params, terms: list[tuple[RealScalarLike, Params]]) -> Params:
    """The base plus the scaled terms, leaf by leaf and in the dtype of the base."""
    for scale, term in terms:
        base = jax.tree.map(lambda b, t, s=scale: b + jnp.asarray(s).astype(b.dtype) * t, base, term)
    return base


def last_update(tx: Transformation, at: Callable[[Array], Point], length: int, count: Count | None = None) -> Params:
    r"""The update that a transformation makes after a history: the last of `length` ones.

    $$u = U\big((g_0, \theta_0), (g_1, \theta_1), \dots, (g_{K-1}, \theta_{K-1})\big),\qquad
    (g_k, \theta_k) = \mathtt{at}(k)$$

    Here k = 0 is the newest gradient and K = `length`. The optimizer starts from `tx.init`. With `count` its step
    counters are set such that the last update is that of step `count`, counted from 0; a history that would begin
    before step 0 begins at step 0.

    >>> import optax, jax.numpy as jnp
    >>> momentum = optax.sgd(1.0, momentum=0.5)  # weights 1, 1/2, 1/4, ...
    >>> at = lambda k: (jnp.where(k == 1, 1.0, 0.0), jnp.array(0.0))
    >>> float(last_update(momentum, at, length=4))
    -0.5
    """
    lags = jnp.arange(length - 1, -1, -1)
    state = tx.init(at(lags[0])[1])
    if count is not None:
        state = set_count(state, jnp.maximum(jnp.asarray(count) + 1 - length, 0))

    def update(state: PyTree, k: Int[Array, ""]) -> tuple[PyTree, Params]:
        grads, params = at(k)
        updates, state = tx.update(grads, state, params)
        return state, updates

    def advance(carry: PyTree, k: Int[Array, ""]) -> tuple[PyTree, None]:
        following = update(carry[0], k)
        if count is not None:  # a history longer than the steps made so far waits for step 0
            begun = k <= count
            following = jax.tree.map(lambda new, old: jnp.where(begun, new, old), following, carry)
        return following, None

    shapes = jax.eval_shape(update, state, lags[0])[1]
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    (_, updates), _ = jax.lax.scan(advance, (state, nothing), lags)
    return updates


def set_count(state: PyTree, count: Count | None) -> PyTree:
    """The state with its step counters, the integer scalars, at `count`."""

    def put(leaf: Array) -> Array:
        counts = jnp.shape(leaf) == () and jnp.issubdtype(jnp.result_type(leaf), jnp.integer)
        return jnp.asarray(count).astype(jnp.result_type(leaf)) if counts else leaf

    return jax.tree.map(put, state)


def leading_update(tx: Transformation, point: Point, length: int, count: Count | None = None) -> Params:
    """The update $u_0$ after a history of equal gradients at equal parameters."""
    return last_update(tx, lambda k: point, length, count)


def lagged(
    tx: Transformation, point: Point, speed: Point, length: int, count: Count | None = None
) -> Callable[[Scalar, Scalar], Params]:
    r"""The last update as a function of how far the history lags behind: $R(a, b)$.

    $$R(a, b) = U\big(\{p - (a k + \tfrac b2)\, \dot p\}_{k}\big)$$

    Here p is the point (gradient, parameters) and $\dot p$ its change in one step. The derivative along a is the
    effect of the optimizer's memory, that along b the effect of the discretization.
    """

    def response(a: Scalar, b: Scalar) -> Params:
        a, b = jnp.asarray(a), jnp.asarray(b)  # in single precision where there is no other
        return last_update(tx, lambda k: along(point, [(-(a * k.astype(a.dtype) + b / 2), speed)]), length, count)

    return response


def at_zeros(point: Point) -> Point:
    r"""The point with exact zeros of the gradient replaced by a tiny number, where roots have a derivative.

    A coordinate whose gradient is zero, a dead pixel, makes the derivative of $\sqrt{g^2}$ a quotient 0/0. The tiny
    number's square, and a thousandth of that, are normal numbers of the dtype.
    """
    grads, params = point

    def replace(g: PyTree) -> PyTree:
        tiny = jnp.finfo(g.dtype).tiny.astype(float) ** 0.4
        return jnp.where(g == 0, jnp.asarray(tiny).astype(g.dtype), g)

    return jax.tree.map(replace, grads), params
