"""The penalty in the training loops that people have: mixed precision, accumulation, schedules, a stranger's script."""

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import torch
from helpers import relative
from torch import nn
from torch.nn import functional as F
from torch_models import closure, double_backward, gradients, problem

import igr.torch

METHODS = ["exact", "forward", "central"]
HALVES = (slice(0, 4), slice(4, 8))


def difference(a, b):
    return {name: a[name] - b[name] for name in a}


@pytest.mark.parametrize("method", METHODS)
def test_a_scaler_changes_nothing_but_the_scale(method):
    model, x, y = problem("mlp", torch.float32)
    _, norm2 = igr.torch.backward(model, closure(model, x, y), 0.5, method, radius=0.1)
    wanted = gradients(model)
    model.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    _, scaled_norm2 = igr.torch.backward(model, closure(model, x, y), 0.5, method, radius=0.1, scaler=scaler)
    assert relative(gradients(model), {n: 2.0**14 * g for n, g in wanted.items()}) < 1e-5
    assert float(scaled_norm2) == pytest.approx(float(norm2), rel=1e-5)
    scaler.unscale_(optimizer)
    assert relative(gradients(model), wanted) < 1e-5


def test_an_overflow_skips_the_step_and_spoils_nothing():
    model, x, y = problem("cnn", torch.float32)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = [t.clone() for t in (*model.parameters(), *model.buffers())]
    with torch.autocast("cpu", torch.float16):
        model(x)
    statistics = [b.clone() for b in model.buffers()]
    for old, buffer in zip(before[-3:], model.buffers(), strict=True):
        buffer.data.copy_(old)
    with torch.autocast("cpu", torch.float16):
        igr.torch.backward(model, closure(model, x, y), 0.5, scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() < 2.0**127
    assert all(torch.equal(a, b) for a, b in zip(before[:-3], model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(statistics, model.buffers(), strict=True))


@pytest.mark.parametrize("around", ["closure", "call", "loop"])
def test_autocast_keeps_no_old_parameters(around):
    """Autocast remembers casted parameters until its context ends: the second pass must not see the first one's."""
    model, x, y = problem("mlp", torch.float32)
    wanted = double_backward(model, closure(model, x, y)(), 0.5)
    plain = torch.autograd.grad(closure(model, x, y)(), list(model.parameters()))
    plain = {n: g.double().numpy() for (n, _), g in zip(model.named_parameters(), plain, strict=True)}

    def low():
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(model(x), y)

    if around == "closure":
        igr.torch.backward(model, low, 0.5, radius=0.1)
    else:
        with torch.autocast("cpu", torch.bfloat16):
            if around == "call":
                igr.torch.backward(model, closure(model, x, y), 0.5, radius=0.1)
            else:
                for _ in igr.torch.Penalty(model, 0.5, radius=0.1):
                    F.cross_entropy(model(x), y).backward()
    assert relative(difference(gradients(model), plain), difference(wanted, plain)) < 0.35


@pytest.mark.parametrize("method", METHODS)
def test_microbatches_by_the_mean_or_each(method):
    model, x, y = problem("mlp")
    batches = [(x[part], y[part]) for part in HALVES]

    def loss(x, y):
        return F.cross_entropy(model(x), y)

    whole = double_backward(model, loss(x, y), 0.4)
    single = [double_backward(model, loss(*batch), 0.4) for batch in batches]
    each = {n: (single[0][n] + single[1][n]) / 2 for n in whole}
    parts = [double_backward(model, loss(*batch), 0.0) for batch in batches]
    squares = {"each": sum((g**2).sum() for part in parts for g in part.values()) / 2}
    squares["mean"] = sum((((a + b) / 2) ** 2).sum() for a, b in zip(*(p.values() for p in parts), strict=True))
    for penalize, wanted, other in (("mean", whole, each), ("each", each, whole)):
        model.zero_grad()
        value, norm2 = igr.torch.backward(model, loss, 0.4, method, microbatches=batches, penalize=penalize)
        assert relative(gradients(model), wanted) < 1e-6
        assert relative(gradients(model), other) > 1e-3
        assert float(value) == pytest.approx(loss(x, y).item(), rel=1e-12)
        assert float(norm2) == pytest.approx(squares[penalize], rel=1e-12)
    assert squares["each"] > squares["mean"]


def test_loops_over_microbatches_are_the_same():
    """Accumulation as people write it: the loop around all micro-batches, or around each."""
    model, x, y = problem("mlp")
    batches = [(x[part], y[part]) for part in HALVES]

    def loss(x, y):
        return F.cross_entropy(model(x), y)

    for penalize in ("mean", "each"):
        model.zero_grad()
        igr.torch.backward(model, loss, 0.4, microbatches=batches, penalize=penalize, radius=0.1)
        wanted = gradients(model)
        model.zero_grad()
        penalty = igr.torch.Penalty(model, 0.4, radius=0.1, scale=1.0 if penalize == "mean" else 0.5)
        if penalize == "mean":
            for _ in penalty:
                for batch in batches:
                    (loss(*batch) / 2).backward()
        else:
            for batch in batches:
                for _ in penalty:
                    (loss(*batch) / 2).backward()
        assert relative(gradients(model), wanted) < 1e-12


def test_a_schedule_counts_steps():
    model, _, _ = problem("mlp")
    penalty = igr.torch.Penalty(model, 0.1, every=4, warm_up=6)
    wanted = [
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0.4,
        0,
        0,
        0,
        0.4,
    ]  # none before step 6, then four times as strong at every fourth
    assert [penalty.mu(n) for n in range(13)] == pytest.approx(wanted)
    ramp = igr.torch.Penalty(model, lambda n: torch.tensor(0.01 * n))
    assert float(ramp.mu(7)) == pytest.approx(0.07)


def test_a_schedule_pays_for_a_second_pass_only_where_there_is_a_penalty():
    model, x, y = problem("mlp")
    calls, found = [], []
    model.register_forward_hook(lambda *_: calls.append(1))
    penalty = igr.torch.Penalty(model, 0.1, every=3)
    for _ in range(4):
        calls.clear()
        value = penalty.backward(closure(model, x, y))
        found.append((len(calls), float(value) > 0, float(penalty.norm2) > 0))
    assert found == [(2, True, True), (1, True, True), (1, True, True), (2, True, True)]
    resumed = igr.torch.Penalty(model, 0.1, every=3)
    resumed.load_state_dict(penalty.state_dict())
    assert resumed.step == penalty.step == 4


def test_only_a_step_of_the_penalized_parameters_is_refused_in_the_loop():
    model, x, y = problem("mlp")
    other = nn.Linear(2, 2)
    step, own = torch.optim.SGD(other.parameters(), lr=0.1).step, torch.optim.SGD(model.parameters(), lr=0.1).step
    before = [p.clone() for p in model.parameters()]
    for _ in igr.torch.Penalty(model, 0.3):
        F.cross_entropy(model(x), y).backward()
        step()

    def loop():
        for _ in igr.torch.Penalty(model, 0.3):
            F.cross_entropy(model(x), y).backward()
            own()

    with pytest.raises(ValueError, match="put it after the loop"):
        loop()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    own()  # after the loop nothing is in its way
    assert not torch.equal(before[0], next(model.parameters()))


def test_the_penalized_loss_by_lbfgs():
    """The optimizer calls its closure as often as it likes; the step is the optimizer's, around the penalty."""
    model, x, y = problem("mlp")
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value, norm2 = igr.torch.backward(model, lambda: F.cross_entropy(model(x), y), 0.05, "central")
        return value + 0.05 * norm2

    values = [float(optimizer.step(closure)) for _ in range(5)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.1 * values[0]


def test_a_strangers_script_adopts_it_by_two_lines():
    """The training function of PyTorch's MNIST example in shape: two lines more, and the loop body is indented."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.dropout1 = nn.Conv2d(1, 8, 3, 1), nn.Dropout(0.25)
            self.fc1, self.fc2 = nn.Linear(72, 32), nn.Linear(32, 10)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = F.relu(self.fc1(torch.flatten(self.dropout1(x), 1)))
            return F.log_softmax(self.fc2(x), dim=1)

    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    data = torch.utils.data.TensorDataset(
        torch.tensor(images[:512] / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels[:512])
    )

    def script(mu):
        torch.manual_seed(1)
        model = Net()
        loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
        penalty = igr.torch.Penalty(model, mu)  # the first line
        squares, losses = [], []
        for _ in range(5):
            model.train()
            for images, target in loader:
                optimizer.zero_grad()
                for unperturbed in penalty:  # the second line
                    loss = F.nll_loss(model(images), target)
                    loss.backward()
                    if unperturbed:
                        losses.append(loss.item())
                optimizer.step()
                squares.append(float(penalty.norm2))
            scheduler.step()
        return losses, sum(squares[-8:]) / sum(losses[-8:])

    plain, without = script(0.0)
    losses, penalized = script(0.1)
    assert losses[0] == plain[0], "the same start, batches and masks"
    assert losses[-1] < 0.85 * losses[0]
    assert penalized < 0.85 * without, "the penalty lowers the gradient against the loss"


def test_a_compiled_model_and_a_compiled_step():
    model, x, y = problem("cnn", torch.float32)
    igr.torch.backward(model, closure(model, x, y), 0.4, radius=0.1)
    wanted, statistics = gradients(model), [b.clone() for b in model.buffers()]
    for compiled in ("model", "step"):
        model, x, y = problem("cnn", torch.float32)
        network = torch.compile(model, backend="aot_eager") if compiled == "model" else model

        def step(network=network, model=model, x=x, y=y):
            return igr.torch.backward(model, lambda: F.cross_entropy(network(x), y), 0.4, radius=0.1)

        step = torch.compile(step, backend="aot_eager") if compiled == "step" else step
        step()
        assert relative(gradients(model), wanted) < 1e-5, compiled
        for ours, theirs in zip(model.buffers(), statistics, strict=True):
            torch.testing.assert_close(ours, theirs)
