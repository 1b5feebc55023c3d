"""What the monitor computes: the names of its readings, those of one step, and those on a schedule."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from igr._typing import Field, Params, RealScalarLike, Scalar
from igr.calculus import add_scaled
from igr.modified.euler import modified_coefficients
from igr.monitoring.sums import square
from igr.regimes.lanczos import dot, like, norm, ratio
from igr.regimes.sharpness import top

FREE = ("slope", "r_ig", "loss", "penalty_share", "update_norm", "q2", "cosine")
MEANS = ("signal", "r_ig_mean", "cosine_mean")
HALVES = ("r_ig_halves",)
DEAR = ("sharpness", "sharpness_error", "h_lambda", "q2_batch", "cosine_batch")
BOUND = ("h_star",)


def of_step(gradient: Params, updates: Params, value: Scalar, h: Scalar, m: int) -> dict:
    """The exact quantities of one step: two passes over the parameters, one of gradients and one of updates."""
    squared, moved = square(gradient), square(updates)
    return {
        "slope": jnp.sqrt(squared),
        "r_ig": squared / m,
        "loss": value,
        "penalty_share": h / 4 * squared / value,
        "update_norm": jnp.sqrt(moved),
    }


def of_schedule(
    grad_fn: Field, params: Params, updates: Params, vector: Params, products: int, bound: bool
) -> tuple[dict, Params]:
    """The dear quantities and the eigenvector for the next time: `products` Hessian products and two gradients."""
    # Linearized once: a product is then the tangent alone, and not the gradient again.
    here, product = jax.linearize(grad_fn, params)  # of the batch of grad_fn, which need not be that of the step
    found = top(lambda v: product(like(v, params)), vector, products)
    there = grad_fn(add_scaled(params, 1.0, updates))
    change = jax.tree.map(lambda a, b: a.astype(float_of(a)) - b.astype(float_of(b)), there, here)
    length = norm(here)
    out = {
        "sharpness": found.value,
        "sharpness_error": found.error,
        "q2_batch": ratio(norm(change), length),
        "cosine_batch": ratio(dot(here, there), length * norm(there)),
    }
    if bound:
        _, f1, f2 = modified_coefficients(lambda p: jax.tree.map(jnp.negative, grad_fn(p)), 2)(params)
        out["h_star"] = ratio(norm(f1), norm(f2))
    return out, found.vector


def float_of(x: Array) -> DTypeLike:
    """Float32 or better."""
    return jnp.float64 if x.dtype == jnp.float64 else jnp.float32


def number(value: RealScalarLike, dtype: DTypeLike) -> Scalar:
    """A number in the dtype of the readings."""
    return jnp.asarray(value).astype(dtype)
