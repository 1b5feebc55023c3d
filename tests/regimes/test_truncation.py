"""Errors of one step by order, term sizes and the bound of the moderate regime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_order, lie_terms
from problems import GENERIC_START, LOSSES, MATRIX, QUADRATIC_START, generic, quadratic

import igr
from igr.regimes.truncation import measured_errors, mode_error

TABLE = {  # theory.md, section 8: x = h lambda, then gradient flow, modified loss, f_2, f_3
    0.1: (0.048, 0.003, 0.0002, 0.0000),
    0.3: (0.136, 0.027, 0.006, 0.0015),
    0.5: (0.213, 0.071, 0.027, 0.011),
    0.7: (0.281, 0.127, 0.067, 0.038),
    1.0: (0.368, 0.223, 0.160, 0.125),
    1.5: (0.482, 0.382, 0.349, 0.338),
    2.0: (0.568, 0.509, 0.501, 0.500),
}


def test_the_table_of_one_mode_to_three_digits():
    for x, row in TABLE.items():
        found = [float(mode_error(x, n)) for n in range(4)]
        assert found == pytest.approx(row, abs=6e-4), x


def test_the_table_is_what_one_step_of_descent_measures():
    """The same numbers from a step and a flow: mode_error is not only consistent with itself."""
    for x in (0.1, 0.7, 1.5):
        measured = measured_errors(lambda y: -y, x, orders=4, substeps=64)(jnp.array([1.0]))
        assert measured.tolist() == pytest.approx([float(mode_error(x, n)) for n in range(4)], rel=1e-5, abs=1e-10)


def test_with_too_few_substeps_the_solver_explodes_and_not_the_flow():
    """At x = 4 the truncated flows are stiff and benign: they stop near the minimum, while descent goes past it."""
    few, many = (measured_errors(lambda y: -y, 4.0, orders=5, substeps=n)(jnp.array([1.0])).tolist() for n in (16, 200))
    exact = [float(mode_error(4.0, n)) for n in range(5)]
    assert many == pytest.approx(exact, rel=1e-3)
    assert many == pytest.approx([0.755, 0.75, 0.75, 0.75, 0.75], abs=1e-3)
    assert few[:2] == pytest.approx(exact[:2], rel=1e-3)
    assert few[3] > 1e3
    assert few[4] > 1e20


def test_small_rates_keep_their_digits_in_float32():
    """x^(n+1)/(n+2) is far below the rounding of 1 - (1 - e^-s)/x, which is what a plain evaluation subtracts."""
    for n in range(4):
        x = np.float32(1e-3)
        assert float(mode_error(x, n)) == pytest.approx(1e-3 ** (n + 1) / (n + 2), rel=5e-3)
    assert mode_error(jnp.float32(0.5), 1).dtype == jnp.float32
    assert abs(float(mode_error(0.5, 2)) - float(mode_error(0.5 + 1e-9, 2))) < 1e-8  # no seam between the two forms


@pytest.mark.parametrize("order", range(3))
def test_measured_errors_have_the_orders_of_the_theory(order):
    loss, start = LOSSES[0][1:]
    errors = jax.jit(lambda h: measured_errors(igr.gradient_field(loss), h, orders=3)(start))
    assert_order(lambda h: errors(jnp.asarray(h))[order], (2e-2, 1e-2), order + 1)  # relative to the step, of size h


def test_moderate_bound_in_closed_form_and_against_the_recursion():
    g = MATRIX @ QUADRATIC_START
    h_star = 1.5 * np.linalg.norm(MATRIX @ g) / np.linalg.norm(MATRIX @ MATRIX @ g)
    assert float(igr.moderate_bound(quadratic)(QUADRATIC_START).h_star) == pytest.approx(h_star, rel=1e-10)
    bound = jax.jit(igr.moderate_bound(generic))(GENERIC_START)
    oracle = [float(jnp.linalg.norm(f(GENERIC_START))) for f in lie_terms(igr.gradient_field(generic), 3)]
    assert bound.norms.tolist() == pytest.approx(oracle, rel=1e-9)
    assert float(bound.h_star) == pytest.approx(oracle[1] / oracle[2])


HS = (0.5, 0.9, 1.4, 1.6, 2.5)


def test_the_optimal_order_falls_as_the_step_grows():
    """On one mode |h^n f_n| = x^(n+1)/(n+1): it falls for ever below x = 1 and stops at n near 1/(x - 1) - 1 above."""
    bound = igr.moderate_bound(lambda y: 0.5 * y**2, order=6)(jnp.array(1.0))
    orders = [int(bound.order(h)) for h in HS]
    expected = [int(np.argmin([h**n / (n + 1) for n in range(7)])) for h in HS]
    assert orders == expected == [6, 6, 2, 1, 0]
    assert float(bound.h_star) == pytest.approx(1.5)
    assert int(bound.order(1.49)) > 1 >= int(bound.order(1.51))  # the first order alone is best just above h_star


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="order must be at least 2"):
        igr.moderate_bound(quadratic, order=1)
    with pytest.raises(ValueError, match="h must be finite"):
        measured_errors(igr.gradient_field(quadratic), float("nan"))
    with pytest.raises(TypeError, match="real floating-point"):
        igr.moderate_bound(quadratic)(jnp.arange(5))
