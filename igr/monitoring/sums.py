"""Sums over all parameters in few kernels, and a sample of the parameters that is exact where they are few."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from igr._typing import Params, Scalar
from igr.calculus import accumulation_dtype, squared_norm

ARRAYS = 64  # that one kernel reads: XLA fuses no more than about a hundred


def square(tree: Params) -> Scalar:
    r"""The squared norm of a pytree, $\sum_i x_i^2$, as `igr.squared_norm`, in few kernels where there is one device.

    A GPU takes about 2 microseconds to start a kernel, and XLA makes one or two for the sum of each array: for a
    network of 60 arrays that is longer than to read them. As one long vector, which is never written, 64 arrays take
    two kernels. Where there are several devices each array is summed where it lies: a long vector would be
    gathered.

    >>> import jax.numpy as jnp
    >>> float(square({"w": jnp.ones((300, 100)), "b": jnp.array([1.0, 2.0])}))
    30005.0
    """
    if jax.device_count() > 1:
        return squared_norm(tree)
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    dtype = accumulation_dtype(*leaves)
    groups = [_joined(leaves[i : i + ARRAYS], dtype) for i in range(0, len(leaves), ARRAYS)]
    return sum((jnp.sum(x * x) for x in groups), start=jnp.zeros((), dtype))


def _joined(leaves: list[Array], dtype: DTypeLike) -> Array:
    return jnp.concatenate([leaf.astype(dtype).ravel() for leaf in leaves])


def strides(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Steps along the axes that leave at most so many entries; the longest axis is thinned first.

    >>> strides((3, 3, 64, 64), 1000)
    (1, 1, 8, 8)
    """
    steps, left = [1] * len(shape), list(shape)
    while math.prod(left) > most:
        axis = left.index(max(left))
        steps[axis] *= 2
        left[axis] = -(-shape[axis] // steps[axis])
    return tuple(steps)


def sample(tree: Params, most: int | None) -> Array:
    r"""A vector whose inner products estimate those of the trees: all of a small array, a grid of a large one.

    $$\langle a, b\rangle \approx \sum_l \frac{n_l}{k_l} \sum_{i \in S_l} a_i b_i$$

    Of an array with $n_l$ entries a grid of $k_l$ is taken, `most` or fewer; the weights are in the vector, as square
    roots. With None, or where no array has more than `most` entries, the products are exact.

    >>> import jax.numpy as jnp
    >>> x = sample({"w": jnp.ones((300, 100)), "b": jnp.array([1.0, 2.0])}, 1000)
    >>> len(x), round(float(x @ x), 2)
    (952, 30005.0)
    """
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    dtype = accumulation_dtype(*leaves)
    return _joined([_everywhere(leaf, most) for leaf in leaves], dtype)


def _everywhere(x: Array, most: int | None) -> Array:
    """The sample of an array, the same on all devices where arrays have explicit shardings: their samples are mixed.

    The compiler cuts it out: JAX has no rule for a slice that cannot be shared out evenly among the devices.
    """
    sharding = jax.typeof(x).sharding
    if all(axis is None for axis in sharding.spec):
        return _thinned(x, most)
    everywhere = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    cut: Any = jax.sharding.auto_axes(lambda x: _thinned(x, most), out_sharding=everywhere)
    return cut(x)


def _thinned(x: Array, most: int | None) -> Array:
    if most is None or x.size <= most:
        return x
    kept = jax.lax.slice(x, (0,) * x.ndim, x.shape, strides(x.shape, most))
    return kept.astype(accumulation_dtype(kept)) * math.sqrt(x.size / kept.size)


def products(pairs: list[tuple[Array, Array]]) -> list[Scalar]:
    """The inner products of pairs of vectors: those of one length are summed together.

    >>> import jax.numpy as jnp
    >>> [float(p) for p in products([(jnp.ones(3), jnp.ones(3)), (jnp.ones(2), jnp.arange(2.0))])]
    [3.0, 1.0]
    """
    found: dict[int, Scalar] = {}
    for length in {len(a) for a, _ in pairs}:
        some = [i for i, (a, _) in enumerate(pairs) if len(a) == length]
        sums = jnp.sum(jnp.stack([pairs[i][0] * pairs[i][1] for i in some]), axis=1)
        for place, i in enumerate(some):
            found[i] = sums[place]
    return [found[i] for i in range(len(pairs))]
