"""How finely a program computes: the relative rounding of its coarsest operation."""

import re
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from igr._jax import Equation, Jaxpr, Variable, platform
from igr.penalty.kinks import visit_varying

# Float32 products at JAX's precisions: TensorFloat-32 on NVIDIA GPUs unless the highest is asked for; one bfloat16
# pass on TPUs by default, three at high precision.
_TF32, _BF16, _BF16_3 = 2.0**-10, 2.0**-7, 2.0**-15
_PRODUCT = {
    ("gpu", "DEFAULT"): _TF32,
    ("gpu", "HIGH"): _TF32,
    ("tpu", "DEFAULT"): _BF16,
    ("tpu", "HIGH"): _BF16_3,
}
_PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general")
# Algorithms by name (`jax.lax.DotAlgorithmPreset`): the unit of what they multiply, finer with several passes.
_ALGORITHMS = {"TF32": _TF32, "BF16": _BF16, "F16": 2.0**-10, "F8": 2.0**-3, "F32": 2.0**-23, "F64": 2.0**-52}
_ALGORITHMS |= {"BF16_X3": _BF16_3, "TF32_X3": 2.0**-21, "BF16_X6": 2.0**-22, "BF16_X9": 2.0**-23}


def resolution(function: Any, *args: object) -> float:
    r"""The rounding unit that limits differences of `function`'s values, found by tracing it.

    $$\epsilon = \max\{\text{eps of each number that depends on the inputs}\}$$

    Parameters in float32 say nothing about a loss that computes in bfloat16, and float32 itself is not float32 on a
    GPU: a difference quotient with a step made for float32 would then be all noise. Every operation counts on the way
    from the inputs to the result: casts, elementwise ones, products with what precision they are asked for.

    >>> import jax.numpy as jnp
    >>> W = jnp.ones((2, 2), jnp.float32)
    >>> resolution(lambda w: jnp.sum(w.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)), W)
    0.0078125
    """
    return unit_of(jax.make_jaxpr(function)(*args).jaxpr)


def unit_of(program: Jaxpr) -> float:
    """The same of a traced program."""
    found = [_eps(_dtype(v)) for v in program.invars if _is_float(v)]

    def visit(equation: Equation, varies: list[bool]) -> None:
        found.extend(_eps(_dtype(v)) for v in equation.outvars if _is_float(v))
        if equation.primitive.name in _PRODUCTS:
            found.append(_product(equation))
        if equation.primitive.name == "reduce_precision":
            found.append(2.0 ** -equation.params["mantissa_bits"])

    visit_varying(program, visit)
    return max(found, default=_eps(jnp.result_type(float)))


def _is_float(variable: Variable) -> bool:
    return jnp.issubdtype(_dtype(variable), jnp.inexact)


def _dtype(variable: Variable) -> DTypeLike:
    return getattr(variable.aval, "dtype", bool)


def _eps(dtype: DTypeLike) -> float:
    return float(jnp.finfo(dtype).eps)


def _product(equation: Equation) -> float:
    """The unit to which a product rounds what it multiplies."""
    dtypes = [_dtype(v) for v in equation.invars if _is_float(v)]
    eps = max(map(_eps, dtypes), default=0.0)
    precision = equation.params.get("precision")
    asked = precision if isinstance(precision, tuple) else (precision,)
    machine = {"cuda": "gpu", "rocm": "gpu"}.get(platform(), platform())
    for p in asked:
        name = getattr(p, "name", "DEFAULT" if p is None else str(p))
        if name in ("DEFAULT", "HIGH", "HIGHEST"):
            eps = max(eps, _PRODUCT.get((machine, name), 0.0) if jnp.float32 in dtypes else 0.0)
        else:
            eps = max(eps, _algorithm(name))
    return eps


def _algorithm(name: str) -> float:
    """The unit of an algorithm such as BF16_BF16_F32_X3, which says it in its name."""
    kind = re.match(r"(?:ANY_)?(TF32|BF16|F8|F16|F32|F64)", name)
    if kind is None:
        return 0.0
    passes = re.search(r"_X\d$", name)
    return _ALGORITHMS.get(kind[1] + (passes[0] if passes else ""), 0.0)
