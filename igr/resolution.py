"""How finely a program computes: the relative rounding of its coarsest matrix product."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

# Float32 products that ask for no precision are rounded to TensorFloat-32 on NVIDIA GPUs and to bfloat16 on TPUs.
_DEFAULT_PRODUCT = {"gpu": 2.0**-10, "cuda": 2.0**-10, "tpu": 2.0**-7}
_PRODUCTS = ("dot_general", "conv_general_dilated")


def resolution(function: Any, *args: Any) -> float:
    r"""The rounding unit that limits differences of `function`'s values, found by tracing it.

    $$\epsilon = \max\{\text{eps of the inputs' dtype},\ \text{eps of each matrix product inside}\}$$

    Parameters in float32 say nothing about a loss that computes in bfloat16, and float32 itself is not float32 on a
    GPU: a difference quotient with a step made for float32 would then be all noise.

    >>> import jax.numpy as jnp
    >>> W = jnp.ones((2, 2), jnp.float32)
    >>> resolution(lambda w: jnp.sum(w.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)), W)
    0.0078125
    """
    program = jax.make_jaxpr(function)(*args)
    inputs = [_eps(x.dtype) for x in map(jnp.asarray, jax.tree.leaves(args)) if jnp.issubdtype(x.dtype, jnp.floating)]
    return max([*inputs, *map(_product_eps, equations(program))], default=_eps(jnp.result_type(float)))


def _eps(dtype: Any) -> float:
    return float(jnp.finfo(dtype).eps)


def equations(program: Any) -> Iterator[Any]:
    """Every equation of a traced program and of the programs inside it."""
    for equation in program.eqns:
        yield equation
        for inner in programs(equation):
            yield from equations(inner)


def programs(equation: Any) -> Iterator[Any]:
    """The programs inside an equation: the bodies of calls, loops and branches."""
    for value in equation.params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            if hasattr(inner, "eqns"):
                yield getattr(inner, "jaxpr", inner)


def _product_eps(equation: Any) -> float:
    if equation.primitive.name not in _PRODUCTS:
        return 0.0
    dtypes = [v.aval.dtype for v in equation.invars if jnp.issubdtype(v.aval.dtype, jnp.floating)]
    eps = max(map(_eps, dtypes), default=0.0)
    precision = equation.params.get("precision")
    asked = precision if isinstance(precision, tuple) else (precision,)
    coarse = all(p is None or p == jax.lax.Precision.DEFAULT for p in asked)
    if coarse and jnp.float32 in dtypes:
        eps = max(eps, _DEFAULT_PRODUCT.get(jax.default_backend(), 0.0))
    return eps
