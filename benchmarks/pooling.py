"""A CNN with max-pooling under AdamW (Equinox's MNIST example, on digits): test accuracy by penalty and method.

    python benchmarks/pooling.py --seeds 5 --json FILE     300 steps each; a GPU or patience
    python benchmarks/pooling.py --kinks cross             the differences see the kinks
    python benchmarks/pooling.py --kinks cross --radius R  and at another radius than the default
    python benchmarks/pooling.py --cost --json FILE        time and memory of one gradient, by method and kinks

The exact penalty does not see kinks. Differences do where they cross them, and this is where they part; by default they
hold the kinks of a network with max-pooling. All seeds train side by side.
"""

import argparse
import json

import jax
import jax.numpy as jnp
import optax
from networks import KEYS, cnn, cross_entropy, digits_data, resnet
from timing import hardware, interleaved, markdown, median, spread

import igr

CASES = [(0.0, "exact"), *((mu, m) for mu in (0.01, 0.03, 0.1) for m in ("exact", "forward", "central"))]


def train(mu, method, starts, apply, images, labels, steps, **options):
    """The test accuracy of each start after so many steps of AdamW on batches of 64."""
    optimizer = optax.adamw(3e-4)

    def loss(params, x, y):
        return cross_entropy(apply(params, x), y)

    def step(params, state, key):
        rows = jax.random.randint(key, (64,), 0, 1437)
        value, grads = igr.value_and_grad(loss, mu, method, **options)(params, images[rows], labels[rows])
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    params, state = starts, jax.vmap(optimizer.init)(starts)
    advance = jax.jit(jax.vmap(step))
    count = jax.tree.leaves(starts)[0].shape[0]
    for i in range(steps):
        keys = jax.vmap(lambda seed, i=i: jax.random.fold_in(jax.random.key(seed), i))(jnp.arange(count))
        params, state, _ = advance(params, state, keys)
    right = jax.jit(jax.vmap(lambda p: jnp.mean(jnp.argmax(apply(p, images[1437:]), -1) == labels[1437:])))
    return right(params).tolist()


def costs(rounds=9, batch=256):
    """Rows of time and memory, as ratios to the plain gradient, of this CNN and of a ResNet with ReLU."""
    images, labels = digits_data()
    rows = []
    for name, (params, apply) in {"CNN, max-pooling": cnn(), "ResNet, ReLU": resnet(jax.nn.relu, 8)}.items():

        def loss(p, x, y, apply=apply):
            return cross_entropy(apply(p, x), y)

        steps = {"plain": jax.value_and_grad(loss), "exact": igr.value_and_grad(loss, 0.05)}
        for kinks in ("cross", "hold"):
            steps |= {f"{m}, {kinks}": igr.value_and_grad(loss, 0.05, m, kinks=kinks) for m in ("forward", "central")}
        given = (params, images[:batch], labels[:batch])
        programs = {key: jax.jit(step).lower(*given).compile() for key, step in steps.items()}
        memory = {key: program.memory_analysis().temp_size_in_bytes for key, program in programs.items()}
        seconds = interleaved({key: (lambda p=p, given=given: p(*given)) for key, p in programs.items()}, rounds)
        for key, found in seconds.items():
            row = {"net": name, "step": key, "ratio": median(found) / median(seconds["plain"]), "spread": spread(found)}
            rows.append(row | {"memory": memory[key] / memory["plain"]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--kinks", choices=["hold", "cross"], help="of the differences, instead of the default")
    parser.add_argument("--radius", type=float, help="of the differences, instead of the default")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--cost", action="store_true", help="time and memory of one gradient instead")
    options = parser.parse_args()
    if options.cost:
        rows = costs()
        cells = [[r["net"], r["step"], *(f"{r[k]:.2f}" for k in ("ratio", "spread", "memory"))] for r in rows]
        print(f"{hardware()}\n\n" + markdown(["net", "step", "ratio", "spread", "memory"], cells))
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"hardware": hardware(), "rows": rows}, file, indent=1)
        return
    images, labels = digits_data()
    nets = [cnn() for _ in range(options.seeds)]
    shapes, apply = nets[0]

    def as_equinox(x):
        """Uniform within one over the root of the fan-in, as Equinox draws weights and biases."""
        fan_in = max(1, x.size // x.shape[-1])
        return jax.random.uniform(next(KEYS), x.shape, x.dtype, -(fan_in**-0.5), fan_in**-0.5)

    starts = [jax.tree.map(as_equinox, shapes) for _ in nets]
    starts = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    rows = []
    for mu, method in CASES:
        accuracy = train(
            mu, method, starts, apply, images, labels, options.steps, kinks=options.kinks, radius=options.radius
        )
        rows.append({"mu": mu, "method": method, "accuracy": accuracy, "mean": sum(accuracy) / len(accuracy)})
        print(mu, method if mu else "plain", f"{rows[-1]['mean']:.3f}", flush=True)
    print(f"\n{hardware()}; {options.seeds} seeds, {options.steps} steps\n")
    cells = [[str(r["mu"]), r["method"] if r["mu"] else "plain", f"{r['mean']:.3f}"] for r in rows]
    print(markdown(["mu", "method", "test accuracy"], cells))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"hardware": hardware(), "steps": options.steps, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
