"""Optax is written for JAX's own promotion of dtypes and ranks, not for the strict ones of our tests."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _as_optax_expects():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
