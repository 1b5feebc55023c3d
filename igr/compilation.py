"""Compile once what is called many times outside of `jax.jit`."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from igr._jax import is_eager


def eagerly_compiled(function: Callable) -> Callable:
    """The same `function`, compiled when it is called eagerly, so that a second call compiles nothing.

    Arguments that are not arrays (flags, names, numbers) are constants of the compiled program. Under a transformation
    such as `jax.jit` nothing changes.
    """

    @partial(jax.jit, static_argnums=(0, 1))
    def compiled(structure: Any, rest: tuple, arrays: list) -> PyTree:
        given = iter(arrays)
        leaves = [next(given) if leaf is _ARRAY else leaf for leaf in rest]
        args, kwargs = structure.unflatten(leaves)
        return function(*args, **kwargs)

    @wraps(function)
    def wrapped(*args: object, **kwargs: object) -> PyTree:
        leaves, structure = jax.tree.flatten((args, kwargs))
        rest = tuple(_ARRAY if isinstance(leaf, jax.Array | np.ndarray) else leaf for leaf in leaves)
        if not is_eager() or not _hashable(rest):
            return function(*args, **kwargs)
        return compiled(structure, rest, [leaf for leaf in leaves if isinstance(leaf, jax.Array | np.ndarray)])

    return wrapped


class _Array:
    """Stands where an array was."""


_ARRAY = _Array()


def _hashable(values: tuple) -> bool:
    try:
        hash(values)
    except TypeError:
        return False
    return True
