"""What is seen while a model runs: its kinks and its precision, and the radius that follows from them."""

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch_models import closure, problem

import igr.torch
from igr.penalty.kinks import has_kinks


@pytest.mark.parametrize(
    ("network", "kinks"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), True),
        (nn.Sequential(nn.Linear(4, 4), nn.SELU()), True),
        (nn.Sequential(nn.Conv1d(1, 2, 2), nn.MaxPool1d(2)), True),
        (nn.Sequential(nn.ReLU(), nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), nn.Softmax(-1), nn.ELU()), False),
    ],
)
def test_kinks_are_found_and_make_the_way_longer(network, kinks):
    """ReLU of the data has no kink in the parameters."""
    x = torch.randn(3, 1, 4)
    igr.torch.backward(network, lambda: network(x).square().mean(), 0.1)
    (probe,) = igr.torch.passes._SEEN[network].values()
    assert bool(probe.kinks) == kinks
    norm = torch.cat([p.detach().reshape(-1) for p in network.parameters()]).norm()
    radius = igr.torch.radius.default_radius(list(network.parameters()), norm**2, probe, "forward")
    norm = norm.clamp(max=1.0)
    assert float(radius / norm) == pytest.approx(0.2 if kinks else 2**-11.5, rel=1e-6)


def accuracy(h, wanted):
    return (h.argmax(1) == wanted).sum() / len(wanted)


# Functions of a layer's output: in PyTorch, in JAX, and whether their gradient jumps.
SAME_KINKS = {
    "an accuracy beside the loss": (
        lambda h: (accuracy(h, torch.zeros(3)), h.square().sum())[1],
        lambda h: (accuracy(h, jnp.zeros(3, int)), (h**2).sum())[1],
        False,
    ),
    "a mask": (lambda h: (h * (h > 0)).sum(), lambda h: (h * (h > 0).astype(h.dtype)).sum(), True),
    "a choice": (lambda h: torch.where(h > 0, h, 0.1 * h).sum(), lambda h: jnp.where(h > 0, h, 0.1 * h).sum(), True),
    "an index": (
        lambda h: h.gather(1, h.argmax(1, keepdim=True)).sum(),
        lambda h: jnp.take_along_axis(h, h.argmax(1)[:, None], 1).sum(),
        True,
    ),
    "a guard": (
        lambda h: (h / h.norm(dim=1, keepdim=True).clamp(min=1e-8))[:, 0].sum(),
        lambda h: (h / jnp.maximum(jnp.sqrt((h**2).sum(1, keepdims=True)), 1e-8))[:, 0].sum(),
        False,
    ),
    "a bound": (lambda h: h.clamp(min=1e-8).sum(), lambda h: jnp.maximum(h, 1e-8).sum(), True),
}


@pytest.mark.parametrize("name", SAME_KINKS)
def test_kinks_are_those_that_jax_finds(name):
    ours, theirs, kinks = SAME_KINKS[name]
    layer, x = nn.Linear(4, 4), torch.randn(3, 4)
    igr.torch.backward(layer, lambda: ours(layer(x)), 0.1)
    (probe,) = igr.torch.passes._SEEN[layer].values()
    assert bool(probe.kinks) == kinks
    assert has_kinks(lambda w: theirs(jnp.asarray(x.numpy()) @ w), jnp.ones((4, 4), jnp.float32)) == kinks


def test_a_choice_hidden_in_an_own_backward_pass_is_a_kink():
    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(x.detach().numpy().clip(0))

        @staticmethod
        def backward(ctx, *grad_outputs):
            return grad_outputs[0] * (ctx.saved_tensors[0] > 0)

    layer = nn.Linear(4, 4)
    igr.torch.backward(layer, lambda: Hidden.apply(layer(torch.ones(2, 4))).sum(), 0.1)
    (probe,) = igr.torch.passes._SEEN[layer].values()
    assert probe.kinks


def test_the_default_looks_to_both_sides():
    """Over steps both sides occur, and an explicit radius has its own."""
    norms = torch.logspace(-4, 2, 200)
    sides = igr.torch.radius.side(norms)
    assert set(sides.tolist()) == {-1.0, 1.0}
    assert abs(float(sides.mean())) < 0.2
    moved, found = nn.Linear(1, 1, bias=False).double(), []
    for start in (1.0, 1.006):
        moved.weight.data.fill_(start)

        def loss(found=found):
            found.append(moved.weight.item())
            return moved.weight.square().sum() / 2

        igr.torch.backward(moved, loss, 0.1)
    assert sorted(np.sign([found[1] - found[0], found[3] - found[2]])) == [-1, 1]


def test_a_function_in_place_of_a_module_is_seen_too():
    layer = nn.Linear(4, 4)
    igr.torch.backward(layer, lambda: torch.relu(layer(torch.ones(2, 4))).sum(), 0.1)
    igr.torch.backward(layer, lambda: torch.tanh(layer(torch.ones(2, 4))).sum(), 0.1)
    assert [sorted(p.kinks) for p in igr.torch.passes._SEEN[layer].values()] == [["relu"], []]


def test_bfloat16_lengthens_the_way():
    model, x, y = problem("mlp", torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        igr.torch.backward(model, closure(model, x, y), 0.1)
    (probe,) = igr.torch.passes._SEEN[model].values()
    assert probe.unit == 2**-7
