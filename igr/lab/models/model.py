"""Models: a pair of plain functions of arrays, and the entry of a model in the registry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


class Model(NamedTuple):
    """A network: ``init(key)`` draws (params, state); ``apply(params, state, x, train)`` gives logits and state.

    Both `params` and `state` are pytrees of arrays only, so that every function of `igr` acts on them unchanged and
    replicas stack along a new leading axis. A network without batch statistics has an empty state. With `in_turn` its
    replicas are trained one after the other and not side by side: convolutions with a kernel for each replica become
    grouped convolutions, which are slow.
    """

    init: Callable[[PRNGKeyArray], tuple[Any, Any]]
    apply: Callable[[Any, Any, Array, bool], tuple[Array, Any]]
    in_turn: bool = False


def counted(model: Model, images: tuple[int, int, int]) -> float:
    """Floating-point operations of a forward pass of `model` on one image, as XLA counts them before compilation.

    `images` is the shape (height, width, channels) of an image.
    """
    params, state = jax.eval_shape(model.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((1, *images), jnp.float32)
    forward = jax.jit(lambda params, state, x: model.apply(params, state, x, False)[0])
    with jax.default_device(jax.devices("cpu")[0]):  # a GPU's client cannot analyse a program that is not compiled
        return float(forward.lower(params, state, x).cost_analysis()["flops"])  # pyright: ignore


@dataclass(frozen=True)
class ModelEntry:
    """One line of the registry of models.

    `build(shape, images, classes, compute)` makes the network from an `igr.lab.training.config.Shape` (its `width`,
    `depth` and so on), the shape of an image, the number of classes, and the dtype of the matrix products. `choices`
    lists the values that a text field of the shape may have. `has_batch_statistics` says that the state depends on the
    batch, so that a full batch cannot be computed in pieces. `cost(model, images)` counts the floating-point operations
    of a forward pass on one image. `init` names the initialization where the shape's field of that name does not choose
    it; the records of runs say it.
    """

    build: Callable[[Any, tuple[int, int, int], int, str], Model]
    in_turn: bool = False
    has_batch_statistics: bool = False
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cost: Callable[[Model, tuple[int, int, int]], float] = counted
    init: str = ""


def pick(table: Mapping[str, Any], name: str, what: str) -> Any:
    """The entry `name` of a `table`; raise one sentence about `what` where there is none."""
    if name not in table:
        raise ValueError(f"unknown {what} {name!r}: choose one of {', '.join(table)}")
    return table[name]


def fan_in_normal(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """A normal of this `shape`, truncated at two standard deviations, times 1/sqrt(fan in), as in Haiku.

    It is drawn with `key`. Haiku does not rescale for the variance lost to the truncation and neither does this: the
    standard deviation of an entry is 0.8796 / sqrt(fan in). The fan in is the product of all axes of `shape` but the
    last.
    """
    return fan_in_scale(shape) * truncated(key, shape, jnp.float32)


def truncated(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Array:
    """A standard normal of this `shape` and `dtype`, truncated at two standard deviations, drawn with `key`."""
    return jax.random.truncated_normal(key, -2, 2, shape, dtype)


def fan_in_scale(shape: tuple[int, ...], gain: float = 1) -> np.float32:
    """The scale sqrt(gain / fan in) of a kernel; the fan in is the product of all axes of `shape` but the last."""
    return np.float32(np.sqrt(gain) / np.sqrt(np.prod(shape[:-1])))


def affine(x: Array, layer: dict[str, Array], dtype: Any) -> Array:
    """A linear `layer` of `x`, computed in `dtype`."""
    w, b = layer["w"].astype(dtype), layer["b"].astype(dtype)
    return x @ w + b[None, :]
