"""R_IG, the slope, the functional twin of the penalty and its self-check."""

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import numpy as np
import torch
from helpers import relative
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch_models import closure, double_backward, gradients, problem

import igr.torch

METHODS = ["exact", "forward", "central"]


def test_the_regularizer_is_the_mean_square_of_the_gradient_and_changes_nothing():
    model, x, y = problem("cnn")
    norm2 = sum((g**2).sum() for g in double_backward(model, closure(model, x, y)(), 0.0).values())
    before = [b.clone() for b in model.buffers()]
    random = torch.get_rng_state()
    assert igr.torch.num_params(model) == sum(p.numel() for p in model.parameters())
    assert float(igr.torch.regularizer(model, closure(model, x, y))) == pytest.approx(
        norm2 / igr.torch.num_params(model), rel=1e-12
    )
    assert float(igr.torch.slope(model, closure(model, x, y))) == pytest.approx(norm2**0.5, rel=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
    assert torch.equal(random, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())


def test_over_a_data_set_the_gradient_is_averaged_before_it_is_squared():
    model, x, y = problem("mlp")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)

    def loss(x, y):
        return F.cross_entropy(model(x), y)

    whole = float(igr.torch.regularizer(model, lambda: loss(x, y)))
    assert float(igr.torch.regularizer(model, loss, loader)) == pytest.approx(whole, rel=1e-12)
    squares = [float(igr.torch.regularizer(model, loss, [batch])) for batch in loader]
    assert sum(squares) / 2 > 1.01 * whole


def as_tensors(grads):
    return {n: torch.as_tensor(g) for n, g in grads.items()}


@pytest.mark.parametrize("method", METHODS)
def test_the_functional_twin(method):
    model, x, y = problem("mlp")
    params = {n: p.detach().clone() for n, p in model.named_parameters()}

    def loss(params, x, y):
        logits = functional_call(model, params, (x,))
        return F.cross_entropy(logits, y), logits

    igr.torch.backward(model, closure(model, x, y), 0.3, method, radius=0.1)
    wanted, g = gradients(model), double_backward(model, closure(model, x, y)(), 0.0)
    (value, (logits, norm2)), grads = igr.torch.value_and_grad(loss, 0.3, method, True, with_norm=True, radius=0.1)(
        params, x, y
    )
    assert relative({n: v.numpy() for n, v in grads.items()}, wanted) < 1e-9
    assert torch.equal(logits, model(x).detach())
    assert float(norm2) == pytest.approx(sum((v**2).sum() for v in g.values()), rel=1e-12)
    total, _ = igr.torch.value_and_grad(lambda *a: loss(*a)[0], 0.3, method, value="penalized")(params, x, y)
    assert float(total) == pytest.approx(float(value) + 0.3 * float(norm2), rel=1e-12)
    plain = igr.torch.value_and_grad(lambda *a: loss(*a)[0], 0.0, method)(params, x, y)[1]
    assert relative({n: v.numpy() for n, v in plain.items()}, g) < 1e-14


@pytest.mark.parametrize("method", METHODS)
def test_the_functional_twin_draws_the_same_masks(method):
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3)
    masks = []

    def loss(w):
        dropped = F.dropout(torch.tanh(x @ w), 0.5)
        masks.append((dropped == 0).sum())
        return dropped.square().mean()

    w = torch.linspace(0.2, 1, 15, dtype=torch.float64).view(3, 5)
    torch.manual_seed(3)
    grads = igr.torch.value_and_grad(loss, 0.5, method)(w)[1]
    after = torch.rand(2)
    torch.manual_seed(3)
    exact = igr.torch.value_and_grad(loss, 0.5, "exact")(w)[1]
    assert torch.equal(after, torch.rand(2))
    assert float((grads - exact).norm() / exact.norm()) < 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_an_ensemble_by_vmap(method):
    torch.manual_seed(0)
    x, weights = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    options = {} if method == "exact" else {"radius": 0.01}
    step = igr.torch.value_and_grad(lambda w: torch.tanh(x @ w).square().mean(), 0.3, method, **options)
    values, grads = torch.vmap(step)(weights)
    for w, value, grad in zip(weights, values, grads, strict=True):
        torch.testing.assert_close((value, grad), step(w), rtol=1e-10, atol=0)
    if method != "exact":
        with pytest.raises(ValueError, match="pass radius="):
            torch.vmap(igr.torch.value_and_grad(lambda w: (w**2).sum(), 0.3, method))(weights)


def test_the_error_of_the_differences_by_radius():
    model, x, y = problem("mlp")
    found = igr.torch.penalty_error(model, closure(model, x, y), radii=(1e-2, 1e-3))
    assert found.forward[0] / found.forward[1] == pytest.approx(10, rel=0.05)
    assert found.central[0] / found.central[1] == pytest.approx(100, rel=0.05)
    assert found.error["forward"] < 1e-6
    g = double_backward(model, closure(model, x, y)(), 0.0)
    exact = double_backward(model, closure(model, x, y)(), 0.5)
    igr.torch.backward(model, closure(model, x, y), 0.5, radius=1e-2)
    ours = gradients(model)
    product = {n: exact[n] - g[n] for n in g}
    assert found.forward[0] == pytest.approx(relative({n: ours[n] - g[n] for n in g}, product), rel=1e-6)
    size = relative({n: product[n] + g[n] for n in g}, g)  # |2 mu H g| / |g|
    assert found.curvature == pytest.approx(size, rel=1e-9)
    assert "default of central" in str(found)


@pytest.mark.parametrize("name", ["transformer", "lstm"])
def test_the_self_check_runs_where_the_penalty_runs(name):
    model, x, y = problem(name)
    assert (
        igr.torch.penalty_error(model, closure(torch.compile(model, backend="aot_eager"), x, y)).error["central"] < 1e-7
    )


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3, sparse=True)


BAD = {
    "mu must be finite": lambda m, loss: igr.torch.backward(m, loss, float("nan")),
    "mu must be a real number, not function": lambda m, loss: igr.torch.backward(m, loss, loss),
    "mu must be a real number, not str": lambda m, loss: igr.torch.backward(m, loss, "0.1"),
    "mu must be one real number, but it is a tensor": lambda m, loss: igr.torch.backward(m, loss, torch.ones(2)),
    "unknown method 'backward'": lambda m, loss: igr.torch.backward(m, loss, 0.1, "backward"),
    "unknown penalize 'all'": lambda m, loss: igr.torch.backward(m, loss, 0.1, penalize="all"),
    "radius must be positive": lambda m, loss: igr.torch.backward(m, loss, 0.1, radius=0.0),
    "model must be a torch.nn.Module": lambda m, loss: igr.torch.backward(list(m.parameters()), loss, 0.1),
    "no parameter with requires_grad=True": lambda m, loss: igr.torch.backward(nn.ReLU(), loss, 0.1),
    "closure must be a function": lambda m, loss: igr.torch.backward(m, loss(), 0.1),
    "the closure returned NoneType": lambda m, loss: igr.torch.backward(m, lambda: None, 0.1),
    r"the closure returned shape \(2,\)": lambda m, loss: igr.torch.backward(m, lambda: torch.ones(2), 0.1),
    "does not depend on the parameters": lambda m, loss: igr.torch.backward(m, lambda: torch.ones(()), 0.1),
    "microbatches is empty": lambda m, loss: igr.torch.backward(m, loss, 0.1, microbatches=[]),
    "the closure called backward itself": lambda m, loss: igr.torch.backward(m, twice(loss), 0.1),
    "the closure called backward": lambda m, loss: igr.torch.backward(m, twice(loss), 0.1, "exact"),
    "the closure called zero_grad": lambda m, loss: clearing(m, loss, "forward"),
    "which clears the gradients of the other micro-batches": lambda m, loss: clearing(m, loss, "exact"),
    "every must be a whole number": lambda m, loss: igr.torch.Penalty(m, 0.1, every=0),
    "use penalty.backward": lambda m, loss: list(igr.torch.Penalty(m, 0.1, method="exact")),
    r"call loss.backward\(\) in the loop": lambda m, loss: list(igr.torch.Penalty(m, 0.1)),
    "the gradient of embed.weight is sparse": lambda m, loss: sparse(),
    "parameters on the meta device": lambda m, loss: igr.torch.backward(m.to("meta"), loss, 0.1),
    "inside of the loop over the penalty": lambda m, loss: stepping(m, loss),
    "params has torch.int64": lambda m, loss: igr.torch.value_and_grad(torch.sum, 0.1)({"w": torch.arange(3)}),
}


def test_numbers_of_numpy_are_numbers():
    model, x, y = problem("mlp")
    igr.torch.backward(model, closure(model, x, y), 0.25, radius=0.5)
    wanted = gradients(model)
    model.zero_grad()
    mu, radius = np.float32(0.25), np.float32(0.5)
    igr.torch.Penalty(model, mu, np.int64(1), np.int64(0), radius=radius).backward(closure(model, x, y))
    assert relative(gradients(model), wanted) == 0
    igr.torch.sharpness(model, closure(model, x, y), products=np.int64(2))


def twice(loss):
    def closure():
        value = loss()
        value.backward(retain_graph=True)
        return value

    return closure


def clearing(model, loss, method):
    def closure(_):
        model.zero_grad()
        return loss()

    try:
        igr.torch.backward(model, closure, 0.1, method, microbatches=[1, 2], penalize="each")
    finally:
        model.zero_grad()


def stepping(model, loss):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in igr.torch.Penalty(model, 0.1):
        loss().backward()
        optimizer.step()


def sparse():
    model = Sparse()
    igr.torch.backward(model, lambda: model.embed(torch.tensor([1, 2])).square().sum(), 0.1)


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_sentence(message):
    model, x, y = problem("mlp")
    with pytest.raises((ValueError, TypeError), match=message) as error:
        BAD[message](model, closure(model, x, y))
    assert "\n" not in str(error.value)
    assert all(p.grad is None for p in model.parameters())
