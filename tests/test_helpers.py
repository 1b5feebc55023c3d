"""A helper that cannot fail proves nothing: each one here meets a pair that must fail."""

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_order, compilations, lie_terms, paper_terms, relative, step_error
from problems import GENERIC_START, GENERIC_TERMS, generic

import igr


def test_relative_sees_a_difference_and_a_nan():
    a = {"x": jnp.array([3.0, 4.0])}
    assert relative(a, a) == 0
    assert relative({"x": jnp.array([3.0, 4.5])}, a) == pytest.approx(0.1)
    with pytest.raises(AssertionError, match="not finite"):
        relative({"x": jnp.array([jnp.nan, 4.0])}, a)
    with pytest.raises(AssertionError):
        relative({"y": a["x"]}, a)


def test_compilations_are_counted():
    x, double = jnp.array(1.0), jax.jit(lambda x: 2 * x)
    assert [compilations(lambda: double(x)) for _ in range(2)] == [1, 0]
    assert compilations(lambda: jax.lax.cond(x > 0, lambda: x, lambda: -x)) > 0


def test_assert_order_refuses_the_wrong_order():
    assert_order(lambda h: 2 * h**3 + h**4, [0.02, 0.01], 3)
    with pytest.raises(AssertionError, match=r"observed order 3\.0"):
        assert_order(lambda h: 2 * h**3 + h**4, [0.02, 0.01], 2)


def test_step_error_sees_a_wrong_field():
    def step(x, h):
        return x - h * x

    exact = step_error(lambda h: lambda x: jnp.log(1 - h) / h * x, jnp.array(1.0), step)
    wrong = step_error(lambda h: lambda x: -x, jnp.array(1.0), step)
    assert exact(0.1) < 1e-12
    assert wrong(0.1) > 1e-3


def test_the_oracle_gives_the_reference_values_and_the_paper_recursion_leaves_them_at_f3():
    field = igr.gradient_field(generic)
    true = jnp.stack([f(GENERIC_START) for f in lie_terms(field, 4)])
    assert jnp.max(jnp.abs(true - GENERIC_TERMS)) < 1e-8
    paper = jnp.stack([f(GENERIC_START) for f in paper_terms(field, 3)])
    assert jnp.max(jnp.abs(paper[:3] - GENERIC_TERMS[:3])) < 1e-8
    # the value that theory.md found for the appendix's f_3
    assert jnp.allclose(paper[3], jnp.array([-29.5431, 31.5329]), atol=1e-4)
