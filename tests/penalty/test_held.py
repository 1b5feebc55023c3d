"""Differences that hold the kinks: every choice is made as at the parameters, and the result is the exact penalty's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_order, relative
from jax import lax
from kinked import KINKED, SMOOTH, X
from problems import mlp_loss

import igr
from igr._jax import equations

PLACE = X + 0.03  # no choice is between equals
# What is opaque: a kernel has no exact penalty to compare with, and inside shard_map choices are made anew.
OPAQUE = {"an operation that is not JAX's own", "shard_map", "which entries are zero"}
UNEQUAL = {"indices out of bounds"}  # NaN on purpose


@pytest.fixture(autouse=True)
def promotion():
    """The libraries asked about here do not keep to the strict rules of the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def curved(f):
    """A loss whose gradient and Hessian are made of f and of its slopes."""
    return lambda x: jnp.sum(jnp.sin(f(x))) + jnp.sum(x**3) / 3


@pytest.mark.parametrize("name", sorted(set(KINKED) - OPAQUE))
def test_what_has_kinks_has_the_exact_penalty(name):
    loss = curved(KINKED[name])
    exact = igr.value_and_grad(loss, 0.5)(PLACE)[1]
    given = igr.value_and_grad(loss, 0.5, "central", kinks="hold")(PLACE)[1]
    assert relative(given, exact) < 2e-4


@pytest.mark.parametrize("name", sorted(set(SMOOTH) - UNEQUAL))
def test_where_there_are_none_nothing_changes(name):
    loss = curved(SMOOTH[name])
    crossed, given = (igr.value_and_grad(loss, 0.5, "forward", kinks=k)(PLACE)[1] for k in ("cross", "hold"))
    np.testing.assert_array_equal(given, crossed)


def pooled_network(key, dtype=jnp.float64):
    """Convolution, max-pooling, relu, a masked maximum and attention of a kind; the loss and its start."""
    one, two, three, four = jax.random.split(key, 4)
    params = {"c": jax.random.normal(one, (3, 3, 1, 4), dtype) / 3, "d": jax.random.normal(two, (36, 5), dtype) / 6}
    images = jax.random.normal(three, (6, 8, 8, 1), dtype)
    labels = jax.random.randint(four, (6,), 0, 5)

    def loss(params, images, labels):
        numbers = ("NHWC", "HWIO", "NHWC")
        x = lax.conv_general_dilated(images, params["c"], (1, 1), "VALID", dimension_numbers=numbers)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(x).reshape(len(images), -1) @ params["d"]
        seen = jnp.where(jnp.arange(5)[None] < 4, x, -jnp.inf)
        log_p = jax.nn.log_softmax(x)
        return jnp.mean(jnp.max(seen, 1) ** 2) / 4 - jnp.mean(jnp.take_along_axis(log_p, labels[:, None], 1))

    return loss, params, (images, labels)


@pytest.mark.parametrize(("method", "order"), [("forward", 1), ("central", 2)])
def test_the_order_is_that_of_a_smooth_loss(getkey, method, order):
    loss, params, data = pooled_network(getkey())
    exact = igr.value_and_grad(loss, 0.5)(params, *data)[1]

    def error(radius):
        return relative(igr.value_and_grad(loss, 0.5, method, radius=radius, kinks="hold")(params, *data)[1], exact)

    assert_order(error, (8e-2, 4e-2, 2e-2), order)


def test_the_default_holds_where_maxima_are_pooled_and_crosses_elsewhere(getkey):
    loss, params, data = pooled_network(getkey(), jnp.float32)
    exact = igr.value_and_grad(loss, 0.5)(params, *data)[1]
    default, held, crossed = (
        igr.value_and_grad(loss, 0.5, "forward", kinks=k)(params, *data)[1] for k in (None, "hold", "cross")
    )
    assert relative(default, held) == 0
    assert relative(held, exact) < 2e-3 < 0.05 < relative(crossed, exact)
    assert igr.default_radius(loss, params, *data) < 1e-3 < igr.default_radius(loss, params, *data, kinks="cross")

    loss, params, args = mlp_loss(getkey(), activation=jax.nn.relu, dtype=jnp.float32)
    default, crossed = (igr.value_and_grad(loss, 0.5, "forward", kinks=k)(params, *args)[1] for k in (None, "cross"))
    assert relative(default, crossed) == 0


def test_the_self_check_says_how_much_of_the_error_are_kinks(getkey):
    loss, params, data = pooled_network(getkey(), jnp.float32)
    held, crossed = (igr.penalty_error(loss, params, *data, kinks=k) for k in ("hold", "cross"))
    assert held.error["forward"] < 2e-3 < 0.05 < crossed.error["forward"]
    assert held.error["forward"] < 1.5 * held.forward.min()
    assert igr.penalty_error(loss, params, *data, radii=[0.1]).default == held.default


def test_a_choice_between_equals_is_that_of_relu():
    """At 0 the derivative of relu is 0: a unit that is exactly there stays off."""
    loss = lambda w: jnp.sum(jnp.cos(jax.nn.relu(w * jnp.zeros(3))) + jax.nn.relu(w - w[0]) + w**3)  # noqa: E731
    w = jnp.array([0.3, 0.5, -0.2])
    exact = igr.value_and_grad(loss, 0.5)(w)[1]
    assert relative(igr.value_and_grad(loss, 0.5, "central", kinks="hold")(w)[1], exact) < 1e-8


def test_a_loss_without_forward_mode(getkey):
    """What `exact` refuses, such as a fused attention, in a network with relu: a difference of gradients does it."""
    _, params, args = mlp_loss(getkey(), sizes=(8, 16, 4), dtype=jnp.float64)

    def network(tanh):
        def loss(params, x, labels):
            hidden = tanh(jax.nn.relu(x @ params[0]["w"] + params[0]["b"]))
            return jnp.mean((hidden @ params[-1]["w"] - labels) ** 2)

        return loss

    @jax.custom_vjp
    def fused(x):
        return jnp.tanh(x)

    fused.defvjp(lambda x: (jnp.tanh(x), jnp.tanh(x)), lambda y, g: (g * (1 - y**2),))
    exact = igr.value_and_grad(network(jnp.tanh), 0.5)(params, *args)[1]
    given = igr.value_and_grad(network(fused), 0.5, "central", kinks="hold")(params, *args)[1]
    assert relative(given, exact) < 1e-8


@pytest.mark.parametrize("options", [{"microbatches": 3}, {"microbatches": 2, "penalize": "each"}])
def test_in_parts_jitted_and_with_a_schedule(getkey, options):
    loss, params, data = pooled_network(getkey())
    exact = igr.value_and_grad(loss, 0.5, **options)(params, *data)[1]

    @jax.jit
    def at(mu, params):
        return igr.value_and_grad(loss, mu, "central", **options)(params, *data)[1]

    assert relative(at(0.5, params), exact) < 1e-7
    assert relative(at(0.0, params), igr.value_and_grad(loss, 0.0, **options)(params, *data)[1]) < 1e-12


def test_a_rematerialized_loss_stays_one(getkey):
    loss, params, data = pooled_network(getkey())
    exact = igr.value_and_grad(loss, 0.5)(params, *data)[1]
    penalized = igr.value_and_grad(jax.checkpoint(loss), 0.5, "central")
    assert relative(penalized(params, *data)[1], exact) < 1e-7
    names = [e.primitive.name for e in equations(jax.make_jaxpr(penalized)(params, *data).jaxpr)]
    assert sum(name in ("checkpoint", "remat2") for name in names) >= 3  # of each of the passes


def test_a_loss_that_cannot_be_traced_cannot_be_held():
    def loss(x):
        return jnp.sum(x**2) if x[0] > 0 else jnp.sum(x**3)

    with pytest.raises(ValueError, match=r'kinks="hold" needs the program of the loss.*kinks="cross"'):
        igr.value_and_grad(loss, 0.1, "forward", kinks="hold")(jnp.ones(2))
    with pytest.raises(ValueError, match="unknown kinks 'freeze': choose one of cross, hold"):
        igr.value_and_grad(loss, 0.1, "forward", kinks="freeze")
