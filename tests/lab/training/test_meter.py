import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replicas import MODEL, images

import igr
from igr.lab.models.mlp import mlp
from igr.lab.models.model import Model
from igr.lab.training.engine import Engine, unit_range
from igr.lab.training.gradients import batch_loss, cross_entropy
from igr.lab.training.meter import Meter, evaluate


def mean_loss(data):
    x = unit_range(data.x, data.scale)
    return lambda params: batch_loss(MODEL)(params, (), x, data.y)[0]


@pytest.mark.parametrize("batch", [20, 1000])
def test_the_gradient_is_averaged_over_the_data_set_before_it_is_squared(getkey, batch):
    data = images()
    params, _ = MODEL.init(getkey())
    measured = jax.jit(evaluate(MODEL, data.scale, batch=batch))(params, (), data.x, data.y)
    loss = mean_loss(data)
    assert float(measured["loss"]) == pytest.approx(float(loss(params)), rel=1e-5)
    assert float(measured["r_ig"]) == pytest.approx(float(igr.regularizer(loss)(params)), rel=1e-4)
    assert float(measured["slope"]) == pytest.approx(float(igr.slope(loss)(params)), rel=1e-4)
    logits = MODEL.apply(params, (), unit_range(data.x, data.scale), True)[0]
    accuracy = np.mean(np.asarray(logits).argmax(axis=1) == np.asarray(data.y))
    assert float(measured["accuracy"]) == pytest.approx(accuracy, rel=1e-6)
    parts = [slice(i, i + 10) for i in range(0, 50, 10)]
    squares = [igr.regularizer(mean_loss(data._replace(x=data.x[s], y=data.y[s])))(params) for s in parts]
    assert float(np.mean(squares)) > 1.1 * float(measured["r_ig"])  # the wrong order of the two is another number


def test_measurements_use_the_highest_precision_and_training_its_own(getkey):
    data = images()
    params, _ = MODEL.init(getkey())
    jaxpr = str(jax.make_jaxpr(evaluate(MODEL, data.scale))(params, (), data.x, data.y))
    assert jaxpr.count("Precision.HIGHEST") >= 2 * jaxpr.count("dot_general") > 0
    engine = Engine(MODEL, data, 8)
    stack, rates = engine.init([0]), engine.rates([0.1], [0.0])
    seeds, order, zero = jnp.zeros(1, jnp.uint32), jnp.zeros((1, 50), jnp.int32), np.int32(0)
    jaxpr = str(jax.make_jaxpr(engine._program(1))(stack, rates, seeds, order, data.x, data.y, zero, zero))
    assert "dot_general" in jaxpr
    assert "HIGHEST" not in jaxpr


def test_a_meter_measures_all_sets_of_a_stack_and_its_replicas_apart():
    data, test, held = images(50), images(17, seed=1), images(9, seed=2)
    engine = Engine(MODEL, data, 8, replicas=2)
    stack = engine.init([0, 1])
    meter = Meter(engine, test, held)
    full, watched = (jax.device_get(f(stack.params, stack.state)) for f in (meter.full, meter.watch))
    assert set(watched) == {"test_loss", "test_accuracy", "validation_loss", "validation_accuracy"}
    assert set(full) == set(watched) | {
        "loss", "train_accuracy", "r_ig", "slope", "test_r_ig", "test_slope", "param_norm",
    }  # fmt: skip
    for name in watched:
        np.testing.assert_allclose(full[name], watched[name], rtol=1e-6)
    for i in range(2):
        params = jax.tree.map(lambda leaf, i=i: leaf[i], stack.params)
        assert full["loss"][i] == pytest.approx(float(mean_loss(data)(params)), rel=1e-5)
        assert full["test_loss"][i] == pytest.approx(float(mean_loss(test)(params)), rel=1e-5)
        assert full["validation_loss"][i] == pytest.approx(float(mean_loss(held)(params)), rel=1e-5)
        assert full["param_norm"][i] == pytest.approx(float(jnp.sqrt(igr.squared_norm(params))), rel=1e-5)
        assert full["test_r_ig"][i] == pytest.approx(float(igr.regularizer(mean_loss(test))(params)), rel=1e-4)


def test_a_replica_without_finite_loss_has_nan_and_not_an_accuracy():
    data = images()
    engine = Engine(MODEL, data, 8, replicas=2)
    stack = engine.init([0, 0])
    params = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), stack.params)
    full = jax.device_get(Meter(engine, data).full(params, stack.state))
    assert all(np.isfinite(column[0]) for column in full.values())
    assert all(np.isnan(column[1]) for column in full.values())


def test_noise_is_that_of_igr_perturb_at_every_sigma():
    data = images()
    engine = Engine(MODEL, data, 8, replicas=2)
    stack = engine.init([0, 1])
    meter = Meter(engine, images(17, seed=1))
    curves = meter.noise(stack.params, stack.state, 5, (0.0, 0.5, 3.0), 4, "train", True)
    assert curves["slope"].shape == (2, 3, 4)
    assert np.ptp(curves["slope"][:, 0], axis=1) == pytest.approx(np.zeros(2), abs=1e-6)
    assert (np.ptp(curves["slope"][:, 1], axis=1) > 0).all()
    keys = jax.random.split(jax.random.key(5), 4)
    params = jax.tree.map(lambda leaf: leaf[1], stack.params)
    loss = mean_loss(data)
    for k in range(4):
        expected = igr.slope(loss)(igr.perturb(keys[k], params, np.float32(3.0)))
        assert curves["slope"][1, 2, k] == pytest.approx(float(expected), rel=1e-3)
    accuracies = meter.noise(stack.params, stack.state, 5, (0.0,), 4, "test", False)
    assert set(accuracies) == {"loss", "accuracy"}


def test_batch_statistics_are_used_for_the_gradient_only_where_asked():
    def apply(params, state, x, train):
        return MODEL.apply(params, (), x, train)[0] * (np.float32(2.0) if train else np.float32(1.0)), state

    data = images()
    model = Model(MODEL.init, apply)
    engine = Engine(model, data, 8)
    stack = engine.init([0])
    logits = MODEL.apply(jax.tree.map(lambda leaf: leaf[0], stack.params), (), unit_range(data.x, data.scale), True)[0]
    for statistics, factor in (("running", 1), ("batch", 2)):
        meter = Meter(engine, data, statistics=statistics)
        expected = float(cross_entropy(factor * logits, data.y).mean())
        assert float(meter.full(stack.params, stack.state)["loss"][0]) == pytest.approx(expected, rel=1e-5)
        evaluated = float(cross_entropy(logits, data.y).mean())
        assert float(meter.watch(stack.params, stack.state)["test_loss"][0]) == pytest.approx(evaluated, rel=1e-5)


def test_the_mean_of_squared_batch_gradients_is_another_average(getkey):
    """50 images in batches of at most 20 are 17, 17 and 16: as equal as can be, and each counts by its images."""
    data = images()
    params, _ = MODEL.init(getkey())
    measured = jax.jit(evaluate(MODEL, data.scale, batch=20, average="square"))(params, (), data.x, data.y)
    parts = [slice(0, 17), slice(17, 34), slice(34, 50)]
    squares = [igr.regularizer(mean_loss(data._replace(x=data.x[s], y=data.y[s])))(params) for s in parts]
    expected = np.average(np.array(squares), weights=[17, 17, 16])
    assert float(measured["r_ig"]) == pytest.approx(expected, rel=1e-5)
    assert float(measured["slope"]) == pytest.approx(np.sqrt(expected * igr.num_params(params)), rel=1e-5)
    assert float(measured["loss"]) == pytest.approx(float(mean_loss(data)(params)), rel=1e-5)
    assert expected > 1.1 * float(igr.regularizer(mean_loss(data))(params))


def test_r_ig_may_be_measured_on_the_first_images_alone(getkey):
    data, some = images(), slice(0, 20)
    engine = Engine(MODEL, data, 8)
    stack = engine.init([0])
    full = Meter(engine, data, images=20).full(stack.params, stack.state)
    loss = mean_loss(data._replace(x=data.x[some], y=data.y[some]))
    params = jax.tree.map(lambda leaf: leaf[0], stack.params)
    assert float(full["r_ig"][0]) == pytest.approx(float(igr.regularizer(loss)(params)), rel=1e-4)
    assert float(full["test_r_ig"][0]) == pytest.approx(float(igr.regularizer(mean_loss(data))(params)), rel=1e-4)
    assert float(full["r_ig"][0]) != pytest.approx(float(full["test_r_ig"][0]), rel=1e-2)


def test_the_test_set_may_go_without_gradients():
    data, model = images(40), mlp(5, 1, inputs=16)
    engine = Engine(model, data, 8)
    stack = engine.init([0])
    whole, part = (Meter(engine, images(20, seed=1), test_gradient=g).full(stack.params, stack.state) for g in (1, 0))
    assert set(whole) - set(part) == {"test_r_ig", "test_slope"}
    for name in part:
        np.testing.assert_allclose(part[name], whole[name], rtol=1e-5)


def test_gradients_come_from_the_float32_model_and_accuracies_from_the_trained_one():
    data = images()
    low, exact = (mlp(12, depth=2, inputs=16, classes=3, compute=c) for c in ("bfloat16", "float32"))
    engine = Engine(low, data, 8, precision="bfloat16")
    stack = engine.init([0])
    full = Meter(engine, data, model=exact).full(stack.params, stack.state)
    reference = Meter(Engine(exact, data, 8), data).full(stack.params, stack.state)
    for name in ("loss", "r_ig", "slope", "test_r_ig"):
        assert float(full[name][0]) == pytest.approx(float(reference[name][0]), rel=1e-6)
    rounded = abs(float(full["test_loss"][0]) / float(reference["test_loss"][0]) - 1)
    assert 1e-6 < rounded < 1e-2
