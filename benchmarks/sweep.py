"""Microseconds per model and step of the sweep engine, against one model at a time and against PyTorch.

    python benchmarks/sweep.py                     the case of the paper: n_l = 400, 35 replicas, batch 32
    python benchmarks/sweep.py --variants          the engine's own switches beside each other
    python benchmarks/sweep.py --width 64 --replicas 8 --steps 200      small, for a laptop

Every case trains on random images that live on the device, gathers each batch there, and is compiled (or captured)
before it is timed; the compile time is a column of its own. The floor is the time to read each weight twice and write
it once at the memory bandwidth measured here; PyTorch cases appear where torch is installed. Matrix products use TF32
in all cases on a GPU, the default of JAX and torch's `high`.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from igr.lab.models.mlp import mlp
from igr.lab.training.engine import Engine, Images
from igr.lab.training.optimizers import OPTIMIZERS

IMAGES = 60_000


def seconds(run, repeats):
    """The first call's time, and the median of the later ones. `run` returns when the work is done."""
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return times[0], statistics.median(times[1:])


def data(seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (IMAGES, 28, 28, 1), np.uint8), rng.integers(0, 10, IMAGES).astype(np.int32)


def rates(replicas):
    return [[0.5, 0.1, 0.05, 0.01, 0.005, 0.001, 0.0005][i % 7] for i in range(replicas)]


def igr_case(args, replicas, **settings):
    x, y = data()
    engine = Engine(
        mlp(args.width, compute="bfloat16" if settings.get("precision") == "bfloat16" else "float32"),
        Images(jnp.asarray(x), jnp.asarray(y), 255.0),
        args.batch,
        replicas=replicas,
        **settings,
    )
    seeds = [i // 7 for i in range(replicas)]
    chosen = engine.rates(rates(replicas))
    held = {"stack": engine.init(seeds, chosen), "at": 0}
    steps = min(args.steps, engine.steps_per_epoch)

    def run():
        # whole epochs where the steps asked for make one, so that one program runs
        held["stack"] = engine.advance(held["stack"], chosen, seeds, held["at"], held["at"] + steps)
        held["at"] += engine.steps_per_epoch
        jax.block_until_ready(held["stack"].diverged)

    first, usual = seconds(run, args.repeats)
    return {"compile": first - usual, "us": 1e6 * usual / steps / replicas}


def torch_weights(torch, width, replicas, device):
    sizes = [784, *[width] * 5, 10]
    shape = () if replicas is None else (replicas,)
    weights = [torch.randn(*shape, m, n, device=device) / m**0.5 for m, n in itertools.pairwise(sizes)]
    biases = [torch.zeros(*shape, 1, n, device=device) for n in sizes[1:]]
    return [p.requires_grad_() for pair in zip(weights, biases, strict=True) for p in pair]


def torch_case(args, replicas, graph):
    """PyTorch: one model (`replicas` None) or stacked weights with batched products; eagerly or as one CUDA graph."""
    import torch

    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, y = (torch.as_tensor(v, device=device) for v in data())
    x, y = x.reshape(IMAGES, 784), y.long()
    params = torch_weights(torch, args.width, replicas, device)
    lead = () if replicas is None else (replicas,)
    h = torch.tensor(rates(replicas or 1), device=device).reshape(*(lead or (1,)), 1, 1)
    minus_h = -(h[0, 0, 0] if replicas is None else h)
    index = torch.zeros(*lead, args.batch, dtype=torch.long, device=device)

    def step():
        hidden, labels = x[index].float() * (1 / 255), y[index]
        for layer in range(6):
            w, b = params[2 * layer], params[2 * layer + 1]
            hidden = torch.addmm(b, hidden, w) if replicas is None else torch.baddbmm(b, hidden, w)
            hidden = torch.relu(hidden) if layer < 5 else hidden
        losses = torch.nn.functional.cross_entropy(hidden.reshape(-1, 10), labels.reshape(-1), reduction="sum")
        grads = torch.autograd.grad(losses / args.batch, params)  # a sum over replicas: each has its own gradient
        with torch.no_grad():
            for p, g in zip(params, grads, strict=True):
                p.addcmul_(g, minus_h.expand_as(g) if replicas is None else minus_h)

    call = step
    begun = time.perf_counter()
    if graph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        call = captured.replay
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    wait()
    capture = time.perf_counter() - begun if graph else 0.0
    steps = min(args.steps, IMAGES // args.batch)
    generator = torch.Generator(device=device).manual_seed(0)

    def run():
        order = torch.rand(*lead, IMAGES, device=device, generator=generator).argsort(dim=-1)
        order = order[..., : steps * args.batch].reshape(*lead, steps, args.batch)
        for i in range(steps):
            index.copy_(order[..., i, :])
            call()
        wait()

    first, usual = seconds(run, args.repeats)
    return {"compile": capture + max(0.0, first - usual), "us": 1e6 * usual / steps / (replicas or 1)}


def bandwidth():
    """Bytes a second, reading and writing a large array once."""
    size = 2**28 if jax.default_backend() == "gpu" else 2**24
    double = jax.jit(lambda v: v * np.float32(1.0001), donate_argnums=0)
    held = {"v": jnp.ones(size, jnp.float32)}

    def run():
        for _ in range(10):
            held["v"] = double(held["v"])
        jax.block_until_ready(held["v"])

    return 10 * 2 * 4 * size / seconds(run, 5)[1]


def cases(args):
    n = args.replicas
    yield f"igr, {n} stacked", lambda: igr_case(args, n)
    yield "igr, one at a time", lambda: igr_case(args, 1)
    if args.variants:
        for unroll in (2, 4):
            yield f"igr, {n} stacked, unroll {unroll}", lambda u=unroll: igr_case(args, n, unroll=u)
        for precision in ("highest", "bfloat16"):
            yield f"igr, {n} stacked, {precision}", lambda p=precision: igr_case(args, n, precision=p)
        for name in ("momentum", "adam", "muon"):
            yield f"igr, {n} stacked, {name}", lambda o=OPTIMIZERS[name]: igr_case(args, n, optimizer=o)
        return
    try:
        import torch
    except ImportError:
        return
    yield "PyTorch eager, one model", lambda: torch_case(args, None, False)
    yield f"PyTorch eager, {n} stacked", lambda: torch_case(args, n, False)
    if torch.cuda.is_available():
        yield "PyTorch CUDA graph, one model", lambda: torch_case(args, None, True)
        yield f"PyTorch CUDA graph, {n} stacked", lambda: torch_case(args, n, True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=400)
    parser.add_argument("--replicas", type=int, default=35)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=IMAGES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--json", help="also write the table here")
    args = parser.parse_args()
    params, _ = mlp(args.width).init(jax.random.key(0))
    m, rate = sum(leaf.size for leaf in jax.tree.leaves(params)), bandwidth()
    floor = 1e6 * 3 * 4 * m / rate
    device = jax.devices()[0].device_kind
    print(f"{device}, jax {jax.__version__}; n_l = {args.width}, m = {m:,}, batch {args.batch}; {rate / 1e9:,.0f} GB/s")
    print(f"floor: {floor:.2f} us per model and step (each weight read twice and written once)\n")
    print("| case | us per model and step | share of the floor | compile or capture, s |\n| --- | --- | --- | --- |")
    rows = []
    for name, case in cases(args):
        try:
            row = {"case": name, **case()}
        except Exception as error:  # one case that cannot run here must not hide the others
            print(f"| {name} | {type(error).__name__}: {str(error).splitlines()[0][:80]} | | |", flush=True)
            continue
        rows.append(row | {"floor_share": floor / row["us"]})
        print(f"| {name} | {row['us']:.2f} | {floor / row['us']:.0%} | {row['compile']:.1f} |", flush=True)
    ours = next((row for row in rows if row["case"].endswith("stacked")), None)
    for row in rows[1:] if ours else []:
        print(f"\nstacked is {row['us'] / ours['us']:.1f} times faster than: {row['case']}", end="")
    print()
    if args.json:
        with contextlib.suppress(OSError), open(args.json, "w") as file:
            json.dump(
                {"device": device, "jax": jax.__version__, "m": m, "bandwidth": rate, "rows": rows}, file, indent=1
            )


if __name__ == "__main__":
    main()
