"""The laboratory's ResNet-18 on digits, through igr.torch and through the engine, from the same weights and batches."""

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import jax
import jax.numpy as jnp
import numpy as np
import torch
from replicas import batches
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import igr.torch
from igr.lab.models.resnet18 import resnet18
from igr.lab.training.engine import Engine, Images
from igr.lab.training.gradients import batch_loss

STEPS, SIZE, BATCH, RATE, MU, RADIUS = 50, 800, 32, 0.03, 0.01, 0.05


class Unit(nn.Module):
    """A convolution with padding "SAME", as in JAX, and batch norm, with the weights of the JAX model."""

    def __init__(self, params, stride):
        super().__init__()
        kernel = torch.tensor(np.asarray(params["w"])).permute(3, 2, 0, 1)
        self.w, self.stride = nn.Parameter(kernel.contiguous()), stride
        self.norm = nn.BatchNorm2d(len(kernel))

    def forward(self, x):
        around = self.w.shape[-1] // 2
        x = F.pad(x, (around, around, around, around) if self.stride == 1 else (0, around, 0, around))
        return self.norm(F.conv2d(x, self.w, stride=self.stride))


class ResNet(nn.Module):
    def __init__(self, params):
        super().__init__()
        self.stem = Unit(params["stem"], 1)
        self.blocks = nn.ModuleList()
        for i, block in enumerate(params["blocks"]):
            stride = 2 if i in (2, 4, 6) else 1
            units = {"conv1": Unit(block["conv1"], stride), "conv2": Unit(block["conv2"], 1)}
            if "skip" in block:
                units["skip"] = Unit(block["skip"], stride)
            self.blocks.append(nn.ModuleDict(units))
        self.head = nn.Linear(*params["head"]["w"].shape)
        self.head.weight.data = torch.tensor(np.asarray(params["head"]["w"])).T.contiguous()
        self.head.bias.data = torch.tensor(np.asarray(params["head"]["b"]))

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            y = block["conv2"](torch.relu(block["conv1"](x)))
            x = torch.relu((block["skip"](x) if "skip" in block else x) + y)  # pyright: ignore[reportOperatorIssue]
        return self.head(x.mean((2, 3)))


def deviation(a, b):
    """The largest relative difference so far, after each step."""
    return np.maximum.accumulate(np.abs(np.array(a) / np.array(b) - 1))


def test_fifty_steps_have_the_losses_of_the_engine_to_rounding():
    """Rounding grows along a training: no more than in the engine itself from weights that differ in the last digit."""
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels = pixels[:SIZE].astype(np.uint8).reshape(-1, 8, 8, 1), labels[:SIZE].astype(np.int32)
    order = [index for _, index in zip(range(STEPS), batches(0, STEPS, SIZE, BATCH), strict=False)]
    model, data = resnet18(width=4, channels=1), Images(jnp.asarray(pixels), jnp.asarray(labels), 16.0)
    engine = Engine(model, data, BATCH, "forward", "highest", radius=RADIUS)
    rates = engine.rates([RATE], [MU])
    start = jax.tree.map(lambda leaf: np.asarray(leaf[0]), engine.init([0]).params)
    loss = jax.jit(lambda params, state, x, y: batch_loss(model)(params, state, x, y)[0])

    def in_engine(factor):
        stack, losses = engine.init([0]), []
        stack = stack._replace(params=jax.tree.map(lambda p: p * np.float32(factor), stack.params))
        for i, index in enumerate(order):
            params, state = jax.tree.map(lambda leaf: leaf[0], (stack.params, stack.state))
            losses.append(float(loss(params, state, *data.pick(jnp.asarray(index)))))
            stack = engine.advance(stack, rates, [0], i, i + 1)
        return losses

    def in_torch(mu):
        net, losses = ResNet(start), []
        assert igr.torch.num_params(net) == igr.num_params(start)
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        images, answers = torch.tensor(pixels).permute(0, 3, 1, 2).float() / 16, torch.tensor(labels).long()
        for index in map(torch.tensor, order):
            optimizer.zero_grad()
            x, y = images[index], answers[index]
            value, _ = igr.torch.backward(net, lambda x=x, y=y: F.cross_entropy(net(x), y), mu, radius=RADIUS)
            optimizer.step()
            losses.append(float(value))
        return losses

    reference = in_engine(1)
    rounding = deviation(in_engine(1 + 1e-7), reference)
    ours, other = deviation(in_torch(MU), reference), deviation(in_torch(0.9 * MU), reference)
    assert np.all(ours < 10 * rounding + 1e-5)
    # Kinks make a difference of rounding a visible one within a few steps, and how few depends on the machine.
    before = np.flatnonzero(rounding < 1e-3)[-1]
    assert before >= 1
    assert other[before] > 10 * ours[before]
    assert reference[-1] < 0.7 * reference[0]
