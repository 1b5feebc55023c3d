"""The rounding unit of a program, found in the program and not in its inputs."""

import jax
import jax.numpy as jnp
import pytest

from igr.resolution import resolution

W = jnp.ones((3, 3), jnp.float32)


@pytest.mark.parametrize(("dtype", "eps"), [(jnp.float64, 2**-52), (jnp.float32, 2**-23), (jnp.bfloat16, 2**-7)])
def test_the_coarsest_product_counts(dtype, eps):
    assert resolution(lambda w: jnp.sum(w.astype(dtype) @ w.astype(dtype)), jnp.ones((3, 3))) == max(eps, 2**-52)


def test_it_looks_inside_loops_and_calls():
    def loop(w):
        low = w.astype(jnp.bfloat16)
        return jnp.sum(jax.lax.fori_loop(0, 3, lambda _, x: jax.jit(jnp.matmul)(x, low), low))

    assert resolution(loop, W) == 2**-7


def test_inputs_and_elementwise_programs():
    assert resolution(jnp.sum, W) == 2**-23
    assert resolution(jnp.sum, W.astype(jnp.bfloat16)) == 2**-7


def test_float32_is_not_float32_on_every_machine(monkeypatch):
    def product(w):
        return jnp.sum(w @ w)

    assert resolution(product, W) == 2**-23
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert resolution(product, W) == 2**-10
    with jax.default_matmul_precision("highest"):
        assert resolution(product, W) == 2**-23
    assert resolution(lambda w: jnp.sum(jnp.matmul(w, w, precision="highest")), W) == 2**-23
