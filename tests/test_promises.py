"""What the first floor promises at its edges: numbers, shapes, caches, and aux everywhere."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import relative
from problems import GENERIC_START, generic
from test_batches import compilations

import igr


def with_aux(p):
    return generic(p), {"half": p / 2}


def test_the_implicit_rate_takes_numbers_of_parameters():
    assert igr.implicit_rate(0.1, np.int64(200)) == 5.0
    assert igr.implicit_rate(0.1, jnp.zeros(200)) == 5.0
    for number in (200.0, np.float64(200), np.float32(200)):
        with pytest.raises(TypeError, match="the number of parameters must be a whole number, not float"):
            igr.implicit_rate(0.1, number)


def test_numpy_counts():
    field = igr.gradient_field(generic)
    assert len(igr.modified_terms(field, np.int32(2))) == 3
    start, five = GENERIC_START, np.int64(5)
    assert igr.sharpness(generic, products=five)(start).value == igr.sharpness(generic, products=5)(start).value
    assert igr.critical_sharpness(generic, passes=five)(start).value > 0
    assert igr.regime(generic, 0.01, products=five)(start).h_lambda > 0
    with jax.numpy_dtype_promotion("standard"):
        moved = igr.optimizers.modified_field(optax.sgd(0.1), generic, order=np.int64(1), history=five)(start)
        state = igr.optimizers.settle(lambda s: s, (start, ()), five)
        monitored = igr.monitor(optax.sgd(0.1), every=five, products=five, sample=five, sink_every=five)
    assert relative(moved, 0.1 * igr.modified_field(field, 0.1, 1)(start)) < 1e-12
    assert jnp.array_equal(state[0], start)
    assert igr.readings(monitored.init(start))
    assert igr.descend(igr.gradient_step(generic, 0.1), GENERIC_START, np.int64(4), np.int64(2)).shape == (3, 2)


def test_complex_numbers_and_integers_have_norms():
    assert igr.squared_norm(jnp.array([3 + 4j])) == 25
    assert igr.squared_norm({"a": jnp.array([3, 4]), "b": jnp.complex64(2j)}) == 29
    assert igr.squared_norm(jnp.complex64(2j)).dtype == jnp.float32


def test_distance_refuses_what_would_broadcast():
    with pytest.raises(ValueError, match=r"arrays of the same shapes, but they are \[\(3,\)\] and \[\(3, 1\)\]"):
        igr.distance(jnp.zeros(3), jnp.zeros((3, 1)))
    with pytest.raises(ValueError, match="the same structure"):
        igr.distance({"a": jnp.zeros(3)}, [jnp.zeros(3)])


def test_a_flow_takes_arguments_and_empty_containers():
    start = {"w": jnp.array(2.0), "none": (), "more": {}}
    field = lambda p, rate: jax.tree.map(lambda x: -rate * x, p)  # noqa: E731
    path = igr.flow(field, start, [0.0, 1.0], args=(jnp.array(0.5),))
    assert path["w"][1] == pytest.approx(2 * np.exp(-0.5), rel=1e-8)
    assert path["none"] == ()


def test_a_second_eager_call_compiles_nothing():
    field = igr.gradient_field(generic)
    step = igr.gradient_step(generic, 0.1)
    f2, modified = igr.modified_terms(field, 2)[2], igr.modified_field(field, 0.1, 1)
    iterates = igr.step_field(step, 2)
    rated = lambda p, rate: -rate * p  # noqa: E731
    calls = {
        "descend": lambda x: igr.descend(step, x, 4),
        "flow": lambda x: igr.flow(field, x, [0.0, 1.0], rtol=1e-3, atol=1e-3),
        "flow of a modified field": lambda x: igr.flow(modified, x, [0.0, 1.0], rtol=1e-3, atol=1e-3),
        "flow with a rate": lambda x: igr.flow(rated, x, [0.0, 1.0], args=(float(x[0]),), rtol=1e-3, atol=1e-3),
        "modified_terms": f2,
        "step_field": iterates,
    }
    elsewhere = 1.1 * GENERIC_START
    for name, call in calls.items():
        first = call(GENERIC_START)
        assert compilations(lambda call=call: call(elsewhere)) == 0, name
        assert relative(call(GENERIC_START), first) == 0, name


def test_terms_with_arguments_that_are_no_arrays_are_compiled_for_each():
    def field(x, power, *, sign):
        return sign * x**power

    f1 = igr.modified_terms(field, 1)[1]
    for power in (1, 2):
        assert f1(jnp.array(0.5), power, sign=-1.0) == pytest.approx(-power * 0.5 ** (2 * power - 1) / 2)


def test_aux_everywhere():
    p = GENERIC_START
    for make in (igr.angle, igr.cos_angle, igr.metric_determinant, igr.normal):
        value, aux = make(with_aux, has_aux=True)(p)
        assert relative(value, make(generic)(p)) < 1e-14
        assert jnp.array_equal(aux["half"], p / 2)
    assert igr.norm_bound(with_aux, 0.1, has_aux=True)(p)[0] == pytest.approx(float(igr.norm_bound(generic, 0.1)(p)))
    assert igr.has_kinks(with_aux, p, has_aux=True) is False
    assert igr.default_radius(with_aux, p, has_aux=True) == igr.default_radius(generic, p)
    whole = igr.full_batch(lambda w, x: (jnp.mean(w * x), x), 2, has_aux=True)
    assert jax.grad(whole)(jnp.array(2.0), jnp.arange(5.0)) == pytest.approx(2.0)
    for function in (igr.has_kinks, igr.default_radius):
        with pytest.raises(TypeError, match=r"the loss returned a tuple.*use has_aux=True"):
            function(with_aux, p)
    # a field has no place for it
    assert jnp.array_equal(igr.gradient_field(with_aux, has_aux=True)(p), igr.gradient_field(generic)(p))
    assert jnp.array_equal(igr.gradient_step(with_aux, 0.1, has_aux=True)(p), igr.gradient_step(generic, 0.1)(p))
    assert jnp.array_equal(igr.hvp(with_aux, has_aux=True)(p, p), igr.hvp(generic)(p, p))


def test_a_step_that_gathers_gradients_needs_its_cycle():
    """`optax.MultiSteps` moves at every fourth call: through single calls the logarithm would point uphill."""
    optimizer = optax.MultiSteps(optax.sgd(0.01), 4)

    def step(state):
        params, memory = state
        with jax.numpy_dtype_promotion("standard"):
            updates, memory = optimizer.update(jax.grad(generic)(params), memory, params)
            return optax.apply_updates(params, updates), memory

    state = (GENERIC_START, optimizer.init(GENERIC_START))
    with pytest.raises(ValueError, match="pass every=k"):
        igr.step_field(step, 2, of=lambda s: s[0])(state)
    assert jnp.all(jnp.isnan(jax.jit(igr.step_field(step, 2, of=lambda s: s[0]))(state)))
    whole = igr.step_field(step, 2, of=lambda s: s[0], every=4)(state)
    plain = igr.step_field(igr.gradient_step(generic, 0.01), 2)(GENERIC_START)
    assert relative(whole, plain) < 1e-6  # optax divides by the count in float32
    # a step that has arrived changes nothing at all, and is no such step
    assert igr.step_field(lambda x: x - x, 3)(jnp.ones(2)).shape == (2,)
