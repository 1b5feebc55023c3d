"""The Lanczos method on pytrees: a few products with a symmetric operator, full reorthogonalization."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from igr._jax import layout
from igr._typing import Params, RealScalarLike, Scalar
from igr.calculus import accumulation_dtype, squared_norm


class Krylov(NamedTuple):
    """The tridiagonal matrix of `lanczos` and its basis, a pytree with a leading axis over the vectors."""

    alphas: Float[Array, " k"]
    betas: Float[Array, " k"]
    basis: Params


class Ritz(NamedTuple):
    """Eigenvalues of the tridiagonal matrix in ascending order, and what they say about the operator."""

    values: Float[Array, " k"]
    weights: Float[Array, " k"]  # share of the squared start vector at each value; they sum to one
    residuals: Float[Array, " k"]  # within this distance of each value lies an eigenvalue of the operator
    vectors: Float[Array, "k k"]


def wide(tree: Params) -> Params:
    """The same tree in float32 or better."""
    return jax.tree.map(lambda x: jnp.asarray(x).astype(accumulation_dtype(jnp.asarray(x))), tree)


def dot(a: Params, b: Params) -> Scalar:
    """The inner product of two pytrees of one structure, in float32 or better."""
    leaves = jax.tree.leaves(wide(a))
    dtype = accumulation_dtype(*leaves)
    pairs = zip(leaves, jax.tree.leaves(wide(b)), strict=True)
    return sum((jnp.sum(x * y).astype(dtype) for x, y in pairs), start=jnp.zeros((), dtype))


def norm(tree: Params) -> Scalar:
    """The Euclidean norm of a pytree."""
    return jnp.sqrt(squared_norm(tree))


def scaled(tree: Params, factor: RealScalarLike) -> Params:
    """The tree times a number, in the dtype of the tree."""
    return jax.tree.map(lambda x: x * jnp.asarray(factor).astype(x.dtype), tree)


def like(tree: Params, other: Params) -> Params:
    """The first tree in the dtypes of the second, as a tangent of it must be."""
    return jax.tree.map(lambda x, y: x.astype(jnp.result_type(y)), tree, other)


def random_like(params: Params, seed: int = 0) -> Params:
    """A Gaussian vector of the shape of `params`, the same at every call; laid out as they are on an explicit mesh."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    dtypes = [accumulation_dtype(leaf) for leaf in leaves]
    triples = zip(keys, leaves, dtypes, strict=True)
    return structure.unflatten([jax.random.normal(k, jnp.shape(x), d, out_sharding=layout(x)) for k, x, d in triples])


def combination(coefficients: Array, basis: Params) -> Params:
    """The sum of the basis vectors, which lie along the leading axis, with these coefficients."""
    return jax.tree.map(lambda b: jnp.tensordot(coefficients.astype(b.dtype), b, axes=1), basis)


def without(vector: Params, basis: Params) -> Params:
    """The vector less its projections on an orthonormal basis."""
    coefficients = jax.vmap(dot, in_axes=(0, None))(basis, vector)
    return jax.tree.map(jnp.subtract, vector, combination(coefficients, basis))


def ratio(a: Array | float, b: Array) -> Array:
    """The quotient, which is zero where the denominator is: a vanishing gradient has no curvature to report."""
    return jnp.where(b == 0, jnp.zeros_like(b), a / jnp.where(b == 0, jnp.ones_like(b), b))


def lanczos(product: Callable[[Params], Params], start: Params, steps: int) -> Krylov:
    r"""An orthonormal basis of $\{v, Hv, \dots, H^{k-1}v\}$ in which a symmetric H is tridiagonal.

    $$H q_j = \beta_{j-1} q_{j-1} + \alpha_j q_j + \beta_j q_{j+1}$$

    `product` maps a pytree to H times it, `start` is v, `steps` is k, the number of products. Every new vector is made
    orthogonal to all earlier ones, twice; so the memory is k vectors. Where the space is exhausted (a start inside an
    invariant subspace) the rest of the matrix is filled with $\alpha_1$, which changes neither end of the spectrum.
    Reference: Parlett, The Symmetric Eigenvalue Problem, chapter 13.

    >>> import jax.numpy as jnp
    >>> krylov = lanczos(lambda v: jnp.array([3.0, 1.0]) * v, jnp.array([1.0, 1.0]), 2)
    >>> krylov.alphas.round(6).tolist(), krylov.betas.round(6).tolist()
    ([2.0, 2.0], [1.0, 0.0])
    """
    start = wide(start)
    length = norm(start)
    dtype = length.dtype
    first = scaled(start, ratio(1.0, length))
    empty = jax.tree.map(lambda x: jnp.zeros((steps, *x.shape), x.dtype, out_sharding=layout(x, None)), first)
    eps = jnp.finfo(dtype).eps

    def advance(j: Array, carry: PyTree) -> PyTree:
        basis, q, alphas, betas, largest = carry
        basis = jax.tree.map(lambda b, x: jax.lax.dynamic_update_index_in_dim(b, x, j, 0), basis, q)
        w = wide(product(q))
        largest = jnp.maximum(largest, norm(w))
        alpha = jnp.where(squared_norm(q) > 0, dot(q, w), alphas[0])
        # Twice is enough, and once is not: a single projection loses orthogonality to rounding.
        w = jax.lax.fori_loop(0, 2, lambda _, w: without(w, basis), w)
        beta = norm(w)
        beta = jnp.where(beta > 100 * eps * largest, beta, jnp.zeros_like(beta))
        q = scaled(w, ratio(1.0, beta))
        return basis, q, alphas.at[j].set(alpha), betas.at[j].set(beta), largest

    zeros = jnp.zeros(steps, dtype)
    basis, _, alphas, betas, _ = jax.lax.fori_loop(0, steps, advance, (empty, first, zeros, zeros, zeros[0]))
    return Krylov(alphas, betas, basis)


def ritz(krylov: Krylov) -> Ritz:
    r"""The eigenvalues of the tridiagonal matrix, their weights in the start vector, and residual bounds.

    $$|\lambda - \theta_i| \le \beta_k |s_{ki}|, \qquad v^\top p(H) v = |v|^2 \sum_i s_{1i}^2\, p(\theta_i)$$

    The second holds for polynomials p of degree below 2k (Gauss quadrature): what the step does along the start vector
    is known from k products. The largest value never exceeds the largest eigenvalue.
    """
    off = krylov.betas[:-1]
    matrix = jnp.diag(krylov.alphas) + jnp.diag(off, 1) + jnp.diag(off, -1)
    values, vectors = jnp.linalg.eigh(matrix)
    return Ritz(values, vectors[0] ** 2, jnp.abs(krylov.betas[-1] * vectors[-1]), vectors)
