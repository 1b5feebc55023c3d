"""Derivatives of a loss and of a vector field on any pytree, and the gradient over a whole data set."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from igr._checks import check_finite, check_params, checked
from igr._typing import Field, Loss, Params, Scalar


def accumulation_dtype(*xs: Any) -> jnp.dtype:
    """The widest dtype among the arrays, and float32 at least: a bfloat16 sum stops growing after 256 equal terms."""
    # Not promote_types, which refuses under jax_numpy_dtype_promotion="strict".
    return max((jnp.dtype(jnp.float32), *map(jnp.result_type, xs)), key=lambda dtype: jnp.finfo(dtype).bits)


def squared_norm(tree: Params) -> Scalar:
    r"""The squared Euclidean norm of a pytree, accumulated in float32 or better.

    $$|v|^2 = \sum_i v_i^2$$

    >>> import jax.numpy as jnp
    >>> float(squared_norm({"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}))
    25.0
    """
    leaves = jax.tree.leaves(tree)
    wide = accumulation_dtype(*leaves)
    return sum((jnp.sum(jnp.square(jnp.asarray(x).astype(wide))) for x in leaves), start=jnp.zeros((), wide))


def add_scaled(params: Params, scale: Any, direction: Params) -> Params:
    """`params + scale * direction`, computed in float32 or better and returned in the dtype of `params`."""

    def add(p, d):
        p = jnp.asarray(p)
        wide = accumulation_dtype(p)
        return (p.astype(wide) + jnp.asarray(scale).astype(wide) * jnp.asarray(d).astype(wide)).astype(p.dtype)

    return jax.tree.map(add, params, direction)


def value_and_gradient(loss: Loss, has_aux: bool = False) -> Any:
    """`jax.value_and_grad` of a loss, with one clear sentence for parameters or values that it cannot take."""
    function = jax.value_and_grad(checked(loss, has_aux), has_aux=has_aux)

    def evaluate(params: Params, *args: Any, **kwargs: Any) -> Any:
        check_params(params)
        return function(params, *args, **kwargs)

    return evaluate


def gradient(loss: Loss) -> Field:
    """The gradient alone, for a loss without aux."""
    both = value_and_gradient(loss)
    return lambda params, *args, **kwargs: both(params, *args, **kwargs)[1]


def gradient_field(loss: Loss) -> Field:
    r"""The field of gradient flow.

    $$f(\theta) = -\nabla E(\theta)$$

    The returned function takes the loss's own arguments, `f(params, *args)`. Barrett & Dherin (2021), Equation 5.

    >>> import jax.numpy as jnp
    >>> f = gradient_field(lambda x: 0.5 * jnp.sum(x**2))
    >>> f(jnp.array([1.0, -2.0])).tolist()
    [-1.0, 2.0]
    """
    ascent = gradient(loss)

    def field(params: Params, *args: Any, **kwargs: Any) -> Params:
        return jax.tree.map(jnp.negative, ascent(params, *args, **kwargs))

    return field


def gradient_step(loss: Loss, h: Any) -> Field:
    r"""One step of gradient descent, the explicit Euler method on gradient flow.

    $$\theta_{n+1} = \theta_n - h \nabla E(\theta_n)$$

    Barrett & Dherin (2021), Equation 1.

    >>> import jax.numpy as jnp
    >>> float(gradient_step(lambda x: x**2 / 2, h=0.25)(jnp.array(1.0)))
    0.75
    """
    check_finite("h", h)
    field = gradient_field(loss)

    def step(params: Params, *args: Any, **kwargs: Any) -> Params:
        return add_scaled(params, h, field(params, *args, **kwargs))

    return step


def hvp(loss: Loss) -> Field:
    r"""The Hessian of a loss times a vector, forward over reverse, without forming the matrix.

    $$(\theta, v) \mapsto \nabla^2 E(\theta)\, v$$

    Called as `hvp(loss)(params, vector, *args)`; it costs two to three gradients.

    >>> import jax.numpy as jnp
    >>> hvp(lambda x: x[0] ** 2 * x[1])(jnp.array([1.0, 3.0]), jnp.array([1.0, 0.0])).tolist()
    [6.0, 2.0]
    """
    slope = gradient(loss)

    def product(params: Params, vector: Params, *args: Any, **kwargs: Any) -> Params:
        check_params(params)
        return jax.jvp(lambda p: slope(p, *args, **kwargs), (params,), (vector,))[1]

    return product


def derivative(field: Field, params: Params, *directions: Params) -> Params:
    r"""The k-th directional derivative of a field, one direction an argument.

    $$f^{(k)}(\theta)(v_1, \dots, v_k)$$

    The directions are held fixed: `derivative(f, x, f(x), f(x))` is $f''(f, f)$, not $(f'f)'f$.

    >>> import jax.numpy as jnp
    >>> float(derivative(lambda x: x**3, jnp.array(2.0), jnp.array(1.0), jnp.array(1.0)))
    12.0
    """
    for direction in directions:
        field = _along(field, direction)
    return field(params)


def _along(field: Field, direction: Params) -> Field:
    return lambda params: jax.jvp(field, (params,), (direction,))[1]


def full_batch(loss: Loss, batch_size: int) -> Loss:
    r"""The mean loss over a data set, whose gradient is a scan over batches in constant memory.

    $$E(\theta) = \frac1N \sum_{i=1}^N \ell(\theta, x_i)$$

    `loss(params, *data)` must be a mean over the leading axis of every array in `data`; so is the result, on data of
    any length (the last batch may be shorter). It is a loss like any other, so the squared gradient in
    `regularizer(full_batch(loss, 1000))` is that of the averaged gradient. Averaging squared batch gradients instead
    adds their variance and is not the $R_{IG}$ of the paper. The value and the gradient share one pass and second
    derivatives work; the data themselves cannot be differentiated.

    >>> import jax, jax.numpy as jnp
    >>> mse = lambda w, x, y: jnp.mean((w * x - y) ** 2)
    >>> x, y = jnp.arange(5.0), jnp.ones(5)
    >>> w = jnp.array(2.0)
    >>> bool(jnp.allclose(jax.grad(full_batch(mse, 2))(w, x, y), jax.grad(mse)(w, x, y)))
    True
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size must be a positive whole number, but it is {batch_size!r}.")
    loss = checked(loss)

    @jax.custom_jvp
    def mean_loss(params: Params, *data: Any) -> Any:
        return _mean_over_batches(lambda *batch: loss(params, *batch), data, batch_size)

    def rule(primals, tangents):
        (params, *data), (dparams, *ddata) = primals, tangents
        if not all(map(_vanishes, _tangents(ddata))):
            raise TypeError("full_batch differentiates with respect to params only: close over the data instead.")
        value, mean = _mean_over_batches(
            lambda *batch: jax.value_and_grad(loss)(params, *batch), tuple(data), batch_size
        )
        # Linear in dparams, so that reverse mode is its transpose and costs nothing beyond the pass already made.
        pairs = zip(jax.tree.leaves(mean), _tangents(dparams), strict=True)
        terms = [jnp.sum(g * d) for g, d in pairs if not _vanishes(d)]
        return value, sum((t.astype(value.dtype) for t in terms), start=jnp.zeros_like(value))

    mean_loss.defjvp(rule, symbolic_zeros=True)

    def whole(params: Params, *data: Any) -> Any:
        check_params(params)
        return mean_loss(params, *data)

    return whole


def _vanishes(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _tangents(tree: Params) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=_vanishes)


def _mean_over_batches(function: Any, data: tuple, batch_size: int) -> Any:
    """The mean of `function(*batch)` over the batches, each weighted by its length."""
    lengths = {jnp.shape(x)[:1] for x in jax.tree.leaves(data)}
    if len(lengths) != 1 or lengths == {()} or lengths == {(0,)}:
        raise ValueError(
            "full_batch needs data whose arrays all have the same, non-empty leading axis (the examples), "
            f"but their leading axes are {sorted(lengths)}."
        )
    ((length,),) = lengths
    whole, rest = divmod(length, batch_size)

    def weighted(batch, count):
        return jax.tree.map(lambda v: v * jnp.asarray(count / length, v.dtype), function(*batch))

    total = None
    if whole:
        batches = jax.tree.map(lambda x: x[: whole * batch_size].reshape(whole, batch_size, *x.shape[1:]), data)
        first = jax.eval_shape(lambda b: weighted(b, batch_size), jax.tree.map(lambda x: x[0], batches))
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), first)
        total, _ = jax.lax.scan(
            lambda acc, batch: (jax.tree.map(jnp.add, acc, weighted(batch, batch_size)), None), zeros, batches
        )
    if rest:
        last = weighted(jax.tree.map(lambda x: x[whole * batch_size :], data), rest)
        total = last if total is None else jax.tree.map(jnp.add, total, last)
    return total
