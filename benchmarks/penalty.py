"""What the penalty costs: each method of `igr.value_and_grad` as a ratio to the plain gradient, with its peers.

    python benchmarks/penalty.py                      small nets on this machine
    python benchmarks/penalty.py --full               MLP of width 400 and ResNet-18, batch 512, bfloat16 (one GPU)

A step is a gradient and an SGD update; twenty of them run inside one compiled scan, so that nothing but the device is
timed. Memory is what the compiled step allocates beside its inputs. PyTorch takes part where it is installed.
"""

import argparse
import json
from itertools import pairwise

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from timing import hardware, interleaved, markdown, median, spread

import igr
from igr.lab.models.mlp import mlp
from igr.lab.models.model import Model
from igr.lab.models.resnet18 import resnet18

MU, RATE = 0.05, 1e-3


def loss_of(model: Model):
    def loss(params, state, x, y):
        logits, state = model.apply(params, state, x, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state

    return loss


def gradients(loss) -> dict:
    """Name -> (params, state, x, y) -> (gradient, anything to keep alive)."""

    def plain(params, *args):
        (value, _), grads = jax.value_and_grad(loss, has_aux=True)(params, *args)
        return grads, value

    def ours(method, **options):
        def gradient(params, *args):
            (value, _), grads = igr.value_and_grad(loss, MU, method, has_aux=True, **options)(params, *args)
            return grads, value

        return gradient

    def with_norm(params, *args):
        (value, (_, norm2)), grads = igr.value_and_grad(loss, 0.0, has_aux=True, with_norm=True)(params, *args)
        return grads, (value, norm2)

    def reverse_over_reverse(params, *args):
        def penalized(p):
            (value, _), g = jax.value_and_grad(loss, has_aux=True)(p, *args)
            return value + MU * igr.squared_norm(g), value

        grads, value = jax.grad(penalized, has_aux=True)(params)
        return grads, value

    return {
        "plain gradient": plain,
        "plain, also R_IG": with_norm,
        "igr forward": ours("forward"),
        "igr forward, kinks held": ours("forward", kinks="hold"),
        "igr exact": ours("exact"),
        "igr central": ours("central"),
        "reverse over reverse": reverse_over_reverse,
    }


def sgd(gradient):
    def step(params, *args):
        grads, kept = gradient(params, *args)
        return jax.tree.map(lambda p, g: p - RATE * g, params, grads), kept

    return step


def sam(loss):
    """Optax's SAM in its opaque mode, which is one gradient at the parameters and one at the perturbed ones."""
    ascent = optax.chain(optax.contrib.normalize(), optax.sgd(0.05))
    optimizer = optax.contrib.sam(optax.sgd(RATE), ascent, sync_period=2, opaque_mode=True)

    def step(params, *args):
        def grad_fn(p, _=None):
            return jax.grad(lambda q: loss(q, *args)[0])(p)

        grads = grad_fn(params)
        updates, _ = optimizer.update(grads, optimizer.init(params), params, grad_fn=grad_fn)
        return optax.apply_updates(params, updates), optax.tree.norm(updates)

    return step


def compiled(step, params, args, length):
    """(program, bytes of temporaries): `length` steps in one scan."""

    def many(params, *args):
        return jax.lax.scan(lambda p, _: step(p, *args), params, length=length)

    program = jax.jit(many).lower(params, *args).compile()
    memory = program.memory_analysis()
    return (lambda: program(params, *args)), memory.temp_size_in_bytes if memory else 0


def jax_rows(name, model, x, y, length, rounds):
    params, state = model.init(jax.random.key(0))
    loss = loss_of(model)
    steps = {label: sgd(g) for label, g in gradients(loss).items()} | {"optax.contrib.sam": sam(loss)}
    programs, memory = {}, {}
    for label, step in steps.items():
        programs[label], memory[label] = compiled(step, params, (state, x, y), length)
    seconds = interleaved(programs, rounds)
    base = median(seconds["plain gradient"])
    return [
        {
            "net": name,
            "step": label,
            "ms": median(s) / length * 1e3,
            "ratio": median(s) / base,
            "spread": spread(s),
            "MiB": memory[label] / 2**20,
        }
        for label, s in seconds.items()
    ]


def torch_rows(name, shape, batch, width, full, rounds):
    """The same nets in PyTorch, plain and by double backward; eager, as its users write it."""
    try:
        import torch
    except ImportError:
        return []
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("MLP"):
        sizes = [shape[0] * shape[1] * shape[2], *[width] * 5, 10]
        layers: list = [torch.nn.Flatten()]
        for a, b in pairwise(sizes):
            layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
        net = torch.nn.Sequential(*layers[:-1])
    else:
        try:
            import torchvision  # pyright: ignore[reportMissingImports]
        except ImportError:
            return []
        net = torchvision.models.resnet18(num_classes=10)
        net.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        net.maxpool = torch.nn.Identity()
        net = net.to(memory_format=torch.channels_last)
    net = net.to(device)
    x = torch.randn(batch, *shape[::-1] if len(shape) == 3 else shape, device=device)
    if x.ndim == 4:
        x = x.to(memory_format=torch.channels_last)
    y = torch.arange(batch, device=device) % 10
    weights = list(net.parameters())

    def gradient(penalized):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=full):
            value = torch.nn.functional.cross_entropy(net(x), y)
        grads = torch.autograd.grad(value, weights, create_graph=penalized)
        if penalized:
            grads = torch.autograd.grad(value + MU * sum((g**2).sum() for g in grads), weights)
        with torch.no_grad():
            for w, g in zip(weights, grads, strict=True):
                w -= RATE * g
        if device == "cuda":
            torch.cuda.synchronize()

    rows, base = [], None
    for label, penalized in [("PyTorch plain", False), ("PyTorch double backward", True)]:
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = interleaved({label: lambda p=penalized: gradient(p)}, rounds)[label]
        base = base or median(seconds)
        peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else float("nan")
        row = {"net": name, "step": label, "ms": median(seconds) * 1e3, "ratio": median(seconds) / base}
        rows.append(row | {"spread": spread(seconds), "MiB": peak})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="width 400 and 64, batch 512, bfloat16: for a GPU")
    parser.add_argument("--only", default="", metavar="TEXT", help="the nets whose name has this in it")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    full, rounds = options.full, options.rounds
    compute, batch = ("bfloat16", 512) if full else ("float32", 16)
    width, channels, length = (400, 64, 20) if full else (100, 4, 2)
    keys = jax.random.split(jax.random.key(1), 2)
    y = jnp.arange(batch) % 10
    nets = {
        f"MLP 5x{width}": (mlp(width, compute=compute), (28, 28, 1), width),
        f"ResNet-18 width {channels}": (resnet18(width=channels, compute=compute), (32, 32, 3), channels),
    }
    rows = []
    for (name, (model, shape, size)), key in zip(nets.items(), keys, strict=True):
        if options.only not in name:
            continue
        x = jax.random.normal(key, (batch, *shape), jnp.float32)
        rows += jax_rows(name, model, x, y, length, rounds)
        if name.startswith("MLP") or full:
            rows += torch_rows(name, shape, batch, size, full, rounds)
        print(f"{name}: done", flush=True)
    print(f"\n{hardware()}; batch {batch}, {compute} compute, {rounds} rounds of {length} steps, medians\n")
    header = ["net", "step", "ms", "ratio to plain", "spread", "temporaries, MiB"]
    cells = [
        [r["net"], r["step"], f"{r['ms']:.3f}", f"{r['ratio']:.2f}", f"{r['spread']:.3f}", f"{r['MiB']:.0f}"]
        for r in rows
    ]
    print(markdown(header, cells))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"hardware": hardware(), "batch": batch, "compute": compute, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
