"""Truncated power series through a function: Taylor-mode differentiation on pytrees."""

from collections.abc import Callable
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import jet
from jax.extend.core import jaxpr_as_fun

from igr._typing import Field, Params
from igr.resolution import equations

# jet takes a real power through the logarithm, which is NaN for the negative bases where x**2.0 is smooth.
_WRONG = {"pow"}

Series = list[Params]  # coefficients of h^0, h^1, ..., without factorials


def shift(series: Series) -> Series:
    """The series times h: coefficient k moves to k + 1."""
    return [jax.tree.map(jnp.zeros_like, series[0]), *series]


def compose(field: Field, at: Params, order: int) -> Callable[[Series], Series]:
    """The map from the series of x(h) to that of f(x(h)), both up to $h^{order}$, for a field f traced once at `at`.

    Taylor mode (`jax.experimental.jet`) where it knows every primitive of f: its cost is quadratic in the order.
    Otherwise nested forward differentiation in h, which knows whatever JAX can differentiate and doubles with each
    order.

    >>> import jax.numpy as jnp
    >>> x = [jnp.array(1.0), jnp.array(1.0), jnp.array(0.0)]  # 1 + h
    >>> [round(float(c), 12) for c in compose(lambda x: x**3, x[0], 2)(x)]  # (1 + h)^3 = 1 + 3h + 3h^2 + ...
    [1.0, 3.0, 3.0]
    """
    leaves, structure = jax.tree.flatten(at)

    def flat(*xs: Any) -> list[Any]:
        return jax.tree.leaves(field(structure.unflatten(xs)))

    # Tracing first resolves custom derivative rules under grad, which jet would otherwise trip over.
    program = jax.make_jaxpr(flat)(*leaves)
    through = _by_jet if _knows(program) else _by_nesting

    def evaluate(series: Series) -> Series:
        columns = [list(column) for column in zip(*(jax.tree.leaves(c) for c in series), strict=True)]
        rows = through(jaxpr_as_fun(program), columns, order)
        return [structure.unflatten(row) for row in rows]

    return evaluate


def _by_jet(function: Callable, columns: list[list[Any]], order: int) -> list[list[Any]]:
    """One Taylor-mode pass, told to count in coefficients: derivatives would overflow by their factorials."""
    primals = tuple(column[0] for column in columns)
    series = tuple(column[1 : order + 1] for column in columns)
    values, coefficients = jet.jet(function, primals, series, factorial_scaled=False)
    return [list(values), *(list(row) for row in zip(*coefficients, strict=True))]


def _by_nesting(function: Callable, columns: list[list[Any]], order: int) -> list[list[Any]]:
    """The k-th derivative of h -> f(x(h)) at 0, by k nested jvps in the one real variable h."""

    def curve(h):
        return function(*(sum(c * (h**k).astype(c.dtype) for k, c in enumerate(column)) for column in columns))

    rows, zero, one = [], jnp.zeros(()), jnp.ones(())
    for k in range(order + 1):
        rows.append([d / float(factorial(k)) for d in curve(zero)])
        curve = _differentiate(curve, one)
    return rows


def _differentiate(curve: Callable, one: Any) -> Callable:
    return lambda h: jax.jvp(curve, (h,), (one,))[1]


def _knows(program: Any) -> bool:
    """Whether every primitive of a program, and of the programs inside it, has a Taylor rule."""
    primitives = {equation.primitive for equation in equations(program)}
    return all(p in jet.jet_rules and p.name not in _WRONG for p in primitives)
