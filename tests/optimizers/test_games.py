"""Two players: the joint field has the order of the theory for any rates, and the paper's form has not."""

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_order, step_error

import igr

START = (jnp.array([0.8, -0.3]), {"theta": jnp.array(0.6)})


def first_loss(phi, other):
    t = other["theta"]
    return jnp.sin(phi[0] * t) + 0.3 * phi[1] ** 2 * t + 0.2 * phi[0] ** 3 - phi[0] * phi[1]


def second_loss(phi, other):
    t = other["theta"]
    return -phi[0] * t + 0.4 * jnp.cos(phi[1] * t) + 0.1 * t**4


LOSSES = (first_loss, second_loss)
EQUAL, UNEQUAL = (1.0, 1.0), (0.5, 1.7)


def rates(h, pair):
    return (h * pair[0], h * pair[1])


@pytest.mark.parametrize("pair", [EQUAL, UNEQUAL])
@pytest.mark.parametrize(("alternating", "substeps"), [(False, (1, 1)), (True, (1, 1)), (True, (3, 2))])
def test_one_step_has_order_three_and_without_the_correction_two(pair, alternating, substeps):
    options = {"alternating": alternating, "substeps": substeps}

    def step(state, h):
        return igr.optimizers.game_step(LOSSES, rates(h, pair), **options)(state)

    for order in (0, 1):
        error = step_error(
            lambda h, order=order: igr.optimizers.game_field(LOSSES, rates(h, pair), order=order, **options),
            START,
            step,
            time=lambda h: 1.0,
        )
        assert_order(error, (1e-2, 5e-3), order + 2)


@pytest.mark.parametrize(("wrong", "of"), [(False, True), (True, False)], ids=["simultaneous", "alternating"])
def test_the_sign_of_the_interaction_belongs_to_the_order_of_play(wrong, of):
    error = step_error(
        lambda h: igr.optimizers.game_field(LOSSES, rates(h, UNEQUAL), alternating=wrong),
        START,
        lambda s, h: igr.optimizers.game_step(LOSSES, rates(h, UNEQUAL), alternating=of)(s),
        time=lambda h: 1.0,
    )
    assert_order(error, (1e-2, 5e-3), 2)


def own_times(h, pair):
    """The field of Rosca et al., in which each player has a time of its own: f - (alpha h/2) (f_phi f + f_theta g)."""
    f, g = (lambda phi, theta, i=i: jax.tree.map(jnp.negative, jax.grad(LOSSES[i], i)(phi, theta)) for i in (0, 1))

    def field(state):
        speed = (f(*state), g(*state))
        parts = []
        for player, rate in zip((f, g), pair, strict=True):
            bent = jax.jvp(player, state, speed)[1]
            parts.append(jax.tree.map(lambda x, y, r=rate: r * h * (x - r * h / 2 * y), player(*state), bent))
        return tuple(parts)

    return field


@pytest.mark.parametrize(("pair", "order"), [(EQUAL, 3), (UNEQUAL, 2)], ids=["equal rates", "unequal rates"])
def test_the_field_with_a_time_for_each_player_is_right_for_equal_rates_only(pair, order):
    error = step_error(
        lambda h: own_times(h, pair),
        START,
        lambda s, h: igr.optimizers.game_step(LOSSES, rates(h, pair))(s),
        time=lambda h: 1.0,
    )
    assert_order(error, (1e-2, 5e-3), order)


def test_many_steps_have_order_two():
    options = {"alternating": True, "substeps": (2, 1)}

    def many(n):
        return lambda s, h: jax.lax.fori_loop(
            0, n, lambda _, x: igr.optimizers.game_step(LOSSES, rates(h, UNEQUAL), **options)(x), s
        )

    for order in (0, 1):
        off = [
            step_error(
                lambda h, order=order: igr.optimizers.game_field(LOSSES, rates(h, UNEQUAL), order=order, **options),
                START,
                many(n),
                time=lambda h, n=n: float(n),
            )(0.5 / n)
            for n in (32, 64)
        ]
        assert jnp.log2(off[0] / off[1]) == pytest.approx(order + 1, abs=0.1)


def test_bad_games_are_one_sentence():
    with pytest.raises(ValueError, match="rates must be a pair"):
        igr.optimizers.game_step(LOSSES, (0.1,))
    with pytest.raises(ValueError, match="substeps must be positive whole numbers"):
        igr.optimizers.game_field(LOSSES, (0.1, 0.1), substeps=(0, 1))
    with pytest.raises(ValueError, match="order must be 0 or 1"):
        igr.optimizers.game_field(LOSSES, (0.1, 0.1), order=2)
