"""What the tests measure with. Each is itself shown to fail in test_helpers.py on a pair that must fail."""

from itertools import product as cartesian
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np

import igr


def relative(a, b):
    """The relative Euclidean difference of two pytrees, |a - b| / |b|."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    flat_a, flat_b = (np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(t)]) for t in (a, b))
    assert np.all(np.isfinite(flat_a)), "not finite"
    return float(np.linalg.norm(flat_a - flat_b) / np.linalg.norm(flat_b))


def compilations(function):
    """How many programs a call compiles."""
    import jax._src.test_util as internals

    with internals.count_jit_compilation_cache_miss() as count:
        jax.block_until_ready(function())
    return count()


def assert_order(error, hs, expected, within=0.1):
    """The error falls like h to the expected power, judged at the two smallest steps."""
    observed = igr.observed_order(error, hs)[-1]
    assert abs(observed - expected) <= within, f"observed order {observed:.3f}, expected {expected}"


def step_error(field_of_h, start, step, time=lambda h: h):
    """h -> distance between one step from `start` and the flow of `field_of_h(h)` for `time(h)`, compiled once.

    The flow is 64 steps of the classical Runge-Kutta method, whose error is rounding here: `igr.flow` would do, and
    compiles for ten times as long.
    """

    @jax.jit
    def error(h):
        field, dt = field_of_h(h), time(h) / 64

        def substep(_, x):
            def stage(carry, weights):  # a loop, so that the field is compiled once and not four times
                slope, total = carry
                before, after = weights
                slope = field(igr.calculus.add_scaled(x, dt * before, slope))
                return (slope, igr.calculus.add_scaled(total, after, slope)), None

            zero, weights = jax.tree.map(jnp.zeros_like, x), (jnp.array([0, 0.5, 0.5, 1]), jnp.array([1.0, 2, 2, 1]))
            (_, total), _ = jax.lax.scan(stage, (zero, zero), weights)
            return igr.calculus.add_scaled(x, dt / 6, total)

        end = jax.lax.fori_loop(0, 64, substep, start)
        return jnp.sqrt(igr.squared_norm(jax.tree.map(jnp.subtract, end, step(start, h))))

    return lambda h: error(jnp.asarray(h))


def lie_terms(field, order):
    """The oracle: the Lie-derivative recursion of Hairer, Lubich & Wanner (IX.1), term by term.

    f_j = -sum over i >= 2 of 1/i! times the sum over k_1 + ... + k_i = j + 1 - i of D_{k_1} ... D_{k_{i-1}} f_{k_i},
    where D_k g = g' f_k. Exact and exponential.
    """
    terms = [field]
    for j in range(1, order + 1):
        terms.append(_next(terms, j, _lie))
    return terms


def paper_terms(field, order):
    """The recursion of the paper's appendix, which replaces D_k g by the gradient rule of symmetric Jacobians.

    theta'' = grad |f~|^2 / 2 is right only where f~' is symmetric; the later derivatives follow the flow as they
    should.
    """
    terms = [field]
    for j in range(1, order + 1):
        terms.append(_next(terms, j, _lie, innermost=_symmetric))
    return terms


def _next(terms, j, operator, innermost=None):
    known = list(terms)

    def term(x):
        total = jax.tree.map(jnp.zeros_like, x)
        for i in range(2, j + 2):
            for ks in cartesian(range(j), repeat=i):
                if sum(ks) != j + 1 - i:
                    continue
                g = known[ks[-1]]
                for depth, k in enumerate(reversed(ks[:-1])):
                    g = (innermost or operator)(g, known[k]) if depth == 0 else operator(g, known[k])
                total = igr.calculus.add_scaled(total, -1 / factorial(i), g(x))
        return total

    return term


def _lie(g, f):
    return lambda x: jax.jvp(g, (x,), (f(x),))[1]


def _symmetric(g, f):
    """grad <f, g> / 2, which summed over the ordered pairs is g' f where both Jacobians are symmetric."""

    def half_product(x):
        pairs = zip(jax.tree.leaves(f(x)), jax.tree.leaves(g(x)), strict=True)
        return sum(jnp.sum(a * b) for a, b in pairs) / 2

    return jax.grad(half_product)
