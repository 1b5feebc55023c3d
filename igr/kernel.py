r"""The neural tangent kernel of a model, and the regularizer of a least-squares loss through it.

Here a model is `model(params, x)` with one output row per example, and the loss is
$E(\theta) = s \sum_i |f_\theta(x_i) - y_i|^2$ with a scale s: 1 for the paper's sum of squares, 1/n for a mean, 1/2 for
half of either.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from igr._checks import check_finite, check_params
from igr._typing import Loss, Params, RealScalarLike, Scalar
from igr.regularization import num_params

Model = Callable[[Params, Any], Array]


def ntk(model: Model) -> Callable[..., Array]:
    r"""The neural tangent kernel, formed: `ntk(model)(params, x1, x2)` with shape `(*outputs(x1), *outputs(x2))`.

    $$K_\theta(x_i, x_j) = \nabla f_\theta(x_i)^\top \nabla f_\theta(x_j)$$

    Without `x2` the second argument is the first. Its memory is that of the Jacobian, outputs times parameters: for
    large sets use `vector_product`. Barrett & Dherin (2021), Proposition A.11.

    >>> import jax.numpy as jnp
    >>> K = ntk(lambda w, x: x @ w)(jnp.zeros(2), jnp.array([[1.0, 0.0], [1.0, 1.0]]))  # linear: K = x x'
    >>> K.tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """

    def value(params: Params, x1: PyTree, x2: PyTree = None) -> Array:
        check_params(params)
        left = jax.jacobian(model)(params, x1)
        right = left if x2 is None else jax.jacobian(model)(params, x2)
        terms = [
            jnp.tensordot(a, b, axes=(_last(a, p.ndim), _last(b, p.ndim)))
            for p, a, b in zip(*map(jax.tree.leaves, (params, left, right)), strict=True)
        ]
        return sum(terms[1:], start=terms[0])

    return value


def _last(x: Array, count: int) -> list[int]:
    return list(range(x.ndim - count, x.ndim))


def vector_product(model: Model) -> Callable[[Params, PyTree, Array], Array]:
    r"""The kernel of a data set times a vector of its outputs, without forming the kernel or the Jacobian.

    $$K_\theta v = J\,(J^\top v), \qquad J = \partial f_\theta(x) / \partial\theta$$

    `vector_product(model)(params, x, v)`, with v shaped like the outputs: one reverse and one forward pass.

    >>> import jax.numpy as jnp
    >>> x = jnp.array([[1.0, 0.0], [1.0, 1.0]])
    >>> vector_product(lambda w, x: x @ w)(jnp.zeros(2), x, jnp.array([1.0, -1.0])).tolist()
    [0.0, -1.0]
    """

    def value(params: Params, x: PyTree, vector: Array) -> Array:
        check_params(params)

        def outputs(p: Params) -> Array:
            return model(p, x)

        _, pull = jax.vjp(outputs, params)
        return jax.jvp(outputs, (params,), pull(vector))[1]

    return value


def least_squares(model: Model, scale: float = 1.0) -> Loss:
    r"""The least-squares loss $E(\theta) = s \sum_i |f_\theta(x_i) - y_i|^2$ of a `model`, as `loss(params, x, y)`.

    `scale` is $s$: 1 for the sum of squares, 1/n for a mean.

    >>> import jax.numpy as jnp
    >>> float(least_squares(lambda w, x: x * w)(jnp.array(2.0), jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0])))
    13.0
    """
    check_finite("scale", scale)
    return lambda params, x, y: scale * jnp.sum(jnp.square(model(params, x) - y))


def regularizer(model: Model, scale: float = 1.0) -> Callable[[Params, PyTree, Array], Scalar]:
    r"""$R_{IG}$ of the least-squares loss through the kernel.

    $$R_{IG}(\theta) = \frac{4 s^2}{m}\, \epsilon^\top K_\theta\, \epsilon, \qquad \epsilon = f_\theta(x) - y$$

    Equal to `igr.regularizer(least_squares(model, scale))`. Barrett & Dherin (2021), Proposition A.11.

    >>> import igr, jax.numpy as jnp
    >>> model, w, x, y = (lambda w, x: x @ w), jnp.ones(2), jnp.eye(2), jnp.array([3.0, 0.0])
    >>> float(regularizer(model)(w, x, y)), float(igr.regularizer(least_squares(model))(w, x, y))
    (10.0, 10.0)
    """
    check_finite("scale", scale)
    product = vector_product(model)

    def value(params: Params, x: PyTree, y: Array) -> Scalar:
        residual = model(params, x) - y
        return 4 * scale**2 * jnp.vdot(residual, product(params, x, residual)) / num_params(params)

    return value


def modified_loss(model: Model, h: RealScalarLike, scale: float = 1.0) -> Callable[[Params, PyTree, Array], Scalar]:
    r"""The modified loss of least squares as one quadratic form in the residuals.

    $$\tilde E(\theta) = s\, \epsilon^\top (1 + s h K_\theta)\, \epsilon$$

    With s = 1 and one output this is $\epsilon^\top (1 + hK_\theta)\epsilon$; the paper's compact form leaves the h
    out. Equal to `igr.modified_loss(least_squares(model, scale), h)`. Barrett & Dherin (2021), Proposition A.11.

    >>> import igr, jax.numpy as jnp
    >>> model, w, x, y = (lambda w, x: x @ w), jnp.ones(2), jnp.eye(2), jnp.array([3.0, 0.0])
    >>> float(modified_loss(model, 0.1)(w, x, y)), float(igr.modified_loss(least_squares(model), 0.1)(w, x, y))
    (5.5, 5.5)
    """
    check_finite("h", h)
    product = vector_product(model)

    def value(params: Params, x: PyTree, y: Array) -> Scalar:
        residual = model(params, x) - y
        return scale * jnp.vdot(residual, residual + scale * h * product(params, x, residual))

    return value
