"""The monitor in loops as people write them: Equinox, Flax NNX, mixed precision, restored states."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import QUADRATIC_START, mlp_loss, quadratic

import igr

H = 0.1


@pytest.fixture(autouse=True)
def _promotion():
    """Optax promotes implicitly; users' loops run with JAX's default."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def test_equinox(getkey):
    import equinox as eqx

    model = eqx.nn.MLP(2, "scalar", 6, 1, activation=jnp.tanh, key=getkey())
    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)))
    tx = optax.chain(optax.adam(1e-2), igr.monitor(every=2))
    state = tx.init(eqx.filter(model, eqx.is_inexact_array))

    def loss(model):
        return jnp.mean((jax.vmap(model)(x) - x[:, 0] * x[:, 1]) ** 2)

    @eqx.filter_jit
    def step(model, state):
        value, grads = eqx.filter_value_and_grad(loss)(model)
        arrays, rest = eqx.partition(model, eqx.is_inexact_array)
        updates, state = tx.update(
            grads, state, arrays, grad=grads, value=value, value_fn=lambda p: loss(eqx.combine(p, rest))
        )
        return eqx.apply_updates(model, updates), state, igr.slope(lambda p: loss(eqx.combine(p, rest)))(arrays)

    for _ in range(3):
        model, state, slope = step(model, state)
    now = igr.readings(state)
    assert float(now["slope"]) == pytest.approx(float(slope))
    assert all(np.isfinite(float(now[name])) for name in ("q2", "cosine", "sharpness", "q2_batch", "loss"))


def test_flax_nnx():
    nnx = pytest.importorskip("flax.nnx", reason="no test with Flax: flax is not installed")
    model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)), jnp.float32)
    graph, _ = nnx.split(model)
    tx = optax.chain(optax.sgd(H), igr.monitor(learning_rate=H, every=2))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    def loss(model):
        return jnp.mean((model(x)[:, 0] - x[:, 0]) ** 2)

    def pure(params):
        return loss(nnx.merge(graph, params))

    @nnx.jit
    def step(model, optimizer):
        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads, grad=grads, value=value, value_fn=pure)

    for _ in range(3):
        slope = igr.slope(pure)(nnx.state(model))
        step(model, optimizer)
    now = igr.readings(optimizer.opt_state)
    assert float(now["slope"]) == pytest.approx(float(slope), rel=1e-5)
    top = np.linalg.eigvalsh(jax.hessian(lambda w: jnp.mean((x @ w[:2] + w[2]) ** 2))(jnp.zeros(3, jnp.float32)))[-1]
    assert float(now["sharpness"]) == pytest.approx(float(top), rel=1e-4)


def test_mixed_precision_and_a_sink_inside_scan(getkey):
    """bfloat16 parameters: readings and memory in float32. A sink is called from inside one compiled scan."""
    loss, params, args = mlp_loss(getkey(), sizes=(4, 5, 3), dtype=jnp.bfloat16)
    calls = []
    tx = igr.monitor(optax.sgd(0.05), every=4, sink=lambda step, numbers: calls.append((step, numbers)), sink_every=3)

    def advance(carry, _):
        params, state = carry
        grads = jax.grad(loss)(params, *args)
        updates, state = tx.update(grads, state, params, value_fn=lambda p: loss(p, *args))
        return (optax.apply_updates(params, updates), state), None

    (_, state), _ = jax.jit(lambda c: jax.lax.scan(advance, c, length=8))((params, tx.init(params)))
    jax.effects_barrier()
    now = igr.readings(state)
    assert {value.dtype for value in now.values()} == {jnp.dtype("float32")}
    assert np.isfinite(float(now["sharpness"]))
    assert sorted(step for step, _ in calls) == [0, 3, 6]
    assert all(isinstance(number, float) for _, numbers in calls for number in numbers.values())


def test_an_overflow_that_the_loop_skips_leaves_no_trace_in_the_means():
    """Dynamic loss scaling: a gradient is infinite now and then, and its step is not taken."""
    tx = igr.monitor(optax.sgd(H))

    @jax.jit
    def step(x, state, factor):
        updates, state = tx.update(factor * jax.grad(quadratic)(x), state, x)
        return jnp.where(jnp.isfinite(factor), x + updates, x), state

    x, state = QUADRATIC_START, tx.init(QUADRATIC_START)
    for n in range(8):
        x, state = step(x, state, jnp.inf if n == 3 else 1.0)
    now = igr.readings(state)
    assert all(np.isfinite(float(now[name])) for name in ("signal", "r_ig_mean", "cosine_mean", "q2"))
    assert float(now["signal"]) > 0.9


def test_a_state_restored_as_numpy_arrays_goes_on_without_jit():
    tx = igr.monitor(optax.sgd(H))
    found = []
    for restore in (lambda state: state, lambda state: jax.tree.map(np.asarray, state)):
        state = tx.init(QUADRATIC_START)
        for _ in range(3):
            _, state = tx.update(QUADRATIC_START, restore(state), QUADRATIC_START)
        found.append({name: float(value) for name, value in igr.readings(state).items()})
    assert found[0] == pytest.approx(found[1], nan_ok=True)
