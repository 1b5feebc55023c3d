"""The words the first floor speaks in: everything is a function of a loss or of a vector field on a pytree."""

from collections.abc import Callable
from typing import Any, TypeAlias

from jaxtyping import Array, Float, PyTree

Scalar: TypeAlias = Float[Array, ""]
Params: TypeAlias = PyTree[Array]
Loss: TypeAlias = Callable[..., Any]  # (params, *args, **kwargs) -> scalar, or (scalar, aux) with has_aux
Field: TypeAlias = Callable[..., Params]  # (params, *args, **kwargs) -> tangent, same structure as params
Step: TypeAlias = Callable[[Any], Any]  # state -> next state
