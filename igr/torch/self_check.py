"""How good the differences of gradients are for a model: their error against the exact product, by radius."""

# pyright: reportMissingImports=false
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from igr.torch.checks import check_radius
from igr.torch.probe import recording
from igr.torch.quantities import Point
from igr.torch.radius import default_radius
from igr.torch.tensors import Gradients, present, squared_norm, weighted_sum

RADII = (1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3)


class PenaltyError(NamedTuple):
    """Relative errors of Hg by radius, and at the radius in use, as in `igr.penalty_error`; printed as a table."""

    radius: tuple[float, ...]
    forward: tuple[float, ...]
    central: tuple[float, ...]
    default: dict[str, float]  # method -> the default radius
    error: dict[str, float]  # method -> the error there
    curvature: float  # |Hg| / |g|

    def __str__(self) -> str:
        lines = ["   radius   forward   central"]
        rows = zip(self.radius, self.forward, self.central, strict=True)
        lines += [f"{r:9.1e} {f:9.1e} {c:9.1e}" for r, f, c in rows]
        lines += [f"default of {m}: {self.default[m]:.1e}, error {self.error[m]:.1e}" for m in self.default]
        return "\n".join([*lines, f"|Hg| / |g| = {self.curvature:.2g}"])


def penalty_error(
    model: nn.Module,
    closure: Callable[..., Tensor],
    radii: Sequence[float] = RADII,
    microbatches: Iterable[Any] | None = None,
) -> PenaltyError:
    r"""The error of differences of gradients against the exact product Hg, by radius: the self-check of the penalty.

    $$\frac{|D_r - Hg|}{|Hg|}, \qquad D_r = \frac{\nabla E(\theta + \epsilon g) - g}{\epsilon} \ \text{or}\
    \frac{\nabla E(\theta + \epsilon g) - \nabla E(\theta - \epsilon g)}{2\epsilon}, \quad \epsilon|g| = r$$

    Arguments as for `igr.torch.regularizer`. The exact product differentiates twice: it runs without flash attention,
    cuDNN's RNNs and `torch.compile`, needs several times the memory, and does not see kinks. Print the result for a
    table; an error of a tenth changes the penalty by a tenth, which hardly matters beside the choice of mu.

    >>> import torch
    >>> model = torch.nn.Linear(3, 1).double()
    >>> x = torch.arange(12.0, dtype=torch.float64).view(4, 3)
    >>> found = penalty_error(model, lambda: torch.tanh(model(x / 10)).square().mean())
    >>> found.error["forward"] < 1e-6 and found.error["central"] < 1e-8
    True
    """
    for radius in radii:
        check_radius(radius)
    with recording() as probe:
        point = Point(model, closure, microbatches)
    exact = point.product(point.gradient)
    norm = point.norm2.sqrt()

    def errors(radius: Any) -> tuple[float, float]:
        step = radius / torch.where(norm > 0, norm, 1.0)
        ahead, behind = (point.gradient_at(sign * step, point.gradient) for sign in (1, -1))
        pairs = {"forward": (ahead, point.gradient, 1 / step), "central": (ahead, behind, 0.5 / step)}
        return tuple(_relative(a, b, factor, exact) for a, b, factor in pairs.values())  # pyright: ignore

    table = [errors(radius) for radius in radii]
    length2 = squared_norm(point.params)
    default = {method: default_radius(point.params, length2, probe, method) for method in ("forward", "central")}
    error = {method: errors(default[method])[i] for i, method in enumerate(default)}
    forward, central = zip(*table, strict=True)
    curvature = float((squared_norm(*present(exact)) / point.norm2).sqrt())
    return PenaltyError(tuple(radii), forward, central, {m: float(r) for m, r in default.items()}, error, curvature)


def _relative(a: Gradients, b: Gradients, factor: Any, exact: Gradients) -> float:
    a, b, wanted = ([None if g is None else g.clone() for g in gradients] for gradients in (a, b, exact))
    length = squared_norm(*present(wanted))
    error = weighted_sum((factor, a), (-factor, b), (-1.0, wanted))
    return float((squared_norm(*present(error)) / length).sqrt())
