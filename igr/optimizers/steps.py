"""An optimizer as a step map, and the steps it takes to forget how it began."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from igr._checks import is_whole
from igr._typing import Field, Loss, Params, Whole
from igr.calculus import add_scaled, gradient
from igr.optimizers.lag import Transformation, check_transformation

State = tuple[Params, Any]  # parameters and the memory of the optimizer


def step(tx: Transformation, loss: Loss) -> Callable[..., State]:
    r"""One step of an optimizer as a map of its whole state.

    $$(\theta, m) \mapsto (\theta + u, m'), \qquad (u, m') = \mathtt{tx.update}(\nabla E(\theta), m, \theta)$$

    It is what `igr.descend` iterates and what `igr.step_field` takes, with `of=lambda state: state[0]`. The arguments
    of the loss follow the state. Start from `(params, tx.init(params))`, and see `settle`.

    >>> import igr, optax, jax.numpy as jnp
    >>> tx = optax.sgd(0.5, momentum=0.5)
    >>> start = jnp.array(1.0)
    >>> path, memory = igr.descend(step(tx, lambda x: x**2 / 2), (start, tx.init(start)), 2)
    >>> path.tolist()
    [1.0, 0.5, 0.0]
    """
    check_transformation(tx)
    slope = gradient(loss)

    def advance(state: State, *args: object, **kwargs: object) -> State:
        params, memory = state
        updates, memory = tx.update(slope(params, *args, **kwargs), memory, params)
        return add_scaled(params, 1.0, updates), memory

    return advance


def settle(step: Callable[[State], State], state: State, steps: Whole, field: Field | None = None) -> State:
    r"""The state after the first `steps` steps, when the optimizer has forgotten how it began.

    An optimizer that starts without memory takes other steps at first, and follows its modified field only after
    them: after about `field.history_length(params)` of them nothing of the start is left. With `field` (the modified
    field, or $u_0$) they begin as far back as that many steps go, $\theta - n\,G(\theta)$ with n = `steps`, and end
    within $O(h^2)$ of the parameters that were given; distances at different h then belong to nearly the same start.

    >>> import optax, jax.numpy as jnp
    >>> tx, loss = optax.sgd(0.001, momentum=0.5), lambda x: x**2 / 2
    >>> start = jnp.array(1.0)
    >>> params, memory = settle(step(tx, loss), (start, tx.init(start)), 50)
    >>> round(float(params), 3)  # about e^{-0.1}
    0.906
    >>> params, memory = settle(step(tx, loss), (start, tx.init(start)), 50, field=lambda x: -0.002 * x)
    >>> round(float(params), 3)
    0.997
    """
    if not is_whole(steps, 0):
        raise ValueError(f"steps must be a whole number, zero or more, but it is {steps!r}.")
    params, memory = jax.tree.map(jnp.asarray, state)
    if field is not None:
        params = add_scaled(params, -float(steps), field(params))
    return jax.lax.fori_loop(0, int(steps), lambda _, s: step(s), (params, memory))
