"""What a pass must not change: buffers, random numbers, parameters, and gradients that are not its own."""

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import torch
from helpers import relative
from torch import nn
from torch.nn import functional as F
from torch_models import Cnn, Mlp, closure, double_backward, gradients, problem

import igr.torch

METHODS = ["exact", "forward", "central"]


def snapshot(tensors):
    return [t.detach().clone() for t in tensors]


def equal(tensors, others):
    return all(torch.equal(a, b) for a, b in zip(tensors, others, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_batch_statistics_are_those_of_one_plain_pass(method):
    plain, x, y = problem("cnn", torch.float32)
    ours, _, _ = problem("cnn", torch.float32)
    for _ in range(3):
        plain(x)
        igr.torch.backward(ours, closure(ours, x, y), mu=0.5, method=method, radius=1.0)
    assert equal(ours.buffers(), plain.buffers())
    assert int(ours.norm.num_batches_tracked) == 3
    before = snapshot(ours.buffers())
    ours(2 * x)
    assert not equal(ours.buffers(), before), "another pass would have been seen"


@pytest.mark.parametrize("method", ["forward", "central"])
def test_every_pass_starts_from_the_buffers_of_the_first(method):
    """A power iteration that went on from pass to pass would be another function in each."""
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 3).double())
    model.parametrizations.weight[0].train()
    started, x = [], torch.randn(4, 5, dtype=torch.float64)

    def loss():
        started.append(model.parametrizations.weight[0]._u.clone())
        return model(x).square().mean()

    igr.torch.backward(model, loss, mu=0.1, method=method)
    assert len(started) == {"forward": 2, "central": 3}[method]
    assert all(torch.equal(u, started[0]) for u in started)
    assert not torch.equal(model.parametrizations.weight[0]._u, started[0])


@pytest.mark.parametrize("method", METHODS)
def test_every_pass_draws_the_same_masks_and_the_next_call_others(method):
    model = Mlp(dropout=0.5).double()
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 4
    masks = []
    model.dropout.register_forward_hook(lambda _, args, out: masks.append(out.detach() == 0))
    for _ in range(2):
        igr.torch.backward(model, closure(model, x, y), mu=0.1, method=method)
    passes = len(masks) // 4  # two layers, two calls
    first, second = masks[: 2 * passes], masks[2 * passes :]
    assert passes == {"exact": 1, "forward": 2, "central": 3}[method]
    for call in (first, second):
        assert all(torch.equal(mask, call[i % 2]) for i, mask in enumerate(call))
    assert not torch.equal(first[0], second[0])
    torch.manual_seed(5)
    igr.torch.backward(model, closure(model, x, y), mu=0.1, method=method)
    after = torch.rand(3)
    torch.manual_seed(5)
    model(x)
    assert torch.equal(after, torch.rand(3)), "the generator is where one plain pass leaves it"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", METHODS)
def test_parameters_are_restored_bit_for_bit(method, dtype):
    model, x, y = problem("mlp", dtype)
    before = snapshot(model.parameters())
    igr.torch.backward(model, closure(model, x, y), mu=0.3, method=method, radius=0.7)
    assert equal(model.parameters(), before)


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_closure_that_raises_leaves_everything_as_it_was(fails_at):
    model, x, y = problem("cnn")
    model.out.weight.grad = kept = torch.ones_like(model.out.weight)
    before, buffers, calls = snapshot(model.parameters()), snapshot(model.buffers()), []

    def loss():
        calls.append(1)
        value = F.cross_entropy(model(x), y)
        if len(calls) == fails_at:
            raise KeyError("in the data")
        return value

    with pytest.raises(KeyError, match="in the data"):
        igr.torch.backward(model, loss, mu=0.3, method="central", radius=0.7)
    assert equal(model.parameters(), before)
    if fails_at == 1:
        assert equal(model.buffers(), buffers)
    assert model.out.weight.grad is kept
    assert equal([kept], [torch.ones_like(kept)])
    assert [p.grad for p in model.parameters()].count(None) == len(before) - 1


@pytest.mark.parametrize("leaves", ["break", "raise"])
def test_leaving_the_loop_early_restores_too(leaves):
    model, x, y = problem("cnn")
    before = snapshot(model.parameters())

    def loop():
        for unperturbed in igr.torch.Penalty(model, 0.3, radius=0.5):
            F.cross_entropy(model(x), y).backward()
            if not unperturbed:
                assert not equal(model.parameters(), before)
                if leaves == "break":
                    break
                raise KeyError

    if leaves == "raise":
        with pytest.raises(KeyError):
            loop()
    else:
        loop()
    assert equal(model.parameters(), before)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_it_adds_to_gradients_as_backward_does(method):
    model, x, y = problem("mlp")
    igr.torch.backward(model, closure(model, x, y), mu=0.3, method=method, radius=0.1)
    once = gradients(model)
    igr.torch.backward(model, closure(model, x, y), mu=0.3, method=method, radius=0.1)
    assert relative(gradients(model), {n: 2 * g for n, g in once.items()}) < 1e-12


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_closure_may_clear_gradients_as_before_a_plain_backward(method, set_to_none):
    model, x, y = problem("mlp")
    igr.torch.backward(model, closure(model, x, y), mu=0.3, method=method, radius=0.1)
    once = gradients(model)

    def clearing():
        model.zero_grad(set_to_none=set_to_none)
        return F.cross_entropy(model(x), y)

    igr.torch.backward(model, clearing, mu=0.3, method=method, radius=0.1)
    assert relative(gradients(model), once) < 1e-12


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_loop_that_clears_gradients_is_refused_and_keeps_them(set_to_none, mu):
    """What it would clear is kept until the passes are over, and would be added at every step again."""
    model, x, y = problem("mlp")
    penalty = igr.torch.Penalty(model, mu, radius=0.1)
    for _ in penalty:
        F.cross_entropy(model(x), y).backward()
    once = gradients(model)

    def clearing():
        for _ in penalty:
            model.zero_grad(set_to_none=set_to_none)
            F.cross_entropy(model(x), y).backward()

    with pytest.raises(ValueError, match="put it before the loop"):
        clearing()
    assert relative(gradients(model), once) == 0
    for _ in penalty:
        F.cross_entropy(model(x), y).backward()
    assert relative(gradients(model), {n: 2 * g for n, g in once.items()}) < 1e-12


@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_gradients_that_are_there_do_not_change_those_that_are_added(mu):
    """Not by a bit, also where a parameter that has one is unused."""
    model, x, y = problem("mlp", torch.float32)
    model.unused = nn.Linear(1, 1)
    for _ in igr.torch.Penalty(model, mu, radius=0.1):
        F.cross_entropy(model(x), y).backward()
    once = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    before = [torch.rand_like(p) for p in model.parameters()]
    for p, g in zip(model.parameters(), before, strict=True):
        p.grad = g.clone()
    for _ in igr.torch.Penalty(model, mu, radius=0.1):
        F.cross_entropy(model(x), y).backward()
    for p, old, added in zip(model.parameters(), before, once, strict=True):
        assert torch.equal(p.grad, old if added is None else old + added)


@pytest.mark.parametrize("method", METHODS)
def test_frozen_unused_and_tied_parameters(method):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.unused = (nn.Linear(4, 4).double() for _ in range(3))
            self.frozen = nn.Linear(4, 4).double().requires_grad_(False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(torch.tanh(self.frozen(torch.tanh(self.first(x))))).square().mean()

    torch.manual_seed(0)
    model, x = Net(), torch.randn(6, 4, dtype=torch.float64)
    igr.torch.backward(model, lambda: model(x), mu=0.4, method=method)
    assert model.unused.weight.grad is None
    assert model.frozen.weight.grad is None
    used = nn.ModuleDict({"first": model.first, "second": model.second})
    assert relative(gradients(used), double_backward(used, model(x), 0.4)) < 1e-6
    assert len(gradients(used)) == 3, "the tied weight counts once"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mu", [0.0, torch.tensor(0.0)])
def test_mu_zero_is_the_plain_gradient_bit_for_bit(method, mu):
    plain, x, y = problem("cnn", torch.float32)
    ours, _, _ = problem("cnn", torch.float32)
    closure(plain, x, y)().backward()
    calls = []
    ours.register_forward_hook(lambda *_: calls.append(1))
    _, norm2 = igr.torch.backward(ours, closure(ours, x, y), mu, method)
    assert len(calls) == 1, "nothing is paid for"
    assert equal([p.grad for p in ours.parameters()], [p.grad for p in plain.parameters()])
    assert float(norm2) == pytest.approx(sum(float((p.grad**2).sum()) for p in plain.parameters()), rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_zero_gradient_has_a_zero_penalty(method):
    model = nn.Linear(3, 2, bias=False)
    nn.init.zeros_(model.weight)
    igr.torch.backward(model, lambda: model(torch.ones(4, 3)).square().sum(), mu=0.5, method=method)
    assert equal([model.weight.grad], [torch.zeros(2, 3)])


def test_every_parameter_group_gets_its_part():
    model, x, y = problem("mlp")
    groups = [{"params": model.hidden.parameters(), "lr": 0.1}, {"params": model.out.parameters(), "lr": 1.0}]
    optimizer = torch.optim.SGD(groups)
    before = [snapshot(m.parameters()) for m in (model.hidden, model.middle, model.out)]
    wanted = double_backward(model, closure(model, x, y)(), 0.2)
    igr.torch.backward(model, closure(model, x, y), mu=0.2)
    optimizer.step()
    for module, old, name, rate in zip(
        (model.hidden, model.middle, model.out), before, ("hidden", "middle", "out"), (0.1, 0, 1), strict=True
    ):
        moved = (module.weight.detach() - old[0]).numpy()
        assert moved == pytest.approx(-rate * wanted[f"{name}.weight"], abs=1e-7)


def test_checkpointed_activations():
    model, x, y = problem("mlp")
    wanted = double_backward(model, closure(model, x, y)(), 0.3)

    def loss():
        hidden = torch.utils.checkpoint.checkpoint(lambda x: torch.tanh(model.hidden(x)), x, use_reentrant=False)
        return F.cross_entropy(model.out(torch.tanh(model.middle(hidden))), y)

    igr.torch.backward(model, loss, mu=0.3, method="central")
    assert relative(gradients(model), wanted) < 1e-8


def test_a_cnn_in_evaluation_mode_keeps_its_statistics():
    torch.manual_seed(1)
    model = Cnn().eval()
    before = snapshot(model.buffers())
    igr.torch.backward(model, closure(model, torch.randn(4, 3, 6, 6), torch.arange(4)), mu=0.1)
    assert equal(model.buffers(), before)
