"""The rule equals the published and derived formulas, and not the misprinted ones."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import relative
from problems import GENERIC_START, generic

import igr

H, B, R, EPS, DECAY = 1e-2, 0.6, 0.8, 0.1, 0.3
G = jax.grad(generic)(GENERIC_START)
HESSIAN = jax.hessian(generic)(GENERIC_START)
LENGTH = 260  # 0.9^260 is 1e-12


def fields(make, h=H, orders=(0, 1), history=LENGTH, count=None):
    """The fields of the given orders, compiled as one program."""

    @jax.jit
    def evaluate(h):
        options = {"history": history, "count": count}
        each = [igr.optimizers.modified_field(make(h), generic, order=order, **options) for order in orders]
        return [field(GENERIC_START) for field in each]

    return evaluate(h)


def linear(s, gamma):
    """-s grad(E + h s gamma/4 |grad E|^2) per step, at the learning rate H."""
    return -H * s * (G + H * s * gamma / 2 * HESSIAN @ G)


@pytest.mark.parametrize(
    ("make", "s", "gamma"),
    [
        (optax.sgd, 1, 1),
        (lambda h: optax.sgd(h, momentum=B), 1 / (1 - B), (1 + B) / (1 - B)),
        (lambda h: optax.sgd(h, momentum=B, nesterov=True), 1 / (1 - B), (1 - B + 2 * B**2) / (1 - B)),
        (lambda h: optax.chain(optax.ema(B, debias=False), optax.scale(-h)), 1, (1 + B) / (1 - B)),
        (lambda h: optax.optimistic_gradient_descent(h, alpha=1.0, beta=0.7), 1, 1 - 2 * 0.7),
    ],
    ids=["descent", "heavy ball", "nesterov", "ema", "optimistic"],
)
def test_linear_optimizers_and_their_rate(make, s, gamma):
    assert relative(fields(make)[1], linear(s, gamma)) < 1e-10
    rate = igr.optimizers.modified_rate(make(H))
    assert rate.s == pytest.approx(H * s, rel=1e-10)
    assert rate.c == pytest.approx(H * s * gamma / 4, rel=1e-9)


def test_the_rate_of_heavy_ball_is_nineteen_times_that_of_descent():
    s, c = igr.optimizers.modified_rate(optax.sgd(0.3, momentum=0.9))
    assert c / (s / 4) == pytest.approx(19, rel=1e-8)


def test_the_length_that_is_found_suffices_for_the_closed_form():
    for options, gamma in (({}, factor(B)), ({"nesterov": True}, factor(B) - 2 * B)):
        ours = igr.optimizers.modified_field(optax.sgd(H, momentum=B, **options), generic)(GENERIC_START)
        assert relative(ours, linear(1 / (1 - B), gamma)) < 1e-10


def test_the_rate_of_an_average_with_bias_correction_and_of_a_schedule_at_its_step():
    average = optax.chain(optax.ema(0.9), optax.scale(-0.1))  # linear only if the zeros of its check are counted
    s, c = igr.optimizers.modified_rate(average)
    assert (s, c / (s / 4)) == (pytest.approx(0.1, rel=1e-10), pytest.approx(19, rel=1e-8))
    n, weights = 3, 0.9 ** np.arange(4) / np.sum(0.9 ** np.arange(4))
    early = igr.optimizers.modified_rate(average, count=jnp.asarray(n))
    assert early.s == pytest.approx(0.1, rel=1e-10)
    assert early.c == pytest.approx(0.1 / 4 + 0.1 * weights @ np.arange(4) / 2, rel=1e-10)
    falling = optax.sgd(optax.linear_schedule(0.2, 0.0, 100), momentum=0.5)
    assert igr.optimizers.modified_rate(falling, count=75).s == pytest.approx(0.1, rel=1e-6)
    with pytest.raises(ValueError, match="give count= if it has a schedule"):
        igr.optimizers.modified_rate(falling)


def test_the_printed_constant_of_kovachki_and_stuart_fails_and_the_corrected_one_holds():
    """Their field is -s grad(E + h c/2 |grad E|^2) with s = 1/(1 - b); a = 0 is heavy ball, a = b Nesterov."""
    for a, nesterov in ((0.0, False), (B, True)):
        s = 1 / (1 - B)
        ours = igr.optimizers.modified_rate(optax.sgd(H, momentum=B, nesterov=nesterov)).c
        assert ours == pytest.approx(H / 2 * s * (s - a - 0.5), rel=1e-9)
        assert ours != pytest.approx(H / 2 * s * (s - a + 0.5), rel=0.2)


def adam(beta, rho, decay=0.0, inside=True):
    """Section 3 of the theory: beta and rho are the factors (1 + b)/(1 - b) of both moments."""
    r = jnp.sqrt(G**2 + EPS) if inside else jnp.abs(G) + EPS
    share = G**2 / r**2 if inside else jnp.abs(G) / r
    direction = HESSIAN @ (G / r + decay * GENERIC_START)
    bias = beta - rho * share
    leading = -(G / r + decay * GENERIC_START)
    return H * (leading - H / 2 * bias * direction / r + H / 2 * decay * leading)


def factor(b):
    return (1 + b) / (1 - b)


ADAMS = {
    "adam, eps inside": (lambda h: optax.adam(h, B, R, eps=0, eps_root=EPS), adam(factor(B), factor(R))),
    "adam, eps outside": (lambda h: optax.adam(h, B, R, eps=EPS), adam(factor(B), factor(R), inside=False)),
    "rmsprop": (lambda h: optax.rmsprop(h, R, eps=EPS), adam(1, factor(R))),
    "adamw": (
        lambda h: optax.adamw(h, B, R, eps=0, eps_root=EPS, weight_decay=DECAY),
        adam(factor(B), factor(R), decay=DECAY),
    ),
}


@pytest.mark.parametrize("name", ADAMS)
def test_adaptive_optimizers(name):
    make, expected = ADAMS[name]
    leading, ours = fields(make)
    assert relative(ours, expected) < 1e-10
    assert relative(leading, expected) > 1e-4


@pytest.mark.parametrize("n", [0, 7])
def test_adam_early_in_training_has_the_lags_of_its_bias_correction(n):
    def lag(b):
        return b / (1 - b) - (n + 1) * b ** (n + 1) / (1 - b ** (n + 1))

    expected = adam(1 + 2 * lag(B), 1 + 2 * lag(R))
    make = ADAMS["adam, eps inside"][0]
    assert relative(fields(make, orders=(1,), history=n + 1)[0], expected) < 1e-10
    assert relative(fields(make, orders=(1,), count=n)[0], expected) < 1e-10
    assert relative(expected, adam(factor(B), factor(R))) > 1e-4, "not the steady field"


def test_adam_penalizes_the_one_norm_of_the_gradient_with_the_sign_of_b1_against_b2():
    """For eps far below the gradients the correction is -h^2/2 [factor(b1) - factor(b2)] sign(g) * grad |g|_1 / |g|."""
    penalty = HESSIAN @ jnp.sign(G) / jnp.abs(G)
    for b1, b2 in ((0.9, 0.5), (0.5, 0.9)):
        leading, ours = fields(lambda h, b1=b1, b2=b2: optax.adam(h, b1, b2, eps=1e-9))
        expected = -(H**2) / 2 * (factor(b1) - factor(b2)) * penalty
        assert relative(ours - leading, expected) < 1e-6


def test_second_order_of_heavy_ball():
    gamma, s = factor(B), 1 / (1 - B)
    third = igr.derivative(jax.grad(generic), GENERIC_START, G, G)
    f2 = -(s**3) * ((gamma**2 / 4 - 1 / 6) * third + (gamma**2 / 2 - 1 / 6) * HESSIAN @ HESSIAN @ G)
    h = 1e-5
    first, second = fields(lambda h: optax.sgd(h, momentum=B), h, orders=(1, 2))
    assert relative((second - first) / h**3, f2) < 1e-3
    assert relative((second - first) / h**3, f2 + s**3 / 6 * third) > 0.01
