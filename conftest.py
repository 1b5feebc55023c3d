"""Float64, strict promotion, and random keys from one fixture: the tests state mathematics, not luck."""

import os

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Most of the suite's time is compilation, and a quarter of that is optimizing programs that run once. What tests start
# as processes of their own is optimized as usual, but for the README's commands; IGR_TEST_OPTIMIZED=1 has it here too.
jax.config.update("jax_disable_most_optimizations", os.environ.get("IGR_TEST_OPTIMIZED") != "1")


@pytest.fixture
def getkey():
    """A function that gives a new key at each call, the same sequence in every run."""
    keys = iter(jax.random.split(jax.random.key(2009_11162), 1000))
    return lambda: next(keys)
