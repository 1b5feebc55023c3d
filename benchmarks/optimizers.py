"""The modified field of an optimizer: how close a network stays to it, and what it costs.

python benchmarks/optimizers.py              # both, 2 CPU cores, a few minutes
python benchmarks/optimizers.py --only cost
"""

import argparse
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib
from timing import hardware, interleaved, markdown, median

import igr
from igr.optimizers import modified_field, step


def digits_network(activation=jnp.tanh, sizes=(64, 16, 10), examples=300):
    """(loss, params): cross entropy of a small network on the first digits of scikit-learn, full batch."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = data.data[:examples] / 16
    labels = np.eye(10)[data.target[:examples]]
    rng = np.random.default_rng(0)
    params = [{"w": jnp.asarray(rng.normal(size=(a, b)) / a**0.5), "b": jnp.zeros(b)} for a, b in pairwise(sizes)]

    def loss(params):
        hidden = x
        for layer in params[:-1]:
            hidden = activation(hidden @ layer["w"] + layer["b"])
        logits = hidden @ params[-1]["w"] + params[-1]["b"]
        return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits), axis=1))

    return loss, params


def closeness(make, loss, params, history, steps=100, substeps=25):
    """At h: the distance to the modified flow over that to the plain flow, and the ratio of the correction."""

    @jax.jit
    def optimizer(h, state, n):
        return jax.lax.fori_loop(0, n, lambda _, s: step(make(h), loss)(s), state)

    @partial(jax.jit, static_argnums=2)
    def flowed(h, params, order):
        field = modified_field(make(h), loss, order=order, history=history)
        dt = steps / substeps

        def substep(x, _):
            k1 = field(x)
            k2 = field(igr.calculus.add_scaled(x, dt / 2, k1))
            k3 = field(igr.calculus.add_scaled(x, dt / 2, k2))
            k4 = field(igr.calculus.add_scaled(x, dt, k3))
            return jax.tree.map(lambda p, a, b, c, d: p + dt / 6 * (a + 2 * b + 2 * c + d), x, k1, k2, k3, k4), None

        return jax.lax.scan(substep, params, length=substeps)[0]

    @jax.jit
    def correction(h, params):
        return modified_field(make(h), loss, history=history).terms(params).ratio

    def measured(h):
        h = jnp.asarray(h)
        tx = make(h)
        state = optimizer(h, (params, tx.init(params)), 2 * history)
        end = optimizer(h, state, steps)[0]
        off = [
            jnp.sqrt(igr.squared_norm(jax.tree.map(jnp.subtract, flowed(h, state[0], order), end))) for order in (0, 1)
        ]
        return float(off[1] / off[0]), float(correction(h, state[0]))

    return measured


CASES = {
    "momentum 0.9": (lambda h: optax.sgd(h, momentum=0.9), 200, (1e-2, 3e-3, 1e-3)),
    "adamw, b2 0.95, eps 1e-3": (lambda h: optax.adamw(h, b2=0.95, eps=1e-3), 320, (1e-4, 1e-5, 3e-6)),
    "adamw, b2 0.95, eps 1e-8": (lambda h: optax.adamw(h, b2=0.95, eps=1e-8), 320, (1e-4, 1e-5, 3e-6)),
    "adamw, b2 0.99, eps 1e-3": (lambda h: optax.adamw(h, b2=0.99, eps=1e-3), 1600, (1e-4, 1e-5, 3e-6)),
    "muon, beta 0.95, adam b2 0.95": (
        lambda h: contrib.muon(h, beta=0.95, adam_b2=0.95, adam_eps_root=1e-6),
        320,
        (1e-4, 1e-5, 3e-6),
    ),
    "lion": (lambda h: optax.lion(h, b2=0.95, weight_decay=0.1), 320, (1e-4, 1e-5, 3e-6)),
}


def networks(only):
    """Print how close 100 steps of each optimizer stay to its modified flow."""
    jax.config.update("jax_enable_x64", True)
    rows = []
    loss, params = digits_network()
    for name, (make, history, hs) in CASES.items():
        if only not in name:
            continue
        measure = closeness(make, loss, params, history)
        for h in hs:
            distance, ratio = measure(h)
            rows.append([name, f"{h:g}", f"{distance:.3f}", f"{ratio:.3f}"])
            print(rows[-1], flush=True)
    jax.config.update("jax_enable_x64", False)
    header = ["optimizer", "h", "distance to the modified over that to the plain flow", "correction over update"]
    print(f"\ntanh 64-16-10, 300 digits, float64, 100 steps after a run-in\n\n{markdown(header, rows)}\n")


def cost(rounds):
    """Print the time of one modified field by the length of its history, in gradients and in updates."""
    from igr.lab.models.resnet18 import resnet18

    model = resnet18(width=64, compute="float32")
    params, state = model.init(jax.random.key(0))
    x, y = jax.random.normal(jax.random.key(1), (8, 32, 32, 3)), jnp.arange(8) % 10

    def loss(p):
        logits, _ = model.apply(p, state, x, True)
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(8), y])

    rows = []
    for name, tx in {"momentum": optax.sgd(1e-3, momentum=0.9), "adamw": optax.adamw(1e-4)}.items():
        grads, memory = jax.jit(jax.grad(loss))(params), tx.init(params)
        programs = {"gradient": partial(jax.jit(jax.grad(loss)), params)}
        programs["update"] = partial(jax.jit(tx.update), grads, memory, params)
        for length in (1, 10, 100):
            field = jax.jit(modified_field(tx, loss, history=length).__call__)
            programs[length] = partial(field, params)
        seconds = {label: median(s) for label, s in interleaved(programs, rounds).items()}
        one, update = seconds.pop("gradient"), seconds.pop("update")
        slope = (seconds[100] - seconds[10]) / 90
        for length, s in seconds.items():
            rows.append([name, str(length), f"{s / one:.2f}", f"{slope / update:.2f}", f"{update / one:.3f}"])
    header = [
        "optimizer",
        "history",
        "field, in gradients",
        "one more step of history, in updates",
        "update, in gradients",
    ]
    print(f"{hardware()}; {igr.num_params(params):,} parameters, batch 8, float32\n\n{markdown(header, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("networks", "cost"))
    parser.add_argument(
        "--optimizer", default="", metavar="TEXT", help="the networks' optimizers with this in the name"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.only != "cost":
        networks(options.optimizer)
    if options.only != "networks":
        cost(options.rounds)


if __name__ == "__main__":
    main()
