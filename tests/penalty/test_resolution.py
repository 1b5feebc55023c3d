"""The rounding unit of a program, found in the program and not in its inputs."""

import jax
import jax.numpy as jnp
import pytest

import igr
from igr.penalty.resolution import resolution

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


LOW = {
    "elementwise in bfloat16": (lambda w: jnp.sum((w.astype(jnp.bfloat16) ** 2).astype(jnp.float32)), 2**-7),
    "elementwise in float16": (lambda w: jnp.sum(jnp.tanh(w.astype(jnp.float16)).astype(jnp.float32)), 2**-10),
    "bfloat16 activations of float32 products": (
        lambda w: jnp.sum((w @ w).astype(jnp.bfloat16).astype(jnp.float32) ** 2),
        2**-7,
    ),
    "log_softmax in bfloat16": (
        lambda w: jnp.sum(jax.nn.log_softmax(w.astype(jnp.bfloat16)).astype(jnp.float32) ** 2),
        2**-7,
    ),
    "an embedding": (lambda w: jnp.sum(w.astype(jnp.bfloat16)[jnp.array([0, 2])].astype(jnp.float32) ** 2), 2**-7),
    "a ragged product": (
        lambda w: jnp.sum(
            jax.lax.ragged_dot(
                w.astype(jnp.bfloat16),
                jnp.stack([w, w]).astype(jnp.bfloat16),
                jnp.array([1, 2], jnp.int32),
                preferred_element_type=jnp.float32,
            )
        ),
        2**-7,
    ),
    "a product that is rounded afterwards": (
        lambda w: jnp.sum(jax.lax.dot(w, w, preferred_element_type=jnp.bfloat16).astype(jnp.float32)),
        2**-7,
    ),
    "a preset": (lambda w: jnp.sum(jax.lax.dot(w, w, precision="BF16_BF16_F32")), 2**-7),
    "a preset of three passes": (lambda w: jnp.sum(jax.lax.dot(w, w, precision="BF16_BF16_F32_X3")), 2**-15),
    "a preset of TensorFloat-32": (lambda w: jnp.sum(jax.lax.dot(w, w, precision="TF32_TF32_F32")), 2**-10),
    "an accelerated preset": (lambda w: jnp.sum(jax.lax.dot(w, w, precision="F32_F32_F32")), 2**-23),
    "float32 rounded to seven bits": (lambda w: jnp.sum(jax.lax.reduce_precision(w, 8, 7) ** 2), 2**-7),
    "data in bfloat16, computed in float32": (
        lambda w: jnp.sum(w * jnp.ones(3, jnp.bfloat16).astype(jnp.float32)[None]),
        2**-23,
    ),
}


@pytest.mark.parametrize("name", LOW)
def test_every_operation_on_the_way_counts(name):
    function, unit = LOW[name]
    assert resolution(function, W) == unit
    assert resolution(jax.grad(function), W) == unit if name.startswith("data") else True


def test_what_does_not_reach_the_gradient_does_not_count():
    """A metric in bfloat16 beside a loss in float32."""

    def loss(w):
        return jnp.sum(w**4), jnp.mean(w.astype(jnp.bfloat16))

    fine = igr.value_and_grad(lambda w: jnp.sum(w**4), 0.1, "forward")(W)[1]
    assert jnp.array_equal(igr.value_and_grad(loss, 0.1, "forward", has_aux=True)(W)[1], fine)


def test_a_loss_in_bfloat16_elementwise_keeps_its_penalty():
    """A radius made for float32 would drown in the rounding: off by ten times |Hg| and more."""
    w = jnp.linspace(0.5, 1.5, 64, dtype=jnp.float32)

    def loss(w, dtype=jnp.bfloat16):
        return jnp.mean(jnp.sin(3 * w.astype(dtype)).astype(jnp.float32) ** 2)

    def hg(loss, **options):
        g = jax.grad(loss)(w)
        return 2.5 * (igr.value_and_grad(loss, 0.2, **options)(w)[1] - g)

    with jax.numpy_dtype_promotion("standard"):
        exact = hg(lambda w: loss(w, jnp.float32))
        ours = hg(loss, method="forward")
        short = hg(loss, method="forward", radius=3.5e-4)
    norm = jnp.linalg.norm(exact)
    assert jnp.linalg.norm(ours - exact) < norm < 5 * norm < jnp.linalg.norm(short - exact)


def test_high_precision_is_tensorfloat_on_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert resolution(lambda w: jnp.sum(jnp.matmul(w, w, precision="high")), W) == 2**-10
