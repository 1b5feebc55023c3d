"""Observed orders of an optimizer against the flows of candidate fields, and the optimizers that are put to it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

import igr
from igr.calculus import add_scaled

# Least squares of a small tanh network with fixed output weights; the linear part keeps every gradient away from a
# change of sign. One matrix: Muon needs it, and every further leaf adds a third to the time of compilation.
_X = np.array([[0.9, -0.4, 0.5], [0.2, 0.8, -0.6], [-0.5, 0.3, 1.1], [0.7, 0.6, 0.4]])
_TILT = np.array([[-0.6, 0.3], [-0.4, 0.2], [0.1, 0.1]])
START = jnp.array([[0.5, -0.3], [0.4, 0.6], [-0.2, 0.7]])


def loss(w):
    hidden = jnp.tanh(_X @ w + np.array([0.3, -0.4]))
    return jnp.mean((hidden @ np.array([0.8, -0.9]) - 2.5) ** 2) / 2 + jnp.sum(w**3) / 20 + jnp.sum(_TILT * w)


HISTORY = 56  # 0.6^56 is 4e-13
MODEST = {"b1": 0.5, "b2": 0.6}


def adamish(make, **options):
    return lambda h: make(h, **(MODEST | {"eps": 0.1} | options))


OPTIMIZERS = {
    "sgd": optax.sgd,
    "momentum": lambda h: optax.sgd(h, momentum=0.5),
    "nesterov": lambda h: optax.sgd(h, momentum=0.5, nesterov=True),
    "optimistic": lambda h: optax.optimistic_gradient_descent(h, alpha=1.0, beta=0.7),
    "ema": lambda h: optax.chain(optax.ema(0.5, debias=False), optax.scale_by_learning_rate(h)),
    "adam, eps outside": adamish(optax.adam),
    "adam, eps inside": adamish(optax.adam, eps=0.0, eps_root=0.1),
    "adamw": adamish(optax.adamw, weight_decay=0.5),
    "nadam": adamish(optax.nadam),
    "nadamw": adamish(optax.nadamw, weight_decay=0.5),
    "rmsprop": lambda h: optax.rmsprop(h, decay=0.6, eps=0.1),
    "rmsprop, momentum": lambda h: optax.rmsprop(h, decay=0.6, eps=0.1, momentum=0.5),
    "adabelief": lambda h: optax.adabelief(0.2 * h, **MODEST, eps=0.1, eps_root=0.01),
    "adamax": adamish(optax.adamax),
    "radam": adamish(optax.radam),
    "adan": lambda h: optax.adan(h, b1=0.5, b2=0.6, b3=0.6, eps=0.1),
    "novograd": adamish(optax.novograd),
    "lamb": adamish(optax.lamb, weight_decay=0.1),
    "lars": lambda h: optax.lars(0.3 * h, weight_decay=0.1, trust_coefficient=1.0, momentum=0.5),
    "lion": lambda h: optax.lion(0.3 * h, b1=0.5, b2=0.6, weight_decay=0.7),
    "clip, momentum": lambda h: optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(h, momentum=0.5)),
    "muon": lambda h: contrib.muon(0.3 * h, beta=0.5, adam_b1=0.5, adam_b2=0.6, adam_eps_root=0.1),
    "ademamix": lambda h: contrib.ademamix(0.3 * h, b1=0.4, b2=0.6, b3=0.6, alpha=2.0, eps=0.1),
}


def distances(make, rows, *, field_of=None, history=HISTORY, time=0.25, substeps=24):
    """h -> distances of the optimizer from flows after a fixed time, one for each row.

    A row (a, b) stands for the field u_0 + a memory + b discretization: (1, 1) is the modified field. Optimizer and
    flows start from one state, in which the optimizer has forgotten its start. Each program is compiled once for all h.
    `field_of` makes the transformation whose field is flowed along, where it is not `make`: a wrong one.
    """
    rows = jnp.asarray(rows, float)

    @jax.jit
    def run(h, params, steps):
        tx = make(h)
        step = igr.optimizers.step(tx, loss)
        return jax.lax.fori_loop(0, steps, lambda _, s: step(s), (params, tx.init(params)))[0]

    @jax.jit
    def fields(h, stacked):
        terms = jax.vmap(igr.optimizers.modified_field((field_of or make)(h), loss, history=history).terms)(stacked)
        parts = zip(*map(jax.tree.leaves, terms[:3]), strict=True)
        a, b = rows[:, 0], rows[:, 1]
        leaves = [u + jnp.einsum("i,i...->i...", a, m) + jnp.einsum("i,i...->i...", b, d) for u, m, d in parts]
        return jax.tree.unflatten(jax.tree.structure(stacked), leaves)

    def measured(h):
        steps = round(time / h)
        assert steps == time / h
        stacked = jax.tree.map(lambda p: jnp.broadcast_to(p, (len(rows), *p.shape)), START)
        before = jax.tree.map(lambda p, u: p - history * u[0], START, fields(h, stacked))
        start, end = run(h, before, history), run(h, before, history + steps)
        flowed = jax.tree.map(lambda p: jnp.broadcast_to(p, (len(rows), *p.shape)), start)
        flowed = runge_kutta(lambda p: fields(h, p), flowed, steps / substeps, substeps)
        off = jax.tree.map(lambda f, e: jnp.sum((f - e) ** 2, range(1, f.ndim)), flowed, end)
        return np.sqrt(sum(jax.tree.leaves(off)))

    return measured


def runge_kutta(field, x, dt, steps):
    """The flow of a field by the classical method, in Python: the field is a compiled program."""
    for _ in range(steps):
        k1 = field(x)
        k2 = field(add_scaled(x, dt / 2, k1))
        k3 = field(add_scaled(x, dt / 2, k2))
        k4 = field(add_scaled(x, dt, k3))
        x = jax.tree.map(lambda p, a, b, c, d: p + dt / 6 * (a + 2 * b + 2 * c + d), x, k1, k2, k3, k4)
    return x
