"""Sharpness by Lanczos and by a line search, against dense eigenvalues, SciPy's Lanczos and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from problems import MATRIX, NETWORK_START, QUADRATIC_START, mlp_loss, network, quadratic
from scipy.sparse.linalg import LinearOperator, eigsh

import igr
from igr.regimes.lanczos import lanczos, ritz


def dense(loss, params):
    flat, back = ravel_pytree(params)
    return jax.hessian(lambda x: loss(back(x)))(flat)


def test_sharpness_is_the_largest_dense_eigenvalue_and_fewer_products_bound_it_from_below():
    values, vectors = jnp.linalg.eigh(dense(network, NETWORK_START))
    top = float(values[-1])
    misses = []
    for products in (3, 24):
        value, error, vector = jax.jit(igr.sharpness(network, products=products))(NETWORK_START)
        assert float(value) <= top + 1e-12
        assert float(jnp.min(jnp.abs(values - value))) <= float(error) + 1e-12
        misses.append(top - float(value))
    assert abs(misses[1]) < 1e-9 * top < 1e-5 * top < misses[0]
    assert float(error) < 1e-6
    assert abs(abs(float(ravel_pytree(vector)[0] @ vectors[:, -1])) - 1) < 1e-9


def test_sharpness_is_the_largest_and_not_the_largest_in_size():
    value = jax.jit(igr.sharpness(lambda x: -quadratic(x)))(QUADRATIC_START).value
    assert float(value) == pytest.approx(-0.1, rel=1e-8)


def test_a_network_against_scipy_and_a_warm_start_of_three_products(getkey):
    """SciPy's Lanczos is the oracle; the vector of a nearby point beats a random start by orders of magnitude."""
    loss, params, args = mlp_loss(getkey(), sizes=(6, 12, 4), dtype=jnp.float64)
    _, _, vector = jax.jit(igr.sharpness(loss))(params, *args)
    later = jax.jit(igr.gradient_step(loss, 0.02))(params, *args)

    flat, back = ravel_pytree(later)
    product = jax.jit(lambda v: ravel_pytree(igr.hvp(loss)(later, back(v), *args))[0])
    apply = {"matvec": lambda v: product(np.ravel(v)), "dtype": np.float64}
    operator = LinearOperator((flat.size,) * 2, **apply)  # pyright: ignore[reportCallIssue] (it sees the base class)
    oracle = float(eigsh(operator, k=1, which="LA", tol=1e-10, v0=np.ones(flat.size))[0][0])

    traces = []

    @jax.jit
    def three(params, start):
        traces.append(1)
        return igr.sharpness(loss, products=3, start=start)(params, *args)

    warm = three(later, vector)
    cold = three(later, jax.tree.map(jnp.ones_like, vector))
    assert len(traces) == 1  # the start is traced: the second call compiled nothing
    assert 0 <= oracle - float(warm.value) < 1e-4 * oracle
    assert oracle - float(cold.value) > 100 * (oracle - float(warm.value))


def test_bfloat16_keeps_the_leading_digits_and_answers_in_float32(getkey):
    loss, params, args = mlp_loss(getkey(), sizes=(4, 6, 3), dtype=jnp.bfloat16)
    wide = jax.tree.map(lambda x: x.astype(jnp.float64), (params, args))
    top = float(jnp.linalg.eigvalsh(dense(lambda p: loss(p, *wide[1]), wide[0]))[-1])
    found = jax.jit(igr.sharpness(loss, products=12))(params, *args)
    assert found.value.dtype == jnp.float32
    assert float(found.value) == pytest.approx(top, rel=0.05)


def test_the_basis_is_orthonormal_where_plain_lanczos_loses_it():
    """Clustered eigenvalues: with the projections left out the basis repeats itself."""
    spectrum = jnp.concatenate([jnp.linspace(0, 1, 60), jnp.array([50.0, 100.0])])
    krylov = lanczos(lambda v: spectrum * v, jnp.ones(62), 40)
    gram = krylov.basis @ krylov.basis.T
    assert float(jnp.max(jnp.abs(gram - jnp.eye(40)))) < 1e-12


def test_an_exhausted_space_adds_no_eigenvalue():
    """A start in the span of two eigenvectors, both of negative curvature: zero must not come out on top."""
    spectrum = -jnp.array([1.0, 2.0, 3.0, 4.0, 5.0])
    found = ritz(lanczos(lambda v: spectrum * v, jnp.array([1.0, 1.0, 0.0, 0.0, 0.0]), 4))
    assert float(found.values[-1]) == pytest.approx(-1.0)
    assert float(jnp.sum(found.weights)) == pytest.approx(1.0)


def test_gauss_quadrature_is_exact_for_the_moments():
    krylov = lanczos(lambda v: MATRIX @ v, QUADRATIC_START, 3)
    found = ritz(krylov)
    square = QUADRATIC_START @ QUADRATIC_START
    power = QUADRATIC_START
    for k in range(6):  # degree below 2 k = 6
        moment = QUADRATIC_START @ power / square
        assert float(jnp.sum(found.weights * found.values**k)) == pytest.approx(float(moment), rel=1e-10)
        power = MATRIX @ power
    moment = QUADRATIC_START @ power / square
    assert float(jnp.sum(found.weights * found.values**6)) != pytest.approx(float(moment), rel=1e-6)


def test_directional_curvature_against_the_dense_hessian():
    g = ravel_pytree(jax.grad(network)(NETWORK_START))[0]
    oracle = float(g @ dense(network, NETWORK_START) @ g / (g @ g))
    assert float(jax.jit(igr.directional_curvature(network))(NETWORK_START)) == pytest.approx(oracle, rel=1e-10)


def test_critical_sharpness_of_a_quadratic_is_its_curvature_along_the_gradient():
    curvature = float(igr.directional_curvature(quadratic)(QUADRATIC_START))
    for guess in (1e-4, 0.1, 300.0):
        value, error = jax.jit(igr.critical_sharpness(quadratic, guess=guess, passes=24))(QUADRATIC_START)
        assert abs(float(value) - curvature) <= float(error)
        assert float(error) < 0.02 * curvature


def test_critical_sharpness_takes_an_optimizers_direction():
    """Along an eigenvector it is that eigenvalue, whatever the length of the gradient elsewhere."""
    vector = jnp.linalg.eigh(jnp.asarray(MATRIX))[1][:, -1]
    start = 3.0 * vector
    value, error = igr.critical_sharpness(quadratic, direction=-vector * 6.0, passes=30)(start)  # minus the gradient
    assert abs(float(value) - 2.0) <= float(error) < 0.01


def test_critical_sharpness_never_differentiates_twice(getkey):
    """A rule that refuses a second derivative, as fused attention kernels do."""

    @jax.custom_vjp
    def kernel(x):
        return jnp.sum(x**2)

    def bwd(x, ct):
        return (jax.pure_callback(lambda x, ct: 2 * x * ct, jax.ShapeDtypeStruct(x.shape, x.dtype), x, ct),)

    kernel.defvjp(lambda x: (kernel(x), x), bwd)
    start = jnp.array([1.0, -2.0])
    assert float(igr.critical_sharpness(kernel)(start).value) == pytest.approx(2.0, rel=0.05)
    with pytest.raises(TypeError, match=r"forward mode, which custom_vjp_call of kernel does not allow: .*callbacks"):
        igr.sharpness(kernel)(start)


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match=r"products must be a positive whole number .* 0\."):
        igr.sharpness(quadratic, products=0)
    with pytest.raises(ValueError, match="start must be a pytree of the structure and shapes of params"):
        igr.sharpness(quadratic, start={"x": QUADRATIC_START})(QUADRATIC_START)
    with pytest.raises(ValueError, match="passes must be"):
        igr.critical_sharpness(quadratic, passes=1)
    with pytest.raises(ValueError, match="guess must be finite"):
        igr.critical_sharpness(quadratic, guess=float("nan"))


def test_it_is_mapped():
    """Over points of a quadratic, which is as sharp everywhere."""
    starts = jnp.stack([QUADRATIC_START, -2 * QUADRATIC_START])
    assert jax.vmap(igr.sharpness(quadratic))(starts).value.tolist() == pytest.approx([2.0, 2.0])
