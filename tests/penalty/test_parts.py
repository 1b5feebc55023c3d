"""Micro-batches: the parts of a step are the whole of it, in flat memory."""

import jax
import jax.numpy as jnp
import optax
import pytest
from helpers import relative
from problems import mlp_loss

import igr

METHODS = ["exact", "forward", "central"]


def test_micro_batches_are_the_unsplit_batch_or_each_part(getkey):
    loss, params, args = mlp_loss(getkey(), batch=24, dtype=jnp.float64)
    both = {}
    for method, within in zip(METHODS, (1e-12, 1e-6, 1e-6), strict=True):
        whole = igr.value_and_grad(loss, 0.3, method, with_norm=True)(params, *args)
        mean = jax.jit(igr.value_and_grad(loss, 0.3, method, with_norm=True, microbatches=4))(params, *args)
        assert relative(mean, whole) < within
        each = jax.jit(igr.value_and_grad(loss, 0.3, method, microbatches=4, penalize="each"))(params, *args)[1]
        both[method] = jax.tree.map(jnp.subtract, each, mean[1])

    def variance(params):
        parts = [jax.grad(loss)(params, *(a[i : i + 6] for a in args)) for i in range(0, 24, 6)]
        mean = jax.tree.map(lambda *g: sum(g) / 4, *parts)
        return sum(igr.squared_norm(jax.tree.map(jnp.subtract, g, mean)) for g in parts) / 4

    wanted = jax.tree.map(lambda g: 0.3 * g, jax.jit(jax.grad(variance))(params))
    assert relative(both["exact"], wanted) < 1e-10
    assert relative(both["forward"], wanted) < 1e-5
    assert float(igr.squared_norm(wanted)) > 1e-6


def test_micro_batches_keep_memory_flat_share_keywords_and_stack_aux():
    def loss(w, x, *, scale):
        out = jnp.tanh(jnp.tanh(x @ w) @ w)
        return scale * jnp.mean(out**2), jnp.mean(out)

    def temporaries(count):
        shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in [(64, 64), (64 * count, 64)]]
        step = jax.jit(lambda w, x: igr.value_and_grad(loss, 0.1, "forward", True, microbatches=count)(w, x, scale=2.0))
        with jax.numpy_dtype_promotion("standard"):
            return step.lower(*shapes).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(16) - temporaries(4) <= 64 * 64 * 4 * 16  # the reshaped batch may be counted, no activations
    w, x = jnp.eye(4), jnp.arange(24.0).reshape(6, 4) / 20
    (value, aux), _ = igr.value_and_grad(loss, 0.1, "forward", True, microbatches=3)(w, x, scale=2.0)
    assert value == pytest.approx(float(loss(w, x, scale=2.0)[0]))
    assert aux.shape == (3,)
    with pytest.raises(ValueError, match="microbatches = 4 does not divide the batch of 6"):
        igr.value_and_grad(loss, 0.1, has_aux=True, microbatches=4)(w, x, scale=2.0)
    with pytest.raises(ValueError, match="there are none: pass the batch by position"):
        igr.value_and_grad(loss, 0.1, has_aux=True, microbatches=2)(w, x=x, scale=2.0)
    with pytest.raises(ValueError, match="pass what is no data by name"):
        igr.value_and_grad(lambda w, x, y: jnp.sum(w), 0.1, microbatches=2)(w, x, jnp.ones(4))


def test_accumulation_with_optax(getkey):
    """`optax.MultiSteps` over four penalized steps is one step on the mean of the four: "each", by itself."""
    loss, params, args = mlp_loss(getkey(), batch=24, dtype=jnp.float64)
    once = igr.value_and_grad(loss, 0.3, microbatches=4, penalize="each")(params, *args)[1]
    wanted = optax.apply_updates(params, jax.tree.map(lambda g: -0.1 * g, once))
    gathering = optax.MultiSteps(optax.sgd(0.1), 4)
    got, state = params, gathering.init(params)
    with jax.numpy_dtype_promotion("standard"):
        for i in range(0, 24, 6):
            grads = igr.value_and_grad(loss, 0.3)(params, *(a[i : i + 6] for a in args))[1]
            updates, state = gathering.update(grads, state, got)
            got = optax.apply_updates(got, updates)
    assert relative(got, wanted) < 1e-8  # the running mean of optax 0.2.8 is good to 3e-8
    parts = [igr.value_and_grad(loss, 0.3)(params, *(a[i : i + 6] for a in args))[1] for i in range(0, 24, 6)]
    assert relative(once, jax.tree.map(lambda *x: sum(x) / 4, *parts)) < 1e-12
