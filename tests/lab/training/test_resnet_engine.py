"""Convolutions and batch norm in the engine: state, penalties through it, units of ResNets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import relative
from replicas import close, images, replica
from units import Stops

from igr.lab.models.model import Model, fan_in_normal
from igr.lab.models.resnet18 import _conv_norm, resnet18
from igr.lab.runs.unit import Cancelled, Session
from igr.lab.store.files import npz_bytes
from igr.lab.training.config import Schedule, Shape
from igr.lab.training.engine import Engine
from igr.lab.training.gradients import batch_loss, value_and_grad
from igr.lab.training.loop import machine
from igr.lab.training.stack import Network, StackRun, stacks

SIZES = {"one": (3, 3, 1, 4), "two": (3, 3, 4, 6)}


def _init(key):
    keys = jax.random.split(key, 3)
    params = {name: {"w": fan_in_normal(k, size)} for k, (name, size) in zip(keys, SIZES.items(), strict=False)}
    for name, size in SIZES.items():
        params[name] |= {"scale": jnp.ones(size[-1], jnp.float32), "offset": jnp.zeros(size[-1], jnp.float32)}
    state = {
        name: {"mean": jnp.zeros(size[-1], jnp.float32), "var": jnp.ones(size[-1], jnp.float32)}
        for name, size in SIZES.items()
    }
    return params | {"head": fan_in_normal(keys[2], (6, 3))}, state


def _apply(params, state, x, train):
    new = {}
    for name in SIZES:
        x, new[name] = _conv_norm(x, params[name], state[name], 2, train)
        x = jnp.tanh(x)
    return x.mean(axis=(1, 2)) @ params["head"], new


SMOOTH = Model(_init, _apply, in_turn=True)  # two layers of a ResNet, smooth, so that differences approach derivatives


@functools.cache
def gradient_of(method):
    params, state = SMOOTH.init(jax.random.key(3))
    x, y = images(24).pick(jnp.arange(24))

    def both(params, mu):
        with jax.default_matmul_precision("highest"):
            (_, new), grads = value_and_grad(batch_loss(SMOOTH), method, mu, has_aux=True)(params, state, x, y)
        return new, grads

    return functools.partial(jax.jit(both), params)


@pytest.mark.parametrize(("method", "mu"), [("exact", 0.3), ("forward", 0.3), ("central", 0.3), ("sam", 0.5)])
def test_running_statistics_come_from_the_unperturbed_pass_alone(method, mu):
    plain, g = gradient_of(None)(np.float32(0))
    state, grads = gradient_of(method)(np.float32(mu))
    assert relative(state, plain) < 1e-6
    assert relative(grads, g) > 0.02, "the penalty acts"
    params, before = SMOOTH.init(jax.random.key(3))
    ahead = jax.tree.map(lambda p, d: p + np.float32(0.1) * d, params, g)
    _, perturbed = SMOOTH.apply(ahead, before, images(24).pick(jnp.arange(24))[0], True)
    assert relative(perturbed, plain) > 1e-3, "statistics of a perturbed pass would be told apart"


def test_penalties_agree_through_batch_norm():
    _, g = gradient_of(None)(np.float32(0))
    terms = {}
    for method in ("exact", "forward", "central"):
        _, grads = gradient_of(method)(np.float32(0.3))
        terms[method] = jax.tree.map(jnp.subtract, grads, g)  # 2 mu H g alone, which g would hide
    assert relative(terms["forward"], terms["exact"]) < 0.01
    assert relative(terms["central"], terms["exact"]) < 0.01
    assert relative(jax.tree.map(lambda t: np.float32(1.05) * t, terms["exact"]), terms["exact"]) > 0.01


def test_networks_with_batch_norm_in_turn_are_those_side_by_side():
    data, stacked = images(24), []
    for in_turn in (False, True):
        engine = Engine(SMOOTH, data, 8, "forward", "highest", replicas=2, in_turn=in_turn)
        rates = engine.rates([0.1, 0.2], [0.0, 0.1])
        stacked.append(engine.advance(engine.init([0, 1]), rates, [0, 1], 0, 7))
    close(*stacked, rtol=1e-3, atol=1e-4)
    assert relative(replica(stacked[0], 0).params, replica(stacked[0], 1).params) > 0.1


def test_a_convolution_of_replicas_in_turn_is_not_grouped(monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")  # on the CPU a convolution is a product
    counts = []
    for in_turn in (False, True):
        engine = Engine(SMOOTH, images(24), 8, replicas=2, in_turn=in_turn)
        arguments = (engine.init([0, 1]), engine.rates([0.1] * 2, [0.0] * 2), jnp.zeros(2, jnp.uint32))
        order, zero = jnp.zeros((2, 24), jnp.int32), np.int32(0)
        jaxpr = str(jax.make_jaxpr(engine._program(1))(*arguments, order, engine.data.x, engine.data.y, zero, zero))
        counts.append(jaxpr.count("feature_group_count=2") + jaxpr.count("batch_group_count=2"))
    assert counts[0] > 0
    assert counts[1] == 0


def test_data_a_resnet_cannot_take_are_refused_at_construction():
    with pytest.raises(ValueError, match=r"the model cannot take images of shape \(4, 4, 1\)\.$"):
        Engine(resnet18(width=2, channels=3), images(8), 4)
    with pytest.raises(ValueError, match=r"labels must lie in 0 \.\.\. 1, but they reach from 0 to 2\.$"):
        Engine(resnet18(width=2, channels=1, classes=2), images(8), 4)


# As many training images as the test set has, so that both are measured by one compiled program.
SHAPE = Shape(
    model="resnet18",
    width=2,
    batch_size=60,
    train_images=360,
    steps=14,
    method="forward",
    augment=True,
    every=2,
    warm_up=2,
    schedule=Schedule(early=2),
)
RUN = StackRun(SHAPE, (0.1,), (0.05,), (0,))


@pytest.fixture(scope="module")
def metrics():
    return RUN.compute(Session())


def test_a_resnet_unit_resumed_mid_training_has_the_same_bytes(metrics):
    assert metrics["step"].tolist() == [0, 1, 2, 6, 12, 14]
    assert np.isfinite(metrics["r_ig"]).all()
    first = Stops(3)
    with pytest.raises(Cancelled):
        RUN.compute(first)
    assert npz_bytes(RUN.compute(Stops(1000, first.saved))) == npz_bytes(metrics)


def test_the_best_parameters_of_a_resnet_are_kept_with_their_statistics(metrics):
    row = int(metrics["test_accuracy"][:, 0].argmax())
    assert metrics["best_test_accuracy"][0] == metrics["test_accuracy"][row, 0]
    assert metrics["best_test_loss"][0] == pytest.approx(metrics["test_loss"][row, 0], rel=1e-6)
    assert metrics["best_r_ig"][0] == pytest.approx(metrics["r_ig"][row, 0], rel=1e-5)


def test_units_of_one_shape_compile_once_and_all_methods_share_a_meter(metrics, caplog):
    def compiled(run):
        caplog.clear()
        with jax.log_compiles():
            run()
        return [record.message for record in caplog.records if "Finished XLA compilation" in record.message]

    assert compiled(lambda: jax.jit(lambda x: x * 3 + 1)(jnp.arange(5)))
    assert not compiled(lambda: StackRun(SHAPE.replace(steps=4), (0.2,), (0.1,), (7,)).compute(Session()))
    _, meter = machine(SHAPE, 1)
    assert machine(SHAPE.replace(method="", every=1, warm_up=0, augment=False), 1)[1] is meter


def test_a_resnet_is_a_unit_by_itself():
    units = stacks(Network(SHAPE, h, 0.1, seed) for seed in (0, 1) for h in (0.1, 0.2))
    assert [(u.learning_rates, u.mus, u.seeds) for u in units] == [
        ((h,), (0.1,), (seed,)) for seed in (0, 1) for h in (0.1, 0.2)
    ]
