"""Sums in few kernels and samples of the parameters, against plain sums over every array."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import igr
from igr.monitoring.sums import sample, square
from igr.regimes.lanczos import dot


def tree(count, key=0, shape=(3, 2)):
    keys = jax.random.split(jax.random.key(key), count)
    return [jax.random.normal(k, shape, jnp.float32) for k in keys]


def reductions(function, argument):
    return str(jax.make_jaxpr(function)(argument)).count("reduce_sum")


def test_the_squared_norm_is_that_of_every_array_in_as_many_sums_as_there_are_groups():
    mixed = {"few": tree(3), "half": jnp.full((70,), 0.1, jnp.bfloat16), "many": tree(90)}
    assert float(square(mixed)) == pytest.approx(float(igr.squared_norm(mixed)), rel=1e-6)
    assert square(mixed).dtype == jnp.float32
    assert reductions(square, tree(3)) == reductions(square, tree(60)) == 1
    assert reductions(square, tree(90)) == 2
    assert reductions(igr.squared_norm, tree(60)) == 60  # what it replaces


def test_on_several_devices_no_long_vector_is_gathered(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    text = str(jax.make_jaxpr(square)(tree(5)))
    assert "concatenate" not in text
    assert float(square(tree(5))) == pytest.approx(float(igr.squared_norm(tree(5))), rel=1e-6)


def test_a_sample_is_exact_where_it_is_everything_and_close_where_it_is_not():
    a, b = ({"w": tree(1, key, (3, 3, 80, 100))[0], "v": tree(1, key + 9)[0]} for key in (1, 2))
    b = jax.tree.map(lambda x, y: x + y, a, b)
    for most in (None, 10**6):
        assert float(sample(a, most) @ sample(b, most)) == pytest.approx(float(dot(a, b)), rel=1e-5)
    thin = sample(a, 8192), sample(b, 8192)
    assert len(thin[0]) < 8192 + 6
    assert float(thin[0] @ thin[1]) == pytest.approx(float(dot(a, b)), rel=0.1)
    assert float(thin[0] @ thin[1]) / (72_000 / 4_500) < 0.5 * float(dot(a, b))  # without the weights


SHARDED = """
import jax, jax.numpy as jnp, optax, igr
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

def last(params):
    tx = igr.monitor(optax.sgd(0.1), sample=512)
    state = tx.init(params)
    step = jax.jit(lambda p, s: tx.update(jax.grad(lambda p: jnp.sum(jnp.sin(p["w"]) ** 2))(p), s, p))
    assert "f32[64,32]{1,0} all-gather" not in step.lower(params, state).compile().as_text()
    for _ in range(3):
        updates, state = step(params, state)
        params = optax.apply_updates(params, updates)
    return igr.readings(state)

w = jnp.cos(jnp.arange(2048.0)).reshape(64, 32)
v = jnp.cos(jnp.arange(2080.0)).reshape(520, 4)  # of which a sample cannot be shared out evenly
plain = last({"w": w})
for kind in (AxisType.Explicit, AxisType.Auto):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(kind,))
    found = last({"w": jax.device_put(w, NamedSharding(mesh, P("d")))})
    uneven = last({"w": jax.device_put(v, NamedSharding(mesh, P("d")))})
    assert abs(float(uneven["slope"]) - float(last({"w": v})["slope"])) < 1e-4, kind
    for name in ("slope", "q2", "cosine", "signal"):
        assert abs(float(found[name]) - float(plain[name])) < 1e-4 * abs(float(plain[name])), (kind, name)
print("agree")
"""


def test_sharded_parameters_give_the_same_readings_and_are_not_gathered():
    """On four devices, which need a process of their own; with explicit and with automatic shardings."""
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "agree", done.stderr[-2000:]
