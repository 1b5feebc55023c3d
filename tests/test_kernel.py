"""The neural tangent kernel against the explicit Jacobian."""

import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree

import igr


@pytest.fixture
def case(getkey):
    params = {"a": jax.random.normal(getkey(), (3, 5)), "b": jax.random.normal(getkey(), (5, 2)), "c": jnp.array(0.3)}
    x, y = jax.random.normal(getkey(), (6, 3)), jax.random.normal(getkey(), (6, 2))
    return (lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"] + p["c"]), params, x, y


def jacobian(model, params, x):
    flat, unravel = ravel_pytree(params)
    return jax.jacrev(lambda p: model(unravel(p), x).ravel())(flat)


def test_the_kernel_against_the_explicit_jacobian(case, getkey):
    model, params, x, _ = case
    J = jacobian(model, params, x)
    assert J.shape == (12, 26)
    K = igr.kernel.ntk(model)(params, x)
    assert jnp.allclose(K.reshape(12, 12), J @ J.T)
    other = jax.random.normal(getkey(), (4, 3))
    cross = igr.kernel.ntk(model)(params, x, other)
    assert cross.shape == (6, 2, 4, 2)
    assert jnp.allclose(cross.reshape(12, 8), J @ jacobian(model, params, other).T)


def test_the_product_without_the_kernel(case, getkey):
    model, params, x, _ = case
    v = jax.random.normal(getkey(), (6, 2))
    K = igr.kernel.ntk(model)(params, x).reshape(12, 12)
    assert jnp.allclose(igr.kernel.vector_product(model)(params, x, v).ravel(), K @ v.ravel())


def test_the_product_does_not_form_the_kernel():
    """On 4096 outputs the kernel alone would be 64 MiB; the product's temporaries stay far below."""
    w, x, v = (jax.ShapeDtypeStruct(s, jnp.float32) for s in [(8, 8), (4096, 8), (4096,)])

    def model(w, x):
        return jnp.sum(jnp.tanh(x @ w), axis=1)

    compiled = jax.jit(igr.kernel.vector_product(model)).lower(w, x, v).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2 * 2**20


@pytest.mark.parametrize("scale", [1.0, 0.5, 1 / 6])
def test_R_through_the_kernel_is_the_direct_one(case, scale):
    model, params, x, y = case
    direct = igr.regularizer(igr.kernel.least_squares(model, scale))(params, x, y)
    assert igr.kernel.regularizer(model, scale)(params, x, y) == pytest.approx(float(direct))
    modified = igr.modified_loss(igr.kernel.least_squares(model, scale), 0.2)(params, x, y)
    assert igr.kernel.modified_loss(model, 0.2, scale)(params, x, y) == pytest.approx(float(modified))
