r"""An optimizer and four flows from one start: the plain one, the modified one, and two with half of the rule."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import igr
from igr.calculus import add_scaled, gradient
from igr.optimizers import modified_field, settle, step

FIELDS = {"plain": (0, 0), "modified": (1, 1), "lag without the half": (1, 0), "the half without the lag": (0, 1)}


class Raced(NamedTuple):
    """What is measured along the way: arrays whose leading axis is the part of the path."""

    distance: Any  # of the optimizer from each of the four flows
    one_norm: Any  # of the gradient, at the optimizer and at the plain and the modified flow
    path: Any  # optimizer, plain and modified flow


def runge_kutta(field: Callable, x: Any, dt: Any) -> Any:
    """One step of the classical method; its four stages are one loop, so that the field is compiled once."""

    def stage(carry: Any, weights: Any) -> tuple[Any, None]:
        slope, total = carry
        ahead, share = weights
        slope = field(add_scaled(x, ahead, slope))
        return (slope, add_scaled(total, share, slope)), None

    weights = jnp.asarray([(0, 1 / 6), (1 / 2, 1 / 3), (1 / 2, 1 / 3), (1, 1 / 6)]) * dt
    return jax.lax.scan(stage, (jax.tree.map(jnp.zeros_like, x), x), (weights[:, 0], weights[:, 1]))[0][1]


def flow(field: Callable, start: Any, dt: Any, parts: int) -> Any:
    """The flow of a field for the time `parts` times `dt`."""
    return jax.lax.scan(lambda x, _: (runge_kutta(field, x, dt), None), start, length=parts)[0]


def length(tree: Any) -> Any:
    """The Euclidean norm of a pytree."""
    return jnp.sqrt(igr.squared_norm(tree))


@cache
def race(make: Callable, loss: Callable, history: int, parts: int, substeps: int = 1) -> Callable[..., Raced]:
    """`(hyper, state, stride, *args) -> Raced`: `parts` times `stride` steps of `make(*hyper)`, beside its flows.

    The flows begin where the optimizer is, and make `substeps` steps of the classical method in each part. `args` are
    those of the loss. Compiled once for all numbers: units of one optimizer share the program.
    """
    a, b = (np.asarray(column, float) for column in zip(*FIELDS.values(), strict=True))

    def fields(hyper: Any, args: Any, stacked: Any) -> Any:
        field = modified_field(make(*hyper), loss, history=history)
        terms = jax.vmap(lambda p: field.terms(p, *args))(stacked)
        part = lambda row, x: x * row.reshape(-1, *[1] * (x.ndim - 1))  # noqa: E731
        return jax.tree.map(lambda u, m, d: u + part(a, m) + part(b, d), *terms[:3])

    @jax.jit
    def run(hyper: Any, state: Any, stride: Any, *args: Any) -> Raced:
        advance = step(make(*hyper), loss)

        def go(carry: Any, _: Any) -> Any:
            state, flowed = carry
            state = jax.lax.fori_loop(0, stride, lambda _, s: advance(s, *args), state)
            if substeps == 1:
                flowed = runge_kutta(partial(fields, hyper, args), flowed, stride)
            else:
                flowed = flow(partial(fields, hyper, args), flowed, stride / substeps, substeps)
            off = jax.vmap(lambda f: length(jax.tree.map(jnp.subtract, f, state[0])))(flowed)
            path = jax.tree.map(lambda p, f: jnp.concatenate([p[None], f[:2]]), state[0], flowed)
            return (state, flowed), Raced(off, jax.vmap(lambda p: one_norm(loss, p, *args))(path), path)

        spread = jax.tree.map(lambda p: jnp.broadcast_to(p, (len(FIELDS), *p.shape)), state[0])
        return jax.lax.scan(go, (state, spread), length=parts)[1]

    return run


def one_norm(loss: Callable, params: Any, *args: Any) -> Any:
    """The sum of the absolute values of the gradient."""
    return sum(jnp.sum(jnp.abs(g)) for g in jax.tree.leaves(gradient(loss)(params, *args)))


@cache
def beginning(make: Callable, loss: Callable, history: int) -> tuple[Callable, Callable]:
    """`(hyper, start, *args)` -> the state of an optimizer that began as far back as its history, and its speed."""

    def plain(hyper: Any, args: Any) -> Callable:
        return lambda p: modified_field(make(*hyper), loss, order=0, history=history)(p, *args)

    @jax.jit
    def begin(hyper: Any, start: Any, *args: Any) -> Any:
        tx = make(*hyper)
        advance = step(tx, loss)
        return settle(lambda s: advance(s, *args), (start, tx.init(start)), history, plain(hyper, args))

    @jax.jit
    def speed(hyper: Any, start: Any, *args: Any) -> Any:
        return length(plain(hyper, args)(start))

    return begin, speed


def on_one_path(
    make: Callable, loss: Callable, start: Any, args: Any, history: int, steps: tuple[int, ...], span: float, parts: int
) -> dict[str, Any]:
    """A path of the length `span` at its initial speed, divided into so many steps, by each number of `steps`."""
    begin, speed = beginning(make, loss, history)
    run = race(make, loss, history, parts)
    initial = float(speed((1e-6,), start, *args)) / 1e-6
    rates = [span / initial / n for n in steps]
    raced = [run((h,), begin((h,), start, *args), n // parts, *args) for h, n in zip(rates, steps, strict=True)]
    stacked = [np.stack([np.asarray(getattr(each, name)) for each in raced]) for name in ("distance", "one_norm")]
    return {"learning_rate": np.asarray(rates), "distance": stacked[0], "one_norm": stacked[1]}
