"""Kinks of a loss, found in the program of its gradient: what has them, and what only looks as if it had."""

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from kinked import KEY, KINKED, SMOOTH, X

import igr
from igr.penalty.kinks import has_kinks


@pytest.fixture(autouse=True)
def promotion():
    """The libraries asked about here do not keep to the strict rules of the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def summed(f):
    return lambda x: jnp.sum(f(x))


@pytest.mark.parametrize("name", KINKED)
def test_what_has_kinks(name):
    assert has_kinks(summed(KINKED[name]), X)


@pytest.mark.parametrize("name", SMOOTH)
def test_what_has_none(name):
    assert not has_kinks(summed(SMOOTH[name]), X)


@pytest.mark.parametrize("layer", [flax.linen.LayerNorm(), flax.linen.BatchNorm(use_running_average=False)])
def test_the_clipped_variance_of_flax_is_no_kink(layer):
    """It is the mean square less the square of the mean, and never negative but by rounding."""
    x = X.reshape(4, 2)
    variables = layer.init(KEY, x)

    def normal(x):
        return layer.apply(variables, x, mutable=["batch_stats"])[0]

    assert not has_kinks(lambda x: jnp.sum(normal(x) ** 3), x)
    assert has_kinks(lambda x: jnp.sum(jax.nn.relu(normal(x)) ** 3), x)


def test_over_a_whole_data_set():
    for activation, answer in [(jax.nn.relu, True), (jnp.tanh, False)]:
        mean = igr.full_batch(lambda w, x, f=activation: jnp.mean(f(x * w)), 3)
        assert has_kinks(lambda w, mean=mean: mean(w, X), np.float32(0.3)) is answer


def test_the_answer_is_about_the_gradient():
    """x |x| has the continuous gradient 2|x|, which its program does not show; with |x| held fixed it does."""
    assert has_kinks(lambda x: jnp.sum(x * jnp.abs(x)), X)
    assert not has_kinks(lambda x: jnp.sum(x * lax.stop_gradient(jnp.abs(x))), X)
