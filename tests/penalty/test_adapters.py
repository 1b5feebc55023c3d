"""Two lines in other people's scripts, which have the shape of Equinox's CNN example and Flax's MNIST example."""

import difflib
from pathlib import Path

import equinox as eqx
import equinox_script
import flax_script
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import relative

import igr
import igr.nnx

KEY = jax.random.key(0)
LABELS = jnp.arange(8) % 3


@pytest.fixture(autouse=True)
def promotion():
    """The libraries asked about here do not keep to the strict rules of the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


IMAGES = jax.random.normal(KEY, (8, 1, 6, 6), jnp.float32)


def run(script, *changes):
    """What `main` of a script gives with some of its lines replaced; each replacement must be one line of it."""
    before = Path(script.__file__).read_text()
    after = before
    for old, new in changes:
        assert after.count(old) == 1
        after = after.replace(old, new)
    lines = [line for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0) if line[:1] == "+"][1:]
    assert len(lines) == len(changes)
    scope = {"__name__": script.__name__}
    exec(compile(after, script.__file__, "exec"), scope)
    return scope["main"]()


def bits(x):
    x = jnp.asarray(x)
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x).tobytes()


def same_bits(a, b):
    return [*map(bits, jax.tree.leaves(a))] == [*map(bits, jax.tree.leaves(b))]


def test_equinoxs_script_adopts_the_penalty_by_two_lines():
    def adopted(options):
        line = "loss_value, grads = {}(model, x, y)"
        plain, ours = (
            line.format(f) for f in ("eqx.filter_value_and_grad(loss)", f"igr.filter_value_and_grad(loss, {options})")
        )
        return run(equinox_script, ("import equinox as eqx\n", "import equinox as eqx\nimport igr\n"), (plain, ours))

    plain = run(equinox_script)
    assert same_bits(adopted("0.0"), plain)
    penalized = adopted('0.3, "forward"')
    assert not same_bits(penalized[0], plain[0])
    assert np.isfinite(penalized[2][-2])


def test_equinox_models_as_they_are():
    model, loss = equinox_script.CNN(KEY), equinox_script.loss
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    by_hand = jax.jit(igr.value_and_grad(lambda a: loss(eqx.combine(a, rest), IMAGES, LABELS), 0.3))(arrays)[1]
    ours = eqx.filter_jit(igr.filter_value_and_grad(loss, 0.3))(model, IMAGES, LABELS)[1]
    assert relative(eqx.filter(ours, eqx.is_array), by_hand) < 1e-6
    parts = eqx.filter_jit(igr.filter_value_and_grad(loss, 0.3, microbatches=4))(model, IMAGES, LABELS)[1]
    assert relative(eqx.filter(parts, eqx.is_array), by_hand) < 1e-5


def test_the_state_of_equinoxs_batch_norm_is_that_of_the_unperturbed_pass():
    class Net(eqx.Module):
        linear: eqx.nn.Linear
        norm: eqx.nn.BatchNorm

        def __init__(self, key):
            self.linear = eqx.nn.Linear(36, 3, key=key, dtype=jnp.float32)
            self.norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="batch", dtype=jnp.float32)

        def __call__(self, x, state):
            return self.norm(jnp.tanh(self.linear(jnp.ravel(x))), state)

    def loss(model, state, x, y):
        mapped = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        out, state = mapped(x, state)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(out), y[:, None], 1)), state

    model, state = eqx.nn.make_with_state(Net)(KEY)

    def step(value_and_grad):
        return eqx.filter_jit(value_and_grad)(model, state, IMAGES, LABELS)

    (value, after), grads = step(eqx.filter_value_and_grad(loss, has_aux=True))
    (ours, ours_after), ours_grads = step(igr.filter_value_and_grad(loss, 0.3, "forward", has_aux=True))
    assert same_bits((ours, jax.tree.leaves(ours_after)), (value, jax.tree.leaves(after)))
    assert relative(eqx.filter(ours_grads, eqx.is_array), eqx.filter(grads, eqx.is_array)) > 1e-3
    assert jax.tree.structure(after) == jax.tree.structure(ours_after)


def test_flaxs_script_with_batch_norm_and_dropout_adopts_the_penalty_by_two_lines():
    def adopted(mu):
        line = "grad_fn = {}has_aux=True)"
        plain, ours = (
            line.format(f) for f in ("nnx.value_and_grad(loss_fn, ", f"igr.nnx.value_and_grad(loss_fn, {mu}, ")
        )
        return run(flax_script, ("import jax\n", "import igr.nnx\nimport jax\n"), (plain, ours))

    plain = run(flax_script)
    assert same_bits(adopted("0.0"), plain)
    penalized = adopted('0.3, "forward"')
    assert not same_bits(penalized[0], plain[0])
    assert all(np.isfinite(m["loss"]) for m in penalized[1])


def net_and_loss():
    model = flax_script.CNN(rngs=nnx.Rngs(0))
    return model, {"image": jnp.moveaxis(IMAGES, 1, -1), "label": LABELS}


def test_the_state_of_flax_is_that_of_the_unperturbed_pass():
    (once, batch), (twice, _), loss = net_and_loss(), net_and_loss(), flax_script.loss_fn
    keys = [nnx.Rngs(1), nnx.Rngs(1)]
    nnx.jit(loss)(once, keys[0], batch)
    step = nnx.jit(igr.nnx.value_and_grad(loss, 0.3, "forward", True, with_share=True))
    (_, (logits, share)), grads = step(twice, keys[1], batch)
    assert relative(nnx.state(twice, nnx.BatchStat), nnx.state(once, nnx.BatchStat)) < 1e-6
    assert same_bits(nnx.state(keys[0]), nnx.state(keys[1]))  # moved on once, whatever the number of passes
    assert logits.shape == (8, 3)
    assert share > 0
    graph, params, rest = nnx.split(net_and_loss()[0], nnx.Param, ...)

    def pure(params):
        return loss(nnx.merge(graph, params, rest, copy=True), nnx.Rngs(1), batch)[0]

    assert relative(grads, jax.jit(igr.value_and_grad(pure, 0.3, "forward"))(params)[1]) < 1e-4
    with pytest.raises(TypeError, match=r"must be an nnx\.Module"):
        igr.nnx.value_and_grad(loss, 0.1)(jnp.ones(2))
