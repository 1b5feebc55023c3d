"""Multilayer perceptrons: the networks of the paper's section 6.1."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from igr.lab.models.model import DTYPES, Model, ModelEntry, affine, fan_in_normal, pick

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh, "gelu": jax.nn.gelu}


def mlp(
    width: int = 400,
    depth: int = 5,
    activation: str = "relu",
    inputs: int = 784,
    classes: int = 10,
    compute: str = "float32",
) -> Model:
    """A multilayer perceptron: `depth` hidden layers of `width` units, then a linear output layer.

    The "5-layer MLP" of the paper has five *hidden* layers: with 400 units it has 959,610 parameters. (The paper's
    appendix says 9.6e6, an error of the exponent.) `inputs` and `classes` are the numbers of pixels and of outputs,
    `activation` is a name in `ACTIVATIONS`. Weights are drawn by `fan_in_normal`, biases are zero. `compute` is the
    dtype of the matrix products; parameters and logits are float32 throughout.

    >>> params, state = mlp(400).init(jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(params))
    959610
    """
    act = pick(ACTIVATIONS, activation, "activation")
    dtype = pick(DTYPES, compute, "compute dtype")
    if min(width, inputs, classes) < 1 or depth < 0:
        raise ValueError(f"an MLP needs positive sizes, got width {width}, depth {depth}, {inputs} inputs")
    sizes = [inputs, *[width] * depth, classes]

    def init(key: PRNGKeyArray) -> tuple[Any, Any]:
        keys = jax.random.split(key, len(sizes) - 1)
        layers = [
            {"w": fan_in_normal(k, (m, n)), "b": jnp.zeros(n, jnp.float32)}
            for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
        ]
        return layers, ()

    def apply(params: Any, state: Any, x: Array, train: bool = True) -> tuple[Array, Any]:
        del train
        x = x.reshape(x.shape[0], -1).astype(dtype)
        for layer in params[:-1]:
            x = act(affine(x, layer, dtype))
        return affine(x, params[-1], dtype).astype(jnp.float32), state

    return Model(init, apply)


def build(shape: Any, images: tuple[int, int, int], classes: int, compute: str) -> Model:
    """The MLP of a `shape` for flattened `images` and `classes`, computing in the dtype `compute`."""
    height, wide, channels = images
    return mlp(shape.width, shape.depth, shape.activation, height * wide * channels, classes, compute)


ENTRY = ModelEntry(
    build,
    choices={"activation": tuple(ACTIVATIONS)},
    init="normal truncated at two standard deviations, 1/sqrt(fan in)",
)
