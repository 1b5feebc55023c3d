"""Derivatives of a loss and of a vector field on any pytree, and their norms."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from igr._checks import check_finite, check_params, checked
from igr._jax import (
    CONCRETE_VALUES,
    is_eager,
    jaxpr_as_fun,
    refuses_forward_mode,
    unstopped,
    without_forward_mode,
)
from igr._typing import Field, Loss, LossValue, Params, RealScalarLike, Scalar


def accumulation_dtype(*xs: object) -> jnp.dtype:
    """The widest dtype among the arrays, and float32 at least: a bfloat16 sum stops growing after 256 equal terms."""
    # Not promote_types, which refuses under jax_numpy_dtype_promotion="strict".
    real = (dtype for dtype in map(jnp.result_type, xs) if jnp.issubdtype(dtype, jnp.inexact))
    return max((jnp.dtype(jnp.float32), *(jnp.finfo(dtype).dtype for dtype in real)), key=lambda d: jnp.finfo(d).bits)


def squared_norm(tree: Params) -> Scalar:
    r"""The squared Euclidean norm of a pytree, accumulated in float32 or better.

    $$|v|^2 = \sum_i |v_i|^2$$

    Complex entries count with their absolute value.

    >>> import jax.numpy as jnp
    >>> float(squared_norm({"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}))
    25.0
    """
    leaves = jax.tree.leaves(tree)
    wide = accumulation_dtype(*leaves)
    return sum((_sum_of_squares(jnp.asarray(x), wide) for x in leaves), start=jnp.zeros((), wide))


def _sum_of_squares(x: Array, wide: DTypeLike) -> Scalar:
    if jnp.iscomplexobj(x):
        return _sum_of_squares(x.real, wide) + _sum_of_squares(x.imag, wide)
    return jnp.sum(jnp.square(x.astype(wide)))


def add_scaled(params: Params, scale: Any, direction: Params) -> Params:
    """`params + scale * direction`, computed in float32 or better and returned in the dtype of `params`."""

    def add(p, d):
        p = jnp.asarray(p)
        wide = accumulation_dtype(p)
        return (p.astype(wide) + jnp.asarray(scale).astype(wide) * jnp.asarray(d).astype(wide)).astype(p.dtype)

    return jax.tree.map(add, params, direction)


def value_and_gradient(loss: Loss, has_aux: bool = False) -> Callable[..., tuple[LossValue, Params]]:
    """`jax.value_and_grad` of a `loss`, with one clear sentence for parameters or values that it cannot take.

    With `has_aux` the value is a pair (value, aux).
    """
    function = jax.value_and_grad(checked(loss, has_aux), has_aux=has_aux)

    def evaluate(params: Params, *args: object, **kwargs: object) -> tuple[LossValue, Params]:
        check_params(params)
        return function(params, *args, **kwargs)

    return evaluate


def gradient(loss: Loss, has_aux: bool = False) -> Field:
    """The gradient of a `loss` alone; with `has_aux` the loss returns a pair (value, aux), and aux is dropped."""
    both = value_and_gradient(loss, has_aux)
    return lambda params, *args, **kwargs: both(params, *args, **kwargs)[1]


def gradient_field(loss: Loss, has_aux: bool = False) -> Field:
    r"""The field of gradient flow.

    $$f(\theta) = -\nabla E(\theta)$$

    The returned function takes the loss's own arguments, `f(params, *args)`. With `has_aux` the loss returns a pair,
    whose second part is dropped: a field has no place for it. Barrett & Dherin (2021), Equation 5.

    >>> import jax.numpy as jnp
    >>> f = gradient_field(lambda x: 0.5 * jnp.sum(x**2))
    >>> f(jnp.array([1.0, -2.0])).tolist()
    [-1.0, 2.0]
    """
    ascent = gradient(loss, has_aux)

    def field(params: Params, *args: object, **kwargs: object) -> Params:
        return jax.tree.map(jnp.negative, ascent(params, *args, **kwargs))

    return field


def gradient_step(loss: Loss, h: RealScalarLike, has_aux: bool = False) -> Field:
    r"""One step of gradient descent, the explicit Euler method on gradient flow.

    $$\theta_{n+1} = \theta_n - h \nabla E(\theta_n)$$

    With `has_aux` the loss returns a pair, whose second part is dropped. Barrett & Dherin (2021), Equation 1.

    >>> import jax.numpy as jnp
    >>> float(gradient_step(lambda x: x**2 / 2, h=0.25)(jnp.array(1.0)))
    0.75
    """
    check_finite("h", h)
    field = gradient_field(loss, has_aux)

    def step(params: Params, *args: object, **kwargs: object) -> Params:
        return add_scaled(params, h, field(params, *args, **kwargs))

    return step


def hvp(loss: Loss, has_aux: bool = False) -> Field:
    r"""The Hessian of a loss times a vector, forward over reverse, without forming the matrix.

    $$(\theta, v) \mapsto \nabla^2 E(\theta)\, v$$

    Called as `hvp(loss)(params, vector, *args)`; it costs two to three gradients. With `has_aux` the loss returns a
    pair, whose second part is dropped. What the loss passes through `jax.lax.stop_gradient` counts as constant here.

    >>> import jax.numpy as jnp
    >>> hvp(lambda x: x[0] ** 2 * x[1])(jnp.array([1.0, 3.0]), jnp.array([1.0, 0.0])).tolist()
    [6.0, 2.0]
    """
    slope = gradient(loss, has_aux)

    def product(params: Params, vector: Params, *args: object, **kwargs: object) -> Params:
        check_params(params)

        def at(p: Params) -> Params:
            return slope(p, *args, **kwargs)

        def refusal() -> str | None:
            return without_forward_mode(jax.make_jaxpr(at)(params).jaxpr)

        return along(at, params, vector, refusal, "a Hessian product", "replace that operation by one that does")

    return product


def along(
    gradient: Field, params: Params, direction: Params, refusal: Callable[[], str | None], what: str, advice: str
) -> Params:
    """The derivative of `gradient` at `params` along a `direction`, with one sentence where forward mode is not
    allowed.

    The sentence begins with `what`, names the operation that `refusal()` returns, and ends with `advice`.
    """

    def refused(said: str) -> TypeError:
        return TypeError(
            f"{what} differentiates the gradient in forward mode, which {refusal() or 'an operation'} does not allow: "
            f"{advice}. (JAX says: {said})"
        )

    def tangent(params: Params, direction: Params) -> Params:
        return jax.jvp(gradient, (params,), (direction,))[1]

    try:
        if is_eager():
            return tangent(params, direction)
        program, shape = jax.make_jaxpr(tangent, return_shape=True)(params, direction)
    except (TypeError, ValueError, NotImplementedError, AssertionError, RuntimeError) as error:
        if isinstance(error, (*CONCRETE_VALUES, jax.errors.JaxRuntimeError)):  # a Python if; the machine's own
            raise
        raise refused(str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    if refuses_forward_mode(program.jaxpr):  # under jit JAX would say so only when the whole program is compiled
        raise refused("can't apply forward-mode autodiff (jvp) to a custom_vjp function.")
    return jax.tree.structure(shape).unflatten(jaxpr_as_fun(program)(*jax.tree.leaves((params, direction))))


def derivative(field: Field, params: Params, *directions: Params) -> Params:
    r"""The k-th directional derivative of a field, one direction an argument.

    $$f^{(k)}(\theta)(v_1, \dots, v_k)$$

    The `directions` are held fixed: `derivative(f, x, f(x), f(x))` is $f''(f, f)$, not $(f'f)'f$. It is the derivative
    of the `field` as it is computed at `params`: what a loss passes through `jax.lax.stop_gradient` is constant in its
    gradient, and depends on the parameters in the derivative of that gradient.

    >>> import jax.numpy as jnp
    >>> float(derivative(lambda x: x**3, jnp.array(2.0), jnp.array(1.0), jnp.array(1.0)))
    12.0
    """
    field = as_computed(field, params) if directions else field
    for direction in directions:
        field = _along(field, direction)
    return field(params)


def _along(field: Field, direction: Params) -> Field:
    return lambda params: jax.jvp(field, (params,), (direction,))[1]


def as_computed(field: Field, params: Params) -> Field:
    """The same `field`, traced at `params`; its derivatives do not stop at `stop_gradient`.

    `stop_gradient` is meant for the differentiation that made the field. The target of a temporal-difference loss is
    constant in the gradient of that loss, but the field still depends on the parameters through it.
    """
    try:
        program, shape = jax.make_jaxpr(field, return_shape=True)(params)
    except CONCRETE_VALUES:  # it chooses in Python by the values, and can only be run
        return field
    function, structure = jaxpr_as_fun(unstopped(program)), jax.tree.structure(shape)
    return lambda p: structure.unflatten(function(*jax.tree.leaves(p)))
