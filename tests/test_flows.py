"""Discrete steps and continuous flow, sampled at the same times."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from problems import GENERIC_START, LOSSES, MATRIX, QUADRATIC_START, generic, quadratic, two_parameter

import igr


def test_descend_equals_a_python_loop_on_any_pytree():
    loss, start = LOSSES[0][1:]
    step = igr.gradient_step(loss, 0.1)
    path = igr.descend(step, start, 6)
    x = start
    for i in range(7):
        assert all(jnp.allclose(a[i], b) for a, b in zip(jax.tree.leaves(path), jax.tree.leaves(x), strict=True))
        x = step(x)


def test_descend_keeps_one_state_in_k():
    step = igr.gradient_step(generic, 0.05)
    assert jnp.array_equal(igr.descend(step, GENERIC_START, 12, every=4), igr.descend(step, GENERIC_START, 12)[::4])
    with pytest.raises(ValueError, match="n must be a multiple of every"):
        igr.descend(step, GENERIC_START, 10, every=4)


def test_descend_can_be_differentiated():
    end = jax.grad(lambda x: igr.descend(lambda y: 0.5 * y, x, 3)[-1])(jnp.array(2.0))
    assert end == 0.125


def test_flow_of_a_linear_field_is_the_matrix_exponential():
    ts = jnp.array([0.0, 0.3, 1.7])
    path = igr.flow(igr.gradient_field(quadratic), QUADRATIC_START, ts)
    exact = np.stack([scipy.linalg.expm(-t * MATRIX) @ np.asarray(QUADRATIC_START) for t in np.asarray(ts)])
    assert np.max(np.abs(path - exact)) < 1e-9


def test_flow_starts_at_its_first_time_and_runs_backwards():
    field = igr.gradient_field(generic)
    path = igr.flow(field, GENERIC_START, [2.0, 2.5])
    assert jnp.array_equal(path[0], GENERIC_START)
    back = igr.flow(field, path[-1], [2.5, 2.0])
    assert jnp.allclose(back[-1], GENERIC_START, atol=1e-9)


def test_the_tolerances_are_the_callers():
    def error(rtol):
        end = igr.flow(lambda x: -x, jnp.array(1.0), [0.0, 5.0], rtol=rtol, atol=rtol * 1e-2)[-1]
        return abs(float(end - jnp.exp(-5.0)))

    assert error(1e-12) < 1e-13 < error(1e-3)


def test_flow_can_be_differentiated_both_ways():
    def end(x, **options):
        return igr.flow(lambda y: -y, x, [0.0, 1.0], **options)[-1]

    assert jax.grad(end)(jnp.array(2.0)) == pytest.approx(np.exp(-1))
    forward = jax.jvp(lambda x: end(x, adjoint=diffrax.ForwardMode()), (jnp.array(2.0),), (jnp.array(1.0),))[1]
    assert forward == pytest.approx(np.exp(-1))


def test_flow_in_float32_meets_its_own_tolerance():
    path = igr.flow(lambda x: -x, jnp.array(1.0, jnp.float32), [0.0, 1.0])
    assert path.dtype == jnp.float32
    assert float(path[-1]) == pytest.approx(np.exp(-1), rel=1e-4)


def test_a_stiff_flow_takes_a_stiff_solver():
    stiff = jnp.array([1000.0, 1.0])
    path = igr.flow(lambda x: -stiff * x, jnp.ones(2), [0.0, 2.0], solver=diffrax.Kvaerno5(), rtol=1e-8, atol=1e-10)
    assert path[-1, 1] == pytest.approx(np.exp(-2), rel=1e-6)


def test_a_flow_that_cannot_be_solved_says_so():
    with pytest.raises(Exception, match="maximum number of"):
        jax.block_until_ready(igr.flow(lambda x: x**2, jnp.array(1.0), [0.0, 2.0], max_steps=50))


def test_seed_model_distances():
    """From (2.8, 3.5) at h = 0.025 after 400 steps: the known distances to the flows of f_0, with f_1 and with f_2."""
    start, h, n = jnp.array([2.8, 3.5]), 0.025, 400
    field = igr.gradient_field(two_parameter)
    steps = igr.descend(igr.gradient_step(two_parameter, h), start, n, every=n)
    distances = [
        float(igr.distance(steps, igr.flow(igr.modified_field(field, h, order), start, [0.0, n * h]))[-1])
        for order in (0, 1, 2)
    ]
    assert distances == pytest.approx([0.0964, 0.0271, 0.0115], abs=5e-5)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_global_error_over_a_fixed_time(order):
    """Over T = 1 the error of the flow of f_0 ... f_n falls like h^(n+1)."""
    field = igr.gradient_field(generic)

    def error(n):
        h = 1 / n
        steps = igr.descend(igr.gradient_step(generic, h), GENERIC_START, n, every=n)
        flow = jax.jit(lambda h: igr.flow(igr.modified_field(field, h, order), GENERIC_START, [0.0, 1.0], rtol=1e-12))
        return igr.distance(steps, flow(jnp.asarray(h)))[-1]

    observed = igr.observed_order(lambda h: error(round(1 / h)), [1 / 160, 1 / 320])
    assert observed[-1] == pytest.approx(order + 1, abs=0.1)


def test_distance_of_pytrees():
    a = {"x": jnp.array([[0.0, 0.0], [3.0, 0.0]]), "y": jnp.array([0.0, 4.0])}
    assert igr.distance(a, jax.tree.map(jnp.zeros_like, a)).tolist() == [0.0, 5.0]
    with pytest.raises(ValueError, match="same number of times"):
        igr.distance(a, jax.tree.map(lambda x: x[:1], a))


def test_observed_order_refuses_what_has_none():
    with pytest.raises(ValueError, match="positive, finite ones"):
        igr.observed_order(lambda h: 0.0, [0.1, 0.05])
    with pytest.raises(ValueError, match="two different positive"):
        igr.observed_order(lambda h: h, [0.1])


@pytest.mark.parametrize("ts", [[0.0, 1.0, 1.0], [0.0, float("nan")], [[0.0, 1.0]], [0.0, 2.0, 1.0]])
def test_flow_refuses_bad_times(ts):
    with pytest.raises(ValueError, match="ts must be"):
        igr.flow(lambda x: -x, jnp.array(1.0), ts)
