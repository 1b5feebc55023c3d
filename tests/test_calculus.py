"""Derivatives on pytrees, and the gradient over a whole data set."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import relative
from problems import GENERIC_START, LOSSES, generic, mlp_loss

import igr


@pytest.mark.parametrize(("name", "loss", "start"), LOSSES, ids=[case[0] for case in LOSSES])
def test_hvp_against_the_dense_hessian(name, loss, start):
    flat, unravel = jax.flatten_util.ravel_pytree(start)
    hessian = jax.hessian(lambda x: loss(unravel(x)))(flat)
    v = jnp.sin(jnp.arange(flat.size, dtype=float))
    ours, _ = jax.flatten_util.ravel_pytree(igr.hvp(loss)(start, unravel(v)))
    assert jnp.allclose(ours, hessian @ v, atol=1e-12)


def test_directional_derivatives_against_dense_ones():
    field = igr.gradient_field(generic)
    u, v = jnp.array([0.3, -1.0]), jnp.array([0.9, 0.2])
    first, second = jax.jacobian(field), jax.jacobian(jax.jacobian(field))
    assert jnp.allclose(igr.derivative(field, GENERIC_START), field(GENERIC_START))
    assert jnp.allclose(igr.derivative(field, GENERIC_START, u), first(GENERIC_START) @ u)
    dense = jnp.einsum("ijk,j,k->i", second(GENERIC_START), u, v)
    assert jnp.allclose(igr.derivative(field, GENERIC_START, u, v), dense)


def test_directions_are_held_fixed():
    """f''(f, f) is not (f'f)'f."""
    field = igr.gradient_field(generic)
    f = field(GENERIC_START)
    bushy = igr.derivative(field, GENERIC_START, f, f)
    along = jax.jvp(lambda x: igr.derivative(field, x, field(x)), (GENERIC_START,), (f,))[1]
    assert not jnp.allclose(bushy, along)
    tall = igr.derivative(field, GENERIC_START, igr.derivative(field, GENERIC_START, f))
    assert jnp.allclose(along, bushy + tall)


@pytest.mark.parametrize("size", [1, 7, 10, 24, 100])
def test_full_batch_equals_one_pass_over_everything(getkey, size):
    loss, params, data = mlp_loss(getkey(), batch=24, dtype=jnp.float64)
    whole = igr.full_batch(loss, size)
    v = jax.tree.map(jnp.cos, params)

    @partial(jax.jit, static_argnums=0)
    def everything(loss, params, *data):
        return loss(params, *data), jax.grad(loss)(params, *data), igr.hvp(loss)(params, v, *data)

    for ours, direct in zip(everything(whole, params, *data), everything(loss, params, *data), strict=True):
        assert relative(ours, direct) < 1e-12
    assert igr.regularizer(whole)(params, *data) == pytest.approx(float(igr.regularizer(loss)(params, *data)))


def test_the_gradient_is_averaged_before_it_is_squared(getkey):
    """The mean of the batches' own R is larger, by the variance of their gradients."""
    loss, params, (x, labels) = mlp_loss(getkey(), batch=24, dtype=jnp.float64)
    R = igr.regularizer(igr.full_batch(loss, 4))(params, x, labels)
    batches = [igr.regularizer(loss)(params, x[i : i + 4], labels[i : i + 4]) for i in range(0, 24, 4)]
    assert np.mean(batches) > 1.5 * R


def test_full_batch_makes_one_pass_for_value_and_gradient():
    calls = []

    def loss(w, x):
        jax.debug.callback(lambda _: calls.append(1), x[0])
        return jnp.mean((w * x - 1) ** 2)

    jax.block_until_ready(jax.value_and_grad(igr.full_batch(loss, 5))(jnp.array(2.0), jnp.arange(20.0)))
    jax.effects_barrier()
    assert len(calls) == 4


def test_full_batch_needs_memory_for_one_batch_only():
    """The temporaries of the compiled gradient do not grow with the data set; those of one pass do."""

    def loss(w, x):
        return jnp.mean(jnp.tanh(jnp.tanh(x @ w) @ w) ** 2)

    def temporaries(function, n):
        w, x = (jax.ShapeDtypeStruct(s, jnp.float32) for s in [(64, 64), (n, 64)])
        return jax.jit(jax.grad(function)).lower(w, x).compile().memory_analysis().temp_size_in_bytes

    whole = igr.full_batch(loss, 64)
    # the reshaped data set itself may be counted: allow it once, not the activations
    growth = temporaries(whole, 64 * 64) - temporaries(whole, 64 * 16)
    assert growth <= 64 * 48 * 64 * 4
    assert temporaries(loss, 64 * 64) - temporaries(loss, 64 * 16) > 2 * growth


def test_full_batch_takes_integer_labels_and_maps(getkey):
    def loss(w, x, label):
        return jnp.mean(-jnp.take_along_axis(jax.nn.log_softmax(x @ w), label[:, None], axis=1))

    x, label = jax.random.normal(getkey(), (10, 3)), jnp.arange(10) % 4
    stack = jax.random.normal(getkey(), (2, 3, 4))
    ours = jax.jit(jax.vmap(jax.grad(igr.full_batch(loss, 4)), (0, None, None)))(stack, x, label)
    assert jnp.allclose(ours[1], jax.grad(loss)(stack[1], x, label))


def test_full_batch_refuses_what_it_cannot_do():
    whole = igr.full_batch(lambda w, x, y: jnp.mean((w * x - y) ** 2), 4)
    w = jnp.array(1.0)
    with pytest.raises(ValueError, match="same, non-empty leading axis"):
        whole(w, jnp.zeros(8), jnp.zeros(7))
    with pytest.raises(ValueError, match="same, non-empty leading axis"):
        whole(w, jnp.zeros(0), jnp.zeros(0))
    with pytest.raises(ValueError, match="batch_size must be at least 1, but it is 0"):
        igr.full_batch(generic, 0)


def test_sums_are_float32_at_least():
    """257 ones in bfloat16 sum to 256 there; and half-precision squares would underflow."""
    ones = jnp.ones(257, jnp.bfloat16)
    assert float(igr.squared_norm(ones)) == 257.0
    assert igr.squared_norm({"a": ones, "b": jnp.ones(2)}).dtype == jnp.float64
    moved = igr.calculus.add_scaled(ones, 0.5, ones)
    assert moved.dtype == jnp.bfloat16
    assert float(moved[0]) == 1.5
