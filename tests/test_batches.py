"""The mean over batches: its precision, what it can be differentiated by, and where it runs."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import compilations, relative
from jax.experimental import sparse
from problems import mlp_loss

import igr


def squares(w, x):
    return jnp.mean((w * x) ** 2)


def test_low_precision_is_summed_in_a_wider_one():
    """In bfloat16 the sum of 2000 equal terms stops at 256, and the mean at a quarter of what it is."""
    w, x = jnp.bfloat16(1), jnp.ones(2000, jnp.bfloat16)
    whole = igr.full_batch(squares, 1)
    assert whole(w, x) == 1
    assert whole(w, x).dtype == jnp.bfloat16
    assert igr.regularizer(whole)(w, x) == 4


def test_a_million_batches_lose_nothing_in_float32():
    """Plain float32 sums are off by a percent there."""
    n = 1_000_000
    value = igr.full_batch(lambda w, x: w * jnp.mean(x), 1)
    x = jnp.full(n, 0.1, jnp.float32)
    assert abs(float(value(jnp.float32(1), x)) - float(np.float32(0.1))) < 1e-8
    naive, _ = jax.lax.scan(lambda total, x: (total + x, None), jnp.float32(0), x)
    assert abs(float(naive) / n - 0.1) > 5e-4


def test_it_can_be_differentiated_by_what_the_loss_closes_over_and_by_the_data(getkey):
    x, y = jax.random.normal(getkey(), (10, 3)), jax.random.normal(getkey(), (10,))
    w = jax.random.normal(getkey(), (3,))

    def loss(scale, w, x, y):
        return jnp.mean((jnp.tanh(scale * (x @ w)) - y) ** 2)

    def both(mean):
        def of(scale, w, x, y):
            return mean(lambda w, x, y: loss(scale, w, x, y))(w, x, y)

        return jax.jit(jax.value_and_grad(of, (0, 1, 2)))(jnp.array(0.7), w, x, y)

    ours, direct = both(lambda loss: igr.full_batch(loss, 4)), both(lambda loss: loss)
    assert relative(ours, direct) < 1e-12

    # second derivatives across: d/dscale of the squared gradient norm
    def norm(scale, mean):
        return igr.regularizer(mean(lambda w, x, y: loss(scale, w, x, y)))(w, x, y)

    ours, direct = (jax.grad(norm)(0.7, mean) for mean in (lambda f: igr.full_batch(f, 4), lambda f: f))
    assert ours == pytest.approx(float(direct), rel=1e-10)


def test_a_second_eager_call_compiles_nothing(getkey):
    loss, params, data = mlp_loss(getkey(), sizes=(3, 4, 2), batch=12)
    gradient = jax.grad(igr.full_batch(loss, 5))
    gradient(params, *data)
    elsewhere = jax.tree.map(lambda p: 2 * p, params)
    assert compilations(lambda: gradient(elsewhere, *data)) == 0


def test_numpy_counts_and_bad_ones():
    assert igr.full_batch(squares, np.int64(2))(jnp.array(2.0), jnp.ones(3)) == 4
    with pytest.raises(TypeError, match="batch_size must be a whole number, not float"):
        igr.full_batch(squares, 2.0)
    with pytest.raises(TypeError, match="batch_size must be a whole number, not bool"):
        igr.full_batch(squares, True)


def test_sparse_data_are_not_split():
    """The leaves of a sparse array are no examples: 16 entries in four parts would be four other matrices."""
    data = sparse.BCOO.fromdense(jnp.eye(16))

    def loss(w, x):
        return jnp.mean((x @ w) ** 2)

    for function in (igr.full_batch(loss, 4), igr.value_and_grad(loss, 0.1, microbatches=4)):
        with pytest.raises(TypeError, match="which a sparse BCOO does not allow: make it dense"):
            function(jnp.ones(16), data)
    assert igr.value_and_grad(loss, 0.1)(jnp.ones(16), data)[0] == 1


MESH = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import igr
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", True)

def loss(w, x, y):
    return jnp.mean((jnp.tanh(x @ w) - y) ** 2)

keys = jax.random.split(jax.random.key(0), 3)
w, x, y = (jax.random.normal(k, s) for k, s in zip(keys, [(5,), (32, 5), (32,)]))
off = lambda a, b: float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))
exact = igr.value_and_grad(loss, 0.1)(w, x, y)[1]
plain = jax.grad(loss)(w, x, y)
each = np.mean([igr.value_and_grad(loss, 0.1)(w, x[i:i+4], y[i:i+4])[1] for i in range(0, 32, 4)], axis=0)

for kind in (AxisType.Auto, AxisType.Explicit):
    for n in (1, 2, 8):
        mesh = jax.make_mesh((n,), ("data",), axis_types=(kind,), devices=jax.devices()[:n])
        with jax.set_mesh(mesh):
            p = jax.device_put(w, NamedSharding(mesh, P()))
            a, b = (jax.device_put(v, NamedSharding(mesh, P("data"))) for v in (x, y))
            for options in ({}, {"microbatches": 2}):
                for method, within in (("exact", 1e-12), ("forward", 1e-6)):
                    got = jax.jit(igr.value_and_grad(loss, 0.1, method, **options))(p, a, b)[1]
                    assert off(np.asarray(got), exact) < within, (kind, n, options, method)
            if kind == AxisType.Explicit and n == 2:
                sharded = jax.device_put(jnp.ones(4), NamedSharding(mesh, P("data")))
                try:
                    igr.flow(lambda p: -p, sharded, [0.0, 1.0])
                except ValueError as error:
                    assert "sharded over an explicit mesh" in str(error)
                else:
                    raise AssertionError("not refused")
            for size in (8, 5):
                assert off(np.asarray(jax.jit(jax.grad(igr.full_batch(loss, size)))(p, a, b)), plain) < 1e-12

mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
def mapped(f, **kwargs):
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P(), **kwargs))

for check in (True, False):
    for method, within in (("exact", 1e-12), ("forward", 1e-6), ("central", 1e-6)):
        def step(w, x, y, **options):
            (v, n2), g = igr.value_and_grad(loss, 0.1, method, axis="data", with_norm=True, **options)(w, x, y)
            return v, n2, g
        v, n2, g = mapped(step, check_vma=check)(w, x, y)
        assert off(g, exact) < within, (check, method)
        assert abs(float(v - loss(w, x, y))) < 1e-12 and abs(float(n2 - plain @ plain)) < 1e-12
        v, n2, g = mapped(lambda *a: step(*a, penalize="each"), check_vma=check)(w, x, y)
        assert off(g, each) < within and off(g, exact) > 1e-3, (check, method, off(g, each))
    # micro-batches of devices
    both = lambda *a: igr.value_and_grad(loss, 0.1, axis="data", microbatches=2)(*a)[1]
    assert off(mapped(both, check_vma=check)(w, x, y), exact) < 1e-12
    local = lambda *a: igr.value_and_grad(loss, 0.1, "forward")(*a)[1]
    if not check:
        try:
            mapped(local, check_vma=False)(w, x, y)
        except ValueError as error:
            assert "pass axis='data'" in str(error) and chr(10) not in str(error)
        else:
            raise AssertionError("not refused")

# parameters sharded over the axis, gathered by the loss: the norm is that of all, and the radius the same everywhere
wide = jax.random.normal(keys[0], (8,))
x8 = jax.random.normal(keys[1], (32, 8))
def sharded(w, x, y):
    return loss(jax.lax.all_gather(w, "data", tiled=True), x, y)
def on_shards(f):
    specs = dict(in_specs=(P("data"), P("data"), P("data")), out_specs=(P(), P("data")))
    return jax.jit(jax.shard_map(f, mesh=mesh, **specs))
for method in ("exact", "forward", "central"):
    def step(w, x, y):
        (v, n2), g = igr.value_and_grad(sharded, 0.1, method, axis="data", with_norm=True, radius=0.1)(w, x, y)
        return n2, g
    n2, g = on_shards(step)(wide, x8, y)
    wanted = igr.value_and_grad(loss, 0.1, method, with_norm=True, radius=0.1)(wide, x8, y)
    assert off(g, wanted[1]) < 1e-12 and abs(float(n2 - wanted[0][1])) < 1e-12, method
# by default too: the length of small parameters is their norm, and that is not the norm of a shard
kinked = lambda w, x, y: jnp.mean(jax.nn.relu(x @ w - 0.01 * y))
small, x32, y32 = (v.astype(jnp.float32) for v in (wide / 100, x8, y))
over = lambda w, x, y: kinked(jax.lax.all_gather(w, "data", tiled=True), x, y)
_, g = on_shards(igr.value_and_grad(over, 1.0, "central", axis="data"))(small, x32, y32)
assert off(g, igr.value_and_grad(kinked, 1.0, "central")(small, x32, y32)[1]) < 1e-4

# a network over the axis "model": its devices share the loss, so the axis must be named
square = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
def tensor(w, x, y):
    return jnp.mean((jnp.tanh(jax.lax.psum(x @ w, "model")) - y) ** 2)
def tensor_parallel(axis):
    step = lambda w, x, y: igr.value_and_grad(tensor, 0.1, "forward", radius=0.1, axis=axis)(w, x, y)[1]
    specs = dict(in_specs=(P("model"), P("data", "model"), P("data")), out_specs=P("model"))
    return jax.jit(jax.shard_map(step, mesh=square, **specs))(wide, x8, y)
wanted = igr.value_and_grad(loss, 0.1, "forward", radius=0.1)(wide, x8, y)[1]
assert off(tensor_parallel(("data", "model")), wanted) < 1e-12
try:
    tensor_parallel("data")
except ValueError as error:
    assert "pass axis=('data', 'model')" in str(error)
else:
    raise AssertionError("not refused")
# networks of their own along "model", each trained over "data"
own = jax.shard_map(
    lambda w, x, y: igr.value_and_grad(loss, 0.1, axis="data")(w[0], x, y)[1][None],
    mesh=square, in_specs=(P("model"), P("data"), P("data")), out_specs=P("model"),
)
pair = jnp.stack([w, -w])
assert off(jax.jit(own)(pair, x, y), jnp.stack([igr.value_and_grad(loss, 0.1)(v, x, y)[1] for v in pair])) < 1e-12
try:
    on_shards(lambda w, x, y: igr.value_and_grad(sharded, 0.1, "forward")(w, x, y))(wide, x8, y)
except ValueError as error:
    assert "the gradient differs along the mesh axis 'data'" in str(error)
else:
    raise AssertionError("not refused")
try:
    on_shards(lambda w, x, y: igr.value_and_grad(sharded, 0.1, axis="data", penalize="each")(w, x, y))(wide, x8, y)
except ValueError as error:
    assert "sharded over it" in str(error)
else:
    raise AssertionError("not refused")
print("done")
"""


def test_meshes_of_one_two_and_eight_devices():
    """Data over devices, `Auto` and `Explicit`, and `shard_map`: in a process of its own, which has eight devices."""
    done = subprocess.run([sys.executable, "-c", MESH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "done"
