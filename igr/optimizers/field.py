r"""The modified field of an optimizer: its own update rule, computed with gradients that are k + 1/2 steps late."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp

from igr._checks import check_order, check_params
from igr._jax import is_traced
from igr._typing import Count, Loss, Params, Scalar, Whole
from igr.calculus import gradient, squared_norm
from igr.optimizers.history import check_history, history_length
from igr.optimizers.lag import Point, Transformation, at_zeros, check_transformation, lagged, leading_update
from igr.optimizers.refusals import INSTEAD, judge
from igr.optimizers.second import second_order


class Terms(NamedTuple):
    r"""The parts of the modified field, each an increment per step: $G = u_0 + $ `memory` $+$ `discretization`.

    `ratio` is the length of the correction over that of $u_0$: how far the rule can be trusted.
    """

    update: Params
    memory: Params
    discretization: Params
    ratio: Scalar


class ModifiedField:
    """The result of `modified_field`: a field `(params, *args) -> increment per step`, with its parts in `terms`."""

    def __init__(
        self,
        tx: Transformation,
        loss: Loss,
        order: int,
        history: int | None,
        count: Count | None,
        tol: float | None,
    ) -> None:
        self._tx, self._loss, self._order = tx, loss, order
        self._history, self._count, self._tol = history, count, tol
        self._lengths: dict[Hashable, int] = {}
        # Compiled once for all calls; the length of the history is part of the program.
        self._leading = jax.jit(partial(leading_update, tx), static_argnums=1)
        self._along = jax.jit(self._derivatives, static_argnums=(2, 3))
        self._full = jax.jit(partial(_at_full_lag, tx), static_argnums=2)
        self._second = jax.jit(partial(second_order, tx), static_argnums=2)

    def __call__(self, params: Params, *args: object, **kwargs: object) -> Params:
        """The modified field at `params`."""
        params, slope, length = self._begin(params, args, kwargs)
        if self._order < 1:
            return self._leading((slope(params), params), length, self._count)
        point, speed = self._first(slope, params, length)
        (correction,) = self._along(point, speed, length, False, self._count)
        self._judge(point, speed, correction, length)
        total = jax.tree.map(jnp.add, speed[1], correction)
        if self._order > 1:
            half = self._along(point, speed, length, True, self._count)[1]
            series = _along_the_flow(slope, params, total, jax.tree.map(lambda x: -2 * x, half))
            total = jax.tree.map(jnp.add, speed[1], self._second(point, series, length, self._count))
        return total

    def terms(self, params: Params, *args: object, **kwargs: object) -> Terms:
        """The update, the two first-order corrections, and how large they are."""
        params, slope, length = self._begin(params, args, kwargs)
        point, speed = self._first(slope, params, length)
        memory, half = self._along(point, speed, length, True, self._count)
        correction = jax.tree.map(jnp.add, memory, half)
        self._judge(point, speed, correction, length)
        return Terms(speed[1], memory, half, _ratio(correction, speed[1]))

    def remainder(self, params: Params, *args: object, **kwargs: object) -> Scalar:
        r"""What the first order leaves out of the update along its own history, over the length of $u_0$.

        About the square of `terms(...).ratio` where the optimizer is smooth, and larger where a sign, a clipping
        threshold or a gradient near zero lies within its memory. It costs as much as the correction.
        """
        params, slope, length = self._begin(params, args, kwargs)
        point, speed = self._first(slope, params, length)
        return self._left_out(point, speed, self._along(point, speed, length, False, self._count)[0], length)

    def history_length(self, params: Params) -> int:
        """The number of equal gradients that the field feeds to the optimizer, for parameters of this structure."""
        leaves, structure = jax.tree.flatten(params)
        key = structure, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        if key not in self._lengths:
            count = self._count
            if is_traced(count):
                if self._history is None:
                    raise ValueError("the length of the history cannot be found for a traced count: give history=.")
                return self._history  # and nothing can be refused: at which step to look is not known
            double = all(dtype == jnp.float64 for _, dtype in key[1])
            tol = (1e-11 if double else 1e-6) if self._tol is None else self._tol
            length = history_length(self._tx, params, tol, None if count is None else int(count), self._history)
            self._lengths[key] = length if count is None else min(length, int(count) + 1)
        return self._lengths[key]

    def _begin(self, params: Params, args: Any, kwargs: Any) -> tuple[Params, Callable[[Params], Params], int]:
        check_params(params)
        params = jax.tree.map(jnp.asarray, params)
        slope = gradient(self._loss)
        return params, lambda p: slope(p, *args, **kwargs), self.history_length(params)

    def _first(self, slope: Callable[[Params], Params], params: Params, length: int) -> tuple[Point, Point]:
        """Gradient and parameters, and their change in one step of $u_0$, the second of which is $u_0$ itself."""
        grads, push = jax.linearize(slope, params)
        update = self._leading((grads, params), length, self._count)
        update = jax.tree.map(lambda u, p: u.astype(p.dtype), update, params)
        return (grads, params), (push(update), update)

    def _derivatives(
        self, point: Point, speed: Point, length: int, split: bool, count: Count | None
    ) -> tuple[Params, ...]:
        """The derivatives of the update along the lags: the correction, or its two parts from one primal pass."""
        response = lagged(self._tx, at_zeros(point), speed, length, count)
        zero, one = jnp.zeros(()), jnp.ones(())

        def along(a: Scalar, b: Scalar) -> Params:
            tangent = jax.jvp(response, (zero, zero), (a, b))[1]
            return jax.tree.map(lambda t, p: t.astype(p.dtype), tangent, point[1])

        if not split:
            return (along(one, one),)
        both = jax.vmap(along)(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]))
        return tuple(jax.tree.map(lambda x, i=i: x[i], both) for i in range(2))

    def _left_out(self, point: Point, speed: Point, correction: Params, length: int) -> Scalar:
        whole = self._full(point, speed, length, self._count)
        left = jax.tree.map(lambda w, u, c: w.astype(u.dtype) - u - c, whole, speed[1], correction)
        return _ratio(left, speed[1])

    def _judge(self, point: Point, speed: Point, correction: Params, length: int) -> None:
        """Refuse, or warn about, what cannot be trusted; nothing is known of it while it is traced."""
        ratio = _ratio(correction, speed[1])
        if not is_traced(ratio) and not any(map(is_traced, jax.tree.leaves(point))):
            judge(float(ratio), float(self._left_out(point, speed, correction, length)))


def _at_full_lag(tx: Transformation, point: Point, speed: Point, length: int, count: Count | None) -> Params:
    return lagged(tx, point, speed, length, count)(jnp.ones(()), jnp.ones(()))


def _ratio(tree: Params, update: Params) -> Scalar:
    """The relative length of a correction, zero where there is nothing to correct."""
    of, by = squared_norm(tree), squared_norm(update)
    return jnp.sqrt(of) / jnp.sqrt(jnp.maximum(by, jnp.finfo(by.dtype).tiny))


def _along_the_flow(slope: Callable, params: Params, velocity: Params, acceleration: Params) -> tuple[Params, Params]:
    """First and second time derivative of (gradient, parameters) along a flow with this velocity and acceleration."""

    def gradient_at(t: Scalar) -> Params:
        return slope(
            jax.tree.map(
                lambda p, v, a: p + t.astype(p.dtype) * v + (t * t / 2).astype(p.dtype) * a,
                params,
                velocity,
                acceleration,
            )
        )

    zero, one = jnp.zeros(()), jnp.ones(())
    first, second = jax.jvp(lambda t: jax.jvp(gradient_at, (t,), (one,))[1], (zero,), (one,))
    return (first, velocity), (second, acceleration)


def modified_field(
    tx: Transformation,
    loss: Loss,
    *,
    order: SupportsIndex = 1,
    history: Whole | None = None,
    count: Count | None = None,
    tol: float | None = None,
) -> ModifiedField:
    r"""The field that an optimizer follows, for any transformation with `init` and `update`.

    $$G = u_0 + \frac{d}{d\epsilon}
    U\big(\{(g, \theta) - \epsilon (k + \tfrac12)(H u_0, u_0)\}_k\big)\Big|_{\epsilon=0}$$

    Here U is the update after a history of gradients and parameters, k the number of steps ago (0 for the newest),
    and $u_0$ the update after a history of equal gradients. In words: an optimizer follows its own update rule,
    computed with gradients that are $k + \frac12$ steps late. The k is its memory, the 1/2 is Barrett & Dherin's
    regularizer. The time counts **steps**: the flow of G for the time 1 meets one step up to $O(h^3)$, and n steps up
    to $O(h^2)$, once the optimizer has forgotten its start. Order 0 is $u_0$, order 2 adds the next term ($O(h^4)$).

    Arguments: `tx`, e.g. `optax.adamw(1e-4, b2=0.95)`; `loss(params, *args) -> scalar`; `history`, the number of equal
    gradients, by default as many as it takes the transformation to forget up to `tol` (1e-11 in float64, 1e-6 in
    float32); `count`, the step (from 0) at which the field is asked, for schedules and for bias correction early in
    training, by default long after the start. The field takes `(params, *args)`, and `field.terms(params, *args)` gives
    its parts. A transformation that has no modified field is refused with a ValueError.

    Cost: one gradient, one Hessian-vector product and three updates for each step of the history. First order in the
    form of Cattaneo & Shigida, How Memory in Optimization Algorithms Implicitly Modifies the Loss, NeurIPS 2025.

    >>> import optax, jax.numpy as jnp
    >>> loss = lambda x: jnp.sum(x**2) / 2
    >>> field = modified_field(optax.sgd(0.1), loss)  # -h g - h^2/2 H g
    >>> round(float(field(jnp.array(1.0))), 6)
    -0.105
    >>> terms = modified_field(optax.sgd(0.1, momentum=0.5), loss).terms(jnp.array(1.0))
    >>> [round(float(x), 3) for x in terms[:3]]  # -s g, -s^2 beta/(1 - beta) H g, -s^2/2 H g with s = h/(1 - beta)
    [-0.2, -0.04, -0.02]
    """
    check_transformation(tx)
    order = check_order(order)
    if order > 2:
        raise ValueError(f"order must be 0, 1 or 2, but it is {order}: {INSTEAD} for higher orders.")
    count = check_history(history, count)
    return ModifiedField(tx, loss, order, None if history is None else int(history), count, tol)
