"""R_IG, the slope, and products with the Hessian of a model's loss; nothing of the model changes."""

# pyright: reportMissingImports=false
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from igr.torch.checks import check_whole
from igr.torch.exact import gradient, hessian_product, twice_differentiable
from igr.torch.passes import Move
from igr.torch.penalty import closures
from igr.torch.state import Buffers, Randomness
from igr.torch.tensors import Gradients, average, present, squared_norm, trainable

Closure = Callable[..., Tensor]


def num_params(model: nn.Module) -> int:
    """The number m of parameters that take a gradient, tied ones once.

    >>> import torch
    >>> num_params(torch.nn.Linear(3, 4))
    16
    """
    return sum(p.numel() for p in trainable(model))


def regularizer(model: nn.Module, closure: Closure, microbatches: Iterable[Any] | None = None) -> Tensor:
    r"""The implicit gradient regularizer: the mean square of the gradient's entries.

    $$R_{IG}(\theta) = \frac1m \sum_{i=1}^m (\nabla_{\theta_i} E(\theta))^2 = \frac{|\nabla E(\theta)|^2}{m}$$

    `closure()` returns the loss E, as for `igr.torch.backward`. With `microbatches` (a data loader, say; they are put
    into a list) it is called with each, and E is the mean: the gradient is averaged first, then squared. Under
    `DistributedDataParallel` E is the mean over the processes. Neither `.grad` nor buffers nor the random state change.
    Whether the model is in training or evaluation mode is up to you, and changes the value where there is batch norm or
    dropout. Barrett & Dherin (2021), Equation 4.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.ones_(model.weight)
    >>> float(regularizer(model, lambda: (model.weight * torch.tensor([3.0, 4.0])).sum()))  # (9 + 16) / 2
    12.5
    """
    return Point(model, closure, microbatches).norm2 / num_params(model)


def slope(model: nn.Module, closure: Closure, microbatches: Iterable[Any] | None = None) -> Tensor:
    r"""The slope of the loss surface, $|\nabla E(\theta)| = \sqrt{m R_{IG}(\theta)}$.

    Arguments as for `regularizer`. Barrett & Dherin (2021), Corollary A.6.1.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> float(slope(model, lambda: (model.weight * torch.tensor([3.0, 4.0])).sum()))
    5.0
    """
    return Point(model, closure, microbatches).norm2.sqrt()


class Point:
    """A model and a loss at the present parameters: its gradient, and gradients and products nearby.

    Everything is computed from the same random state and buffers, and both are as before afterwards. Under
    `DistributedDataParallel` E is the mean over the processes, as that of the training is.
    """

    def __init__(self, model: nn.Module, closure: Closure, microbatches: Iterable[Any] | None = None):
        self.model, self.params = model, trainable(model)
        check_whole(model)
        self.replicas = model if isinstance(model, DistributedDataParallel) else None
        self.calls = closures(closure, microbatches)
        self.gradient = self._gradient()
        (found,) = present(self.gradient)
        if not found:
            raise ValueError("no parameter has a gradient: the loss must depend on the model.")
        self.norm2 = squared_norm(found)

    def gradient_at(self, step: Any, along: Gradients) -> Gradients:
        """The gradient at the parameters plus `step` times `along`."""
        move = Move(*present([*self.params], along))
        try:
            move.to(step)
            return self._gradient()
        finally:
            move.back()

    def product(self, along: Gradients) -> Gradients:
        """The Hessian times a vector, by differentiating the gradient."""
        with twice_differentiable(self.model):
            return self._at_start(lambda: hessian_product(self.params, self.calls, along, 1 / len(self.calls)))

    def product_at(self, step: Any) -> Gradients:
        """The Hessian at the parameters plus `step` times the gradient, times the gradient."""
        move = Move(*present([*self.params], self.gradient))
        try:
            move.to(step)
            return self.product(self.gradient)
        finally:
            move.back()

    def _gradient(self) -> Gradients:
        return self._at_start(lambda: gradient(self.params, self.calls, 1 / len(self.calls))[1])

    def _at_start(self, function: Callable[[], Gradients]) -> Gradients:
        """What a function computes; the mean over the processes, if the model is replicated over them."""
        buffers, random = Buffers(self.model), Randomness(self.params)
        try:
            with torch.enable_grad(), self.replicas.no_sync() if self.replicas else nullcontext():
                found = function()
            return average(found, self.params, self.replicas.process_group) if self.replicas else found
        finally:
            buffers.restore()
            random.restore()
