"""With a history that bends, one more order."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optimizers.orders import HISTORY, START, adamish, loss, runge_kutta

import igr


def one_step_error(make, order, h, history=HISTORY):
    """The distance of one step from the flow of the field for the time 1, the optimizer being on that flow before.

    Its memory is that of the flow, `history` steps back; a memory from anywhere else would be forgotten only as fast.
    """
    field = jax.jit(lambda h, p: igr.optimizers.modified_field(make(h), loss, order=order, history=history)(p))

    @jax.jit
    def step(h, path):
        tx = make(h)
        memory = tx.init(jax.tree.map(lambda x: x[0], path))

        def feed(memory, params):
            updates, memory = tx.update(jax.grad(loss)(params), memory, params)
            return memory, updates

        _, updates = jax.lax.scan(feed, memory, path)
        return jax.tree.map(lambda p, u: p[-1] + u[-1], path, updates)

    path = [START]
    for _ in range(history - 1):
        path.append(runge_kutta(lambda p: field(h, p), path[-1], -1.0, 1))
    stepped = step(h, jax.tree.map(lambda *p: jnp.stack(p[::-1]), *path))
    flowed = runge_kutta(lambda p: field(h, p), START, 1.0, 1)
    return float(
        np.sqrt(sum(jnp.sum((a - b) ** 2) for a, b in zip(*map(jax.tree.leaves, (stepped, flowed)), strict=True)))
    )


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_the_local_order_is_three_with_the_first_and_four_with_the_second_correction(name):
    make = {"momentum": lambda h: optax.sgd(h, momentum=0.4), "adamw": adamish(optax.adamw, weight_decay=0.5)}[name]
    for order in (1, 2):
        coarse, fine = (one_step_error(make, order, h) for h in (2e-3, 1e-3))
        assert np.log2(coarse / fine) == pytest.approx(order + 2, abs=0.1)
