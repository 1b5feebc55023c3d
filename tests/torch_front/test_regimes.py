"""Sharpness, regime and monitor against dense Hessians, closed forms and runs with known answers."""

import math
from importlib.util import find_spec

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, jacrev
from torch.nn import functional as F
from torch_models import closure, problem

import igr.torch


def small():
    """A tanh network of 37 parameters."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh()).double()
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.arange(8) % 4
    return model, x, y


def dense(model, x, y):
    """g, H and T[g, g] of the loss as a function of one vector of all parameters."""
    shapes = {n: p.shape for n, p in model.named_parameters()}

    def loss(flat):
        parts = flat.split([math.prod(s) for s in shapes.values()])
        params = {n: part.view(s) for (n, s), part in zip(shapes.items(), parts, strict=True)}
        return F.cross_entropy(functional_call(model, params, (x,)), y)

    point = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    g, h = jacrev(loss)(point), jacrev(jacrev(loss))(point)
    third = jacrev(lambda p: jacrev(jacrev(loss))(p) @ g)(point) @ g
    return g, h, third


class Quadratic(nn.Module):
    """sum of curvature x^2 / 2."""

    def __init__(self, curvatures, start):
        super().__init__()
        self.curvatures = torch.tensor(curvatures, dtype=torch.float64)
        self.x = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self):
        return (self.curvatures * self.x**2).sum() / 2


def test_sharpness_is_the_largest_eigenvalue():
    model, x, y = small()
    _, h, _ = dense(model, x, y)
    values, vectors = np.linalg.eigh(h.numpy())
    found = igr.torch.sharpness(model, closure(model, x, y), products=30)
    assert found.value == pytest.approx(values[-1], rel=1e-8)
    vector = np.concatenate([v.numpy().reshape(-1) for v in found.vector])
    assert abs(vector @ vectors[:, -1]) == pytest.approx(1, abs=1e-6)
    few = igr.torch.sharpness(model, closure(model, x, y), products=4)
    assert few.value <= values[-1] + 1e-12
    assert np.abs(values - few.value).min() <= few.error
    warm = igr.torch.sharpness(model, closure(model, x, y), products=2, start=found.vector)
    assert warm.value == pytest.approx(values[-1], rel=1e-8)
    assert few.value < values[-1] * (1 - 1e-6), "a warm start is worth something"


def test_the_regime_against_dense_derivatives():
    model, x, y = small()
    g, h, third = dense(model, x, y)
    rate = 0.3
    found = igr.torch.regime(model, closure(model, x, y), rate, products=37)
    hg, hhg = h @ g, h @ h @ g
    assert found.q2 == pytest.approx(float(rate * hg.norm() / g.norm()), rel=1e-10)
    assert found.q3 == pytest.approx(float(rate * hhg.norm() / hg.norm()), rel=1e-10)
    f1, f2 = hg / 2, hhg / 3 + third / 12
    assert found.h_star == pytest.approx(float(f1.norm() / f2.norm()), rel=1e-6)
    without = float(f1.norm() / (hhg / 3).norm())
    assert abs(without / found.h_star - 1) > 1e-3, "the third derivative counts"
    assert found.h_lambda == pytest.approx(rate * float(torch.linalg.eigvalsh(h)[-1]), rel=1e-8)


def test_the_regime_of_a_quadratic_in_closed_form():
    """Relative errors of one step on the mode h lambda = 0.5: theory.md, section 8."""
    model = Quadratic([1.0, 3.0], [1.0, 0.0])
    found = igr.torch.regime(model, model, 0.5)
    assert [round(e, 3) for e in found.errors] == [0.213, 0.071, 0.027]
    assert (found.q2, found.q3, found.h_star) == pytest.approx((0.5, 0.5, 1.5), rel=1e-6)
    assert (found.cosine, found.h_lambda) == pytest.approx((1.0, 1.5), rel=1e-6)
    if find_spec("igr.regimes"):
        assert found.verdict.word == "marginal"
        assert igr.torch.regime(model, model, 0.8).verdict.word == "edge of stability"


def descended(curvatures, rate, steps, **options):
    model = Quadratic(curvatures, [1.0] * len(curvatures))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    monitor = igr.torch.Monitor(**options)
    stop = monitor.attach(optimizer, model, model)
    rows = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model()
        loss.backward()
        monitor.loss = loss.detach()
        optimizer.step()
        rows.append(monitor.readings())
    return model, optimizer, rows, stop


def test_the_monitor_reads_a_quadratic_and_changes_nothing():
    model, _, rows, _ = descended([2.0], 0.1, 5, every=2)
    x = 0.8 ** np.arange(6)
    assert model.x.item() == pytest.approx(x[-1], rel=1e-12)
    for n, row in enumerate(rows):
        assert row["slope"] == pytest.approx(2 * x[n], rel=1e-9)
        assert row["r_ig"] == pytest.approx(4 * x[n] ** 2, rel=1e-9)
        assert row["loss"] == pytest.approx(x[n] ** 2, rel=1e-9)
        assert row["penalty_share"] == pytest.approx(0.1 / 4 * 4, rel=1e-9)
        assert row["update_norm"] == pytest.approx(0.2 * x[n], rel=1e-9)
        assert row["sharpness"] == pytest.approx(2.0, rel=1e-9)
        assert row["h_lambda"] == pytest.approx(0.2, rel=1e-9)
        assert (row["q2_batch"], row["cosine_batch"]) == pytest.approx((0.2, 1.0), rel=1e-9)
    assert math.isnan(rows[0]["q2"])
    assert (rows[1]["q2"], rows[1]["cosine"]) == pytest.approx((0.2, 1.0), rel=1e-9)
    assert rows[-1]["signal"] == pytest.approx(1.0, rel=0.2)


def test_the_monitor_sees_the_edge_of_stability():
    _, _, rows, _ = descended([1.0, 4.2], 0.5, 12, every=1)
    assert rows[-1]["h_lambda"] == pytest.approx(2.1, rel=1e-9)
    assert rows[-1]["cosine"] < -0.9
    assert rows[-1]["q2"] > 1.5


def test_the_monitor_counts_momentum_in_its_limit():
    model = Quadratic([4.0], [1.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    monitor = igr.torch.Monitor(every=1)
    stop = monitor.attach(optimizer, model, model)
    model().backward()
    optimizer.step()
    assert monitor.readings()["h_lambda"] == pytest.approx(2 * 4 / 38, rel=1e-9)
    stop()
    optimizer.step()
    assert monitor.steps == 1, "it watches no longer"


def test_noise_is_told_from_signal():
    """A gradient that is half noise: q2 says 'outside', the signal says why."""
    torch.manual_seed(0)
    x = nn.Parameter(torch.ones(400, dtype=torch.float64))
    optimizer, monitor = torch.optim.SGD([x], lr=1e-4), igr.torch.Monitor()
    monitor.attach(optimizer)
    for _ in range(300):
        x.grad = x.detach() + torch.randn(400, dtype=torch.float64)
        optimizer.step()
    row = monitor.readings()
    assert row["q2"] > 0.7
    assert row["signal"] == pytest.approx(0.5, abs=0.1)
    assert row["r_ig_mean"] == pytest.approx(float((x.detach() ** 2).mean()), rel=0.15)
    assert row["r_ig"] > 1.5 * row["r_ig_mean"]


@pytest.mark.parametrize("fused", [False, True])
def test_the_monitor_sees_the_unscaled_gradient_and_gets_over_an_overflow(fused):
    """A fused optimizer is stepped with scaled gradients, also where the scaler then skips the step."""
    model, x, y = problem("mlp", torch.float32)
    optimizer, monitor = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused), igr.torch.Monitor()
    monitor.attach(optimizer)
    scaler, rows = torch.amp.GradScaler("cpu", init_scale=2.0**10), []
    for n in range(8):
        optimizer.zero_grad()
        value, norm2 = igr.torch.backward(model, closure(model, x, y), 0.0, scaler=scaler)
        if n == 4:
            model.out.weight.grad[0, 0] = math.inf
        scaler.step(optimizer)
        scaler.update()
        rows.append(monitor.readings())
        if n != 4:
            assert rows[n]["slope"] ** 2 == pytest.approx(float(norm2), rel=1e-5)
            assert float(value) > 0
    assert rows[4]["q2"] == rows[3]["q2"]
    assert all(math.isfinite(rows[n][name]) for n in (5, 7) for name in ("q2", "cosine", "signal", "r_ig_mean"))


def test_the_monitor_starts_anew_where_the_parameters_become_others():
    model, x, y = problem("mlp")
    optimizer, monitor = torch.optim.SGD(model.out.parameters(), lr=0.1), igr.torch.Monitor()
    monitor.attach(optimizer)
    for n in range(5):
        if n == 2:
            optimizer.add_param_group({"params": model.hidden.parameters()})
        optimizer.zero_grad()
        closure(model, x, y)().backward()
        optimizer.step()
        assert math.isnan(monitor.readings()["q2"]) == (n in (0, 2))
    assert math.isfinite(monitor.readings()["signal"])


def test_channels_last_and_sparse_gradients_are_watched_as_they_are():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3).double()
    table, x = nn.Embedding(5, 3, sparse=True).double(), torch.randn(2, 3, 5, 5, dtype=torch.float64)
    rows = []
    for layout in (torch.contiguous_format, torch.channels_last):
        model = nn.Conv2d(3, 4, 3).double()
        model.load_state_dict(conv.state_dict())
        model.to(memory_format=layout)  # pyright: ignore[reportCallIssue]
        params = [
            *model.parameters(),
            *nn.Embedding.from_pretrained(table.weight.clone(), False, sparse=True).parameters(),
        ]
        optimizer, monitor = torch.optim.SGD(params, lr=0.1), igr.torch.Monitor()
        monitor.attach(optimizer)
        for _ in range(4):
            optimizer.zero_grad()
            lookup = F.embedding(torch.tensor([1, 3]), params[-1], sparse=True)
            (model(x).square().mean() + lookup.square().sum()).backward()
            optimizer.step()
        rows.append(monitor.readings())
    known = [name for name, value in rows[0].items() if math.isfinite(value)]
    assert {"slope", "q2", "cosine", "signal"} <= set(known)
    assert [rows[1][name] for name in known] == pytest.approx([rows[0][name] for name in known], rel=1e-9)


def test_the_monitor_works_with_any_optimizer_and_penalty():
    model, x, y = problem("mlp", torch.float32)
    optimizer, monitor = torch.optim.AdamW(model.parameters(), lr=1e-3), igr.torch.Monitor()
    monitor.attach(optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        monitor.loss, norm2 = igr.torch.backward(model, closure(model, x, y), 0.0)
        optimizer.step()
        row = monitor.readings()
        assert row["slope"] ** 2 == pytest.approx(float(norm2), rel=1e-5)
    assert all(math.isfinite(value) for value in row.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: igr.torch.sharpness(m, m, products=0), "products must be a positive whole number"),
        (lambda m: igr.torch.regime(m, m, math.nan), "h must be finite"),
        (lambda m: igr.torch.Monitor(every=-1), "every must be a whole number"),
        (lambda m: igr.torch.Monitor(decay=1.0), "decay must be at least 0"),
        (lambda m: igr.torch.Monitor().attach(m), "optimizer must be a torch.optim.Optimizer"),
        (lambda m: igr.torch.Monitor(every=1).attach(torch.optim.SGD(m.parameters(), 0.1)), "every needs a model"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(Quadratic([1.0], [1.0]))
