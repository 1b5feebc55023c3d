"""Truncated power series through a function: Taylor-mode differentiation on pytrees."""

import functools
from collections.abc import Callable, Iterable, Iterator
from math import factorial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array

from igr._jax import (
    ClosedJaxpr,
    Equation,
    Jaxpr,
    Literal,
    Variable,
    bind,
    jaxpr_as_fun,
    jet,
    programs,
    taylor_rule,
    unstopped,
)
from igr._typing import Field, Params, Scalar

Column: TypeAlias = list[Any]  # the Taylor coefficients of one value: arrays, or literals of a program
Series = list[Params]  # coefficients of h^0, h^1, ..., without factorials

# Operations whose rule in `jax.experimental.jet` was compared with nested differentiation, in float64 and float32, at
# large and small arguments and at edges: tests/modified/test_taylor.py goes through them one by one. The others are
# wrong somewhere (a remainder, arcsinh of large negative numbers, erfc of large ones), fail, or were not compared.
TRUSTED = {
    "abs", "add", "add_any", "broadcast_in_dim", "concatenate", "conv_general_dilated", "convert_element_type", "copy",
    "cos", "cosh", "cumsum", "div", "dot_general", "dynamic_slice", "dynamic_update_slice", "exp", "gather",
    "integer_pow", "log", "max", "mul", "neg", "pad", "reduce_max", "reduce_sum", "reshape", "rev", "rsqrt",
    "scatter-add", "select_n", "sin", "sinh", "slice", "split", "sqrt", "square", "squeeze", "sub", "transpose",
}  # fmt: skip
CALLS = {"jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint"}
# A function with a derivative of its own is nested by itself: what it is made of need not have that derivative, as the
# maximum in softplus has not at 0.
OWN_DERIVATIVE = {"custom_jvp_call"}


def shift(series: Series) -> Series:
    """The series times h: coefficient k moves to k + 1."""
    return [jax.tree.map(jnp.zeros_like, series[0]), *series]


def compose(field: Field, at: Params, order: int) -> Callable[[Series], Series]:
    """The map from the series of x(h) to that of f(x(h)), both up to $h^{order}$, for a field f traced once at `at`.

    Taylor mode where the rule of every operation of f is known to be right: its cost is quadratic in the order.
    Otherwise nested forward differentiation in h, which knows whatever JAX can differentiate and doubles with each
    order. `stop_gradient` is meant for the differentiation that made a field and is not part of the field: derivatives
    pass through it.

    >>> import jax.numpy as jnp
    >>> x = [jnp.array(1.0), jnp.array(1.0), jnp.array(0.0)]  # 1 + h
    >>> [round(float(c), 12) for c in compose(lambda x: x**3, x[0], 2)(x)]  # (1 + h)^3 = 1 + 3h + 3h^2 + ...
    [1.0, 3.0, 3.0]
    """
    leaves, structure = jax.tree.flatten(at)

    def flat(*xs: Array) -> Column:
        return jax.tree.leaves(field(structure.unflatten(xs)))

    # Tracing first resolves custom derivative rules under grad, which Taylor mode would otherwise trip over.
    program = unstopped(jax.make_jaxpr(flat)(*leaves))
    through = _by_rules if knows(program.jaxpr) else _by_nesting

    def evaluate(series: Series) -> Series:
        columns = [list(column) for column in zip(*(jax.tree.leaves(c) for c in series), strict=True)]
        rows = through(program, columns, order)
        return [structure.unflatten(row) for row in rows]

    return evaluate


def _by_nesting(program: ClosedJaxpr, columns: list[Column], order: int) -> list[Column]:
    """The k-th derivative of h -> f(x(h)) at 0, by k nested jvps in the one real variable h."""
    return _nested(jaxpr_as_fun(program), columns, order)


def _nested(function: Callable, columns: list[Column], order: int) -> list[Column]:
    def curve(h):
        return function(*(sum(c * (h**k).astype(c.dtype) for k, c in enumerate(column)) for column in columns))

    rows, zero, one = [], jnp.zeros(()), jnp.ones(())
    for k in range(order + 1):
        rows.append([d / float(factorial(k)) for d in curve(zero)])
        curve = _differentiate(curve, one)
    return rows


def _differentiate(curve: Callable, one: Scalar) -> Callable:
    return lambda h: jax.jvp(curve, (h,), (one,))[1]


def knows(program: Jaxpr) -> bool:
    """Whether Taylor mode is right for every operation of a program, and of the programs inside it."""
    return jet is not None and all(map(_known, _outside(program)))


def _outside(program: Jaxpr) -> Iterator[Equation]:
    """Every equation of a program and of the calls in it, but for what is inside a function with its own derivative."""
    for equation in program.eqns:
        yield equation
        if equation.primitive.name not in OWN_DERIVATIVE:
            for inner in programs(equation):
                yield from _outside(inner)


def _known(equation: Equation) -> bool:
    name = equation.primitive.name
    if name in CALLS | OWN_DERIVATIVE or name in RULES or all(not _is_real(out) for out in equation.outvars):
        return True
    complex_inside = any(jnp.iscomplexobj(v.aval) for v in [*equation.invars, *equation.outvars] if hasattr(v, "aval"))
    return name in TRUSTED and not complex_inside


def _is_real(variable: Variable) -> bool:
    return jnp.issubdtype(getattr(variable.aval, "dtype", bool), jnp.inexact)


def _by_rules(program: ClosedJaxpr, columns: list[Column], order: int) -> list[Column]:
    """One pass over the program, each operation by its Taylor rule; a column without series is a constant."""
    columns = [column[: order + 1] for column in columns]
    outs = _propagate(program.jaxpr, program.consts, columns)
    full = [c if len(c) > 1 else [c[0], *[jnp.zeros_like(c[0])] * order] for c in outs]
    return [list(row) for row in zip(*full, strict=True)]


def _propagate(program: Jaxpr, consts: list, columns: list[Column]) -> list[Column]:
    known = dict(zip(program.constvars, ([c] for c in consts), strict=True))
    known.update(zip(program.invars, columns, strict=True))

    def read(variable: Variable) -> Column:
        return [variable.val] if isinstance(variable, Literal) else known[variable]

    for equation in program.eqns:
        results = _through(equation, [read(v) for v in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(v) for v in program.outvars]


def _through(equation: Equation, columns: list[Column]) -> list[Column]:
    name = equation.primitive.name
    varying = [i for i, column in enumerate(columns) if len(column) > 1]
    if not varying or not any(map(_is_real, equation.outvars)):
        return [[x] for x in bind(equation, [column[0] for column in columns])]
    if name in CALLS:
        inner = next(v for v in equation.params.values() if hasattr(v, "eqns"))
        return _propagate(next(programs(equation)), getattr(inner, "consts", []), columns)
    if name in RULES:
        return [RULES[name](columns[0])]

    def function(*values: Array) -> Column:
        full = [column[0] for column in columns]
        for i, value in zip(varying, values, strict=True):
            full[i] = value
        return bind(equation, full)

    if name in OWN_DERIVATIVE:
        rows = _nested(function, [columns[i] for i in varying], max(map(len, columns)) - 1)
        return [list(column) for column in zip(*rows, strict=True)]
    primals, series = zip(*((columns[i][0], columns[i][1:]) for i in varying), strict=True)
    values, coefficients = taylor_rule(function, list(primals), [list(s) for s in series])
    return [[v, *c] for v, c in zip(values, coefficients, strict=True)]


# Rules of our own, where those of JAX cancel: it has tanh x as 2 / (1 + exp(-2x)) - 1, expm1 x as exp(x) - 1, log1p x
# as log(1 + x), and loses the second coefficient of the logistic function near 0. Each solves the differential equation
# of its function for one coefficient after another.


def _sum(terms: Iterable[Array]) -> Array:
    return functools.reduce(jnp.add, terms)


def _tanh(x: Column) -> Column:
    """The series of tanh: y' = u x' with u = 1 - y^2."""
    y: Column = [jnp.tanh(x[0])]
    u: Column = [(1 - y[0]) * (1 + y[0])]
    for k in range(1, len(x)):
        y.append(_sum(j * x[j] * u[k - j] for j in range(1, k + 1)) / k)
        u.append(-_sum(y[j] * y[k - j] for j in range(k + 1)))
    return y


def _expm1(x: Column) -> Column:
    """The series of expm1: y = e - 1 with e' = e x'."""
    e: Column = [jnp.exp(x[0])]
    for k in range(1, len(x)):
        e.append(_sum(j * x[j] * e[k - j] for j in range(1, k + 1)) / k)
    return [jnp.expm1(x[0]), *e[1:]]


def _log1p(x: Column) -> Column:
    """The series of log1p: (1 + x) y' = x'."""
    y: Column = [jnp.log1p(x[0])]
    for k in range(1, len(x)):
        known = sum((j * y[j] * x[k - j] for j in range(1, k)), start=jnp.zeros_like(x[0]))
        y.append((x[k] - known / k) / (1 + x[0]))
    return y


def _logistic(x: Column) -> Column:
    """The series of the logistic function: (1 + tanh(x / 2)) / 2."""
    half = _tanh([c / 2 for c in x])
    return [jax.nn.sigmoid(x[0]), *(c / 2 for c in half[1:])]


RULES = {"tanh": _tanh, "logistic": _logistic, "expm1": _expm1, "log1p": _log1p}
