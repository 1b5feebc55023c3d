"""What a penalized step starts beyond its two passes: a count of operations, which no machine changes."""

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import torch
import torch_models  # noqa: F401 (one thread)
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import igr.torch


class Count(TorchDispatchMode):
    """Counts operations; on a GPU each is at least one launch, and a fused one a few."""

    def __init__(self):
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations += 1
        return func(*args, **(kwargs or {}))


def beyond_plain_passes(depth, passes, **options):
    """The operations of a penalized gradient of a network with batch norm, less those of so many plain ones."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())]
    model, x, y = nn.Sequential(*layers), torch.randn(6, 4), torch.arange(6) % 4

    def loss():
        return F.cross_entropy(model(x), y)

    def ours():
        igr.torch.backward(model, loss, **options)

    counts = []
    for step in (lambda: loss().backward(), ours):
        step()  # finds the radius
        model.zero_grad()
        with Count() as count:
            step()
        model.zero_grad()
        counts.append(count.operations)
    return counts[1] - passes * counts[0]


@pytest.mark.parametrize(
    ("passes", "most", "options"),
    [
        (1, 8, {"mu": 0.0}),
        (2, 48, {"mu": 0.1}),
        (2, 30, {"mu": 0.1, "radius": 0.1}),
        (3, 48, {"mu": 0.1, "method": "central"}),
    ],
)
def test_a_step_starts_few_operations_beyond_its_passes_however_many_layers_there_are(passes, most, options):
    small, large = (beyond_plain_passes(depth, passes, **options) for depth in (2, 12))
    assert small == large <= most


def of_the_monitor(depth):
    """The operations of the third step of SGD with a monitor, less those without."""
    counts = []
    for watched in (True, False):
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(depth)])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
        if watched:
            igr.torch.Monitor().attach(optimizer)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            with Count() as count:
                optimizer.step()
        counts.append(count.operations)
    return counts[0] - counts[1]


def test_a_monitor_starts_few_operations_and_views_for_each_array():
    """The three views of each array, of gradient and parameter before and after, start nothing on a GPU."""
    two, twelve = of_the_monitor(2), of_the_monitor(12)
    assert twelve - two == 3 * 2 * 10
    assert two <= 66 + 3 * 2 * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_copies_of_older_versions_are_bit_for_bit_too(dtype, monkeypatch):
    monkeypatch.delattr(torch, "_foreach_clone", raising=False)
    tensors = [torch.tensor([-0.0, 1.0, 3e-39, float("inf")]).to(dtype), torch.ones(2, 3).to(dtype).T]
    copied = igr.torch.tensors.copies(tensors)
    for old, new in zip(tensors, copied, strict=True):
        assert new.data_ptr() != old.data_ptr()
        assert new.stride() == old.stride()
        assert torch.equal(new.contiguous().view(torch.uint8), old.contiguous().view(torch.uint8))
