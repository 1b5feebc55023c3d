"""Augmentation of training images on the device: each is shifted by up to four pixels and mirrored at random."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

PAD = 4  # pixels, as is usual for images of 32 x 32 (He et al. 2016, section 4.2)


def augment(key: PRNGKeyArray, x: Float[Array, "n h w c"]) -> Float[Array, "n h w c"]:
    """The images `x`, each padded with zeros, cropped at a random place and mirrored with probability 1/2.

    A pure function of `key`, with one gather for the whole batch.

    >>> x = jnp.arange(2 * 3 * 3, dtype=jnp.float32).reshape(2, 3, 3, 1)
    >>> y = augment(jax.random.key(0), x)
    >>> y.shape, bool((y == augment(jax.random.key(0), x)).all()), bool((y == x).all())
    ((2, 3, 3, 1), True, False)
    """
    n, height, width, _ = x.shape
    corner, mirror = jax.random.split(key)
    top, left = jax.random.randint(corner, (2, n, 1), 0, 2 * PAD + 1, jnp.int32)
    rows, columns = (jnp.arange(size, dtype=jnp.int32)[None, :] for size in (height, width))
    columns = jnp.where(jax.random.bernoulli(mirror, shape=(n, 1)), columns[:, ::-1], columns)
    padded = jnp.pad(x, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
    image = jnp.arange(n, dtype=jnp.int32)[:, None, None]
    return padded.at[image, (top + rows)[:, :, None], (left + columns)[:, None, :]].get(mode="clip")
