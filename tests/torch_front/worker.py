"""One of two processes of test_distributed.py: replicas and shards of a model against the model itself.

python worker.py RANK FILE
"""

import re
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from helpers import relative
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch_models import Mlp, double_backward, gradients

import igr.torch

MU, WORLD = 0.4, 2


class Net(Mlp):
    """With batch statistics that are not used for normalizing, so that parts and whole agree, and an unused layer."""

    def __init__(self):
        super().__init__()
        self.unused, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(6)

    def forward(self, x):
        self.norm(x)
        return super().forward(x)


def build():
    torch.manual_seed(0)
    return Net().double()


def loss(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


def expected(x, y):
    """The penalized gradient of the whole batch, and the mean of those of its halves."""
    used = build()
    used.unused.requires_grad_(False)
    used.norm.requires_grad_(False)
    whole, *halves = (
        double_backward(used, loss(used, x[s], y[s]), MU) for s in (slice(0, 8), slice(0, 4), slice(4, 8))
    )
    return {"mean": whole, "each": {n: (halves[0][n] + halves[1][n]) / 2 for n in whole}}


def used_only(found):
    return {n: g for n, g in found.items() if not n.startswith(("unused", "norm"))}


def replicas(rank, x, y, wanted):
    mine = slice(4 * rank, 4 * rank + 4)
    for penalize in ("mean", "each"):
        for bucket_view in (False, True):
            for microbatches in (1, 2) if bucket_view else (1,):
                model = build()
                copy = DistributedDataParallel(model, gradient_as_bucket_view=bucket_view, find_unused_parameters=True)
                parts = [(a, b) for a, b in zip(x[mine].chunk(microbatches), y[mine].chunk(microbatches), strict=True)]
                call = lambda a, b, copy=copy: loss(copy, a, b)  # noqa: E731
                for _ in range(2):  # the second time the reducer has its buckets in order
                    copy.zero_grad()
                    igr.torch.backward(copy, call, MU, microbatches=parts, penalize=penalize)
                error = relative(used_only(gradients(model)), wanted[penalize])
                if penalize == "mean" or microbatches == 1:
                    assert error < 1e-6, (bucket_view, penalize, microbatches, error)
                else:  # each micro-batch of each device: something else again
                    assert error > 1e-3
                plain = build()
                for _ in range(2):
                    for a, _ in parts:
                        plain(a)
                if rank == 0:  # whose statistics all replicas take
                    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), plain.buffers(), strict=True))
    # a loop around existing code
    for penalize in ("mean", "each"):
        model = build()
        copy = DistributedDataParallel(model, find_unused_parameters=True)
        for _ in igr.torch.Penalty(copy, MU, penalize=penalize):
            loss(copy, x[mine], y[mine]).backward()
        assert relative(used_only(gradients(model)), wanted[penalize]) < 1e-6, penalize
    # gradients that are there before: added to, cleared in the closure, and not to be cleared in the loop
    for bucket_view in (False, True):
        model = build()
        copy = DistributedDataParallel(model, gradient_as_bucket_view=bucket_view, find_unused_parameters=True)
        for cleared in (False, False, True):

            def clear(copy=copy, cleared=cleared):
                if cleared:
                    copy.zero_grad()
                return loss(copy, x[mine], y[mine])

            igr.torch.backward(copy, clear, MU)
            found = {n: g for n, g in gradients(model).items() if n in wanted["mean"]}
        assert relative(used_only(found), wanted["mean"]) < 1e-6
        for _ in igr.torch.Penalty(copy, MU):
            loss(copy, x[mine], y[mine]).backward()
        assert relative(used_only(gradients(model)), {n: 2 * g for n, g in wanted["mean"].items()}) < 1e-6
        clearing(copy, lambda copy=copy: loss(copy, x[mine], y[mine]))
    with pytest.raises(ValueError, match="distributed models do not allow"):
        igr.torch.backward(copy, lambda: loss(copy, x, y), MU, method="exact")


def clearing(model, call):
    """A loop that clears the gradients it would add to."""

    def loop():
        for _ in igr.torch.Penalty(model, MU):
            model.zero_grad()
            call().backward()

    with pytest.raises(ValueError, match="put it before the loop"):
        loop()


def page(rank, x, y, wanted):
    """The block of docs/torch.md for several devices: the global gradient, and that of each device added to it."""
    source = (Path(__file__).parent.parent.parent / "docs" / "torch.md").read_text()
    (block,) = [b for b in re.findall(r"```py\n(.*?)```", source, re.S) if "DistributedDataParallel(" in b]
    torch.manual_seed(0)
    names = {"model": Mlp().double(), "igr": igr, "F": nn.functional}
    names |= {"x": x[4 * rank : 4 * rank + 4], "y": y[4 * rank : 4 * rank + 4]}
    exec(block.replace("mu=0.01", f"mu={MU}"), names)
    total = {n: wanted["mean"][n] + wanted["each"][n] for n in wanted["mean"]}
    assert relative(gradients(names["model"]), total) < 1e-6


def diagnostics(rank, x, y):
    """Those of the mean over the processes, the same on each."""
    mine, model = slice(4 * rank, 4 * rank + 4), build()
    copy = DistributedDataParallel(model, find_unused_parameters=True)
    for measure in (
        igr.torch.slope,
        lambda *a: igr.torch.sharpness(*a).value,
        lambda model, call: igr.torch.regime(model, call, 0.1).h_star,
        lambda *a: igr.torch.penalty_error(*a).curvature,
    ):
        whole, ours = measure(model, lambda: loss(model, x, y)), measure(copy, lambda: loss(copy, x[mine], y[mine]))
        assert abs(float(ours) / float(whole) - 1) < 1e-6
    assert float(igr.torch.slope(model, lambda: loss(model, x[mine], y[mine]))) != pytest.approx(
        float(igr.torch.slope(model, lambda: loss(model, x, y))), rel=1e-2
    )


def watched(model, rate, batch):
    optimizer, monitor = torch.optim.SGD(model.parameters(), lr=rate), igr.torch.Monitor()
    monitor.attach(optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        igr.torch.backward(model, lambda: loss(model, *batch), 0.0)
        optimizer.step()
    return {name: value for name, value in monitor.readings().items() if value == value}


def shards(rank, x, y, wanted):
    mine = slice(4 * rank, 4 * rank + 4)
    model, mesh = build(), init_device_mesh("cpu", (WORLD,))
    fully_shard(model.hidden, mesh=mesh)
    fully_shard(model, mesh=mesh)
    before = [p.full_tensor().clone() for p in model.parameters()]
    value, norm2 = igr.torch.backward(model, lambda: loss(model, x[mine], y[mine]), MU)
    found = {n: p.grad.full_tensor().numpy() for n, p in model.named_parameters() if p.grad is not None}
    assert relative(used_only(found), wanted["mean"]) < 1e-6
    plain = double_backward_norm(x, y)
    assert abs(float(norm2) / plain - 1) < 1e-10
    assert all(torch.equal(a, p.full_tensor()) for a, p in zip(before, model.parameters(), strict=True))
    assert value.ndim == 0
    for _ in igr.torch.Penalty(model, MU):
        loss(model, x[mine], y[mine]).backward()
    twice = {n: p.grad.full_tensor().numpy() for n, p in model.named_parameters() if p.grad is not None}
    assert relative(used_only(twice), {n: 2 * g for n, g in wanted["mean"].items()}) < 1e-6
    clearing(model, lambda: loss(model, x[mine], y[mine]))
    with pytest.raises(ValueError, match='use "mean"'):
        igr.torch.backward(model, lambda: loss(model, x[mine], y[mine]), MU, penalize="each")
    with pytest.raises(ValueError, match="measure a copy that is not sharded"):
        igr.torch.slope(model, lambda: loss(model, x[mine], y[mine]))
    alone, parted = watched(build(), 0.1, (x, y)), watched(model, 0.1, (x[mine], y[mine]))
    assert len(parted) == 8
    assert all(abs(value / alone[name] - 1) < 1e-6 for name, value in parted.items()), (alone, parted)


def double_backward_norm(x, y):
    model = build()
    loss(model, x, y).backward()
    return sum((g**2).sum() for n, g in gradients(model).items())


def main(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=WORLD)
    torch.manual_seed(7)
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 4
    wanted = expected(x, y)
    assert relative(wanted["mean"], wanted["each"]) > 1e-3
    replicas(rank, x, y, wanted)
    diagnostics(rank, x, y)
    shards(rank, x, y, wanted)
    page(rank, x, y, wanted)
    dist.destroy_process_group()
    print("agrees")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
