"""Images a second of ResNet-18 in the training engine, by step, by replicas and against PyTorch.

    python benchmarks/resnet.py                      batch 512, width 64, bfloat16 (one GPU; elsewhere as with --small)
    python benchmarks/resnet.py --small              a narrow net and few images, to try it on any machine
    python benchmarks/resnet.py --only plain --only forward --no-torch

A program is one epoch of `igr.lab.training.engine.Engine` on random images of CIFAR-10's shape, on the device: the
permutation, the gather of each batch, the conversion of its bytes and the update are in the time. Each case takes turns
with the plain step, so that its ratio is of one run; the first call, with the compilation, is a column of its own.
The share of the peak counts what XLA's cost analysis counts of one gradient, which leaves out products with padding.
PyTorch, where it is installed, gathers its batches on the device too; channels last, autocast to bfloat16, fused SGD.
"""

import argparse
import json
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")  # leaves memory to PyTorch in the same process

import jax
import jax.numpy as jnp
import numpy as np
from timing import hardware, interleaved, markdown, median, spread

import igr
from igr.lab.models.model import Model
from igr.lab.models.resnet18 import resnet18
from igr.lab.training.engine import Engine, Images, batch_loss
from igr.lab.training.meter import Meter

MU, RATE, RADIUS = 0.05, 1e-3, 1e-2
SHAPE, CLASSES = (32, 32, 3), 10
PEAK = {"H200": 989e12, "H100": 989e12}  # dense bfloat16 products a second, NVIDIA's data sheets for the SXM boards


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, *SHAPE), np.uint8), rng.integers(0, CLASSES, count).astype(np.int32)


def on_device(count: int, seed: int) -> Images:
    x, y = images(count, seed)
    return Images(jnp.asarray(x), jnp.asarray(y), 255.0)


def flops(model: Model, method: str, batch: int) -> float:
    """Floating-point operations of one gradient, as XLA counts them before it optimizes."""
    loss = batch_loss(model)
    if method in ("", "sam"):  # SAM's is the plain gradient, twice
        gradient = jax.value_and_grad(loss, has_aux=True)
    else:
        gradient = igr.value_and_grad(loss, MU, method, has_aux=True)
    params, state = jax.eval_shape(model.init, jax.random.key(0))
    x, y = jax.ShapeDtypeStruct((batch, *SHAPE), jnp.float32), jax.ShapeDtypeStruct((batch,), jnp.int32)
    with jax.default_device(jax.devices("cpu")[0]):  # GPU clients cannot analyse a program before it is compiled
        count = jax.jit(gradient).lower(params, state, x, y).cost_analysis()["flops"]  # pyright: ignore
    return count * (2 if method == "sam" else 1)


def igr_case(options, method="", replicas=1, compute="bfloat16", stem="3x3", **engine_settings):
    """(program, its images, its floating-point operations): one epoch of every replica in the engine."""
    model = resnet18(stem, options.width, compute=compute)
    engine = Engine(
        model, on_device(options.images, 0), options.batch, method or None, replicas=replicas, **engine_settings
    )
    seeds, steps = list(range(replicas)), engine.steps_per_epoch
    strength = [MU] * replicas if method else []
    rates = engine.rates([RATE] * replicas, *([], strength) if method == "sam" else (strength,))
    held = {"stack": engine.init(seeds, rates), "at": 0}

    def run():
        held["stack"] = engine.advance(held["stack"], rates, seeds, held["at"], held["at"] + steps)
        held["at"] += steps
        return held["stack"].diverged

    return run, steps * options.batch * replicas, steps * replicas * flops(model, method, options.batch)


def measurement(options):
    """The whole measurement of one replica, R_IG and the rest on 50,000 training and 10,000 test images."""
    engine = Engine(resnet18(width=options.width, compute="bfloat16"), on_device(options.images, 0), options.batch)
    exact = resnet18(width=options.width)  # in float32, whatever the training computes in
    meter, stack = Meter(engine, on_device(options.images // 5, 1), model=exact), engine.init([0])
    return (lambda: meter.full(stack.params, stack.state)), options.images + options.images // 5, None


def torch_resnet18(torch, width):
    """ResNet-18 with the 3x3 stem as torch.nn modules."""
    nn = torch.nn

    def unit(before, after, size, stride):
        conv = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(after))

    class Block(nn.Module):
        def __init__(self, before, after, stride):
            super().__init__()
            self.first, self.second = unit(before, after, 3, stride), unit(after, after, 3, 1)
            self.skip = unit(before, after, 1, stride) if stride != 1 or before != after else nn.Identity()

        def forward(self, x):
            y = self.second(torch.relu(self.first(x)))
            return torch.relu(y + self.skip(x))

    blocks, before = [], width
    for after, stride in [(width * 2**i, 2 if i and not j else 1) for i in range(4) for j in range(2)]:
        blocks.append(Block(before, after, stride))
        before = after
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES)]
    return nn.Sequential(unit(SHAPE[-1], width, 3, 1), nn.ReLU(), *blocks, *head)


def torch_case(options, penalty="", compiled=False, steps=None):
    """(program, its images, None): an epoch of PyTorch, or `steps` of it.

    The running statistics of batch norm move in both passes of the forward difference, which costs no more.
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    net = torch_resnet18(torch, options.width).to(device)
    net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    weights = list(net.parameters())
    optimizer = torch.optim.SGD(weights, lr=RATE, fused=device == "cuda")
    x, y = (torch.as_tensor(v, device=device) for v in images(options.images, 0))
    y = y.long()

    def loss(index):
        batch = x[index].permute(0, 3, 1, 2).float() * (1 / 255)  # the view is channels last already
        with torch.autocast(device, dtype=torch.bfloat16):
            return torch.nn.functional.cross_entropy(net(batch), y[index])

    if compiled:
        loss = torch.compile(loss)

    def gradient(index):
        if penalty == "double backward":
            value = loss(index)
            grads = torch.autograd.grad(value, weights, create_graph=True)
            return torch.autograd.grad(value + MU * sum((g**2).sum() for g in grads), weights)
        grads = torch.autograd.grad(loss(index), weights)
        if penalty == "forward":
            with torch.no_grad():
                length = RADIUS / torch.stack(torch._foreach_norm(grads)).norm()
                shift = torch._foreach_mul(grads, length)
                torch._foreach_add_([*weights], shift)
            moved = torch.autograd.grad(loss(index), weights)
            with torch.no_grad():
                torch._foreach_sub_([*weights], shift)
                change = torch._foreach_mul(torch._foreach_sub(moved, grads), 2 * MU / length)
                grads = torch._foreach_add(grads, change)
        return grads

    count = steps or options.images // options.batch

    def run():
        order = torch.randperm(options.images, device=device)
        for i in range(count):
            for weight, grad in zip(weights, gradient(order[i * options.batch :][: options.batch]), strict=True):
                weight.grad = grad
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run, count * options.batch, None


def cases(options):
    """Name -> a function that makes (program, images, operations); what matters most comes first."""
    table = {"igr plain": {}, "igr forward": {"method": "forward"}}
    later = {
        "igr exact": {"method": "exact"},
        "igr sam": {"method": "sam"},
        "igr plain, augmented": {"augment": True},
        "igr plain, 2 replicas side by side": {"replicas": 2, "in_turn": False},
        "igr plain, 2 replicas in turn": {"replicas": 2, "in_turn": True},
        "igr plain, 4 replicas side by side": {"replicas": 4, "in_turn": False},
        "igr plain, 4 replicas in turn": {"replicas": 4, "in_turn": True},
        "igr plain, 7x7 stem": {"stem": "7x7"},
        "igr forward, 7x7 stem": {"stem": "7x7", "method": "forward"},
        "igr plain, float32": {"compute": "float32"},
    }
    torch_table = {
        "PyTorch plain": {},
        "PyTorch plain, compiled": {"compiled": True},
        "PyTorch forward": {"penalty": "forward"},
        "PyTorch forward, compiled": {"penalty": "forward", "compiled": True},
        "PyTorch double backward": {"penalty": "double backward", "steps": 4},
    }
    made = {name: lambda s=settings: igr_case(options, **s) for name, settings in table.items()}
    if not options.no_torch:
        made |= {name: lambda s=settings: torch_case(options, **s) for name, settings in torch_table.items()}
    made |= {name: lambda s=settings: igr_case(options, **s) for name, settings in later.items()}
    made["igr, measurement of R_IG and the rest"] = lambda: measurement(options)
    chosen = {k: v for k, v in made.items() if not options.only or any(text in k for text in options.only)}
    return {"igr plain": made["igr plain"]} | chosen  # the plain step is what the others are compared with


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="width 2, batch 16, 64 images")
    parser.add_argument("--only", action="append", metavar="TEXT", help="cases whose name has this in it; may repeat")
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too, after each case")
    options = parser.parse_args()
    small = options.small or jax.default_backend() != "gpu"
    options.width, options.batch, options.images = (2, 16, 64) if small else (64, 512, 50_000)
    peak = next((value for kind, value in PEAK.items() if kind in jax.devices()[0].device_kind), None)
    begun, rows, plain = time.perf_counter(), [], None
    try:
        import torch

        versions = f"{hardware()}, torch {torch.__version__}"
    except ImportError:
        versions, options.no_torch = hardware(), True
    about = f"{versions}; width {options.width}, batch {options.batch}, {options.images} images an epoch"
    print(f"{about}; medians of {options.rounds}", flush=True)
    for name, make in cases(options).items():
        if time.perf_counter() - begun > options.seconds:
            print(f"{name}: left out, the time is up", flush=True)
            continue
        try:
            start = time.perf_counter()
            program, count, operations = make()
            jax.block_until_ready(program())
            first = time.perf_counter() - start
            plain = plain or (program, count)
            turns = interleaved({"igr plain": plain[0], name: program}, options.rounds, warm=False)
        except Exception as error:  # one case that cannot run here must not hide the others
            print(f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}", flush=True)
            continue
        seconds = median(turns[name])
        row = {
            "case": name,
            "images_per_second": count / seconds,
            "ms_per_batch": 1e3 * seconds / count * options.batch,
            "ratio": seconds / count / (median(turns["igr plain"]) / plain[1]),
            "spread": spread(turns[name]),
            "peak_share": operations / seconds / peak if operations and peak else None,
            "seconds": seconds,
            "first_call_s": first,
        }
        rows.append(row)
        rate = f"{row['images_per_second']:,.0f} images a second, {seconds:.2f} s an epoch"
        print(f"{name}: {rate}, {row['ratio']:.2f} times plain, first call {first:.0f} s", flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"about": about, "rows": rows, "peak": peak}, file, indent=1)
    header = [
        "case",
        "images a second",
        "ms a batch",
        "ratio to plain",
        "spread",
        "share of bf16 peak",
        "first call, s",
    ]
    print("\n" + markdown(header, [cells(row) for row in rows]))
    print(f"\n{time.perf_counter() - begun:.0f} s in all")


def cells(row):
    share = "-" if row["peak_share"] is None else f"{row['peak_share']:.0%}"
    numbers = f"{row['images_per_second']:,.0f}", f"{row['ms_per_batch']:.2f}", f"{row['ratio']:.2f}"
    return [row["case"], *numbers, f"{row['spread']:.3f}", share, f"{row['first_call_s']:.0f}"]


if __name__ == "__main__":
    main()
