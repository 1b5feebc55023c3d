"""One sentence for bad input, raised before anything is computed, and for a step where none may be."""

# pyright: reportMissingImports=false
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from numbers import Integral, Real
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

Method = Literal["exact", "forward", "central"]
Penalize = Literal["mean", "each"]


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Refuse a word that is none of a Literal's."""
    if value not in get_args(choices):
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(get_args(choices))}.")


def check_number(name: str, value: Any) -> None:
    """Refuse what is no finite real number; the value of a tensor on a device is not looked at."""
    if isinstance(value, Tensor):
        if value.numel() != 1 or not value.is_floating_point():
            raise TypeError(f"{name} must be one real number, but it is a tensor {tuple(value.shape)} {value.dtype}.")
        if value.device.type != "cpu":
            return
    elif not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a real number, not {type(value).__name__}.")
    if not isfinite(float(value)):
        raise ValueError(f"{name} must be finite, but it is {float(value)}.")


def is_count(value: Any, least: int) -> bool:
    """Whether a value is a whole number, of Python or NumPy, of at least so much."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_radius(radius: Any) -> None:
    """Refuse a radius that is no positive number."""
    if radius is None:
        return
    check_number("radius", radius)
    if not (isinstance(radius, Tensor) and radius.device.type != "cpu") and not float(radius) > 0:
        raise ValueError(f"radius must be positive, but it is {float(radius)}.")


def check_loss(loss: Any) -> Tensor:
    """Refuse a loss that is not one real number which depends on the parameters."""
    if not isinstance(loss, Tensor):
        raise TypeError(f"the closure returned {type(loss).__name__}, but it must return the loss, one real number.")
    if loss.numel() != 1 or not loss.is_floating_point():
        raise TypeError(
            f"the closure returned shape {tuple(loss.shape)} and dtype {loss.dtype}, but it must return one real "
            "number: take the mean or the sum of the losses."
        )
    if not loss.requires_grad:
        raise ValueError(
            "the loss does not depend on the parameters: the closure must run the model, outside of torch.no_grad."
        )
    return loss


def check_once_differentiated(model: nn.Module, method: str) -> None:
    """Refuse to differentiate twice what can be differentiated only once."""
    if method == "exact" and (isinstance(model, DistributedDataParallel) or is_sharded(model)):
        raise ValueError(
            'method="exact" differentiates twice, which distributed models do not allow: use "forward" or "central".'
        )


def check_separable(model: nn.Module, penalize: str) -> None:
    """Refuse to penalize the gradient of one device where no device has it."""
    if penalize == "each" and is_sharded(model):
        raise ValueError(
            'penalize="each" needs the gradient of each device, which sharded parameters do not keep: use "mean".'
        )


def check_whole(model: nn.Module) -> None:
    """Refuse to differentiate with respect to parameters of which no process has all."""
    if is_sharded(model):
        raise ValueError(
            "model has sharded parameters, which the diagnostics cannot differentiate: measure a copy that is not "
            "sharded, or take |grad E|^2 from igr.torch.backward(model, closure, mu=0)."
        )


def is_sharded(model: nn.Module) -> bool:
    """Whether parameters are DTensors, as `fully_shard` makes them."""
    return any(hasattr(p, "placements") for p in model.parameters())


def is_zero(mu: Any) -> bool:
    """Whether a number is known to be zero without waiting for a device."""
    return not (isinstance(mu, Tensor) and mu.device.type != "cpu") and float(mu) == 0


def loss_scale(scaler: Any, device: torch.device) -> Any:
    """The factor of a `torch.amp.GradScaler`, without waiting for the device; 1 without one."""
    return 1.0 if scaler is None else scaler.scale(torch.ones((), device=device))


@contextmanager
def no_step(params: Sequence[Tensor]) -> Iterator[None]:
    """Refuse a step of these parameters: between the passes it would be undone without a word."""

    def refuse(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        ours = {id(p) for p in params}
        if any(id(p) in ours for group in optimizer.param_groups for p in group["params"]):
            raise ValueError("optimizer.step() is inside of the loop over the penalty: put it after the loop.")

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
