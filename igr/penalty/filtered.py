"""The penalty on Equinox models as they are: arrays are differentiated, the rest stays. Imports Equinox when called."""

from collections.abc import Callable
from typing import Any

from jaxtyping import PyTree

from igr._typing import Loss, RealScalarLike
from igr.penalty.gradient import value_and_grad


def filter_value_and_grad(
    loss: Loss, mu: RealScalarLike, *args: Any, **options: Any
) -> Callable[..., tuple[PyTree, PyTree]]:
    r"""`value_and_grad` for Equinox models, as `equinox.filter_value_and_grad` is for `jax.value_and_grad`.

    $$\nabla\big(E + \mu |\nabla E|^2\big) \text{ with respect to the floating-point arrays of the first argument}$$

    `loss(model, *args)`; the gradient has the structure of the model, with None for what is no floating-point array.
    `mu` and all options are those of `igr.value_and_grad`, but for `argnums` and `allow_int`.

    >>> import equinox as eqx, jax, jax.numpy as jnp
    >>> model = eqx.nn.Linear(1, 1, use_bias=False, key=jax.random.key(0))
    >>> value, grads = filter_value_and_grad(lambda m, x: jnp.sum(m(x)), mu=0.1)(model, jnp.ones(1))
    >>> float(grads.weight[0, 0])  # the loss is linear: there is no penalty
    1.0
    """
    import equinox as eqx

    def of_arrays(arrays: PyTree, *data: object, igr_rest: PyTree, **kwargs: object) -> PyTree:
        return loss(eqx.combine(arrays, igr_rest), *data, **kwargs)

    both = value_and_grad(of_arrays, mu, *args, **options)

    def evaluate(model: PyTree, *data: object, **kwargs: object) -> tuple[PyTree, PyTree]:
        arrays, rest = eqx.partition(model, eqx.is_inexact_array)
        return both(arrays, *data, igr_rest=rest, **kwargs)

    return evaluate
