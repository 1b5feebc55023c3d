"""Shuffled epochs follow the modified loss of Smith et al., and sampling with replacement does not."""

from itertools import permutations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_order, relative, step_error
from problems import GENERIC_START, generic, mlp_loss

import igr

M = 3
BATCHES = (jnp.array([[0.9, -0.3], [-0.6, 0.5], [0.1, 1.2]]),)  # one row a batch


def loss(p, batch):
    return generic(p * (1 + 0.3 * batch)) + jnp.sin(batch[0] * p[0] * p[1])


def epoch(params, h, orders):
    """The mean end of an epoch over the given orders, each a list of batches."""

    def one(order):
        def advance(p, k):
            return igr.gradient_step(loss, h)(p, BATCHES[0][k]), None

        return jax.lax.scan(advance, params, order)[0]

    return jnp.mean(jax.vmap(one)(jnp.asarray(orders)), axis=0)


SHUFFLED = list(permutations(range(M)))
DRAWN = list(product(range(M), repeat=M))
GIVEN = [(0, 1, 2)]
REVERSED_PAIR = [(0, 1, 2, 2, 1, 0)]


def modified(h, **options):
    return lambda p: -jax.grad(igr.optimizers.batch_modified_loss(loss, h, **options))(p, *BATCHES)


def given(h):
    return lambda p: igr.optimizers.epoch_field(loss, h)(p, *BATCHES)


def plain(h):
    return lambda p: -jax.grad(lambda p: jnp.mean(jax.vmap(lambda b: loss(p, b))(BATCHES[0])))(p)


@pytest.mark.parametrize(
    ("orders", "field_of_h", "expected"),
    [
        (SHUFFLED, modified, 3),
        (SHUFFLED, lambda h: modified(h, replacement=True), 2),  # without the variance
        (SHUFFLED, plain, 2),
        (DRAWN, lambda h: modified(h, replacement=True), 3),
        (DRAWN, modified, 2),  # the variance is not there
        (REVERSED_PAIR, modified, 3),
        (GIVEN, modified, 2),  # without the commutator
        (GIVEN, given, 3),
    ],
)
def test_the_mean_epoch(orders, field_of_h, expected):
    time = len(orders[0])
    error = step_error(field_of_h, GENERIC_START, lambda p, h: epoch(p, h, orders), time=lambda h: time * h)
    assert_order(error, (4e-4, 2e-4), expected)


def test_the_parts_of_the_penalty_are_its_own_definition(getkey):
    network, params, (x, labels) = mlp_loss(getkey(), sizes=(3, 4, 2), batch=12, dtype=jnp.float64)
    batches = (x.reshape(4, 3, 3), labels.reshape(4, 3, 2))
    terms = jax.jit(igr.optimizers.batch_gradient_terms(network))(params, *batches)
    slope = jax.jit(jax.grad(network))
    each = [slope(params, a, b) for a, b in zip(*batches, strict=True)]
    squares = np.mean([float(igr.squared_norm(g)) for g in each])
    assert terms.loss == pytest.approx(float(network(params, x, labels)), rel=1e-12)
    assert terms.squared_norm + terms.variance == pytest.approx(squares, rel=1e-12)
    assert terms.squared_norm == pytest.approx(float(igr.squared_norm(slope(params, x, labels))), rel=1e-12)
    value = jax.jit(igr.optimizers.batch_modified_loss(network, 0.2))(params, *batches)
    assert value == pytest.approx(float(terms.loss) + 0.05 * squares, rel=1e-12)


def test_the_variance_does_not_cancel_where_it_is_small():
    def tilted(w, x):
        return jnp.mean(1e8 * w + x * w)

    x = jnp.array([[1.0], [3.0], [5.0]])
    assert igr.optimizers.batch_gradient_terms(tilted)(jnp.array(1.0), x).variance == pytest.approx(8 / 3, rel=1e-6)


def test_the_mean_of_the_given_orders_is_the_field_of_the_modified_loss():
    h = 0.1
    one = jax.vmap(lambda batches: igr.optimizers.epoch_field(loss, h)(GENERIC_START, batches))
    fields = jax.jit(one)(BATCHES[0][jnp.array(SHUFFLED)])
    assert relative(jnp.mean(fields, axis=0), modified(h)(GENERIC_START)) < 1e-12
    assert relative(fields[0], modified(h)(GENERIC_START)) > 1e-3


def test_batches_of_unequal_number_are_one_sentence():
    with pytest.raises(ValueError, match="leading axes are"):
        igr.optimizers.batch_modified_loss(loss, 0.1)(GENERIC_START, {"a": jnp.ones(2), "b": jnp.ones(3)})
