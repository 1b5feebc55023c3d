"""What consecutive steps say: q2 and the cosine of updates, and running means of gradients that survive noise."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from igr._typing import Params, Scalar
from igr.monitoring.sums import products, sample
from igr.regimes.lanczos import ratio


class Memory(NamedTuple):
    r"""Samples of the last update and the last two gradients, and running means of products.

    The means are those of $|g_n|^2$, of the product with $g_{n-1}$ and of the product of norms, of the same with
    $g_{n-2}$, and of the product of two half-batches. A gradient stands in the row of the parity of its step, so that
    none is moved; without `noise` there is no row.
    """

    update: Float[Array, " sample"]
    gradients: Float[Array, "rows sample"]
    norms: Float[Array, "2"]  # of the samples of the last two gradients
    sums: Float[Array, "6"]
    weights: Float[Array, "6"]


def empty(params: Params, noise: bool, most: int | None) -> Memory:
    """The memory before the first step."""
    shape = jax.eval_shape(lambda p: sample(p, most), params)

    def zeros(*sizes: int) -> Array:  # each a buffer of its own, so that a loop may donate the state
        return jnp.zeros(sizes, shape.dtype)

    length = shape.shape[0]
    return Memory(zeros(length), zeros(2 if noise else 0, length), zeros(2), zeros(6), zeros(6))


def advance(
    memory: Memory, updates: Params, gradient: Params, count: Array, before: dict, most: int | None
) -> tuple[dict, tuple[Scalar, ...], Memory]:
    r"""q2 and the cosine, the squared norm and the two products of sampled gradients, and what the next step needs.

    $$q_2 = \frac{|u_n - u_{n-1}|}{|u_{n-1}|}, \qquad
    \cos = \frac{\langle u_n, u_{n-1}\rangle}{|u_n||u_{n-1}|}$$

    A step that moves nothing (gradients are being accumulated, or one was not finite) says what was said `before`.
    """
    u, last = sample(updates, most), memory.update
    pairs = [(u, u), (last, last), (u, last), (u - last, u - last)]
    if noise := len(memory.gradients) > 0:
        g, row = sample(gradient, most), count % 2
        pairs += [(g, g), (g, memory.gradients[1 - row]), (g, memory.gradients[row])]
        memory = memory._replace(gradients=jnp.asarray(memory.gradients).at[row].set(g))
    here, there, product, change, *lagged = products(pairs)
    nothing, both, moved = jnp.full_like(here, jnp.nan), there > 0, here > 0
    found = {
        "q2": jnp.where(both, jnp.sqrt(ratio(change, there)), nothing),
        "cosine": jnp.where(both, ratio(product, jnp.sqrt(here) * jnp.sqrt(there)), nothing),
    }
    found = {name: jnp.where(moved, value, before[name].astype(here.dtype)) for name, value in found.items()}
    zero = jnp.zeros_like(here)
    return found, tuple(lagged) if noise else (zero, zero, zero), memory._replace(update=jnp.where(moved, u, last))


def average(memory: Memory, slope: Scalar, lagged: tuple, halves: Scalar | None, count: Array, decay: float) -> Memory:
    """The running means after one more step; a product counts from the step on at which both its factors exist.

    One that is not finite does not count: with dynamic loss scaling a gradient overflows now and then, and the step is
    skipped.
    """
    square, one, two = lagged
    here, (last, before) = jnp.sqrt(square), memory.norms
    both = jnp.zeros_like(here) if halves is None else halves
    now = jnp.stack([jnp.square(slope).astype(here.dtype), one, here * last, two, here * before, both])
    seen = (count >= jnp.array([0, 1, 1, 2, 2, 0], count.dtype)) & jnp.isfinite(now)
    keep = jnp.where(seen, decay, 1.0).astype(here.dtype)
    return memory._replace(
        norms=jnp.stack([here, last]),
        sums=keep * memory.sums + (1 - keep) * jnp.where(seen, now, jnp.zeros_like(now)),
        weights=keep * memory.weights + (1 - keep),
    )


def of_means(memory: Memory, m: int, halves: bool, count: Array) -> dict:
    r"""What survives gradient noise, from products of gradients whose noise is independent.

    $$\text{signal} = \frac{\overline{\langle g_n, g_{n-2}\rangle}}{\overline{|g_n||g_{n-2}|}}, \qquad
    \text{cosine} = \frac1{\text{signal}}
    \frac{\overline{\langle g_n, g_{n-1}\rangle}}{\overline{|g_n||g_{n-1}|}}$$

    Noise is in the norms and not in the products. Two steps apart also an oscillation is in phase with itself, so that
    it is not taken for noise. With halves the signal is $\overline{\langle a, b\rangle}/\overline{|g|^2}$.
    """
    square, one, norms_one, two, norms_two, both = ratio(memory.sums, memory.weights)
    signal = jnp.clip(ratio(both, square) if halves else ratio(two, norms_two), 0, 1)
    cosine = jnp.clip(ratio(ratio(one, norms_one), signal), -1, 1)
    cosine = jnp.where(norms_one > 0, cosine, jnp.full_like(cosine, jnp.nan))  # with halves and without noise=True
    found = {"signal": signal, "r_ig_mean": signal * square / m, "cosine_mean": cosine}
    if halves:
        return found | {"r_ig_halves": both / m}
    return {name: jnp.where(count >= 2, value, jnp.full_like(square, jnp.nan)) for name, value in found.items()}
