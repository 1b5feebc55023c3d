"""The gradient at other parameters with every choice made as it is at these: a difference that crosses no kink."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from igr._jax import Equation, Jaxpr, Literal, Variable, bind, programs, scan_parts

# A value here and there; the same object where it does not vary with the parameters.
Pair = tuple[Any, Any]

# Operations that are linear between their choices (which one is largest, which sign): what they give there by the
# choices made here is their derivative here, applied to the values there.
_CHOOSING = {"abs", "rem", "reduce_window_max", "reduce_window_min", "cummax", "cummin", "sort", "top_k"}
# Operations that only choose. A comparison does as well, and so does all else whose result is no real number.
_STEPS = {"sign", "floor", "ceil", "round"}
# The derivatives of max-pooling: the values of the first argument, at the places of the largest of the second.
_PLACED = {"select_and_scatter_add", "select_and_gather_add"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
_REMATERIALIZED = {"checkpoint", "remat2"}


def held(program: Jaxpr, consts: list, here: list[Array], there: list[Array]) -> list[Array]:
    r"""The outputs of a program at `there`, where every comparison comes out as it does at `here`.

    $$\nabla E_\theta(\theta + \epsilon v) = \nabla E(\theta) + \epsilon H v + O(\epsilon^2)$$

    where $E_\theta$ is the smooth piece of E around $\theta$: which units of a ReLU network are active, and which
    pixel a pooling layer passes on, is decided at $\theta$. Its difference is that of the exact penalty, which does
    not see kinks either, and needs no length to cross them. It costs one more forward pass, the one at `here`, which
    XLA computes once where the first pass is part of the same program.

    Inside `shard_map`, linear solves and kernels of others choices are made `there`, as without this.
    """
    outs = _evaluate(program, _same(consts), list(zip(here, there, strict=True)))
    return [b for _, b in outs]


def _evaluate(program: Jaxpr, consts: list[Pair], inputs: list[Pair]) -> list[Pair]:
    known: dict[Variable, Pair] = dict(zip(program.constvars, consts, strict=True))
    known.update(zip(program.invars, inputs, strict=True))

    def read(v: Variable) -> Pair:
        return (v.val, v.val) if isinstance(v, Literal) else known[v]

    for equation in program.eqns:
        known.update(zip(equation.outvars, _results(equation, [*map(read, equation.invars)]), strict=True))
    return [*map(read, program.outvars)]


def _results(equation: Equation, pairs: list[Pair]) -> list[Pair]:
    name = equation.primitive.name
    if not any(a is not b for a, b in pairs):
        return [(out, out) for out in bind(equation, [a for a, _ in pairs])]
    rule = _LOOPS.get(name)
    if rule is not None:
        return rule(equation, pairs)
    inner = list(programs(equation))
    if name in _CALLS | _REMATERIALIZED and len(inner) == 1 and len(inner[0].invars) == len(pairs):
        return _called(equation, inner[0], pairs)
    here = [a for a, _ in pairs]
    if name in _STEPS or not any(_is_real(v) for v in equation.outvars):
        return [(out, out) for out in bind(equation, here)]
    if name in _PLACED:
        return list(zip(bind(equation, here), bind(equation, [pairs[0][1], here[1]]), strict=True))
    if name in _PICKED:
        (out,) = bind(equation, here)
        return [(out, _PICKED[name](equation, out, pairs))]
    if name in _CHOOSING and not any(_is_complex(v) for v in equation.invars):
        return _chosen(equation, pairs)
    return list(zip(bind(equation, here), bind(equation, [b for _, b in pairs]), strict=True))


def _of_two(sign: int) -> Callable:
    def rule(equation: Equation, out: Array, pairs: list[Pair]) -> Array:
        (x, moved), (y, other) = pairs
        before, after = (x > y, x < y) if sign > 0 else (x < y, x > y)
        # Where both are equal a constant counts, as in relu, whose derivative at 0 is 0.
        tie = moved if x is moved else other if y is other else (moved + other) / 2
        return jnp.where(before, moved, jnp.where(after, other, tie)).astype(out.dtype)

    return rule


def _of_many(equation: Equation, out: Array, pairs: list[Pair]) -> Array:
    """The mean over those that are largest here. What is masked by an infinity is not multiplied."""
    ((x, moved),), axes = pairs, equation.params["axes"]
    chosen = x == jnp.expand_dims(out, axes)
    total = jnp.sum(jnp.where(chosen, moved, jnp.zeros_like(moved)), axes)
    return (total / jnp.sum(chosen, axes).astype(total.dtype)).astype(out.dtype)


def _clamped(equation: Equation, out: Array, pairs: list[Pair]) -> Array:
    (low, lower), (x, moved), (high, upper) = pairs
    bound = jnp.where(x <= low, jnp.broadcast_to(lower, out.shape), jnp.broadcast_to(upper, out.shape))
    return jnp.where((x > low) & (x < high), moved, bound).astype(out.dtype)


_PICKED = {"max": _of_two(1), "min": _of_two(-1), "clamp": _clamped, "reduce_max": _of_many, "reduce_min": _of_many}


def _chosen(equation: Equation, pairs: list[Pair]) -> list[Pair]:
    real = [_is_real(v) for v in equation.invars]

    def of(xs: list) -> list:
        given = iter(xs)
        return bind(equation, [next(given) if is_real else a for (a, _), is_real in zip(pairs, real, strict=True)])

    here = [jnp.asarray(a) for (a, _), is_real in zip(pairs, real, strict=True) if is_real]
    there = [jnp.asarray(b) for (_, b), is_real in zip(pairs, real, strict=True) if is_real]
    outs, chosen = jax.jvp(of, (here,), (there,))
    return [(a, b if _is_real(v) else a) for a, b, v in zip(outs, chosen, equation.outvars, strict=True)]


def _called(equation: Equation, inner: Jaxpr, pairs: list[Pair]) -> list[Pair]:
    """A call: its program in place, or rematerialized as it was."""
    closed = next(value for value in equation.params.values() if getattr(value, "jaxpr", value) is inner)
    consts = _same(getattr(closed, "consts", ()))
    if equation.primitive.name not in _REMATERIALIZED:
        return _evaluate(inner, consts, pairs)
    both = jax.checkpoint(
        lambda flat: _flat(_evaluate(inner, consts, _pairs(flat, pairs)), inner.outvars),
        prevent_cse=equation.params.get("prevent_cse", True),
        policy=equation.params.get("policy"),
    )
    return _pairs(both(_flat(pairs, equation.invars)))


def _same(values: Any) -> list[Pair]:
    return [(x, x) for x in values]


def _flat(pairs: list[Pair], variables: list[Variable]) -> list:
    """Both values of each variable, as arrays: what is written into a program is a number of Python's."""
    kinds = [getattr(v.aval, "dtype", None) if isinstance(v, Literal) else None for v in variables]
    return [x if k is None else jnp.asarray(x, k) for pair, k in zip(pairs, kinds, strict=True) for x in pair]


def _pairs(flat: list, like: list[Pair] | None = None) -> list[Pair]:
    """Pairs again; what did not vary outside is the same object inside too."""
    found = list(zip(flat[::2], flat[1::2], strict=True))
    return found if like is None else [(a, a if c is d else b) for (a, b), (c, d) in zip(found, like, strict=True)]


def _cond(equation: Equation, pairs: list[Pair]) -> list[Pair]:
    branches = equation.params["branches"]

    def branch(closed: Any) -> Callable:
        def of(flat: list) -> list:
            outs = _evaluate(closed.jaxpr, _same(closed.consts), _pairs(flat, pairs[1:]))
            return _flat(outs, closed.jaxpr.outvars)

        return of

    index = jnp.asarray(pairs[0][0], jnp.int32)  # the choice made here
    return _pairs(jax.lax.switch(index, [*map(branch, branches)], _flat(pairs[1:], equation.invars[1:])))


def _while(equation: Equation, pairs: list[Pair]) -> list[Pair]:
    ask, do = equation.params["cond_jaxpr"], equation.params["body_jaxpr"]
    first, second = equation.params["cond_nconsts"], equation.params["body_nconsts"]
    asked, fixed, start = pairs[:first], pairs[first : first + second], pairs[first + second :]

    def goes_on(flat: list) -> Array:
        return _evaluate(ask.jaxpr, _same(ask.consts), [*asked, *_pairs(flat)])[0][0]

    def body(flat: list) -> list:
        return _flat(_evaluate(do.jaxpr, _same(do.consts), [*fixed, *_pairs(flat)]), do.jaxpr.outvars)

    return _pairs(jax.lax.while_loop(goes_on, body, _flat(start, equation.invars[first + second :])))


def _scan(equation: Equation, pairs: list[Pair]) -> list[Pair]:
    closed = equation.params["jaxpr"]
    count, carried = scan_parts(equation, closed.jaxpr)
    fixed, start, over = pairs[:count], pairs[count : count + carried], pairs[count + carried :]

    def body(carry: list, rows: list) -> tuple[list, list]:
        inputs = [*fixed, *_pairs(carry), *_pairs(rows, over)]
        outs = _flat(_evaluate(closed.jaxpr, _same(closed.consts), inputs), closed.jaxpr.outvars)
        return outs[: 2 * carried], outs[2 * carried :]

    last, rows = jax.lax.scan(
        body,
        _flat(start, equation.invars[count : count + carried]),
        _flat(over, equation.invars[count + carried :]),
        length=equation.params["length"],
        reverse=equation.params["reverse"],
        unroll=equation.params["unroll"],
    )
    return _pairs(last) + _pairs(rows)


_LOOPS: dict[str, Callable[[Equation, list[Pair]], list[Pair]]] = {"cond": _cond, "while": _while, "scan": _scan}


def _is_real(v: Variable) -> bool:
    return jnp.issubdtype(getattr(v.aval, "dtype", bool), jnp.inexact)


def _is_complex(v: Variable) -> bool:
    return jnp.issubdtype(getattr(v.aval, "dtype", bool), jnp.complexfloating)
