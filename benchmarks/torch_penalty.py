"""What the penalty costs in PyTorch: each way of `igr.torch` as a ratio to the plain step, with its peers.

    python benchmarks/torch_penalty.py                              tiny nets on this machine
    python benchmarks/torch_penalty.py --full --json FILE           ResNet-18 and GPT-2, bfloat16 autocast (one GPU)

A step is a forward and backward pass and the optimizer's update (SGD with momentum; AdamW for GPT-2). All cases of a
net share its parameters and take turns; compiled cases are compared with the compiled plain step. Memory is the peak
of one step as PyTorch's allocator counts it, parameters and optimizer included (GPU only). A case that cannot run says
why.
"""

import argparse
import json
import platform
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from timing import markdown, median, spread
from torch import Tensor, nn
from torch.nn import functional as F

import igr.torch

MU, RHO = 0.01, 0.05
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Step = Callable[[], Any]


class Block(nn.Module):
    """Two convolutions with batch norm, and what goes around them."""

    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        same = stride == 1 and before == after
        skip = (nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.skip = nn.Identity() if same else nn.Sequential(*skip)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


def resnet18(width: int) -> nn.Module:
    """ResNet-18 with a 3x3 stem and ten classes: 11,173,962 parameters at width 64."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for i in range(4):
        for stride in (2 if i else 1, 1):
            layers.append(Block(before, width * 2**i, stride))
            before = width * 2**i
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))
    assert width != 64 or igr.torch.num_params(net) == 11_173_962
    return net


def resnet_case(full: bool) -> tuple[str, nn.Module, Callable[[nn.Module], Tensor], Any]:
    width, size, batch = (64, 32, 512) if full else (8, 16, 8)
    net = resnet18(width).to(DEVICE)
    net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    x = torch.randn(batch, 3, size, size, device=DEVICE).to(memory_format=torch.channels_last)
    y = torch.arange(batch, device=DEVICE) % 10
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, fused=DEVICE == "cuda")
    return "ResNet-18", net, lambda model: F.cross_entropy(model(x), y), optimizer


def gpt2_case(full: bool) -> tuple[str, nn.Module, Callable[[nn.Module], Tensor], Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    small = {} if full else {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 100, "n_positions": 32}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    options = {**small, **no_dropout, "attn_implementation": "sdpa"}
    config = GPT2Config(**options, bos_token_id=0, eos_token_id=0, use_cache=False)
    net = GPT2LMHeadModel(config).to(DEVICE)
    tokens = torch.randint(config.vocab_size, (8, 1024) if full else (2, 32), device=DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=DEVICE == "cuda")
    return "GPT-2", net, lambda model: model(input_ids=tokens, labels=tokens).loss, optimizer


def steps(net: nn.Module, model: nn.Module, loss: Callable[[nn.Module], Tensor], optimizer: Any) -> dict[str, Step]:
    """Name -> one step. `model` is the net itself or the compiled net."""

    def closure() -> Tensor:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return loss(model)

    params = list(net.parameters())

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def plain() -> Tensor:
        value = closure()
        value.backward()
        update()
        return value

    def ours(**options: Any) -> Step:
        def step() -> Tensor:
            value, _ = igr.torch.backward(net, closure, **{"mu": MU, **options})
            update()
            return value

        return step

    penalty = igr.torch.Penalty(net, MU)

    def loop() -> None:
        for _ in penalty:
            closure().backward()
        update()

    def double_backward() -> None:
        value = closure()
        grads = torch.autograd.grad(value, params, create_graph=True)
        (value + MU * sum((g.float() ** 2).sum() for g in grads)).backward()
        update()

    def sam() -> None:
        """Foret et al. (2021), as its PyTorch implementations are written: a loop over the parameters."""
        closure().backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in params if p.grad is not None]).norm()
            old = [p.clone() for p in params]
            for p in params:
                p.add_(p.grad * (RHO / (norm + 1e-12)))
        optimizer.zero_grad(set_to_none=True)
        closure().backward()
        with torch.no_grad():
            for p, w in zip(params, old, strict=True):
                p.copy_(w)
        update()

    return {
        "plain": plain,
        "igr, mu = 0 (R_IG only)": ours(mu=0.0),
        "igr forward": ours(),
        "igr forward, as a loop": loop,
        "igr central": ours(method="central"),
        "igr exact": ours(method="exact"),
        "double backward": double_backward,
        "SAM": sam,
    }


def rows(name: str, net: nn.Module, loss: Any, optimizer: Any, rounds: int, length: int, compiled: bool) -> list[dict]:
    model = torch.compile(net) if compiled else net
    cases, failed, memory = steps(net, model, loss, optimizer), {}, {}
    for label, step in list(cases.items()):
        try:
            step()  # compiles, and finds the radius
            step()
            memory[label] = peak(step)
        except Exception as error:
            failed[label] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
            del cases[label]
            optimizer.zero_grad(set_to_none=True)
    seconds: dict[str, list[float]] = {label: [] for label in cases}
    for _ in range(rounds):
        for label, step in cases.items():
            start = synchronized()
            for _ in range(length):
                step()
            seconds[label].append((synchronized() - start) / length)
    base, before = median(seconds["plain"]), memory["plain"]
    prefix = "compiled, " if compiled else ""
    table = [
        {
            "net": name,
            "step": prefix + label,
            "ms": 1e3 * median(s),
            "ratio": median(s) / base,
            "spread": spread(s),
            "MiB": memory[label] / 2**20 if before else None,
            "memory_ratio": memory[label] / before if before else None,
        }
        for label, s in seconds.items()
    ]
    return table + [{"net": name, "step": prefix + label, "error": why} for label, why in failed.items()]


def peak(step: Step) -> int:
    if DEVICE != "cuda":
        step()
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def synchronized() -> float:
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def shown(row: dict) -> list[str]:
    if "error" in row:
        return [row["net"], row["step"], row["error"], "", "", "", ""]
    memory = ["-", "-"] if row["MiB"] is None else [f"{row['MiB']:,.0f}", f"{row['memory_ratio']:.2f}"]
    return [row["net"], row["step"], f"{row['ms']:.3f}", f"{row['ratio']:.2f}", f"{row['spread']:.3f}", *memory]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="ResNet-18 with batch 512, GPT-2 with 8 x 1024: for a GPU")
    parser.add_argument("--only", default="", metavar="TEXT", help="the nets whose name has this in it")
    parser.add_argument("--no-compile", action="store_true", help="leave the compiled cases out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--length", type=int, default=10, help="steps a round")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else f"{platform.machine()} CPU"
    versions = f"{device}; Python {platform.python_version()}, torch {torch.__version__}"
    found: list[dict] = []
    for case in (resnet_case, gpt2_case):
        name = "ResNet-18" if case is resnet_case else "GPT-2"
        if options.only.lower() not in name.lower():
            continue
        parts = case(options.full)
        for compiled in (False,) if options.no_compile else (False, True):
            found += rows(*parts, options.rounds, options.length, compiled)
            if options.json:  # what is measured is kept if the next case runs out of time
                Path(options.json).write_text(json.dumps({"hardware": versions, "rows": found}, indent=1))
        del parts
        with torch.cuda.device(0) if DEVICE == "cuda" else nullcontext():
            torch.cuda.empty_cache()
    print(versions)
    print(markdown(["net", "step", "ms", "ratio", "spread", "MiB", "memory ratio"], [*map(shown, found)]))


if __name__ == "__main__":
    main()
