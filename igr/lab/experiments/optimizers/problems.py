"""The losses of the experiment: the paper's two-parameter model, and a small network on digits."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from igr.lab.data.registry import load

START = (1.3, 2.0)  # where the gradients of both parameters are of the same size
PAPER_START = (2.8, 3.5)  # start I of the paper
ACTIVATIONS: dict[str, Callable] = {"tanh": jnp.tanh, "gelu": jax.nn.gelu, "relu": jax.nn.relu}
SIZES = (64, 16, 10)


def plane(p: Any) -> Any:
    """The two-parameter model, E = (0.6 - ab)^2/2, on a row (a, b); a row because Muon takes matrices only."""
    return 0.5 * (0.6 - p[0, 0] * p[0, 1]) ** 2


def network(params: Any, x: Any, y: Any, activation: Any) -> Any:
    """The mean cross entropy of a network of one hidden layer; `activation` is a place in ACTIVATIONS, for `switch`."""
    hidden = jax.lax.switch(activation, list(ACTIVATIONS.values()), x @ params[0]["w"] + params[0]["b"][None, :])
    return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(hidden @ params[1]["w"] + params[1]["b"][None, :]), axis=1))


def on_digits(activation: str, examples: int, data_dir: str | None) -> tuple[Any, tuple[Any, Any, int]]:
    """The parameters of a 64-16-10 network, and the arguments of `network` after them: the first digits."""
    digits = load("digits", data_dir).train
    x = jnp.asarray(np.asarray(digits.x[:examples], float).reshape(examples, -1)) / 16
    y = jnp.eye(10)[np.asarray(digits.y[:examples])]
    rng = np.random.default_rng(0)
    params = [{"w": jnp.asarray(rng.normal(size=(a, b)) / a**0.5), "b": jnp.zeros(b)} for a, b in pairwise(SIZES)]
    return params, (x, y, list(ACTIVATIONS).index(activation))
