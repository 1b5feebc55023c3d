"""Stability limits against the step's own amplification: iterate at the limit, just below and just above."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import igr


def amplified(optimizer, curvature, mu=0.0, n=4000):
    """Whether descent on the mode curvature x^2 / 2, penalized, grows."""
    gradient = jax.grad(lambda x: 0.5 * curvature * x**2 + mu * (curvature * x) ** 2)

    def step(state):
        x, memory = state
        updates, memory = optimizer.update(gradient(x), memory, x)
        return x + updates, memory

    start = jnp.array(1.0)
    with jax.numpy_dtype_promotion("standard"):
        end, _ = jax.lax.fori_loop(0, n, lambda _, s: step(s), (start, optimizer.init(start)))
    return not abs(float(end)) < 1


OPTIMIZERS = [
    ({}, {}, 0.0),
    ({}, {}, 0.02),
    ({}, {}, 3.0),
    ({"momentum": 0.9}, {"momentum": 0.9}, 0.0),
    ({"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "nesterov": True}, 0.0),
    ({"momentum": 0.5}, {"momentum": 0.5}, 0.1),
]


@pytest.mark.parametrize(("ours", "theirs", "mu"), OPTIMIZERS)
def test_an_optimizer_grows_just_above_its_limit_and_shrinks_just_below(ours, theirs, mu):
    h = 0.13
    limit = float(igr.stability_limit(h, mu, **ours))
    assert not amplified(optax.sgd(h, **theirs), 0.995 * limit, mu)
    assert amplified(optax.sgd(h, **theirs), 1.005 * limit, mu)


def test_closed_forms():
    h = 0.2
    assert igr.stability_limit(h) == pytest.approx(2 / h)
    assert igr.stability_limit(h, momentum=0.9) == pytest.approx(2 * 1.9 / h)
    assert igr.stability_limit(h, momentum=0.9, nesterov=True) == pytest.approx(3.8 / 2.8 / h)
    for mu in (1e-3, h / 4, 5.0):  # docs/theory.md, "How large may mu be"
        assert float(igr.stability_limit(h, mu)) == pytest.approx((np.sqrt(1 + 16 * mu / h) - 1) / (4 * mu))


def test_a_tiny_mu_does_not_cancel():
    assert float(igr.stability_limit(0.1, mu=1e-17)) == pytest.approx(20.0)
    assert (np.sqrt(1 + 16 * 1e-17 / 0.1) - 1) / (4 * 1e-17) != pytest.approx(20.0)  # the printed form


@pytest.mark.parametrize("kind", [{}, {"momentum": 0.9}, {"momentum": 0.8, "nesterov": True}])
def test_largest_mu_is_the_inverse(kind):
    h = 0.1
    for mu in (0.01, 0.3, 2.0):
        limit = igr.stability_limit(h, mu, **kind)
        assert float(igr.largest_mu(h, limit, **kind)) == pytest.approx(mu, rel=1e-10)
    above = igr.stability_limit(h, **kind)
    assert float(igr.largest_mu(h, 1.01 * above, **kind)) == 0
    assert float(igr.largest_mu(h, -3.0, **kind)) == np.inf


def test_they_are_traced_mapped_and_differentiated():
    limits = jax.jit(jax.vmap(lambda mu: igr.stability_limit(0.1, mu)))(jnp.array([0.0, 0.025]))
    assert limits.tolist() == pytest.approx([20.0, 12.36068], rel=1e-6)
    slope = jax.grad(lambda h: igr.stability_limit(h, 0.0))(0.1)
    assert float(slope) == pytest.approx(-2 / 0.1**2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"h": 0.0}, "h must be positive"),
        ({"h": -1.0}, "h must be positive"),
        ({"h": 0.1, "mu": -0.1}, "mu must be zero or more"),
        ({"h": 0.1, "momentum": 1.0}, "momentum must be below 1.0"),
        ({"h": float("inf")}, "h must be finite"),
        ({"h": "0.1"}, "h must be a real number"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        igr.stability_limit(**arguments)
