"""The regularizer and the regime in anyone's PyTorch training: hooks of an optimizer, readings as a dictionary."""

# pyright: reportMissingImports=false
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from igr.torch.checks import check_number, check_whole, is_count
from igr.torch.curvature import Vector, add, check_products, dot, lanczos, random_like
from igr.torch.quantities import Closure, Point
from igr.torch.tensors import Kinds, shard_groups, wide

FREE = ("slope", "r_ig", "loss", "penalty_share", "update_norm", "q2", "cosine")
MEANS = ("signal", "r_ig_mean", "cosine_mean")
DEAR = ("sharpness", "sharpness_error", "h_lambda", "q2_batch", "cosine_batch")


class Monitor:
    r"""Watches an optimizer: the regularizer, the size of its steps, and the regime. It changes nothing.

        monitor = igr.torch.Monitor()
        monitor.attach(optimizer)
        ...                              # train as before
        log(monitor.readings())          # {"slope": 1.3, "r_ig": 2.1e-4, "q2": 0.05, ...}

    The names are those of `igr.monitor`. At every `optimizer.step()`: `slope` $|g|$ and `r_ig` $|g|^2/m$ of what is in
    `.grad` (penalized, clipped and unscaled as the optimizer sees it), `update_norm`, and from consecutive updates
    $u_n$ `q2` $= |u_n - u_{n-1}|/|u_{n-1}|$ and their `cosine`. With `monitor.loss = value` before the step also `loss`
    and `penalty_share` $\lambda R_{IG}/E$. **q2 and cosine mean nothing under gradient noise.** So there are running
    means (with `decay`, unless `noise=False`) of products of gradients whose noise is independent: `signal`, the share
    of the squared gradient that is not noise, `r_ig_mean`, R_IG without it, and `cosine_mean`.

    Every `every` steps (never by default), if `attach` got a model and a closure: `sharpness` from `products` products
    with the Hessian, started where the last ended, `h_lambda` (normalized so that 2 is the stability limit of SGD's
    `lr`, `momentum` and `nesterov`; NaN for other optimizers), and `q2_batch` and `cosine_batch` from the gradient of
    the closure before and after the step, which survive noise. Nothing waits for the device but `readings` and these.
    Memory: two copies of the parameters, four with `noise`.

    >>> import torch
    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> optimizer, monitor = torch.optim.SGD([x], lr=0.1), Monitor()
    >>> _ = monitor.attach(optimizer)
    >>> for _ in range(2):
    ...     x.grad = x.detach().clone()  # the gradient of |x|^2 / 2
    ...     optimizer.step()
    >>> now = monitor.readings()
    >>> round(now["slope"], 5), round(now["q2"], 5), round(now["cosine"], 5)
    (4.5, 0.1, 1.0)
    """

    def __init__(self, *, every: int = 0, products: int = 3, noise: bool = True, decay: float = 0.99):
        check_products(products)
        if not is_count(every, 0):
            raise ValueError(f"every must be a whole number of steps, but it is {every!r}.")
        check_number("decay", decay)
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be at least 0 and below 1, but it is {decay}.")
        self.every, self.products, self.noise, self.decay = every, products, noise, decay
        self.loss: Any = None
        self.steps = 0
        self._now: dict[str, Any] = {}
        self._forget()
        self._vector: Vector | None = None
        self._before: Vector = []
        self._start: Vector | None = None

    def _forget(self) -> None:
        """Before the first step, and where the parameters become others."""
        self._sums: tuple[Tensor, Tensor] | None = None
        self._gradients: list[Vector] = []
        self._last: Vector | None = None
        self._sizes: list[int] = []

    def attach(
        self, optimizer: torch.optim.Optimizer, model: nn.Module | None = None, closure: Closure | None = None
    ) -> Callable[[], None]:
        """Watch an optimizer; returns a function that stops it. `closure` gives the loss of a fixed batch."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}.")
        if self.every and (model is None or closure is None):
            raise ValueError("every needs a model and a closure: monitor.attach(optimizer, model, closure).")
        if self.every and model is not None:
            check_whole(model)
        self._model, self._closure = model, closure
        handles = [
            optimizer.register_step_pre_hook(lambda opt, *_: self._pre(opt)),
            optimizer.register_step_post_hook(lambda opt, *_: self._post(opt)),
        ]

        def detach() -> None:
            for handle in handles:
                handle.remove()

        return detach

    def readings(self) -> dict[str, float]:
        """The numbers of the last step; what is not known yet is NaN. The host waits for the device here."""
        names = FREE + (MEANS if self.noise else ()) + (DEAR if self.every else ())
        values = {name: self._now.get(name, math.nan) for name in names}
        return {name: float(v.detach() if isinstance(v, Tensor) else v) for name, v in values.items()}

    @torch.no_grad()
    def _pre(self, optimizer: torch.optim.Optimizer) -> None:
        params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        flat = self._flat = Flat(params)
        self._before, g = flat(params), flat([torch.zeros_like(p) if p.grad is None else p.grad for p in params])
        scale = getattr(optimizer, "grad_scale", None)  # set while a GradScaler steps a fused optimizer
        if scale is not None:
            g = [x / scale.to(x.device) for x in g]
        if self._sizes != (sizes := [len(x) for x in g]):
            self._forget()
            self._sizes = sizes
        m, square = sum(p.numel() for p in params), flat.dot(g, g)
        self._now |= {"slope": square.sqrt(), "r_ig": square / m, "loss": math.nan, "penalty_share": math.nan}
        if self.loss is not None:
            h = optimizer.param_groups[0]["lr"]
            self._now |= {"loss": self.loss, "penalty_share": h / 4 * square / self.loss}
        if self.noise:
            self._now |= self._means(g, square, m)
        if self.every and self.steps % self.every == 0:
            self._start = _filled(Point(self._model, self._closure))  # pyright: ignore[reportArgumentType]

    def _means(self, g: Vector, square: Tensor, m: int) -> dict[str, Any]:
        r"""From means c_k of the products of g_n and g_{n-k}: signal = max(c_2 / c_0, c_1^2 / (c_0 c_2))."""
        products = [square, *(self._flat.dot(g, other) for other in self._gradients)]
        self._gradients = [g, *self._gradients[:1]]
        missing = [torch.full_like(square, math.nan)] * (3 - len(products))
        now = torch.stack([*products, *missing])
        # What is not known yet, or overflowed in a step that a GradScaler skips, does not count.
        keep = torch.where(torch.isfinite(now), torch.full_like(now, self.decay), 1.0)
        sums, weights = self._sums or (torch.zeros_like(now), torch.zeros_like(now))
        sums = keep * sums + (1 - keep) * now.nan_to_num(0.0, 0.0, 0.0)
        weights = keep * weights + (1 - keep)
        self._sums = sums, weights
        c0, c1, c2 = sums / weights
        floor = torch.maximum(c2, c0 / 20)  # so that a lag-two product that is all noise is not divided by
        signal = torch.maximum(c2 / c0, c1**2 / (floor * c0)).clamp(0, 1)
        return {"signal": signal, "r_ig_mean": signal * c0 / m, "cosine_mean": (c1 / (signal * c0)).clamp(-1, 1)}

    @torch.no_grad()
    def _post(self, optimizer: torch.optim.Optimizer) -> None:
        flat = self._flat
        updates = [after - before for after, before in zip(flat(flat.params), self._before, strict=True)]
        length = flat.dot(updates, updates).sqrt()
        now = {"q2": torch.full_like(length, math.nan), "cosine": torch.full_like(length, math.nan)}
        if self._last is not None:
            # A step that moves nothing, skipped for an overflow, says what was said before.
            moved, last = length > 0, self._last
            before = flat.dot(last, last).sqrt()
            change = add(updates, -1.0, last)
            now["q2"] = torch.where(moved, flat.dot(change, change).sqrt() / before, self._now["q2"])
            now["cosine"] = torch.where(moved, flat.dot(updates, last) / (length * before), self._now["cosine"])
            updates = [torch.where(moved.to(u.device), u, old) for u, old in zip(updates, last, strict=True)]
        self._now |= {"update_norm": length, **now}
        self._last, self._before = updates, []
        if self._start is not None:
            self._now |= self._measured(optimizer.param_groups[0], self._start)
            self._start = None
        self.steps += 1

    def _measured(self, group: dict[str, Any], here: Vector) -> dict[str, Any]:
        point = Point(self._model, self._closure)  # pyright: ignore[reportArgumentType]
        there = _filled(point)
        change, size = add(there, -1.0, here), dot(here, here).sqrt()
        found = lanczos(point, self._vector or random_like(point.params), self.products)
        self._vector = found.vector
        value = float(found.values[-1])
        return {
            "sharpness": value,
            "sharpness_error": float(found.residuals[-1]),
            "h_lambda": 2 * value / _stability_limit(group),
            "q2_batch": dot(change, change).sqrt() / size,
            "cosine_batch": dot(here, there) / (size * dot(there, there).sqrt()),
        }


class Flat:
    """Makes one vector of all tensors of a kind, so that a step starts few operations whatever the number of layers.

    The entries are in the order in which the parameters lie in memory, and those of sharded ones are the shards here.
    """

    def __init__(self, params: list[Tensor]):
        self.params, self.kinds, self.dtype = params, Kinds(params), wide(params)
        self.orders = [[_order(t) for t in members] for (members,) in self.kinds.split(params)]

    def __call__(self, tensors: list[Tensor]) -> Vector:
        """The vectors, in memory of their own."""
        return [
            torch.cat([_row(t, order) for t, order in zip(members, orders, strict=True)]).to(self.dtype)
            for (members,), orders in zip(self.kinds.split(tensors), self.orders, strict=True)
        ]

    def dot(self, a: Vector, b: Vector) -> Tensor:
        """The inner product of two lists of vectors, over all shards."""
        parts = [(x * y).sum() for x, y in zip(a, b, strict=True)]
        for part, first in zip(parts, self.kinds.firsts, strict=True):
            for group in shard_groups(first):
                torch.distributed.all_reduce(part, group=group)
        return parts[0] if len(parts) == 1 else torch.stack([part.to(parts[0].device) for part in parts]).sum()


def _order(tensor: Tensor) -> list[int] | None:
    """The axes from the slowest to the fastest in memory; None where they are in order."""
    return None if tensor.is_contiguous() else sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis))


def _row(tensor: Tensor, order: list[int] | None) -> Tensor:
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return (dense if order is None else dense.permute(order)).reshape(-1)


def _stability_limit(group: dict[str, Any]) -> float:
    """The curvature above which SGD is unstable; NaN for other optimizers, whose limit is not of the Hessian alone."""
    if "momentum" not in group or "dampening" not in group:
        return math.nan
    beta, fresh = group["momentum"], 1 - group["dampening"] if group["momentum"] else 1.0
    return 2 * (1 + beta) / (group["lr"] * fresh * (1 + 2 * beta if group["nesterov"] else 1))


def _filled(point: Point) -> Vector:
    return [torch.zeros_like(p) if g is None else g for g, p in zip(point.gradient, point.params, strict=True)]
