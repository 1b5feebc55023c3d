"""The modified equation of explicit Euler, and of any step map from its iterates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from helpers import assert_order, lie_terms, paper_terms, relative, step_error
from problems import (
    GENERIC_START,
    GENERIC_TERMS,
    LOSSES,
    MATRIX,
    QUADRATIC_START,
    generic,
    lotka_volterra,
    mlp_loss,
    quadratic,
)

import igr
from igr.modified import taylor
from igr.modified.euler import modified_coefficients
from igr.modified.iterates import log_weights

HS = {0: (2e-2, 1e-2), 1: (2e-2, 1e-2), 2: (2e-2, 1e-2), 3: (2e-2, 1e-2), 4: (1.5e-2, 7.5e-3)}
each_loss = pytest.mark.parametrize(("name", "loss", "start"), LOSSES, ids=[case[0] for case in LOSSES])


def euler(field):
    return lambda x, h: igr.calculus.add_scaled(x, h, field(x))


def test_reference_values():
    terms = igr.modified_terms(igr.gradient_field(generic), order=4)
    values = jnp.stack([f(GENERIC_START) for f in terms])
    assert jnp.max(jnp.abs(values - GENERIC_TERMS)) < 1e-8


@each_loss
@pytest.mark.parametrize("order", range(5))
def test_one_step_error_has_the_order_of_the_truncation(name, loss, start, order):
    field = igr.gradient_field(loss)
    error = step_error(lambda h: igr.modified_field(field, h, order), start, euler(field))
    assert_order(error, HS[order], order + 2)


def test_it_holds_for_a_field_that_is_no_gradient():
    start = jnp.array([1.5, 0.5])
    error = step_error(lambda h: igr.modified_field(lotka_volterra, h, 2), start, euler(lotka_volterra))
    assert_order(error, (2e-2, 1e-2), 4)
    # BSeries.jl's test value: p' = p(2-q) - h/2 (p(2-q)^2 - pq(p-1)) + ...
    p, q = start
    f1 = igr.modified_terms(lotka_volterra, 1)[1](start)
    assert jnp.allclose(f1[0], -(p * (2 - q) ** 2 - p * q * (p - 1)) / 2)


@each_loss
@pytest.mark.parametrize("dropped", ["f'f'f", "f''(f,f)"])
def test_dropping_a_single_elementary_differential_of_f2_lowers_the_order(name, loss, start, dropped):
    field = igr.gradient_field(loss)

    def truncated(h, without):
        f0, f1 = igr.modified_terms(field, 1)

        def summed(x):
            v = f0(x)
            tall = igr.derivative(field, x, igr.derivative(field, x, v))
            bushy = igr.derivative(field, x, v, v)
            total = igr.calculus.add_scaled(v, h, f1(x))
            total = igr.calculus.add_scaled(total, 0 if without == "f'f'f" else h**2 / 3, tall)
            return igr.calculus.add_scaled(total, 0 if without == "f''(f,f)" else h**2 / 12, bushy)

        return summed

    assert_order(step_error(lambda h: truncated(h, None), start, euler(field)), (2e-2, 1e-2), 4)
    assert_order(step_error(lambda h: truncated(h, dropped), start, euler(field)), (4e-3, 2e-3), 3)


@each_loss
def test_both_routes_agree(name, loss, start):
    field = igr.gradient_field(loss)
    for ours, oracle in zip(igr.modified_terms(field, 3), lie_terms(field, 3), strict=True):
        assert relative(ours(start), oracle(start)) < 1e-12


def test_both_routes_agree_on_a_network_of_ten_thousand_parameters(getkey):
    loss, params, args = mlp_loss(getkey(), sizes=(20, 100, 70, 10), dtype=jnp.float64)
    assert igr.num_params(params) == 9880
    field = igr.gradient_field(lambda p: loss(p, *args))
    oracle = jax.jit(lie_terms(field, 3)[3])(params)
    assert relative(jax.jit(igr.modified_terms(field, 3)[3])(params), oracle) < 1e-10
    # order five, whose flow no oracle reaches: its terms of order three are the same
    coefficients = jax.jit(modified_coefficients(field, 5))(params)
    assert relative(coefficients[3], oracle) < 1e-10
    assert len(coefficients) == 6


def test_the_recursion_of_the_papers_appendix_is_wrong_from_f3_on():
    field = igr.gradient_field(generic)
    start = jnp.array([-1.15, -0.17])  # where the error of its f_3 stands out against the next term
    paper, true = paper_terms(field, 3), lie_terms(field, 3)

    def order(terms):
        def truncated(h):
            return lambda x: sum((h**k * f(x) for k, f in enumerate(terms)), start=jnp.zeros_like(x))

        return igr.observed_order(step_error(truncated, start, euler(field)), (4e-2, 2e-2))[-1]

    assert order(paper[:3]) == pytest.approx(4, abs=0.1)
    assert order(paper) == pytest.approx(4, abs=0.1)  # nothing is gained by its f_3
    assert order(true) == pytest.approx(5, abs=0.1)


def test_f2_is_not_a_gradient():
    jacobian = jax.jacobian(igr.modified_terms(igr.gradient_field(generic), 2)[2])(GENERIC_START)
    assert abs(jacobian[0, 1] - jacobian[1, 0]) == pytest.approx(0.412, abs=2e-3)
    first = jax.jacobian(igr.modified_terms(igr.gradient_field(generic), 1)[1])(GENERIC_START)
    assert jnp.allclose(first, first.T, atol=1e-12)


@pytest.mark.parametrize(("h_lambda", "order"), [(0.1, 10), (0.3, 18), (0.45, 26)])
def test_on_a_quadratic_the_field_is_the_logarithm(h_lambda, order):
    h = h_lambda / 2.0  # the largest eigenvalue is 2
    exact = scipy.linalg.logm(np.eye(5) - h * MATRIX) / h @ np.asarray(QUADRATIC_START)
    ours = jax.jit(igr.modified_field(igr.gradient_field(quadratic), h, order))(QUADRATIC_START)
    assert np.max(np.abs(ours - exact)) < 1e-10
    fewer = jax.jit(igr.modified_field(igr.gradient_field(quadratic), h, order // 2))(QUADRATIC_START)
    assert np.max(np.abs(fewer - exact)) > 1e-10  # the order was needed


@pytest.mark.parametrize(
    ("x", "errors"),
    [
        (0.1, (0.048, 0.003, 0.0002, 0.0000)),
        (0.3, (0.136, 0.027, 0.006, 0.0015)),
        (0.5, (0.213, 0.071, 0.027, 0.011)),
        (1.0, (0.368, 0.223, 0.160, 0.125)),
        (2.0, (0.568, 0.509, 0.501, 0.500)),
    ],
)
def test_the_table_of_one_step_errors_on_a_single_mode(x, errors):
    """docs/theory.md, section 3: relative to the step, at h lambda = x, with f_0 up to f_0 ... f_3."""
    for order, expected in enumerate(errors):
        field = igr.modified_field(lambda theta: -theta, x, order)
        end = igr.flow(field, jnp.array(1.0), [0.0, x])[-1]
        relative_error = abs(float(end) - (1 - x)) / x
        assert relative_error == pytest.approx(expected, abs=6e-4 if expected > 0.002 else 6e-5)


def test_outside_its_radius_the_series_diverges():
    terms = igr.modified_terms(igr.gradient_field(quadratic), 8)
    h = 1.5 / 2.0
    sizes = [float(h**k * jnp.linalg.norm(f(QUADRATIC_START))) for k, f in enumerate(terms)]
    assert sizes[8] > sizes[7] > sizes[6]


@pytest.mark.parametrize(
    "field",
    [
        lambda x: -(x**2.0),  # a real power: jet would take its logarithm
        lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y - 0.1 * y**3, x) - x,  # a loop, which jet does not know
        lambda x: -jax.nn.softplus(x),  # a custom derivative rule
    ],
    ids=["power", "loop", "softplus"],
)
def test_primitives_that_taylor_mode_does_not_know(field):
    x = jnp.array([-0.7, 0.4])
    for ours, oracle in zip(igr.modified_terms(field, 3), lie_terms(field, 3), strict=True):
        assert relative(ours(x), oracle(x)) < 1e-12


def test_the_two_ways_of_composing_series_agree():
    x = [jnp.array([0.3, -0.2]), jnp.array([1.0, 0.5]), jnp.array([-0.4, 0.1]), jnp.array([0.2, 0.0])]
    fast = taylor.compose(jnp.tanh, x[0], 3)(x)
    slow = taylor._by_nesting(jax.make_jaxpr(jnp.tanh)(x[0]), [x], 3)
    assert all(jnp.allclose(a, b[0], atol=1e-14) for a, b in zip(fast, slow, strict=True))


def test_terms_take_args_and_survive_jit_vmap_and_grad(getkey):
    loss, params, args = mlp_loss(getkey(), sizes=(3, 4, 2), dtype=jnp.float64)
    f1 = igr.modified_terms(igr.gradient_field(loss), 1)[1]
    gradient = jax.grad(igr.modified_loss(loss, 1.0))(params, *args)
    plain = jax.grad(loss)(params, *args)
    assert relative(f1(params, *args), jax.tree.map(jnp.subtract, plain, gradient)) < 1e-12
    stacked = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), params)
    batched = jax.jit(jax.vmap(lambda p: f1(p, *args)))(stacked)
    assert relative(jax.tree.map(lambda x: x[1], batched), f1(jax.tree.map(lambda x: 2 * x, params), *args)) < 1e-12
    # derivative of the third term against a difference quotient
    f2 = igr.modified_terms(igr.gradient_field(generic), 2)[2]
    v = jnp.array([0.3, -0.8])
    quotient = (f2(GENERIC_START + 1e-6 * v) - f2(GENERIC_START - 1e-6 * v)) / 2e-6
    assert jnp.allclose(jax.jvp(f2, (GENERIC_START,), (v,))[1], quotient, rtol=1e-6)


def test_weights_are_those_of_a_derivative():
    for ahead, back in [(1, 0), (4, 0), (3, 3), (2, 4)]:
        weights = log_weights(ahead, back)
        for power in range(ahead + back + 1):  # exact for polynomials up to that degree
            moment = sum(w * float(j) ** power for j, w in weights.items())
            assert moment == pytest.approx(1.0 if power == 1 else 0.0, abs=1e-9)


def test_bad_input_is_one_sentence():
    field = igr.gradient_field(generic)
    with pytest.raises(ValueError, match="order must be at least 0, but it is -1"):
        igr.modified_terms(field, -1)
    with pytest.raises(ValueError, match="order must be at least 1, but it is 0"):
        igr.step_field(lambda x: x, 0)
    with pytest.raises(TypeError, match="order must be a whole number, not float"):
        igr.modified_field(field, 0.1, 1.5)
    with pytest.raises(ValueError, match="h must be finite, but it is nan"):
        igr.modified_field(field, float("nan"), 1)
    with pytest.raises(TypeError, match="is int"):
        igr.modified_terms(lambda x: x, 1)[1](jnp.array([1, 2]))
