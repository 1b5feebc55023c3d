"""The modified equation of explicit Euler, and of any step map from its iterates."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
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
from igr import taylor
from igr.modified import log_weights

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
    # order six, whose flow no oracle reaches: its terms of order three are the same
    coefficients = jax.jit(igr.modified.modified_coefficients(field, 6))(params)
    assert relative(coefficients[3], oracle) < 1e-10
    assert len(coefficients) == 7


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
    slow = taylor._by_nesting(lambda y: [jnp.tanh(y)], [x], 3)
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


# The field of a step map
# -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", range(1, 7))
def test_step_field_of_gradient_descent_has_one_order_more_than_iterates(order):
    loss, start = LOSSES[0][1:]
    field = igr.gradient_field(loss)

    def field_of_h(h):
        return igr.step_field(lambda x: igr.calculus.add_scaled(x, h, field(x)), order)

    hs = {5: (1.2e-2, 6e-3), 6: (6e-3, 4.5e-3)}.get(order, (2e-2, 1e-2))
    assert_order(step_error(field_of_h, start, euler(field), time=lambda h: 1.0), hs, order + 1)


def test_step_field_agrees_with_the_modified_field():
    field = igr.gradient_field(generic)
    h = 1e-2
    ours = igr.step_field(lambda x: x + h * field(x), 4)(GENERIC_START) / h
    assert relative(ours, igr.modified_field(field, h, 3)(GENERIC_START)) < 1e-4 < relative(ours, field(GENERIC_START))


def test_step_field_costs_exactly_order_evaluations():
    calls = []

    def step(x):
        jax.debug.callback(lambda: calls.append(1))
        return 0.9 * x

    for order in (1, 3, 6):
        calls.clear()
        jax.block_until_ready(igr.step_field(step, order)(jnp.array(1.0)))
        jax.effects_barrier()
        assert len(calls) == order


def heavy_ball(loss, h, beta):
    """v <- beta v + g; theta <- theta - h v, as optax.trace and torch have it."""
    gradient = jax.grad(loss)

    def step(state):
        theta, v = state
        v = jax.tree.map(lambda v, g: beta * v + g, v, gradient(theta))
        return igr.calculus.add_scaled(theta, -h, v), v

    return step


GAMMA = 3.0  # (1 + beta) / (1 - beta) of heavy ball at beta = 0.5


def momentum_field(loss, h, gamma=GAMMA, s=2.0):
    """-s grad(E + h s gamma/4 |grad E|^2), s = 1/(1 - beta): the modified field of heavy ball to first order."""
    gradient = jax.grad(igr.modified_loss(loss, h * s * gamma))
    return lambda x: -s * gradient(x)


def run_in(h, steps=52):
    """A state of heavy ball whose velocity has forgotten its start (beta^52 is rounding) near the same parameters.

    It starts where the modified flow was `steps` steps ago, so that the end point moves with h only at second order.
    """
    back = igr.flow(lambda x: -momentum_field(generic, h)(x), GENERIC_START, jnp.stack([0 * h, steps * h]))[-1]
    state = (back, 2.0 * jax.grad(generic)(back))
    return jax.lax.fori_loop(0, steps, lambda _, s: heavy_ball(generic, h, 0.5)(s), state)


@pytest.mark.parametrize("order", range(1, 5))
def test_step_field_of_heavy_ball_after_burn_in(order):
    @jax.jit
    def error(h):
        step, state = heavy_ball(generic, h, 0.5), run_in(h)
        rough, accurate = (igr.step_field(step, n, of=lambda s: s[0])(state) for n in (order, 10))
        return jnp.linalg.norm(rough - accurate)

    assert_order(lambda h: error(jnp.asarray(h)), (1e-3, 5e-4) if order < 4 else (3e-3, 1.5e-3), order + 1)


def test_step_field_of_heavy_ball_is_the_modified_loss_of_momentum():
    @jax.jit
    def error(h, gamma):
        state = run_in(h)
        field = igr.step_field(heavy_ball(generic, h, 0.5), 4, of=lambda s: s[0])(state)
        return jnp.linalg.norm(field - h * momentum_field(generic, h, gamma)(state[0]))

    assert_order(lambda h: error(jnp.asarray(h), GAMMA), (1e-3, 5e-4), 3)
    assert_order(lambda h: error(jnp.asarray(h), 1.0), (1e-3, 5e-4), 2)  # gradient descent's coefficient is wrong


def test_on_the_full_state_of_momentum_the_error_does_not_fall_with_h():
    beta = 0.5

    def relative_error(h, order):
        step = heavy_ball(generic, h, beta)
        state = (GENERIC_START, jnp.zeros(2))
        rough, accurate = (igr.step_field(step, n)(state)[0] for n in (order, 40))
        return float(jnp.linalg.norm(rough - accurate) / jnp.linalg.norm(accurate))

    large, small = relative_error(1e-2, 2), relative_error(1e-4, 2)
    assert small == pytest.approx(large, rel=0.2)
    assert small == pytest.approx(0.22, abs=0.03)  # theory.md section 9: .22 at order 2, .035 at order 4
    assert relative_error(1e-4, 4) == pytest.approx(0.035, abs=0.006)


def test_step_field_of_an_optax_optimizer():
    """Any GradientTransformation: a state with a count and moments, of which the parameters are taken out."""
    optimizer = optax.adam(1e-3, b1=0.9, b2=0.95, eps=1e-2)

    def step(state):
        params, memory = state
        updates, memory = optimizer.update(jax.grad(generic)(params), memory, params)
        return optax.apply_updates(params, updates), memory

    with jax.numpy_dtype_promotion("standard"):
        state = (GENERIC_START, optimizer.init(GENERIC_START))
        run_in = jax.lax.fori_loop(0, 400, lambda _, s: step(s), state)
        fields = [igr.step_field(step, n, of=lambda s: s[0])(run_in) for n in (1, 2, 3, 4, 6)]
    errors = [float(jnp.linalg.norm(f - fields[-1])) for f in fields[:-1]]
    assert all(later < earlier / 5 for earlier, later in pairwise(errors))


def test_beyond_h_lambda_one_the_terms_grow():
    values = [float(igr.step_field(lambda x: x - 1.6 * x, n)(jnp.array(1.0))) for n in (5, 10, 20, 40)]
    steps = np.abs(np.diff(values))
    assert steps[0] < steps[1] < steps[2]


def test_in_float32_nothing_is_gained_beyond_order_two():
    def field(order, dtype, h=1e-3):
        step = igr.gradient_step(generic, h)
        return np.asarray(igr.step_field(step, order)(GENERIC_START.astype(dtype)), np.float64) / h

    accurate = field(8, jnp.float64)
    errors = {n: np.linalg.norm(field(n, jnp.float32) - accurate) for n in (1, 2, 4, 6)}
    assert errors[2] < errors[1] / 5
    assert errors[4] > errors[2] / 2
    assert errors[6] > errors[2] / 2


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
