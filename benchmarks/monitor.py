"""What `igr.monitor` costs: a training step with it as a ratio to the plain one, in time and in memory.

    python benchmarks/monitor.py                      small nets on this machine
    python benchmarks/monitor.py --full               MLP of width 400 and ResNet-18, batch 512, bfloat16 (one GPU)
    python benchmarks/monitor.py --count              programs alone: operations and memory, without running them

A step is a gradient and an update of SGD. As many steps as the schedule has between two measurements run inside one
compiled scan, so that a measurement counts with its true share. Rows: the free quantities alone, without the noise
averages, with whole arrays in place of samples, and with the sharpness (and one more gradient of the same batch) every
--every steps. The column "operations" counts what one compiled step starts (kernels, on a GPU). It explains the time:
on an H200 each operation more took 2 microseconds (results/benchmarks/monitor.json against these counts).
"""

import argparse
import json
import re

import jax
import jax.numpy as jnp
import optax
from timing import hardware, interleaved, markdown, median, spread

import igr
from igr.lab.models.mlp import mlp
from igr.lab.models.model import Model
from igr.lab.models.resnet18 import resnet18

RATE = 1e-3
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}  # what starts nothing


def compiled(model: Model, make, x, y, length: int):
    """(program, bytes of temporaries, bytes of the state, operations of a step): `length` steps in one scan."""
    params, statistics = model.init(jax.random.key(0))
    tx = make()
    state = tx.init(params)

    def loss(params, statistics):
        logits, statistics = model.apply(params, statistics, x, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), statistics

    def advance(carry, _):
        params, statistics, state = carry
        (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params, statistics)
        updates, state = tx.update(
            grads, state, params, grad=grads, value=value, value_fn=lambda p: loss(p, statistics)[0]
        )
        return (optax.apply_updates(params, updates), new, state), None

    many = jax.jit(lambda carry: jax.lax.scan(advance, carry, length=length)[0])
    carry = (params, statistics, state)
    program = many.lower(carry).compile()
    memory = program.memory_analysis()
    temporary = memory.temp_size_in_bytes if memory else 0
    step = jax.jit(lambda carry: advance(carry, None)[0], donate_argnums=0).lower(carry).compile()
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    return (lambda: program(carry)), temporary, kept, operations(step.as_text() or "")


def operations(program: str) -> int:
    """How many operations the entry of a compiled program starts; on a GPU these are its kernels and copies."""
    entry = program[program.index("ENTRY ") :]
    entry = entry[: entry.index("\n}")]
    names = re.findall(r" = (?:\(.*?\)|\S+) ([\w-]+)\(", entry)
    return sum(name not in FREE for name in names)


def optimizers(every: int) -> dict:
    """Row -> a function that makes the optimizer."""

    def chained(**options):
        return lambda: optax.chain(optax.sgd(RATE), igr.monitor(learning_rate=RATE, **options))

    return {
        "plain": lambda: optax.with_extra_args_support(optax.sgd(RATE)),
        "free quantities": chained(),
        "free, noise=False": chained(noise=False),
        "free, sample=None": chained(sample=None),
        f"sharpness every {every}": chained(every=every),
        f"sharpness and h_star every {every}": chained(every=every, h_star=True),
    }


def rows(name: str, model: Model, x, y, every: int, rounds: int) -> list[dict]:
    programs, temporary, kept, started = {}, {}, {}, {}
    for label, make in optimizers(every).items():
        programs[label], temporary[label], kept[label], started[label] = compiled(model, make, x, y, every)
        print(f"{name}, {label}: compiled", flush=True)
    seconds = interleaved(programs, rounds) if rounds else {label: [float("nan")] for label in programs}
    base = median(seconds["plain"])
    return [
        {
            "net": name,
            "step": label,
            "ms": median(s) / every * 1e3,
            "ratio": median(s) / base,
            "spread": spread(s),
            "temporary_MiB": temporary[label] / 2**20,
            "state_MiB": kept[label] / 2**20,
            "operations": started[label],
        }
        for label, s in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="width 400 and 64, batch 512, bfloat16: for a GPU")
    parser.add_argument("--only", default="", metavar="TEXT", help="the nets whose name has this in it")
    parser.add_argument("--every", type=int, default=0, help="steps between measurements (200; 10 without --full)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", action="store_true", help="run nothing: operations and memory of the programs")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    full = options.full
    rounds = 0 if options.count else options.rounds
    every = options.every or (200 if full else 10)
    compute, batch = ("bfloat16", 512) if full else ("float32", 16)
    width, channels = (400, 64) if full else (100, 4)
    y = jnp.arange(batch) % 10
    nets = {
        f"MLP 5x{width}": (mlp(width, compute=compute), (28, 28, 1)),
        f"ResNet-18 width {channels}": (resnet18(width=channels, compute=compute), (32, 32, 3)),
    }
    found = []
    for (name, (model, shape)), key in zip(nets.items(), jax.random.split(jax.random.key(1), 2), strict=True):
        if options.only in name:
            found += rows(name, model, jax.random.normal(key, (batch, *shape)), y, every, rounds)
    print(f"\n{hardware()}; batch {batch}, {compute} compute, {rounds} rounds of {every} steps, medians\n")
    header = ["net", "step", "ms", "ratio to plain", "spread", "temporaries, MiB", "optimizer state, MiB", "operations"]
    columns = {
        "ms": ".3f",
        "ratio": ".3f",
        "spread": ".3f",
        "temporary_MiB": ".1f",
        "state_MiB": ".1f",
        "operations": "d",
    }
    cells = [[r["net"], r["step"], *(format(r[name], form) for name, form in columns.items())] for r in found]
    print(markdown(header, cells))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"hardware": hardware(), "batch": batch, "compute": compute, "rows": found}, file, indent=1)


if __name__ == "__main__":
    main()
