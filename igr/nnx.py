"""The penalty on Flax NNX modules as they are: batch statistics and random counts move on once per step."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import PyTree

from igr._typing import Loss, RealScalarLike
from igr.penalty.gradient import Method
from igr.penalty.gradient import value_and_grad as of_arrays


def value_and_grad(
    loss: Loss,
    mu: RealScalarLike,
    method: Method = "exact",
    has_aux: bool = False,
    *,
    wrt: PyTree = nnx.Param,
    **options: Any,
) -> Callable[..., tuple[PyTree, PyTree]]:
    r"""`igr.value_and_grad` for Flax NNX modules, a drop-in for `nnx.value_and_grad`.

    $$\nabla\big(E + \mu |\nabla E|^2\big) \text{ with respect to the variables of the first argument}$$

    `loss(model, *args)`; `wrt` is a filter of variables; `args` may hold other modules, such as `nnx.Rngs`. What the
    loss changes in them (batch statistics, counts of random keys) is that of the unperturbed pass, and is written to
    the modules, once. The gradient is what `nnx.Optimizer.update` takes. With `microbatches` floating-point state is
    averaged over them. The other options are those of `igr.value_and_grad`, but for `argnums`.

    >>> import jax.numpy as jnp
    >>> from flax import nnx
    >>> model = nnx.Linear(1, 1, use_bias=False, rngs=nnx.Rngs(0))
    >>> value, grads = value_and_grad(lambda m, x: jnp.sum(m(x)), mu=0.1)(model, jnp.ones((1, 1), jnp.float32))
    >>> float(grads["kernel"][...][0, 0])  # the loss is linear: there is no penalty
    1.0
    """

    def with_state(params: PyTree, *data: object, igr_modules: tuple, **kwargs: object) -> tuple[PyTree, PyTree]:
        graph, rest, places = igr_modules
        modules = nnx.merge(graph, params, rest, copy=True)
        given = iter(data)
        args = [modules[i] if i in places else next(given) for i in range(len(places) + len(data))]
        out = loss(*args, **kwargs)
        if has_aux and not (isinstance(out, tuple) and len(out) == 2):
            raise TypeError("has_aux=True, but the loss did not return a pair (value, aux).")
        value, aux = out if has_aux else (out, None)
        return value, (nnx.split(modules, _first(wrt), ...)[2], aux)

    both = of_arrays(with_state, mu, method, True, **options)
    parts = int(options.get("microbatches", 1))

    def evaluate(*args: object, **kwargs: object) -> tuple[PyTree, PyTree]:
        places = tuple(i for i, arg in enumerate(args) if nnx.graph.is_graph_node(arg))
        if 0 not in places:
            raise TypeError("the first argument must be an nnx.Module: use igr.value_and_grad for plain parameters.")
        graph, params, rest = nnx.split({i: args[i] for i in places}, _first(wrt), ...)
        data = [arg for i, arg in enumerate(args) if i not in places]
        ((value, extras), grads) = both(params, *data, igr_modules=(graph, rest, places), **kwargs)
        norms = ()
        if options.get("with_norm") or options.get("with_share"):
            extras, *norms = extras
        state, aux = extras
        if parts > 1:
            state = jax.tree.map(lambda x: jnp.mean(x, 0) if jnp.issubdtype(x.dtype, jnp.floating) else x[-1], state)
        for i in places:
            if i in state:
                nnx.update(args[i], state[i])
        kept = ([aux] if has_aux else []) + list(norms)
        if not kept:
            return value, grads[0]
        return (value, kept[0] if len(kept) == 1 else tuple(kept)), grads[0]

    return evaluate


def _first(wrt: PyTree) -> PyTree:
    """The filter of those variables in the first of several modules."""
    return nnx.All(wrt, lambda path, _: path[0] == 0)
