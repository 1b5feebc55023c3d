"""Small networks in float64: dense layers, or two convolutions and a dense layer, with a choice of activations."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from igr.lab.models.mlp import ACTIVATIONS
from igr.lab.models.model import fan_in_scale, truncated

KINDS = ("mlp", "cnn")
SMOOTH = ("tanh", "gelu")  # the others have kinks, where the theorem does not apply


def initial(kind: str, width: int, depth: int, image: tuple[int, ...], classes: int, seed: int) -> list[dict]:
    """Layers drawn as the paper's are, a truncated normal over the root of the fan in, with zero biases.

    An MLP has `depth` hidden layers of `width` units. A CNN has two 3x3 convolutions, of `width` and twice as many
    channels, each with stride 2, and a dense layer; `image` is height, width and channels.
    """
    if kind == "cnn":
        height, wide, channels = image
        flat = -(-height // 4) * -(-wide // 4) * 2 * width  # each convolution halves both sides, rounding up
        shapes = [(3, 3, channels, width), (3, 3, width, 2 * width), (flat, classes)]
    else:
        sizes = [int(np.prod(image)), *[width] * depth, classes]
        shapes = list(pairwise(sizes))
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return [
        {"w": float(fan_in_scale(s)) * truncated(k, s, jnp.float32).astype(float), "b": jnp.zeros(s[-1])}
        for k, s in zip(keys, shapes, strict=True)
    ]


def forward(params: list[dict], x: Array, activation: str) -> tuple[Array, list[Array]]:
    """The logits for the images `x`, of shape (n, height, width, channels), and the inputs of the activations."""
    act, before = ACTIVATIONS[activation], []
    for layer in params[:-1]:
        x = _affine(layer, x)
        before.append(x)
        x = act(x)
    return _affine(params[-1], x), before


def _affine(layer: dict, x: Array) -> Array:
    """A dense layer or a 3x3 convolution of stride 2, as one matrix product: float64 convolutions are slow on CPUs."""
    w, b = layer["w"], layer["b"]
    if w.ndim == 2:
        return x.reshape(x.shape[0], -1) @ w + b[None]
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, wide = x.shape[1] - 2, x.shape[2] - 2
    patches = [x[:, i : i + height : 2, j : j + wide : 2] for i in range(3) for j in range(3)]
    y = jnp.concatenate(patches, axis=-1) @ w.reshape(-1, w.shape[-1])
    return y + b[None, None, None]


def cross_entropy(activation: str) -> Callable[..., Array]:
    """The mean cross-entropy E of (params, x, y) over all images: full batch."""

    def loss(params: Any, x: Array, y: Array) -> Array:
        logits, _ = forward(params, x, activation)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))

    return loss
