"""Every optimizer follows its modified field with second order, and what is almost it with first order."""

import numpy as np
import optax
import pytest
from optimizers.orders import MODEST, OPTIMIZERS, distances

STEPS = (256, 512)  # in the time 1/4
ROWS = {"plain": (0, 0), "modified": (1, 1), "lag without the half": (1, 0), "the half without the lag": (0, 1)}
MEMORYLESS = {"sgd", "lion"}  # exact signs do not see a history


def observed(make, rows=ROWS, **options):
    measure = distances(make, list(rows.values()), **options)
    coarse, fine = (measure(0.25 / steps) for steps in STEPS)
    return dict(zip(rows, np.log2(coarse / fine), strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_order_is_two_for_the_modified_field_and_one_for_any_part_of_it(name):
    order = observed(OPTIMIZERS[name])
    assert order["plain"] == pytest.approx(1, abs=0.1)
    assert order["modified"] == pytest.approx(2, abs=0.15)
    assert order["lag without the half"] == pytest.approx(1, abs=0.1)
    assert order["the half without the lag"] == pytest.approx(2 if name in MEMORYLESS else 1, abs=0.15)


def test_with_the_two_decay_rates_exchanged_the_order_is_one():
    exchanged = {"b1": MODEST["b2"], "b2": MODEST["b1"], "eps": 0.1}
    order = observed(OPTIMIZERS["adam, eps outside"], {"": (1, 1)}, field_of=lambda h: optax.adam(h, **exchanged))
    assert order[""] == pytest.approx(1, abs=0.1)


def test_the_field_of_heavy_ball_is_not_that_of_nesterov():
    order = observed(OPTIMIZERS["momentum"], {"": (1, 1)}, field_of=OPTIMIZERS["nesterov"])
    assert order[""] == pytest.approx(1, abs=0.1)
