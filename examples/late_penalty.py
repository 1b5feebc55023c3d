"""When does a penalty that comes late throw a network out of its minimum? Where it makes descent unstable there.

Run it: python examples/late_penalty.py [SEEDS]. It needs igr[lab] and takes about two minutes on two cores. Small
networks learn 600 digits by plain full-batch descent; then E + mu |grad E|^2 takes over, with mu below and above the
value at which h lambda (1 + 2 mu lambda) = 2 for the largest curvature lambda (docs/theory.md, section 5).
"""

import sys
from itertools import pairwise

import jax
import jax.numpy as jnp

import igr
from igr.lab.data.registry import load
from igr.lab.training.gradients import cross_entropy

jax.config.update("jax_enable_x64", True)

H, PLAIN, PENALIZED = 0.1, 2000, 300  # the step, and how many of each kind
FACTORS = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)
SIZES = (64, 50, 50, 50, 10)
digits = load("digits")
X = jnp.asarray(digits.train.x[:600] / digits.scale).reshape(600, -1)
Y = jnp.asarray(digits.train.y[:600])


def network(key):
    """Kernels with the scale of Glorot and Bengio, no biases."""
    keys = jax.random.split(key, len(SIZES) - 1)
    return [jax.random.normal(k, size) * (2 / sum(size)) ** 0.5 for k, size in zip(keys, pairwise(SIZES), strict=True)]


def trial(activation, seed):
    """What h lambda is before, the critical mu, and for each factor of it the growth of E and h lambda after."""

    def loss(kernels):
        x = X
        for kernel in kernels[:-1]:
            x = activation(x @ kernel)
        return cross_entropy(x @ kernels[-1], Y).mean()

    @jax.jit
    def descend(params, mu, steps):
        step = lambda _, p: jax.tree.map(lambda x, g: x - H * g, p, igr.value_and_grad(loss, mu)(p)[1])  # noqa: E731
        return jax.lax.fori_loop(0, steps, step, params)

    @jax.jit
    def curvature(params):
        """The largest eigenvalue of the Hessian, by the power method."""

        def multiply(_, v):
            length = jnp.sqrt(igr.squared_norm(v))
            return igr.hvp(loss)(params, jax.tree.map(lambda leaf: leaf / length, v))

        return jnp.sqrt(igr.squared_norm(jax.lax.fori_loop(0, 200, multiply, network(jax.random.key(1)))))

    params = descend(network(jax.random.key(seed)), 0.0, PLAIN)
    before, energy = curvature(params), loss(params)
    critical = (2 / (H * before) - 1) / (2 * before)
    after = [descend(params, factor * critical, PENALIZED) for factor in FACTORS]
    return H * before, critical, [(loss(p) / energy, H * curvature(p)) for p in after]


print(f"growth of E (and h lambda after) with mu = {FACTORS} times the critical one")
for activation in (jnp.tanh, jax.nn.gelu):
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        sharp, critical, ends = trial(activation, seed)
        cells = "  ".join(f"{growth:.3g} ({sharpness:.2f})" for growth, sharpness in ends)
        print(f"{activation.__name__} {seed}: h lambda = {sharp:.2f}, mu* = {critical:.3f}: {cells}", flush=True)
