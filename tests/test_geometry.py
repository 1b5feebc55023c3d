"""What the paper's propositions do not say: edge cases of the geometry, and parameter noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import GENERIC_START, generic, mlp_loss

import igr


def test_the_slope_is_differentiable_at_a_minimum():
    assert jax.grad(igr.slope(lambda x: x @ x))(jnp.zeros(2)).tolist() == [0.0, 0.0]
    away = jnp.array([3.0, 4.0])
    assert jnp.allclose(jax.grad(igr.slope(lambda x: x @ x))(away), 2 * away / 5)


def test_the_angle_keeps_its_digits_near_a_minimum():
    tiny = jnp.array([1e-9, 0.0])
    assert igr.angle(lambda x: x @ x)(tiny) == pytest.approx(2e-9, rel=1e-12)


def test_everything_takes_aux_args_jit_and_vmap(getkey):
    loss, params, args = mlp_loss(getkey(), dtype=jnp.float64)

    def with_aux(params, *args):
        return loss(params, *args), {"inputs": args[0]}

    for function in (igr.regularizer, igr.slope):
        value, aux = function(with_aux, has_aux=True)(params, *args)
        assert value == pytest.approx(float(function(loss)(params, *args)))
        assert jnp.array_equal(aux["inputs"], args[0])
    value, aux = igr.modified_loss(with_aux, 0.1, has_aux=True)(params, *args)
    assert value == pytest.approx(float(igr.modified_loss(loss, 0.1)(params, *args)))
    stack = jax.tree.map(lambda x: jnp.stack([x, 3 * x]), params)
    functions = [igr.regularizer, igr.slope, igr.angle, igr.cos_angle, igr.metric_determinant]
    for function in [*functions, lambda E: igr.norm_bound(E, 0.1), lambda E: igr.modified_loss(E, 0.1)]:
        many = jax.jit(jax.vmap(lambda p, f=function: f(loss)(p, *args)))(stack)
        one = function(loss)(jax.tree.map(lambda x: 3 * x, params), *args)
        assert many[1] == pytest.approx(float(one))
        assert all(jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(jax.jit(jax.grad(function(loss)))(params, *args)))


def test_arguments_may_be_given_by_name():
    def loss(params, x, *, scale):
        return scale * jnp.sum((params * x) ** 2)

    params, x = jnp.array([1.0, -2.0]), jnp.array([0.5, 0.25])
    makers = [igr.regularizer, igr.slope, igr.angle, igr.cos_angle, igr.normal, igr.metric_determinant]
    makers += [igr.gradient_field, lambda E: igr.norm_bound(E, 0.1), lambda E: igr.modified_loss(E, 0.1)]
    makers += [lambda E: igr.gradient_step(E, 0.1), lambda E: igr.modified_field(igr.gradient_field(E), 0.1, 2)]
    makers += [lambda E: igr.modified_terms(igr.gradient_field(E), 1)[1]]
    for make in makers:
        by_name, bound = make(loss)(params, x, scale=3.0), make(lambda p: loss(p, x, scale=3.0))(params)
        assert all(map(jnp.array_equal, jax.tree.leaves(by_name), jax.tree.leaves(bound)))
    product = igr.hvp(loss)(params, x, x, scale=3.0)
    assert jnp.array_equal(product, igr.hvp(lambda p: loss(p, x, scale=3.0))(params, x))


def test_noise_is_multiplicative_gaussian_and_independent(getkey):
    params = {"w": jnp.full((400, 500), 2.0), "b": jnp.full(100_000, -3.0, jnp.float32), "zero": jnp.zeros(5)}
    noisy = igr.perturb(getkey(), params, sigma=0.5)
    eta_w, eta_b = np.ravel(noisy["w"] / 2.0 - 1), np.asarray(noisy["b"] / -3 - 1)
    for eta in (eta_w, eta_b):
        assert np.mean(eta) == pytest.approx(0, abs=6e-3)
        assert np.std(eta) == pytest.approx(0.5, rel=1e-2)  # sigma is the standard deviation, not the variance
        assert np.mean(np.abs(eta) > 1.0) == pytest.approx(0.0455, abs=3e-3)  # two sigma, of a Gaussian
    assert abs(np.corrcoef(eta_w[: eta_b.size], eta_b)[0, 1]) < 0.02
    assert jnp.array_equal(noisy["zero"], params["zero"])
    assert noisy["b"].dtype == jnp.float32


def test_noise_depends_on_the_key_and_sigma_may_be_traced(getkey):
    key = getkey()
    a, b = igr.perturb(key, GENERIC_START, 0.1), igr.perturb(key, GENERIC_START, 0.1)
    assert jnp.array_equal(a, b)
    assert not jnp.array_equal(a, igr.perturb(getkey(), GENERIC_START, 0.1))
    many = jax.jit(jax.vmap(lambda s: igr.perturb(key, GENERIC_START, s)))(jnp.array([0.0, 0.1]))
    assert jnp.array_equal(many[0], GENERIC_START)
    assert jnp.allclose(many[1], a)


def test_bad_noise():
    with pytest.raises(ValueError, match="sigma must be finite"):
        igr.perturb(jax.random.key(0), GENERIC_START, float("inf"))


def test_the_normal_of_a_pytree_has_its_structure():
    across, up = igr.normal(lambda p: generic(p["x"]))({"x": GENERIC_START})
    assert across["x"].shape == (2,)
    assert up.shape == ()
