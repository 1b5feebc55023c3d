"""ResNet-18 (He et al. 2016): the network of the paper's figures 3c, A.7 and A.8."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PRNGKeyArray

from igr.lab.models.mlp import ACTIVATIONS
from igr.lab.models.model import DTYPES, Model, ModelEntry, affine, fan_in_normal, fan_in_scale, pick, truncated

BN_DECAY = 0.9  # Haiku's ResNet defaults, as are the other switches called "haiku" here
BN_EPS = 1e-5
STEMS = {"3x3": (3, 1), "7x7": (7, 2)}  # size and stride
INITS = {"he": (jax.random.normal, 2), "haiku": (truncated, 1)}


def resnet18(
    stem: str = "3x3",
    width: int = 64,
    classes: int = 10,
    channels: int = 3,
    compute: str = "float32",
    init: str = "he",
    activation: str = "relu",
) -> Model:
    """ResNet-18 (He et al. 2016, version 1): a stem, eight basic blocks of `width` times 1, 2, 4, 8, and a linear head.

    Images are NHWC with `channels` channels. `stem` is "3x3" (stride 1; 11,173,962 parameters with 10 classes) or "7x7"
    (stride 2, then 3x3 max-pooling with stride 2, as for ImageNet). Batch norm uses the batch's statistics where
    `train` is true and moves the running ones towards them by 1 - 0.9 a call; else it uses the running ones. Padding is
    "SAME", which for stride 2 on even sizes pads at the end only, as Haiku and TensorFlow do and PyTorch does not.

    `compute` is the dtype of convolutions and activations; parameters, statistics and logits are float32 always.
    `init` is "he" (a normal of variance 2 / fan in, He et al. 2015, which keeps the scale of activations through ReLU
    layers; head by `fan_in_normal`) or "haiku" (`fan_in_normal`, head zero, so the loss starts at log(classes)).
    `activation` is "relu", "gelu" or "tanh" in place of every ReLU.
    """
    act = pick(ACTIVATIONS, activation, "activation")
    dtype = pick(DTYPES, compute, "compute dtype")
    draw, gain = pick(INITS, init, "initialization")
    stem_size, stem_stride = pick(STEMS, stem, "stem")
    plan = [(width * 2**i, 2 if i and not j else 1) for i in range(4) for j in range(2)]  # (features, stride) a block

    def build(kernel: Callable[[tuple[int, ...]], Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The trees of parameters and state, all but the head, with kernels made by `kernel(shape)`."""

        def unit(size: int, before: int, after: int) -> tuple[Any, Any]:
            ones, zeros = jnp.ones(after, jnp.float32), jnp.zeros(after, jnp.float32)
            params = {"w": kernel((size, size, before, after)), "scale": ones, "offset": zeros}
            return params, {"mean": zeros, "var": ones}

        params: dict[str, Any] = {"blocks": []}
        state: dict[str, Any] = {"blocks": []}
        params["stem"], state["stem"] = unit(stem_size, channels, width)
        before = width
        for after, stride in plan:
            units = {"conv1": unit(3, before, after), "conv2": unit(3, after, after)}
            if stride != 1 or before != after:
                units["skip"] = unit(1, before, after)
            params["blocks"].append({name: p for name, (p, _) in units.items()})
            state["blocks"].append({name: s for name, (_, s) in units.items()})
            before = after
        return params, state

    def init_fn(key: PRNGKeyArray) -> tuple[Any, Any]:
        shapes: list[tuple[int, ...]] = []
        build(shapes.append)
        # One draw for all kernels: a draw for each takes XLA ten times as long to compile.
        body, head = jax.random.split(key)
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        pieces = iter(jnp.split(draw(body, (int(ends[-1]),), jnp.float32), ends[:-1]))
        params, state = build(lambda shape: fan_in_scale(shape, gain) * next(pieces).reshape(shape))
        w = fan_in_normal(head, (8 * width, classes))
        params["head"] = {"w": jnp.zeros_like(w) if init == "haiku" else w, "b": jnp.zeros(classes, jnp.float32)}
        return params, state

    def apply(params: Any, state: Any, x: Array, train: bool = True) -> tuple[Array, Any]:
        if x.ndim != 4 or x.shape[-1] != channels:
            raise ValueError(f"this ResNet takes images (n, height, width, {channels}), but x has shape {x.shape}.")
        new: dict[str, Any] = {"blocks": []}
        x, new["stem"] = _conv_norm(x.astype(dtype), params["stem"], state["stem"], stem_stride, train)
        x = act(x)
        if stem == "7x7":
            lowest = np.array(-np.inf, x.dtype)  # a constant of the right dtype, so that JAX knows it for a maximum
            x = lax.reduce_window(x, lowest, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for (_, stride), p, s in zip(plan, params["blocks"], state["blocks"], strict=True):
            t: dict[str, Any] = {}
            y, t["conv1"] = _conv_norm(x, p["conv1"], s["conv1"], stride, train)
            y, t["conv2"] = _conv_norm(act(y), p["conv2"], s["conv2"], 1, train)
            if "skip" in p:
                x, t["skip"] = _conv_norm(x, p["skip"], s["skip"], stride, train)
            x = act(x + y)
            new["blocks"].append(t)
        pooled = x.astype(jnp.float32).mean(axis=(1, 2))
        return affine(pooled, params["head"], jnp.float32), new

    return Model(init_fn, apply, in_turn=True)


def _convolve(x: Array, w: Array, stride: int) -> Array:
    """A convolution of NHWC images with an HWIO kernel, padding "SAME"."""
    if jax.default_backend() != "cpu":
        return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    # Inside a loop or a branch, XLA computes the gradient of a convolution on the CPU by naive loops, ten times slower
    # than outside (it brings only those of the entry computation into the form of its fast kernels); not so a product.
    for axis, size in ((2, w.shape[1]), (1, w.shape[0])):
        before, after = lax.padtype_to_pads((x.shape[axis],), (size,), (stride,), "SAME")[0]
        span = x.shape[axis] + before + after - size + 1
        x = jnp.pad(x, [(before, after) if i == axis else (0, 0) for i in range(4)])
        shifted = [lax.slice_in_dim(x, i, i + span, stride, axis) for i in range(size)]
        x = jnp.concatenate(shifted, axis=-1)
    return x @ w.reshape(-1, w.shape[-1])


def _conv_norm(x: Array, p: Any, s: Any, stride: int, train: bool) -> tuple[Array, Any]:
    """A convolution without bias, then batch norm; statistics and normalisation in float32."""
    x = _convolve(x, p["w"].astype(x.dtype), stride)
    y = x.astype(jnp.float32)
    if train:
        mean = y.mean(axis=(0, 1, 2))
        var = jnp.maximum(jnp.square(y).mean(axis=(0, 1, 2)) - jnp.square(mean), 0.0)  # one pass over y, as in Haiku
        s = {"mean": BN_DECAY * s["mean"] + (1 - BN_DECAY) * mean, "var": BN_DECAY * s["var"] + (1 - BN_DECAY) * var}
    else:
        mean, var = s["mean"], s["var"]
    gain = p["scale"] * lax.rsqrt(var + BN_EPS)
    shift = p["offset"] - mean * gain
    return (y * gain[None, None, None, :] + shift[None, None, None, :]).astype(x.dtype), s


def build(shape: Any, images: tuple[int, int, int], classes: int, compute: str) -> Model:
    """The ResNet of a `shape` for `images` and `classes`, computing in the dtype `compute`."""
    return resnet18(shape.stem, shape.width, classes, images[-1], compute, shape.init)


ENTRY = ModelEntry(build, in_turn=True, has_batch_statistics=True, choices={"stem": tuple(STEMS), "init": tuple(INITS)})
