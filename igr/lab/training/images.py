"""Data sets on the device, stored as bytes, and the check that a model can take them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8

from igr.lab.models.model import Model


class Images(NamedTuple):
    """A data set on the device, as bytes: a quarter of the memory and of the gather's traffic."""

    x: UInt8[Array, "n h w c"]
    y: Int[Array, " n"]
    scale: float

    def put(self, where: Any) -> "Images":
        """The same data on `where`, a device or a sharding."""
        return Images(jax.device_put(self.x, where), jax.device_put(self.y, where), self.scale)

    def pick(self, index: Int[Array, " b"]) -> tuple[Array, Array]:
        """The images with the indices `index` as float32 in [0, 1], and their labels."""
        # `clip` and not the default `fill`, which would mask every pixel for indices that cannot be out of range.
        return unit_range(self.x.at[index].get(mode="clip"), self.scale), self.y.at[index].get(mode="clip")


def unit_range(x: Array, scale: float) -> Array:
    """The bytes `x` as float32 in [0, 1]; `scale` is the largest byte."""
    return x.astype(jnp.float32) * np.float32(1 / scale)


def check_images(model: Model, data: Images) -> None:
    """Raise `ValueError` where `model` cannot take the images of `data` or has no output for one of its labels."""
    params, state = jax.eval_shape(model.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((2, *data.x.shape[1:]), jnp.float32)
    try:
        logits, _ = jax.eval_shape(lambda params, state, x: model.apply(params, state, x, True), params, state, x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the model cannot take images of shape {data.x.shape[1:]}.") from error
    if len(data.x) != len(data.y):
        raise ValueError(f"there must be a label for each image, but {len(data.x)} images have {len(data.y)} labels.")
    low, high = (int(f(np.asarray(data.y), initial=0)) for f in (np.min, np.max))
    if low < 0 or high >= logits.shape[-1]:
        raise ValueError(f"labels must lie in 0 ... {logits.shape[-1] - 1}, but they reach from {low} to {high}.")
