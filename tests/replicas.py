"""Small stacks of networks for the tests of the engine and of the measurements."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import igr.lab.training.engine
from igr.lab.models.mlp import mlp
from igr.lab.training.engine import Engine, Images

MODEL = mlp(12, depth=2, inputs=16, classes=3, activation="tanh")  # smooth, so that differences approach derivatives


def images(n=50, seed=0, classes=3, shape=(4, 4, 1)):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n).astype(np.int32)
    x = (rng.integers(0, 128, (n, *shape)) + 40 * y[:, None, None, None]).astype(np.uint8)
    return Images(jnp.asarray(x), jnp.asarray(y), 255.0)


@functools.cache
def engine_of(model, batch, replicas, chunk, **settings):
    """One engine for all tests that need the same: it has no state but its compiled programs."""
    return Engine(model, images(), batch, replicas=replicas, **settings)


def train(rates, mus=None, seeds=None, steps=24, batch=8, cuts=(), model=MODEL, rhos=(), **settings):
    mus, seeds = mus or [0.0] * len(rates), seeds or [0] * len(rates)
    engine = engine_of(model, batch, len(rates), igr.lab.training.engine.FULL_BATCH_CHUNK, **settings)
    chosen = engine.rates(rates, mus, rhos)
    stack, here = engine.init(seeds, chosen), 0
    for stop in (*cuts, steps):
        stack = engine.advance(stack, chosen, seeds, here, stop)
        here = stop
    return stack


def batches(seed, steps, n=50, batch=8):
    """The batches by their definition: a permutation for each epoch, keyed by seed and epoch; the rest is dropped."""
    for epoch in range(steps // (n // batch) + 1):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
        order = np.asarray(jax.random.permutation(key, jnp.arange(n, dtype=jnp.int32)))
        yield from order[: n // batch * batch].reshape(-1, batch)


def replica(stack, i):
    return jax.tree.map(lambda leaf: np.asarray(leaf[i]), stack)


def close(a, b, rtol=1e-5, atol=1e-6):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def same(a, b):
    return all(
        (np.asarray(x) == np.asarray(y)).all() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
