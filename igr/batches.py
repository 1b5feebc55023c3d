"""Means over batches: the loss over a whole data set, and micro-batches of one step."""

from collections.abc import Callable
from functools import partial
from typing import SupportsIndex

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, PyTree

from igr._checks import check_dense, check_params, checked, whole_number
from igr._jax import is_traced, jaxpr_as_fun, layout, spec_of, varies_over, varying
from igr._typing import Loss, Params, Scalar
from igr.calculus import accumulation_dtype


def full_batch(loss: Loss, batch_size: SupportsIndex, has_aux: bool = False) -> Loss:
    r"""The mean loss over a data set, whose gradient is a scan over batches in constant memory.

    $$E(\theta) = \frac1N \sum_{i=1}^N \ell(\theta, x_i)$$

    `loss(params, *data)` must be a mean over the leading axis of every array in `data`; so is the result, on data of
    any length. `batch_size` is the number of examples in a batch; the last batch may be shorter. The result is a loss
    like any other, so the squared gradient in
    `regularizer(full_batch(loss, 1000))` is that of the averaged gradient. Averaging squared batch gradients instead
    adds their variance and is not the $R_{IG}$ of the paper. The value and the gradient share one pass, and second
    derivatives work. Sums are compensated, in float32 or better, so a million batches lose nothing. Make it once and
    call it often: the returned function owns its compiled programs. With `has_aux` the loss returns a pair (value,
    aux), and aux is dropped.

    >>> import jax, jax.numpy as jnp
    >>> mse = lambda w, x, y: jnp.mean((w * x - y) ** 2)
    >>> x, y = jnp.arange(5.0), jnp.ones(5)
    >>> w = jnp.array(2.0)
    >>> bool(jnp.allclose(jax.grad(full_batch(mse, 2))(w, x, y), jax.grad(mse)(w, x, y)))
    True
    """
    size = whole_number("batch_size", batch_size, least=1)
    both = checked(loss, has_aux)
    loss = (lambda *args: both(*args)[0]) if has_aux else both
    compiled = _one_pass(lambda params, _, batch: loss(params, *batch), size)

    def whole(params: Params, *data: PyTree) -> Scalar:
        check_params(params)
        check_dense("full_batch", data)
        length = _length(data)
        shapes = {min(size, length), length % size or min(size, length)}
        closed = {n: jax.make_jaxpr(loss)(params, *_example(data, n)) for n in shapes}
        outer = {n: [c for c in program.consts if is_traced(c)] for n, program in closed.items()}
        if not any(outer.values()):
            return compiled(params, {}, data)

        # What the loss closes over may be differentiated too: it becomes an argument.
        def explicit(params: Params, outer: dict, batch: PyTree) -> Array:
            n = _length(batch)
            given = iter(outer[n])
            consts = [next(given) if is_traced(c) else c for c in closed[n].consts]
            return jaxpr_as_fun(closed[n].replace(consts=consts))(*jax.tree.leaves((params, batch)))[0]

        return _one_pass(explicit, size)(params, outer, data)

    return whole


def _one_pass(function: Callable, size: int) -> Callable:
    """The mean of `function(params, outer, batch)`. Its derivative computes value and gradient in one pass."""

    @jax.jit
    def values(params: Params, outer: PyTree, data: PyTree) -> Scalar:
        return mean_over_batches(lambda batch: (function(params, outer, batch), ()), data, size)[0]

    @partial(jax.jit, static_argnums=0)
    def gradients(live: tuple[bool, ...], params: Params, outer: PyTree, data: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten((params, outer))
        live_outside, live_data = live[: len(leaves)], live[len(leaves) :]

        def of_batch(batch: PyTree) -> PyTree:
            inside, form = jax.tree.flatten(batch)

            def value(chosen: list, chosen_data: list) -> Array:
                outside = structure.unflatten(_put(leaves, live_outside, chosen))
                return function(*outside, form.unflatten(_put(inside, live_data, chosen_data)))

            chosen = [_pick(leaves, live_outside), _pick(inside, live_data)]
            energy, (grads, data_grads) = jax.value_and_grad(value, (0, 1))(*chosen)
            return (energy, grads), data_grads

        return mean_over_batches(of_batch, data, size)

    @jax.custom_jvp
    def mean(params: Params, outer: PyTree, data: PyTree) -> Scalar:
        return values(params, outer, data)

    def rule(primals: tuple, tangents: tuple) -> tuple[Scalar, Scalar]:
        flat = jax.tree.leaves(tangents, is_leaf=_vanishes)
        live = tuple(not _vanishes(t) for t in flat)
        (value, grads), data_grads = gradients(live, *primals)
        # Linear in the tangents, so that reverse mode is its transpose and costs nothing beyond the pass already made.
        pairs = zip([*grads, *data_grads], _pick(flat, live), strict=True)
        terms = [jnp.sum(g * d).astype(value.dtype) for g, d in pairs]
        return value, sum(terms, start=jnp.zeros_like(value))

    mean.defjvp(rule, symbolic_zeros=True)
    return mean


def _vanishes(tangent: object) -> bool:
    return isinstance(tangent, SymbolicZero)


def _pick(values: list, chosen: tuple[bool, ...]) -> list:
    return [v for v, is_chosen in zip(values, chosen, strict=True) if is_chosen]


def _put(values: list, chosen: tuple[bool, ...], new: list) -> list:
    new_values = iter(new)
    return [next(new_values) if is_chosen else v for v, is_chosen in zip(values, chosen, strict=True)]


def _example(data: PyTree, length: int) -> PyTree:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((length, *jnp.shape(x)[1:]), jnp.result_type(x)), data)


def _length(data: PyTree) -> int:
    lengths = {jnp.shape(x)[:1] for x in jax.tree.leaves(data)}
    if len(lengths) != 1 or lengths == {()} or lengths == {(0,)}:
        raise ValueError(
            "full_batch needs data whose arrays all have the same, non-empty leading axis (the examples), "
            f"but their leading axes are {sorted(lengths)}."
        )
    ((length,),) = lengths
    return length


def mean_over_batches(function: Callable, data: PyTree, size: int) -> tuple[PyTree, PyTree]:
    """For `function(batch) -> (a, b)`: the mean of a over batches of `size` examples of `data`, and all b divided by N.

    Each batch has the weight of its length; the b of the batches are concatenated.
    """
    length = _length(data)
    count, rest = divmod(length, size)
    total, parts = ((), ()), ()
    if count:
        data, batches = split(data, count, size)
        total, parts = compensated_sum(function, batches)
        parts = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), parts)
        if not rest:
            mean = jax.tree.map(lambda t: t / count, total[0])
            return _as(mean, total[1]), jax.tree.map(lambda x: x / count, parts)
    last, end = function(jax.tree.map(lambda x: x[count * size :], data))
    if not count:
        return last, end
    mean = jax.tree.map(lambda t, x: (t * size + x.astype(t.dtype) * rest) / length, total[0], last)
    end = jax.tree.map(lambda a, b: jnp.concatenate([a * (size / length), b * (rest / length)]), parts, end)
    return _as(mean, last), end


def _as(tree: PyTree, like: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: x.astype(y.dtype), tree, like)


def compensated_sum(function: Callable, batches: PyTree) -> tuple[tuple[PyTree, PyTree], PyTree]:
    """For `function(batch) -> (a, b)`: (the sum of a over the leading axis of `batches`, the shapes of a), and b
    stacked.

    The rounding error of each addition is added to the next term (Kahan's sum with Knuth's two-sum), in float32 or
    better.
    """
    shapes, _ = jax.eval_shape(function, jax.tree.map(lambda x: x[0], batches))
    zeros = jax.tree.map(_zeros, shapes)

    def add(carry: PyTree, batch: PyTree) -> PyTree:
        total, lost = carry
        new, parts = function(batch)
        new = jax.tree.map(lambda x, t, e: x.astype(t.dtype) + e, new, total, lost)
        after = jax.tree.map(jnp.add, total, new)
        lost = jax.tree.map(lambda t, x, a: (t - (a - (a - t))) + (x - (a - t)), total, new, after)
        return (after, lost), parts

    (total, lost), parts = jax.lax.scan(add, (zeros, zeros), batches)
    return (jax.tree.map(jnp.add, total, lost), shapes), parts


def _zeros(shape: jax.ShapeDtypeStruct) -> Array:
    """Zeros in which results of this `shape` are accumulated, with their layout and their axes of a mesh."""
    zeros = jnp.zeros(shape.shape, accumulation_dtype(shape), out_sharding=layout(shape))
    return varying(zeros, varies_over(shape))


def split(data: PyTree, count: int, size: int) -> tuple[PyTree, PyTree]:
    """(`data`, the same in `count` parts of `size` examples along a new leading axis).

    On an explicit mesh each part has the layout of the whole, where its size allows.
    """

    def one(x: Array) -> tuple[Array, Array]:
        shape = (count, size, *x.shape[1:])
        mesh, spec = spec_of(x)
        names = spec[0] if spec else None
        if mesh is None or names is None:
            return x, x[: count * size].reshape(shape)
        devices = 1
        for name in names if isinstance(names, tuple) else (names,):
            devices *= mesh.shape[name]
        if count * size == x.shape[0] and size % devices == 0:
            return x, jnp.reshape(x, shape, out_sharding=layout(x, None))
        x = jax.sharding.reshard(x, jax.sharding.NamedSharding(mesh, jax.P(None, *spec[1:])))
        return x, x[: count * size].reshape(shape)

    leaves, structure = jax.tree.flatten(data)
    pairs = [one(jnp.asarray(x)) for x in leaves]
    return structure.unflatten([a for a, _ in pairs]), structure.unflatten([b for _, b in pairs])
