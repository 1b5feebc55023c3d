"""The passes of a penalized gradient by differences: run the same code at the parameters and at perturbed ones."""

# pyright: reportMissingImports=false
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from igr.torch.checks import is_zero
from igr.torch.probe import Probe, recording
from igr.torch.radius import default_radius, side
from igr.torch.state import Buffers, Randomness
from igr.torch.tensors import (
    Gradients,
    Kinds,
    add_difference,
    add_scaled_,
    any_present,
    average,
    copies,
    copy_,
    gradients,
    local,
    present,
    put_gradients,
    squared_norm,
    take_gradients,
    trainable,
    weighted_sum,
)

# What was seen of each model, by the code that ran it: the loss may change, and so may its precision.
_SEEN: WeakKeyDictionary[nn.Module, dict[Any, Probe]] = WeakKeyDictionary()


class Passes:
    r"""The gradient of $E + \mu|\nabla E|^2$ by differences, as an iterator: the body of the loop is one pass.

    $$g + 2\mu Hg \approx (1 - c)\,g + c\,\nabla E(\theta + \epsilon g), \qquad \epsilon = r/|g|,\ c = 2\mu/\epsilon$$

    The body adds the gradient of `scale` times the loss to `.grad`. It runs at $\theta$, then at $\theta + \epsilon g$,
    and with `method="central"` also at $\theta - \epsilon g$ (the default forward difference looks to either side, by
    the digits of the norm, so that first-order errors cancel over a training); the iterator yields whether the
    parameters are the unperturbed ones. Afterwards `.grad` has what it had before plus the penalized gradient
    times `scale`, and `norm2`
    is $|\nabla E|^2$. If the body raises, parameters, buffers and `.grad` are as they were.
    """

    def __init__(
        self,
        model: nn.Module,
        mu: Any,
        method: str = "forward",
        radius: Any = None,
        scale: Any = 1.0,
        penalize: str = "mean",
        code: Any = None,
        params: list[Tensor] | None = None,
        late: bool = False,
    ):
        self.late = late  # the body calls `begin` itself, after code that may clear `.grad`
        self.model, self.method, self.code = model, method, code
        self.params = trainable(model) if params is None else params
        self.mu, self.radius, self.scale = map(plain, (mu, radius, scale))
        self.kinds = Kinds(self.params)
        self.replicas = model if penalize == "each" and isinstance(model, DistributedDataParallel) else None
        self.norm2: Tensor | None = None
        self._before: Gradients | None = None
        self._mark: Mark | None = None

    def begin(self) -> None:
        """Keep what is in `.grad` until the passes are over."""
        self._before = take_gradients(self.model, self.params)

    def __iter__(self) -> Iterator[bool]:
        if not self.late:
            self.begin()
            if self._before and any_present(self._before):
                self._mark = Mark(self.params, self._before, isinstance(self.model, DistributedDataParallel))
        try:
            with self.replicas.no_sync() if self.replicas else nullcontext():
                found = yield from self._passes()
            if self.replicas:
                found = average(found, self.params, self.replicas.process_group)
        except BaseException:
            if self._mark is not None:
                self._mark.handle.remove()
            if self._before is not None:
                put_gradients(self.params, self._before)
            raise
        before = self._before or []
        put_gradients(self.params, weighted_sum((1, before), (1, found)) if any_present(before) else found)

    def _passes(self) -> Generator[bool, None, Gradients]:
        """Run the passes; returns the penalized gradient."""
        if is_zero(self.mu):
            yield True
            self._unmark()
            g = gradients(self.model, self.params)
            self._slope(g)
            return g
        buffers, random = Buffers(self.model), Randomness(self.params)
        try:
            radius = yield from self._unperturbed()
            self._unmark()
        except BaseException:
            buffers.restore()
            raise
        g = take_gradients(self.model, self.params)
        norm = self._slope(g)
        # A zero gradient moves nothing, whatever the factor.
        step = radius / norm.clamp(min=torch.finfo(norm.dtype).tiny ** 0.8)
        if self.radius is None and self.method == "forward" and self.norm2 is not None:
            step = step * side(self.norm2)
        moved, along = present(list(self.params), g)
        move, end = Move(moved, along, kinds=self._kinds(moved)), (Buffers(self.model), random.now())
        found: list[Gradients] = []
        try:
            for sign in (1, -1)[: 1 if self.method == "forward" else 2]:
                move.to(step if sign > 0 else -step)
                buffers.restore()
                random.restore()
                yield False
                found.append(take_gradients(self.model, self.params))
        finally:
            move.back()
            for state in end:
                state.restore()
        there, here = found if len(found) == 2 else (found[0], g)
        # `step` is made for gradients that are `scale` times those of E.
        c = (2 if self.method == "forward" else 1) * self.mu / times(step, self.scale)
        return add_difference(g, c, there, here)

    def _unperturbed(self) -> Generator[bool, None, Any]:
        """The first pass; returns the length of the perturbation."""
        if self.radius is not None:
            yield True
            return self.radius
        seen, key = _SEEN.setdefault(self.model, {}), (self.code, *_precision(self.params))
        if key in seen:
            yield True
        else:
            with recording() as probe:
                yield True
            seen[key] = probe
        return default_radius(self.params, squared_norm(self.params, kinds=self.kinds), seen[key], self.method)

    def _unmark(self) -> None:
        if self._mark is not None:
            self._mark.remove()
            self._mark = None

    def _slope(self, gradients: Gradients) -> Tensor:
        """The norm of the gradient, `scale` times that of E."""
        (found,) = present(gradients)
        if not found:
            raise ValueError("no parameter has a gradient after the first pass: call loss.backward() in the loop.")
        norm2 = squared_norm(found, kinds=self._kinds(found))
        self.norm2 = norm2 if is_one(self.scale) else norm2 / self.scale**2
        return norm2.sqrt()

    def _kinds(self, some: Sequence[Tensor]) -> Kinds:
        """Those of the parameters, or of the gradients of all of them, are known."""
        return self.kinds if len(some) == len(self.params) else Kinds(some)


class Mark:
    """A gradient of nothing, by which `zero_grad` in the first pass is seen: what it should clear is kept elsewhere.

    Minus zero plus a number is that number, bit for bit. One parameter has it, and only where gradients were before.
    """

    def __init__(self, params: Sequence[Tensor], before: Gradients, replicas: bool):
        self.replicas = replicas
        pairs = [(p, g) for p, g in zip(params, before, strict=True) if g is not None]
        self.param, like = min(pairs, key=lambda pair: pair[0].numel())
        self.tensor, self.cleared, self.arrived = torch.full_like(like, -0.0), False, False
        self.version, self.param.grad = local(self.tensor)._version, self.tensor
        self.handle = self.param.register_hook(self._look)

    def _look(self, _: Tensor) -> None:
        """Look before the first gradient is added; replicas may have put the mark into another tensor by then."""
        found = self.param.grad
        if not self.arrived:
            self.arrived = True
            self.cleared = found is None or (found is self.tensor and local(found)._version != self.version)

    def remove(self) -> None:
        """Leave the gradient of the pass, or None if there is none."""
        self.handle.remove()
        left = self.param.grad is self.tensor
        gone = self.param.grad is None if self.replicas else not left
        if self.cleared or (gone and not self.arrived):  # one that is unused, or sharded, sees no gradient arrive
            raise ValueError("optimizer.zero_grad() is inside of the loop over the penalty: put it before the loop.")
        if left and local(self.tensor)._version == self.version:
            self.param.grad = None


class Move:
    r"""Sets parameters to $\theta + s v$, and back to $\theta$ bit for bit."""

    @torch.no_grad()
    def __init__(self, params: list[Tensor], along: list[Tensor], *, kinds: Kinds | None = None):
        self.params, self.along, self.kinds = params, along, kinds or Kinds(params)
        self.weights, self.away = copies(params, self.kinds), False

    @torch.no_grad()
    def to(self, step: Any) -> None:
        """Move by `step` times the vector from where the parameters were at first."""
        if self.away:
            copy_(self.params, self.weights, self.kinds)
        self.away = True
        self.kinds.apply(lambda ours, theirs: add_scaled_(ours, step, theirs), self.params, self.along)
        torch.clear_autocast_cache()  # it keeps what the parameters were, in lower precision

    @torch.no_grad()
    def back(self) -> None:
        """Move back."""
        copy_(self.params, self.weights, self.kinds)
        torch.clear_autocast_cache()


def _precision(params: Sequence[Tensor]) -> tuple[Any, ...]:
    """What autocast is set to outside of the code that is run."""
    device = params[0].device.type
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def is_one(number: Any) -> bool:
    """Whether a factor can be left out."""
    return isinstance(number, int | float) and number == 1


def times(tensor: Tensor, number: Any) -> Tensor:
    """The product, which costs nothing if the number is one."""
    return tensor if is_one(number) else tensor * number


def plain(number: Any) -> Any:
    """A number that foreach kernels take: a Python number, or a tensor without axes on its device."""
    if number is None or isinstance(number, int | float):
        return number
    if not isinstance(number, Tensor):  # NumPy's
        return float(number)
    return float(number) if number.device.type == "cpu" else number.detach().reshape(())
