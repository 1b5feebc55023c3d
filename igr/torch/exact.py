"""The penalty without differences: the backward pass is itself differentiated."""

# pyright: reportMissingImports=false, reportPrivateImportUsage=false
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from igr.torch.checks import check_loss
from igr.torch.passes import plain
from igr.torch.state import Buffers, Randomness
from igr.torch.tensors import Gradients, present, put_gradients, squared_norm, trainable, weighted_sum

Calls = list[Callable[[], Tensor]]


def exact(model: nn.Module, calls: Calls, mu: Any, factor: Any) -> tuple[Tensor, Tensor]:
    """Add `factor` times the gradient of E + mu |grad E|^2 to `.grad`, E the mean of the losses; E and |grad E|^2."""
    params = trainable(model)
    buffers, random = Buffers(model), Randomness(params)
    try:
        value, g, graphs = gradient(params, calls, factor / len(calls), keep=len(calls) == 1)
        norm2 = squared_norm(*present(g)) / factor**2
        if graphs:
            products = transposed(params, graphs, g)
        else:  # one graph at a time: run each micro-batch again
            end = Buffers(model), Randomness(params)
            buffers.restore()
            random.restore()
            products = hessian_product(params, calls, g, factor / len(calls))
            for state in end:
                state.restore()
    except BaseException:
        buffers.restore()
        raise
    penalized = weighted_sum((1, g), (2 * plain(mu) / factor, products))
    put_gradients(params, weighted_sum((1, [p.grad for p in params]), (1, penalized)))
    return value, norm2


def gradient(params: list[Tensor], calls: Calls, factor: Any, keep: bool = False) -> tuple[Tensor, Gradients, Any]:
    """The mean loss, the gradient of factor times the sum of losses, and that gradient with its graph if kept."""
    total: Gradients = [None] * len(params)
    losses, graphs = [], None
    for call in calls:
        with Corrected() if keep else nullcontext():
            loss = check_loss(call())
        with _explained():
            found = torch.autograd.grad(loss * factor, params, create_graph=keep, allow_unused=True)
        graphs = found if keep else None
        total = weighted_sum((1, total), (1, [None if g is None else g.detach().clone() for g in found]))
        losses.append(loss.detach().reshape(()))
    return torch.stack(losses).mean(), total, graphs


def hessian_product(params: list[Tensor], calls: Calls, along: Gradients, factor: Any) -> Gradients:
    """The product of the Hessian of factor times the sum of losses with a vector."""
    total: Gradients = [None] * len(params)
    for call in calls:
        graphs = gradient(params, [call], factor, keep=True)[2]
        total = weighted_sum((1, total), (1, transposed(params, graphs, along)))
    return total


def transposed(params: list[Tensor], graphs: Iterable[Tensor | None], along: Gradients) -> Gradients:
    """The derivative of a gradient, transposed, times a vector."""
    pairs = [(g, v) for g, v in zip(graphs, along, strict=True) if g is not None and v is not None and g.requires_grad]
    if not pairs:
        return [None] * len(params)
    outputs, vectors = zip(*pairs, strict=True)
    with _explained():
        return list(torch.autograd.grad(outputs, params, vectors, allow_unused=True))


class Corrected(TorchFunctionMode):
    """Replaces what PyTorch differentiates twice wrongly, without an error, by the operations it stands for.

    The fused weight normalization takes the norms for constants in its second derivative (PyTorch 2.13, where
    `torch.autograd.gradgradcheck` fails): Hg is then off by up to two thirds on a linear layer.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._weight_norm:
            func = _weight_norm
        return func(*args, **(kwargs or {}))


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    r"""The weight $g v/|v|$, with a norm for each index along `dim`."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


@contextmanager
def twice_differentiable(model: nn.Module) -> Iterator[None]:
    """Compute by operations that can be differentiated twice, at any price: for diagnostics."""
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    plain_recurrence = torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext()
    with torch.compiler.set_stance("force_eager"), sdpa_kernel(SDPBackend.MATH), plain_recurrence:
        yield


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        error.add_note(
            'The exact penalty differentiates twice, which not every operation allows: use method="forward", or switch '
            "flash attention, cuDNN's RNNs or torch.compile off."
        )
        raise
