import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from replicas import MODEL, batches, close, engine_of, images, replica, same, train

import igr
import igr.lab.training.engine
from igr.lab.models.mlp import mlp
from igr.lab.models.model import Model
from igr.lab.training.engine import Engine
from igr.lab.training.gradients import batch_loss, cross_entropy, sam


def test_a_stack_equals_single_runs():
    rates, seeds = [0.5, 0.1, 0.1], [0, 0, 7]
    stack = train(rates, seeds=seeds)
    for i in range(3):
        alone = train(rates[i : i + 1], seeds=seeds[i : i + 1])
        close(replica(stack, i), replica(alone, 0))
    assert not np.allclose(stack.params[0]["w"][0], stack.params[0]["w"][1], rtol=1e-3)
    assert not np.allclose(stack.params[0]["w"][1], stack.params[0]["w"][2], rtol=1e-3)


def test_without_penalty_it_is_a_hand_written_optax_loop_bit_for_bit():
    """Vmapped as the engine is: XLA may round a product of single matrices otherwise than one of stacked matrices."""
    data, steps, rates, seeds = images(), 24, np.array([0.2, 0.05], np.float32), [3, 4]

    @jax.jit
    @jax.vmap
    def step(params, rate, index):
        def loss(p):
            x = data.x[index].astype(jnp.float32) * np.float32(1 / 255)
            logits = MODEL.apply(p, (), x, True)[0]
            return cross_entropy(logits, data.y[index]).mean()

        optimizer = optax.sgd(rate)
        updates, _ = optimizer.update(jax.grad(loss)(params), optimizer.init(params))
        return optax.apply_updates(params, updates)

    starts = [MODEL.init(jax.random.fold_in(jax.random.key(seed), 0))[0] for seed in seeds]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    for _, *index in zip(range(steps), *(batches(seed, steps) for seed in seeds), strict=False):
        params = step(params, rates, jnp.asarray(np.stack(index)))
    assert same(train([0.2, 0.05], seeds=seeds, steps=steps).params, params)


def test_cutting_a_training_up_changes_no_bit():
    whole = train([0.3, 0.05])
    assert same(whole, train([0.3, 0.05], cuts=(1, 2, 6, 7, 20)))
    assert not same(whole, train([0.3, 0.05], steps=18))


@pytest.mark.parametrize(("method", "batch"), [("exact", 8), ("forward", 8), ("central", 8), ("exact", 0)])
def test_every_method_of_the_penalty_trains_on_the_penalized_loss(method, batch):
    data, mus = images(), [0.0, 0.2]
    stack = train([0.1, 0.1], mus=mus, steps=2, batch=batch, method=method, precision="highest")
    for i, mu in enumerate(mus):
        params, _ = MODEL.init(jax.random.fold_in(jax.random.key(0), 0))

        def penalized(p, index, mu=mu):
            x = data.x[index].astype(jnp.float32) * np.float32(1 / 255)
            loss = lambda q: batch_loss(MODEL)(q, (), x, data.y[index])[0]  # noqa: E731
            return loss(p) + np.float32(mu) * igr.squared_norm(jax.grad(loss)(p))

        for _, index in zip(range(2), batches(0, 2), strict=False):
            grads = jax.grad(penalized)(params, jnp.asarray(index) if batch else jnp.arange(50))
            params = jax.tree.map(lambda p, g: p - np.float32(0.1) * g, params, grads)
        close(replica(stack, i).params, params, rtol=2e-3, atol=2e-5)
    if batch:
        close(replica(stack, 0), replica(train([0.1], steps=2, precision="highest"), 0))  # mu = 0 pays no penalty
    assert not np.allclose(replica(stack, 0).params[0]["w"], replica(stack, 1).params[0]["w"], atol=1e-5)


@pytest.mark.parametrize("batch", [8, 0])
def test_the_radius_is_that_of_the_forward_difference(batch):
    """One step by hand, g + 2 mu [grad E(theta + r g/|g|) - g] |g| / r; another radius is another step."""
    data, mu, radius = images(), 0.2, 0.5
    near, far = (
        train([0.1], mus=[mu], steps=1, batch=batch, method="forward", precision="highest", radius=r).params
        for r in (radius, 2 * radius)
    )
    params, _ = MODEL.init(jax.random.fold_in(jax.random.key(0), 0))
    some = jnp.asarray(next(iter(batches(0, 1)))) if batch else jnp.arange(50)
    x = data.x[some].astype(jnp.float32) * np.float32(1 / 255)
    gradient = jax.jit(jax.grad(lambda p: batch_loss(MODEL)(p, (), x, data.y[some])[0]))
    g = gradient(params)
    eps = np.float32(radius) / jnp.sqrt(igr.squared_norm(g))
    ahead = gradient(jax.tree.map(lambda p, d: p + eps * d, params, g))
    step = jax.tree.map(lambda d, a: d + np.float32(2 * mu) / eps * (a - d), g, ahead)
    expected = jax.tree.map(lambda p, d: (p - np.float32(0.1) * d)[None], params, step)
    close(near, expected, rtol=1e-4, atol=1e-6)
    assert not np.allclose(far[0]["w"], expected[0]["w"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch", [8, 0])
def test_sam_descends_the_gradient_at_the_perturbed_parameters(batch):
    data, rhos = images(), [0.05, 0.3]
    stack = train([0.1, 0.1], rhos=rhos, steps=2, batch=batch, method="sam", precision="highest")
    for i, rho in enumerate(rhos):
        params, _ = MODEL.init(jax.random.fold_in(jax.random.key(0), 0))
        for _, index in zip(range(2), batches(0, 2), strict=False):
            some = jnp.asarray(index) if batch else jnp.arange(50)
            x = data.x[some].astype(jnp.float32) * np.float32(1 / 255)
            gradient = jax.jit(jax.grad(lambda p, x=x, y=data.y[some]: batch_loss(MODEL)(p, (), x, y)[0]))
            g = gradient(params)
            scale = np.float32(rho) / jnp.sqrt(igr.squared_norm(g))
            grads = gradient(jax.tree.map(lambda p, d, s=scale: p + s * d, params, g))
            params = jax.tree.map(lambda p, g: p - np.float32(0.1) * g, params, grads)
        close(replica(stack, i).params, params, rtol=1e-4, atol=1e-6)
    assert not np.allclose(replica(stack, 0).params[0]["w"], replica(stack, 1).params[0]["w"], atol=1e-5)


def test_sam_stands_still_where_the_gradient_is_zero():
    value, grads = sam(lambda x: (x**2).sum(), 0.5)(jnp.zeros(2))
    assert float(value) == 0
    assert grads.tolist() == [0, 0]


def test_a_penalty_at_some_steps_is_as_much_stronger_there():
    """With k = 3 and a warm-up of 4 it acts at steps 6 and 9 of 11, at three times mu."""
    settings = {"method": "exact", "precision": "highest", "in_turn": True}
    some = train([0.1, 0.1], mus=[0.0, 0.2], steps=11, every=3, warm_up=4, **settings)
    engine = engine_of(MODEL, 8, 2, igr.lab.training.engine.FULL_BATCH_CHUNK, **settings)
    stack = engine.init([0, 0])
    for step in range(11):
        mus = [0.0, 3 * 0.2 if step in (6, 9) else 0.0]
        stack = engine.advance(stack, engine.rates([0.1, 0.1], mus), [0, 0], step, step + 1)
    close(some, stack, rtol=1e-5, atol=1e-6)
    assert not np.allclose(some.params[0]["w"][0], some.params[0]["w"][1], atol=1e-5)


def test_replicas_in_turn_are_those_side_by_side():
    settings = {"mus": [0.0, 0.2, 0.1], "seeds": [0, 1, 1], "method": "exact", "precision": "highest"}
    together, apart = (train([0.1, 0.2, 0.2], in_turn=way, **settings) for way in (False, True))
    close(together, apart)
    alone = train([0.2], mus=[0.2], seeds=[1], method="exact", precision="highest", in_turn=True)
    close(replica(apart, 1), replica(alone, 0))


def test_in_turn_a_plain_step_does_not_compute_the_penalty():
    """The branch is a branch: vmapped it would be a choice between two results, both computed."""
    for in_turn in (False, True):
        engine = Engine(MODEL, images(), 8, "forward", replicas=2, in_turn=in_turn)
        order, zero = jnp.zeros((2, 50), jnp.int32), np.int32(0)
        arguments = (engine.init([0, 1]), engine.rates([0.1] * 2, [0.1] * 2), jnp.zeros(2, jnp.uint32), order)
        jaxpr = str(jax.make_jaxpr(engine._program(1))(*arguments, engine.data.x, engine.data.y, zero, zero))
        assert ("cond[" in jaxpr) == in_turn


def test_a_diverging_replica_is_marked_and_changes_nothing_in_the_others():
    model = mlp(12, depth=2, inputs=16, classes=3)  # ReLU, as tanh would saturate and stay finite
    healthy = train([0.1, 0.1, 0.1], seeds=[0, 1, 2], steps=36, model=model)
    mixed = train([0.1, 1e30, 0.1], seeds=[0, 1, 2], steps=36, model=model)
    assert mixed.diverged.tolist()[::2] == [-1, -1]
    assert 1 <= int(mixed.diverged[1]) <= 4
    for i in (0, 2):
        assert same(replica(healthy, i), replica(mixed, i))
    assert not np.isfinite(mixed.params[0]["w"][1]).all()


def test_the_full_batch_is_gradient_descent_on_the_mean(monkeypatch):
    monkeypatch.setattr("igr.lab.training.engine.FULL_BATCH_CHUNK", 20)  # 50 images in pieces of 20, 20 and 10
    data = images()
    params, _ = MODEL.init(jax.random.fold_in(jax.random.key(0), 0))
    x = data.x.astype(jnp.float32) * np.float32(1 / 255)
    for _ in range(5):
        grads = jax.grad(lambda p: cross_entropy(MODEL.apply(p, (), x, True)[0], data.y).mean())(params)
        params = jax.tree.map(lambda p, g: p - np.float32(0.2) * g, params, grads)
    close(replica(train([0.2], steps=5, batch=0), 0).params, params)


def test_model_state_is_carried():
    def apply(params, state, x, train):
        return MODEL.apply(params, (), x, train)[0], state + x.mean()

    model = Model(lambda key: (MODEL.init(key)[0], jnp.zeros((), jnp.float32)), apply)
    stack = train([0.1, 0.1], seeds=[0, 1], steps=6, model=model)
    means = [
        sum(float(images().x[i].mean()) / 255 for _, i in zip(range(6), batches(s, 6), strict=False)) for s in (0, 1)
    ]
    np.testing.assert_allclose(stack.state, means, rtol=1e-5)
    with pytest.raises(ValueError, match="no batch statistics"):
        train([0.1], batch=0, steps=1, model=model)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 51}, "batch_size must lie in"),
        ({"precision": "half"}, "unknown precision"),
        ({"mus": [1.0]}, "needs a method"),
        ({"mus": [1.0], "method": "sam"}, "needs a method with a penalty"),
        ({"rhos": [1.0]}, "needs the method sam"),
        ({"batch": 0, "augment": True}, "is not augmented"),
        ({"model": mlp(12, inputs=9, classes=3)}, r"cannot take images of shape \(4, 4, 1\)"),
        ({"model": mlp(12, inputs=16, classes=2)}, r"labels must lie in 0 \.\.\. 1, but they reach from 0 to 2"),
    ],
)
def test_bad_settings_are_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message):
        train([0.1], **settings)


DEVICES = """
import sys
sys.path[:0] = {path!r}
import jax
jax.config.update("jax_num_cpu_devices", {count})
import numpy as np
from replicas import train
stack = train([0.3, 0.2, 0.1, 0.05] * 2, seeds=[0, 1, 2, 3, 4, 5, 6, 7])
assert len(stack.params[0]["w"].sharding.device_set) == {count}, stack.params[0]["w"].sharding
np.savez({out!r}, *jax.tree.leaves(stack))
"""


def test_eight_devices_give_the_results_of_one(tmp_path):
    results = []
    for count in (1, 8):
        out = str(tmp_path / f"{count}.npz")
        code = DEVICES.format(path=[str(Path(__file__).parents[2]), os.getcwd()], count=count, out=out)
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
        with np.load(out) as archive:
            results.append([archive[name] for name in archive.files])
    for one, eight in zip(*results, strict=True):
        np.testing.assert_allclose(one, eight, rtol=1e-6, atol=1e-7)


def test_a_batch_needs_a_label_for_each_image():
    with pytest.raises(ValueError, match="it has 3 images and 2 labels"):
        batch_loss(MODEL)(None, (), jnp.zeros((3, 4, 4, 1)), jnp.zeros(2, jnp.int32))


def test_cross_entropy_is_that_of_optax(getkey):
    logits, labels = 5 * jax.random.normal(getkey(), (9, 4)), jnp.arange(9) % 4
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    np.testing.assert_allclose(cross_entropy(logits, labels), expected, rtol=1e-9)
    certain = jnp.array([[0.0, -jnp.inf, -jnp.inf]])
    assert jnp.isfinite(jax.grad(lambda z: cross_entropy(z, jnp.array([0])).sum())(certain)).all()
