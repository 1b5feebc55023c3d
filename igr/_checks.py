"""Checks of arguments. Each raises one sentence while JAX traces, before anything is computed."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from igr._jax import is_traced
from igr._typing import Loss, LossValue, Params


def check_params(params: Params) -> None:
    """Raise unless `params` is a non-empty pytree of real floating-point arrays."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError("params is an empty pytree: there is nothing to differentiate.")
    for path, leaf in leaves:
        dtype = getattr(leaf, "dtype", None)
        if dtype is None:
            dtype = np.result_type(leaf) if isinstance(leaf, int | float | complex) else None
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            where = jax.tree_util.keystr(path)
            kind = type(leaf).__name__ if dtype is None else dtype
            raise TypeError(
                f"params{where} is {kind}, but the gradient needs real floating-point arrays: "
                "cast it, or keep it out of params."
            )


def check_scalar(value: Any) -> None:
    """Raise unless `value`, which a loss returned, is one real number."""
    if isinstance(value, tuple | list | dict):
        raise TypeError(
            f"the loss returned a {type(value).__name__}, but it must return one real number: "
            "use has_aux=True if it returns a pair (value, aux), or take its first part."
        )
    shape, dtype = jnp.shape(value), jnp.result_type(value)
    if shape != () or not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(
            f"the loss returned shape {shape} and dtype {dtype}, but it must return one real number: "
            "take its mean or its sum, and use has_aux=True if it returns more."
        )


def checked(loss: Loss, has_aux: bool = False) -> Loss:
    """The same loss, whose result is checked each time it is traced; with `has_aux` it must be a pair (value, aux)."""

    def wrapped(params: Params, *args: object, **kwargs: object) -> LossValue:
        out = loss(params, *args, **kwargs)
        if has_aux and not (isinstance(out, tuple) and len(out) == 2):
            raise TypeError("has_aux=True, but the loss did not return a pair (value, aux).")
        check_scalar(out[0] if has_aux else out)
        return out

    return wrapped


def check_dense(name: str, data: Any) -> None:
    """Raise where `data`, which the argument called `name` splits into batches, holds a sparse array.

    Its leaves are its entries and where they stand: parts of these are not examples.
    """
    for leaf in jax.tree.leaves(data, is_leaf=is_sparse):
        if is_sparse(leaf):
            raise TypeError(
                f"{name} splits arrays along their leading axis, which a sparse {type(leaf).__name__} does not allow: "
                "make it dense, or split the batch yourself."
            )


def is_sparse(value: Any) -> bool:
    """Whether `value` is a sparse array of `jax.experimental.sparse`, which is a pytree and no array."""
    return hasattr(value, "todense")


def check_finite(name: str, value: Any) -> None:
    """Raise unless `value`, the argument called `name`, is one finite real number. A traced number passes: its value is
    not known yet.
    """
    if not isinstance(value, int | float | np.ndarray | np.generic | jax.Array) or isinstance(value, bool):
        raise TypeError(f"{name} must be a real number, not {type(value).__name__}.")
    if jnp.shape(value) != ():
        raise TypeError(f"{name} must be one number, but its shape is {jnp.shape(value)}: use jax.vmap for several.")
    if is_traced(value):
        return
    if not np.all(np.isfinite(np.asarray(value))):
        raise ValueError(f"{name} must be finite, but it is {value}.")


def whole_number(name: str, value: Any, least: int = 0) -> int:
    """`value`, the argument called `name`, as an int (NumPy's integers too); raise where it is below `least`."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a whole number, not bool.")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}.") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, but it is {number}.")
    return number


def is_whole(value: Any, least: int) -> bool:
    """Whether `value` is a whole number of Python or NumPy, not below `least`; a truth value is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least


def check_same_tree(name: str, tree: Params, params: Params) -> None:
    """Raise unless `tree`, the argument called `name`, has the structure and shapes of `params`."""
    shapes = [jax.tree.map(jnp.shape, t) for t in (tree, params)]
    if jax.tree.structure(tree) != jax.tree.structure(params) or shapes[0] != shapes[1]:
        raise ValueError(f"{name} must be a pytree of the structure and shapes of params, but it is another one.")


def is_zero(value: Any) -> bool:
    """Whether `value` is known to be exactly zero; that of a traced number is not."""
    return not is_traced(value) and jnp.shape(value) == () and float(value) == 0


def check_order(order: Any, least: int = 0) -> int:
    """`order` as an int; raise where it is below `least`."""
    return whole_number("order", order, least)
