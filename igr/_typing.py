"""The types of the core: losses, vector fields and step maps on pytrees, and the numbers they take."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PyTree, Real

Scalar: TypeAlias = Float[Array, ""]
# A number of Python or NumPy, or an array without axes, which may be traced.
RealScalarLike: TypeAlias = float | int | np.floating | np.integer | Real[np.ndarray, ""] | Real[Array, ""]
Count: TypeAlias = int | Int[Array, ""]  # of steps; a counter inside a compiled program is an array
Whole: TypeAlias = int | np.integer  # of Python or NumPy, known while JAX traces
Params: TypeAlias = PyTree[ArrayLike]
Loss: TypeAlias = Callable[..., Any]  # (params, *args, **kwargs) -> scalar, or (scalar, aux) with has_aux
LossValue: TypeAlias = PyTree  # a real number, or (a real number, aux) where has_aux is true
Field: TypeAlias = Callable[..., Params]  # (params, *args, **kwargs) -> tangent, same structure as params
Step: TypeAlias = Callable[[Any], Any]  # state -> next state
