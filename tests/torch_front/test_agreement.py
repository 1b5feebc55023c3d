"""The penalized gradient of PyTorch models against double backward, against JAX and against SAM."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import torch
from helpers import relative
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_models import closure, double_backward, gradients, jax_loss, problem, weights

import igr.torch
from igr.penalty.radius import default_radius

METHODS = ["exact", "forward", "central"]
NETS = ["mlp", "cnn", "transformer", "lstm"]
MU = 0.3


def penalized(name, **options):
    model, x, y = problem(name)
    value, norm2 = igr.torch.backward(model, closure(model, x, y), options.pop("mu", MU), **options)
    return gradients(model), float(value), float(norm2)


@pytest.mark.parametrize("name", NETS)
def test_exact_is_double_backward(name):
    model, x, y = problem(name)
    with sdpa_kernel(SDPBackend.MATH):  # flash attention has one derivative only
        ours, _, _ = penalized(name, method="exact")
        assert relative(ours, double_backward(model, closure(model, x, y)(), MU)) < 1e-12
        assert relative(ours, double_backward(model, closure(model, x, y)(), MU / 2)) > 1e-3


def test_flash_attention_has_differences_and_no_exact_penalty():
    with pytest.raises(RuntimeError, match="is not implemented") as error:
        penalized("transformer", method="exact")
    assert 'use method="forward"' in error.value.__notes__[0]
    with sdpa_kernel(SDPBackend.MATH):
        exact, _, _ = penalized("transformer", method="exact")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        ours, _, _ = penalized("transformer", method="central")
    assert relative(ours, exact) < 1e-7


@pytest.mark.parametrize("name", NETS)
def test_all_methods_are_those_of_jax(name):
    model, x, y = problem(name)
    loss, w = partial(jax_loss(name), x=jnp.asarray(x.numpy()), y=y.numpy()), weights(model)

    @jax.jit
    def twin(radii):  # one program for all methods and radii
        return {m: igr.value_and_grad(loss, MU, m, radius=radii[m], with_norm=True)(w) for m in METHODS}

    def ours(method, **options):
        with sdpa_kernel(SDPBackend.MATH if method == "exact" else SDPBackend.FLASH_ATTENTION):
            return penalized(name, method=method, **options)

    # At a long radius both make the same error, which tells the methods apart; the default one is found by each itself.
    default = {method: float(default_radius(loss, w, method=method)) for method in METHODS}
    for radii, tolerance in ((dict.fromkeys(METHODS, 0.2), 1e-9), (default, 1e-6)):
        theirs = twin(radii)
        for method in METHODS:
            grads, value, norm2 = ours(method, radius=0.2 if tolerance == 1e-9 else None)
            (their_value, their_norm2), their_grads = theirs[method]
            assert relative(grads, their_grads) < tolerance, method
            assert value == pytest.approx(float(their_value), rel=1e-10)
            assert norm2 == pytest.approx(float(their_norm2), rel=1e-10)
        if tolerance == 1e-9:
            assert relative(theirs["forward"][1], theirs["central"][1]) > 1e-5


def test_where_the_factor_is_one_it_is_sharpness_aware_minimization():
    """Foret et al. (2021): the gradient at theta + rho g / |g|. The forward difference has it at mu = rho / (2 |g|)."""
    rho = 0.05
    model, x, y = problem("mlp")
    loss = closure(model, x, y)
    params = list(model.parameters())
    g = torch.autograd.grad(loss(), params)
    norm = torch.sqrt(sum((v**2).sum() for v in g))
    with torch.no_grad():
        for p, v in zip(params, g, strict=True):
            p += rho * v / norm
    loss().backward()
    sam = gradients(model)
    ours, _, _ = penalized("mlp", mu=rho / (2 * float(norm)), radius=rho)
    assert relative(ours, sam) < 1e-12
    other, _, _ = penalized("mlp", mu=rho / float(norm), radius=rho)
    assert relative(other, sam) > 1e-3


@pytest.mark.parametrize("method", ["forward", "central"])
def test_the_error_falls_with_the_radius(method):
    exact, _, _ = penalized("mlp", method="exact")
    errors = [relative(penalized("mlp", method=method, radius=r)[0], exact) for r in (0.02, 0.01)]
    order = {"forward": 1, "central": 2}[method]
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.05)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_normalization_is_differentiated_twice_as_it_should_be(dim):
    """PyTorch's own second derivative of its fused kernel is wrong, without an error; differences are right."""
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(6, 5).double(), dim=dim)
    x, params = torch.randn(4, 6, dtype=torch.float64), {n: p.detach() for n, p in layer.named_parameters()}
    found = {}
    for method in METHODS:
        layer.zero_grad()
        igr.torch.backward(layer, lambda: torch.tanh(layer(x)).square().mean(), 1.0, method)
        found[method] = gradients(layer)
    assert relative(found["exact"], found["central"]) < 1e-8
    plain = double_backward(layer, torch.tanh(layer(x)).square().mean(), 0.0)
    assert relative(found["exact"], plain) > 0.1

    def loss(params):
        return torch.tanh(torch.func.functional_call(layer, params, (x,))).square().mean()

    twin = igr.torch.value_and_grad(loss, 1.0, "exact")(params)[1]
    assert relative({n: g.numpy() for n, g in twin.items()}, found["central"]) < 1e-8
    assert igr.torch.penalty_error(layer, lambda: torch.tanh(layer(x)).square().mean()).error["central"] < 1e-8
