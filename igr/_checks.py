"""One sentence for bad input, raised while tracing, before anything is computed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from igr._typing import Loss, Params


def check_params(params: Params) -> None:
    """Refuse an empty pytree and leaves that are not real floating-point arrays."""
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
    """Refuse a loss value that is not one real number."""
    shape, dtype = jnp.shape(value), jnp.result_type(value)
    if shape != () or not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(
            f"the loss returned shape {shape} and dtype {dtype}, but it must return one real number: "
            "take its mean or its sum, and use has_aux=True if it returns more."
        )


def checked(loss: Loss, has_aux: bool = False) -> Loss:
    """The same loss, which looks at what comes out each time it is traced."""

    def wrapped(params: Params, *args: Any, **kwargs: Any) -> Any:
        out = loss(params, *args, **kwargs)
        if has_aux and not (isinstance(out, tuple) and len(out) == 2):
            raise TypeError("has_aux=True, but the loss did not return a pair (value, aux).")
        check_scalar(out[0] if has_aux else out)
        return out

    return wrapped


def check_finite(name: str, value: Any) -> None:
    """Refuse a non-finite number; a traced one is not known yet and passes."""
    if isinstance(value, Tracer):
        return
    if not isinstance(value, int | float | np.ndarray | np.generic | jax.Array) or isinstance(value, bool):
        raise TypeError(f"{name} must be a real number, not {type(value).__name__}.")
    if not np.all(np.isfinite(np.asarray(value))):
        raise ValueError(f"{name} must be finite, but it is {value}.")


def check_order(order: int, least: int = 0) -> None:
    """Refuse an order that is not a whole number of at least `least`."""
    if isinstance(order, bool) or not isinstance(order, int):
        raise TypeError(f"order must be a whole number, not {type(order).__name__}.")
    if order < least:
        raise ValueError(f"order must be at least {least}, but it is {order}.")


def is_zero(value: Any) -> bool:
    """Whether a number is known, while tracing, to be exactly zero."""
    return not isinstance(value, Tracer) and jnp.shape(value) == () and float(value) == 0
