"""The radius of differences of gradients: what it means, and the one that is taken where none is given."""

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_order, relative
from problems import GENERIC_START, generic, mlp_loss

import igr
from igr.penalty.differences import side


@pytest.mark.parametrize(("method", "order"), [("forward", 1), ("central", 2)])
def test_order_of_the_difference(method, order):
    exact = igr.value_and_grad(generic, 0.2)(GENERIC_START)[1]

    def error(radius):
        return jnp.linalg.norm(igr.value_and_grad(generic, 0.2, method, radius=radius)(GENERIC_START)[1] - exact)

    assert_order(error, (2e-2, 1e-2, 5e-3), order)


def test_the_radius_is_the_length_of_the_perturbation():
    """Forward difference with radius rho: g + 2 mu |g| (grad E(theta + rho g/|g|) - g) / rho."""
    rho, mu = 0.05, 0.3
    g = jax.grad(generic)(GENERIC_START)
    norm = jnp.linalg.norm(g)
    expected = g + 2 * mu * norm / rho * (jax.grad(generic)(GENERIC_START + rho * g / norm) - g)
    assert jnp.allclose(igr.value_and_grad(generic, mu, "forward", radius=rho)(GENERIC_START)[1], expected, rtol=1e-12)


@pytest.mark.parametrize(("activation", "dtype", "unit"), [
    (jnp.tanh, jnp.float32, 2**-23),
    (jnp.tanh, jnp.bfloat16, 2**-7),
    (jax.nn.gelu, jnp.float32, 2**-23),
    (jax.nn.elu, jnp.float32, 2**-23),
    (jax.nn.relu, jnp.float64, 2**-52),
    (jax.nn.relu, jnp.bfloat16, None),
    (jax.nn.relu, jnp.float32, None),
])  # fmt: skip
@pytest.mark.parametrize(("method", "root"), [("forward", 1 / 2), ("central", 1 / 3)])
def test_the_default_radius_is_made_for_rounding_but_with_kinks(getkey, activation, dtype, unit, method, root):
    """The root of the unit, bit for bit, times m^(-1/10) in low precision; with kinks 0.2 at least. The length is 1."""
    loss, params, args = mlp_loss(getkey(), activation=activation, dtype=dtype)
    radius = igr.default_radius(loss, params, *args, method=method)
    low = igr.num_params(params) ** -0.1
    wanted = jnp.asarray(unit**root * (low if unit > 2**-20 else 1.0) if unit else 0.2, radius.dtype)
    assert radius == wanted


def test_a_difference_over_kinks_needs_a_way(getkey):
    """With ReLU few short differences meet a kink, but their errors are huge: over batches a longer way is better."""
    loss, params, (_, labels) = mlp_loss(getkey(), sizes=(8, 16, 16, 4), activation=jax.nn.relu)
    batches = jax.random.normal(getkey(), (1000, 16, 8), jnp.float32)

    def errors(radius):
        @jax.vmap
        def error(x):
            exact = igr.value_and_grad(loss, 0.5)(params, x, labels)[1]
            forward = igr.value_and_grad(loss, 0.5, "forward", radius=radius)(params, x, labels)[1]
            hg = jax.tree.map(jnp.subtract, exact, jax.grad(loss)(params, x, labels))  # 2 mu Hg with mu = 1/2
            return igr.squared_norm(jax.tree.map(jnp.subtract, forward, exact)) / igr.squared_norm(hg)

        return jnp.sqrt(jax.jit(error)(batches))

    short, default = errors(2**-11.5), errors(None)
    assert jnp.mean(short > 0.05) < 0.1 < 0.5 < jnp.mean(default > 0.05)
    assert jnp.mean(default) < jnp.mean(short)
    assert 5 * jnp.sqrt(jnp.mean(default**2)) < jnp.sqrt(jnp.mean(short**2))


def test_parameters_of_any_scale(getkey):
    """Large parameters need a longer step, small ones a shorter one; the automatic one follows."""
    for scale in (1e-4, 1.0, 1e3):

        def loss(p, scale=scale):
            return generic(p / scale)

        p = (GENERIC_START * scale).astype(jnp.float32)
        exact = igr.value_and_grad(loss, 0.2 * scale**2)(p)[1]
        for method in ("forward", "central"):
            assert relative(igr.value_and_grad(loss, 0.2 * scale**2, method)(p)[1], exact) < 2e-3


def test_by_default_the_forward_difference_looks_to_both_sides(getkey):
    """Half of the steps each, by the digits of |g|^2, and not by its rounding."""
    loss, params, (_, labels) = mlp_loss(getkey(), activation=jax.nn.relu)
    batches = jax.random.normal(getkey(), (64, 16, 8), jnp.float32)

    def seen(x):
        g = jax.grad(loss)(params, x, labels)
        norm2 = igr.squared_norm(g)
        radius = igr.default_radius(loss, params, x, labels)
        ours = igr.value_and_grad(loss, 0.5, "forward")(params, x, labels)[1]
        ahead, behind = (
            jax.grad(loss)(igr.calculus.add_scaled(params, s * radius / jnp.sqrt(norm2), g), x, labels) for s in (1, -1)
        )
        wanted = [
            jax.tree.map(lambda a, b, s=s: b + s * jnp.sqrt(norm2) / radius * (a - b), moved, g)
            for s, moved in ((1, ahead), (-1, behind))
        ]
        return side(norm2), side(norm2 * (1 + 1e-6)), [distance(ours, w) / jnp.sqrt(norm2) for w in wanted]

    def distance(a, b):
        return jnp.sqrt(igr.squared_norm(jax.tree.map(jnp.subtract, a, b)))

    sides, rounded, (to_ahead, to_behind) = jax.jit(jax.vmap(seen))(batches)
    assert 16 <= jnp.sum(sides > 0) <= 48
    assert jnp.sum(sides != rounded) <= 1
    assert jnp.all(jnp.where(sides > 0, to_ahead, to_behind) < 1e-3)
    assert jnp.all(jnp.where(sides > 0, to_behind, to_ahead) > 1e-2)  # the sides differ: there are kinks between
