r"""How long a transformation remembers, found by watching it, and the transformations that follow no field."""

from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree

from igr._checks import is_whole
from igr._jax import is_traced
from igr._typing import Count, Params, Scalar, Whole
from igr.calculus import squared_norm
from igr.optimizers.lag import Transformation, lagged, set_count
from igr.optimizers.refusals import INSTEAD, check_memory

CHUNK, CHUNKS = 1024, 32  # steps of one compiled loop, and how many of them a transformation has to forget


class Forgetting(NamedTuple):
    """Relative distances of updates under equal gradients, one entry for each length of the history."""

    start: np.ndarray  # from the limit, for a history that begins at `init`
    prefix: np.ndarray  # from an optimizer that saw other gradients before
    change: np.ndarray  # from one step to the next
    chunk: int = CHUNK  # the steps by which the run was lengthened

    def length(self, tol: float) -> int:
        """The shortest history that leaves less than `tol` of what came before it."""
        rest = np.maximum(self.start[: len(self.prefix)], self.prefix)
        later = np.flatnonzero(rest >= tol)
        return 1 if later.size == 0 else int(later[-1]) + 2


def check_history(history: Whole | None, count: Count | None) -> Count | None:
    """Refuse a length or a step that is no whole number. Returns the step, that of an optimizer's state as a number."""
    if history is not None and not is_whole(history, 1):
        raise ValueError(f"history must be a positive whole number, but it is {history!r}.")
    if count is None or is_traced(count):
        return count
    step = np.asarray(count)[()]
    if not is_whole(step if isinstance(count, jax.Array | np.ndarray) else count, 0):
        raise ValueError(f"count must be a step, counted from 0, but it is {count!r}.")
    return int(step)


def history_length(
    tx: Transformation, params: Params, tol: float, count: int | None = None, given: int | None = None
) -> int:
    r"""The length of the history that determines the update of a transformation up to `tol`, or a refusal.

    Two copies of the optimizer run side by side, one of which was fed other gradients for 1024 steps: three times as
    large in every other coordinate, and of the other sign in the rest, which clipping does not hide.
    The history is as long as it takes their updates to agree. They run on small random arrays with the structure of
    `params`, so that it costs milliseconds and works while `params` is traced. A transformation has no modified field
    if the two do not come together, if the update changes while the gradient does not, or if its derivative does not
    agree with a difference quotient; each is a `ValueError`. `given` is a length that the caller prefers.

    >>> import optax, jax.numpy as jnp
    >>> history_length(optax.sgd(0.1), jnp.zeros(3), tol=1e-10)
    1
    >>> history_length(optax.sgd(0.1, momentum=0.5), jnp.zeros(3), tol=1e-10)  # 2^-34 is 6e-11
    35
    """
    # The probe runs now, even where params and arguments are traced, and in float64, where tol means something.
    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        small = _small(params)
        memory = _watch(tx, small, tol, count)
        if memory is None:
            if given is None:
                raise ValueError(
                    "the length of the history cannot be found while the transformation itself is traced: "
                    "give history=, or make the transformation outside of jax.jit."
                )
            return given
        check_memory(memory, tol, count, given)
        length = memory.length(tol) if given is None else given
        _check_derivative(tx, small, min(length, CHUNK // 2), count)
        return length


def _small(params: Params) -> tuple[Params, ...]:
    """Four random pytrees with the structure of params, each dimension three at most: a point and a direction."""
    rng = np.random.default_rng(2009_11162)

    def draw(leaf: ArrayLike) -> Array:
        return jnp.asarray(rng.normal(size=tuple(min(n, 3) for n in jnp.shape(leaf))))

    return tuple(jax.tree.map(draw, params) for _ in range(4))


def _norm(tree: Params) -> Scalar:
    return jnp.sqrt(squared_norm(tree))


def _minus(a: Params, b: Params) -> Params:
    return jax.tree.map(jnp.subtract, a, b)


def _watch(tx: Transformation, small: tuple, tol: float, count: Count | None) -> Forgetting | None:
    """Run the two copies until they agree and stand still, or until they have had their time."""
    params, grads, *_ = small

    @jax.jit
    def run(carry: PyTree, scale: Params, count: Count | None) -> PyTree:
        def update(state: PyTree, scale: Params) -> PyTree:
            if count is not None:  # a schedule stands still at the step that is asked for
                state = set_count(state, count)
            return tx.update(jax.tree.map(jnp.multiply, scale, grads), state, params)

        def advance(carry: PyTree, _: object) -> PyTree:
            plain, other, last = carry
            u, plain = update(plain, same)
            v, other = update(other, scale)
            return (plain, other, u), (_norm(u), _norm(_minus(u, v)), _norm(_minus(u, last)), u)

        return jax.lax.scan(advance, carry, length=CHUNK)

    same, other = jax.tree.map(jnp.ones_like, grads), _other(grads)
    state = tx.init(params)
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), _shapes(tx, grads, state, params))
    carry, seen = run((state, state, nothing), other, count)
    if any(is_traced(leaf) for leaf in jax.tree.leaves(seen)):
        return None
    columns = [jax.tree.map(np.asarray, seen)]
    for _ in range(CHUNKS):
        carry, seen = run(carry, same, count)
        columns.append(jax.tree.map(np.asarray, seen))
        size, prefix, change, _ = columns[-1]
        before = columns[-2][2].max()
        if not np.all(np.isfinite(size)) or (
            prefix.max() < tol * size.max() and (change.max() < tol * size.max() or change.max() > 0.9 * before)
        ):
            break
    if count is not None:  # from one step to the next an update changes little, unless it is one step of a cycle
        _, (_, _, change, _) = run(carry, same, count + 1)
        if change[0] > 0.5 * columns[-1][0].max():
            columns[-1][2][-1] = change[0]
    return _relative(columns)


def _other(grads: Params) -> Params:
    """Factors 3, -1, 3, -1, ...: other lengths and directions, also of every gradient that is clipped or normalized."""
    leaves, structure = jax.tree.flatten(grads)
    ends = np.cumsum([0, *(leaf.size for leaf in leaves)])
    pattern = np.where(np.arange(ends[-1]) % 2, -1.0, 3.0) if ends[-1] > 1 else np.array([-3.0])
    parts = [pattern[a:b] for a, b in pairwise(ends)]
    return jax.tree.unflatten(structure, [jnp.reshape(x, leaf.shape) for x, leaf in zip(parts, leaves, strict=True)])


def _shapes(tx: Transformation, grads: Params, state: PyTree, params: Params) -> PyTree:
    try:
        return jax.eval_shape(tx.update, grads, state, params)[0]
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise TypeError(
            "this transformation needs more than gradients, its state and the parameters, so it has no field of the "
            f"parameters ({error}); {INSTEAD}."
        ) from error


def _relative(columns: list[PyTree]) -> Forgetting:
    size, prefix, change = (np.concatenate([column[i] for column in columns]) for i in range(3))
    updates = [np.concatenate([np.reshape(u, (CHUNK, -1)) for u in jax.tree.leaves(c[3])], 1) for c in columns]
    every = np.concatenate(updates)
    with np.errstate(divide="ignore", invalid="ignore"):  # an update of zero is refused with a sentence
        limit = size[-CHUNK:].max() if size[-CHUNK:].max() > 1e-9 * size.max() else np.nan
        start = np.linalg.norm(every - every[-1], axis=1) / limit
        return Forgetting(start, prefix[CHUNK:] / limit, change[CHUNK:] / limit)


def _check_derivative(tx: Transformation, small: tuple, length: int, count: Count | None) -> None:
    """Refuse an update whose derivative along a history is not the limit of its difference quotients.

    The longer difference is above the rounding of parts in low precision, the shorter one resolves the random
    gradients near zero that a tree of many arrays has. One that agrees is enough.
    """
    params, grads, dgrads, dparams = small
    speed = jax.tree.map(lambda x: x / length, (dgrads, dparams))
    response = jax.jit(lagged(tx, (grads, params), speed, length, count))
    zero, one = jnp.zeros(()), jnp.ones(())
    update, tangent = jax.jvp(response, (zero, zero), (one, one))

    def off(eps: Scalar) -> float:
        ahead, behind = response(eps, eps), response(-eps, -eps)
        quotient = jax.tree.map(lambda a, b: (a - b) / (2 * eps), ahead, behind)
        return float(_norm(_minus(quotient, tangent)) / (_norm(update) + _norm(tangent)))

    error = off(jnp.asarray(1e-4))
    if not error < 1e-3:
        error = off(jnp.asarray(1e-6))
    if not error < 1e-3:
        raise ValueError(
            "this transformation is not smooth: the derivative of its update along a history of gradients differs "
            f"from the difference quotient by {error:.1e} of its length, so it has no modified field; {INSTEAD}."
        )
