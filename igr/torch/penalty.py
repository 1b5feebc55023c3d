"""The penalty in a PyTorch training: one call in place of `loss.backward()`, or a loop around existing code."""

# pyright: reportMissingImports=false
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from igr.torch.checks import (
    Method,
    Penalize,
    check_choice,
    check_loss,
    check_number,
    check_once_differentiated,
    check_radius,
    check_separable,
    is_count,
    is_zero,
    loss_scale,
    no_step,
)
from igr.torch.exact import exact
from igr.torch.passes import Passes
from igr.torch.tensors import local, put_gradients, trainable

Function = TypeVar("Function", bound=Callable[..., object])


def eager(function: Function) -> Function:
    """A function that `torch.compile` leaves as it is; PyTorch's own decorator hides its signature."""
    return torch.compiler.disable(function)  # pyright: ignore[reportReturnType]


@eager
def backward(
    model: nn.Module,
    closure: Callable[..., Tensor],
    mu: Any,
    method: Method = "forward",
    radius: Any = None,
    *,
    microbatches: Iterable[Any] | None = None,
    penalize: Penalize = "mean",
    scaler: Any = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    r"""Add the gradient of the penalized loss to `.grad`, in place of `loss.backward()`.

    $$\nabla\big(E + \mu |\nabla E|^2\big) = g + 2\mu H g, \qquad g = \nabla E,\ H = \nabla^2 E$$

    `closure()` runs the model and returns the loss E; it must not call `backward`. It runs once at the parameters and
    once at perturbed ones (`method="forward"`), twice there (`"central"`), or once with a backward pass that is itself
    differentiated (`"exact"`: slow, and not for flash attention, cuDNN's RNNs or compiled models). Every pass draws the
    same dropout masks; buffers, such as the statistics of batch norm, are those of the unperturbed pass; parameters are
    restored bit for bit, also if the closure raises. `mu` is a number or a tensor, and 0 costs nothing if it is known
    on the host. `radius` is the length of the perturbation, as SAM's rho; the default is that of `igr.value_and_grad`.

    With `microbatches`, which are put into a list, the closure is called with each of them and E is the mean.
    `penalize="mean"` penalizes the gradient of that mean, `"each"` the mean of their squared norms: another
    regularizer. The same word decides under `DistributedDataParallel`, where each device has a part of the batch:
    `"mean"` is global, `"each"` per device.
    A `scaler` (`torch.amp.GradScaler`) scales the losses, and the norm is that of the unscaled gradient. `scale`
    multiplies what is added to `.grad`: 1 / n where n calls make one optimizer step.

    Returns E and what mu multiplies, $|\nabla E|^2$ (its mean with `"each"`), on the device: nothing waits for it.
    Barrett & Dherin (2021), Equation 8.

    >>> import torch
    >>> model = torch.nn.Linear(1, 1, bias=False).double()
    >>> _ = torch.nn.init.constant_(model.weight, 2.0)
    >>> E = lambda: (model.weight**2 / 2).sum()
    >>> value, norm2 = backward(model, E, mu=0.25)
    >>> float(value), float(norm2), round(float(model.weight.grad), 6)  # the gradient is (1 + 2 mu) w
    (2.0, 4.0, 3.0)
    """
    params = _check(model, mu, method, radius, penalize)
    device = params[0].device
    calls = [partial(_loss, model, params, call, microbatches is None) for call in closures(closure, microbatches)]
    code = getattr(closure, "__code__", type(closure))
    groups = [calls] if penalize == "mean" else [[call] for call in calls]
    factor = loss_scale(scaler, device) * (scale / len(groups))
    values, norms = [], []
    for group in groups:
        if method == "exact" and not is_zero(mu):  # with create_graph=True the plain gradient rounds otherwise
            value, norm2 = exact(model, group, mu, factor)
        else:
            passes = Passes(model, mu, method, radius, factor, penalize, code, params, late=True)
            value = None
            for first in passes:
                found = _backward(model, group, factor, passes.begin if first else None)
                value = found if first else value
            norm2 = passes.norm2
        values.append(value)
        norms.append(norm2)
    return mean(values), mean(norms)


def _loss(model: nn.Module, params: list[Tensor], call: Callable[[], Tensor], alone: bool) -> Tensor:
    """What the closure returns, if that is all it does; one that stands alone may also clear `.grad`."""
    before = [(p.grad, 0 if p.grad is None else local(p.grad)._version) for p in params]
    loss = check_loss(call())
    # A replica puts gradients that it has into other buckets while it runs forward.
    moves = isinstance(model, DistributedDataParallel)
    cleared = False
    for p, (old, version) in zip(params, before, strict=True):
        new = p.grad
        if new is old and (new is None or local(new)._version == version):
            continue
        if new is not None and (old is None or (not moves and bool(new.any()))):
            put_gradients(params, [g for g, _ in before])
            raise ValueError("the closure called backward itself: it must return the loss and nothing more.")
        cleared = cleared or not moves or new is None
    if cleared and not alone:
        raise ValueError(
            "the closure called zero_grad, which clears the gradients of the other micro-batches: call it before."
        )
    return loss


def _backward(
    model: nn.Module, calls: list[Callable[[], Tensor]], factor: Any, begin: Callable[[], None] | None
) -> Tensor:
    """One pass over micro-batches: the mean of their losses, and its gradient times `factor` added to `.grad`.

    `begin` is called after the first closure, which may clear the gradients that were there before.
    """
    losses = []
    for i, call in enumerate(calls):
        # Only the last backward pass of a replica needs to wait for the others.
        early = model if isinstance(model, DistributedDataParallel) and i < len(calls) - 1 else None
        with early.no_sync() if early else nullcontext():
            loss = call()
            if begin and i == 0:
                begin()
            times = factor / len(calls)
            (loss if isinstance(times, float) and times == 1 else loss * times).backward()
        losses.append(loss.detach().reshape(()))
    return mean(losses)


def mean(numbers: Sequence[Tensor]) -> Tensor:
    """The mean of tensors without axes; of a single one nothing is computed."""
    return numbers[0] if len(numbers) == 1 else torch.stack([*numbers]).mean()


def closures(closure: Callable[..., Tensor], microbatches: Iterable[Any] | None) -> list[Callable[[], Tensor]]:
    """The closure, or the closure of each micro-batch."""
    if not callable(closure):
        raise TypeError("closure must be a function that returns the loss, without a call of loss.backward().")
    if microbatches is None:
        return [closure]
    calls = [partial(closure, *(b if isinstance(b, tuple | list) else (b,))) for b in microbatches]
    if not calls:
        raise ValueError("microbatches is empty: there is no loss to take the mean of.")
    return calls


def _check(model: nn.Module, mu: Any, method: str, radius: Any, penalize: str, schedule: bool = False) -> list[Tensor]:
    check_choice("method", method, Method)
    check_choice("penalize", penalize, Penalize)
    if not (schedule and callable(mu)):
        check_number("mu", mu)
    check_radius(radius)
    params = trainable(model)
    check_once_differentiated(model, method)
    check_separable(model, penalize)
    return params


class Penalty:
    r"""The penalty of a whole training: counts the steps, so that $\mu$ can follow a schedule.

    $$\mu_n = k\,\mu \text{ where } n \ge w \text{ and k divides n, else } 0$$

    with k = `every` and w = `warm_up`, as in the laboratory. `mu` is a number, a tensor, or a function of the step n
    (to raise it slowly, say). Use it in two ways:
    `penalty.backward(closure)` is `igr.torch.backward` at this step's $\mu$; and a loop over it runs existing code as
    often as it must, so that neither the loss nor its `backward()` moves into a function:

        penalty = igr.torch.Penalty(model, mu=0.01)
        for x, y in loader:
            optimizer.zero_grad()
            for unperturbed in penalty:
                loss = criterion(model(x), y)
                loss.backward()
                if unperturbed: log(loss)
            optimizer.step()

    The last pass is a perturbed one, so a loss read after the loop is not E. Several `backward` calls in the body
    (micro-batches) make one gradient, whose norm is penalized. Tell it the `scaler` if the body has one, and `scale` if
    the body multiplies its loss by a number, as 1 / n for micro-batches. `norm2` is $|\nabla E|^2$ at the last step.

    >>> import torch
    >>> model = torch.nn.Linear(1, 1, bias=False).double()
    >>> _ = torch.nn.init.constant_(model.weight, 2.0)
    >>> penalty = Penalty(model, mu=0.25)
    >>> for _ in penalty:
    ...     (model.weight**2 / 2).sum().backward()
    >>> round(float(model.weight.grad), 6), float(penalty.norm2)
    (3.0, 4.0)
    """

    def __init__(
        self,
        model: nn.Module,
        mu: Any,
        every: int = 1,
        warm_up: int = 0,
        *,
        method: Method = "forward",
        radius: Any = None,
        penalize: Penalize = "mean",
        scaler: Any = None,
        scale: float = 1.0,
    ):
        _check(model, mu, method, radius, penalize, schedule=True)
        for name, value, least in (("every", every, 1), ("warm_up", warm_up, 0)):
            if not is_count(value, least):
                raise ValueError(f"{name} must be a whole number of at least {least}, but it is {value!r}.")
        self.model, self.every, self.warm_up = model, every, warm_up
        self.method: Method = method
        self.penalize: Penalize = penalize
        self.radius = radius
        self.scaler, self.scale = scaler, scale
        self._mu = mu
        self.step = 0
        self.norm2: Tensor | None = None

    def mu(self, step: int) -> Any:
        """The factor of the penalty at a step."""
        if step < self.warm_up or step % self.every:
            return 0.0
        mu: Any = self._mu(step) if callable(self._mu) else self._mu
        check_number("mu", mu)
        return self.every * mu

    def __iter__(self) -> Iterator[bool]:
        with no_step(trainable(self.model)):
            yield from self.passes()

    def passes(self) -> Iterator[bool]:
        """The loop, for a trainer whose optimizer runs it from inside of its step, as Lightning's does."""
        if self.method == "exact":
            raise ValueError('method="exact" differentiates the loss itself: use penalty.backward(closure).')
        factor = loss_scale(self.scaler, trainable(self.model)[0].device) * self.scale
        passes = Passes(self.model, self.mu(self.step), self.method, self.radius, factor, self.penalize)
        yield from passes
        self.norm2 = passes.norm2
        self.step += 1

    def backward(self, closure: Callable[..., Tensor], microbatches: Iterable[Any] | None = None) -> Tensor:
        """Add the penalized gradient to `.grad` and return the loss E, as `igr.torch.backward` does."""
        value, self.norm2 = backward(
            self.model,
            closure,
            self.mu(self.step),
            self.method,
            self.radius,
            microbatches=microbatches,
            penalize=self.penalize,
            scaler=self.scaler,
            scale=self.scale,
        )
        self.step += 1
        return value

    def state_dict(self) -> dict[str, int]:
        """The step, for a checkpoint."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from the step of a checkpoint."""
        self.step = int(state["step"])
