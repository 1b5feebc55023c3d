"""Checkpoints of a training: every array under its path in the tree, checked when it is read."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PREFIX = "tree"
OLD = "leaf/"  # before version 0.2: arrays by position, which a new field would have mixed up silently


class CheckpointError(ValueError):
    """A checkpoint does not fit this training. The message says where."""


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their paths.

    Random keys and the small floats of accelerators, such as bfloat16, are no types of a NumPy file. Their bits are
    kept as integers, and the type is a part of the name.

    >>> flatten({"w": np.ones(2), "b": [np.zeros(3)]})
    {"tree['b'][0]": array([0., 0., 0.]), "tree['w']": array([1., 1.])}
    >>> flatten({"mean": jnp.ones(2, jnp.bfloat16)})
    {"tree['mean']:bfloat16": array([16256, 16256], dtype=uint16)}
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    arrays = ((_name(path, leaf), np.asarray(jax.device_get(_bare(leaf)))) for path, leaf in leaves)
    return {name: array.view(_bits(array.dtype)) for name, array in arrays}


def restore(saved: Mapping[str, np.ndarray], like: Any) -> Any:
    """The pytree that `flatten` wrote as `saved`; raise `CheckpointError` unless paths, shapes and dtypes are as in
    `like`.

    >>> restore(flatten({"w": np.arange(2.0)}), like={"w": np.zeros(2)})
    {'w': array([0., 1.])}
    >>> restore(flatten({"w": np.arange(2.0)}), like={"w": np.zeros(3)})
    Traceback (most recent call last):
    igr.lab.training.checkpoint.CheckpointError: tree['w'] has shape (2,) and dtype float64 in the checkpoint, and shape
    (3,) and dtype float64 here.
    """
    if any(name.startswith(OLD) for name in saved):
        raise CheckpointError("the checkpoint was written by igr 0.1, which kept arrays by position.")
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {_name(path, leaf): leaf for path, leaf in leaves}
    found = {name for name in saved if name.startswith(PREFIX)}
    if different := sorted(found ^ set(expected)):
        where = (
            "is missing from the checkpoint" if different[0] in expected else "is in the checkpoint and unknown here"
        )
        raise CheckpointError(f"{different[0]} {where}.")
    for name, leaf in expected.items():
        here = jax.eval_shape(_bare, leaf) if _is_key(leaf) else leaf
        dtype = _bits(here.dtype)
        if saved[name].shape != here.shape or saved[name].dtype != dtype:
            raise CheckpointError(
                f"{name} has shape {saved[name].shape} and dtype {saved[name].dtype} in the checkpoint, and shape "
                f"{here.shape} and dtype {dtype} here."
            )
    return jax.tree.unflatten(structure, [_decoded(saved[name], leaf) for name, leaf in expected.items()])


def _name(path: tuple, leaf: Any) -> str:
    own = f":{leaf.dtype}" if _is_key(leaf) or _bits(leaf.dtype) != leaf.dtype else ""
    return f"{PREFIX}{jax.tree_util.keystr(path)}{own}"


def _is_key(leaf: Any) -> bool:
    """Whether a leaf is an array of random keys, as in the state of an optimizer that adds noise."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _bare(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _bits(dtype: Any) -> np.dtype:
    """The dtype in which an array is kept: its own, or integers of the same width where NumPy's files have no name."""
    dtype = np.dtype(dtype)
    return np.dtype(f"u{dtype.itemsize}") if dtype.isbuiltin == 2 else dtype


def _decoded(array: np.ndarray, like: Any) -> Any:
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(like))
    return array if array.dtype == like.dtype else array.view(like.dtype)
