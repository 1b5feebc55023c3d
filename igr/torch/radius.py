"""The default length of the perturbation by which gradients are differenced: the rule of `igr.value_and_grad`."""

# pyright: reportMissingImports=false
from collections.abc import Sequence

import torch
from torch import Tensor

from igr.torch.probe import Probe

# As in igr.penalty.radius, where they are explained: the minimum step for losses with kinks, and the factor for
# low precision, which falls with the number of parameters.
KINK_RADIUS = 0.2
LOW_PRECISION, AVERAGING = 2.0**-20, 0.1


def default_radius(params: Sequence[Tensor], norm2: Tensor, probe: Probe, method: str) -> Tensor:
    """The length of the perturbation: above rounding, and short enough for a difference to be a derivative.

    `norm2` is the squared norm of the parameters.
    """
    unit = max(probe.unit, *[float(torch.finfo(dtype).eps) for dtype in {p.dtype for p in params}])
    count = sum([p.numel() for p in params])
    factor = unit ** (1 / 2 if method == "forward" else 1 / 3)
    factor *= count**-AVERAGING if unit > LOW_PRECISION else 1.0
    if unit > torch.finfo(torch.float64).eps and factor < KINK_RADIUS and probe.kinks:
        factor = KINK_RADIUS
    norm = norm2.sqrt()
    length = torch.minimum((norm / count**0.5).clamp(min=1.0), norm)
    return factor * (length + (length == 0))  # 1 where all parameters are zero


@torch.no_grad()
def side(norm2: Tensor) -> Tensor:
    """On which side of the parameters the forward difference looks, +1 or -1: by the digits of |grad E|^2, as in JAX.

    The errors of the two sides cancel to first order, so what a radius is too long for averages out over a training.
    """
    # The whole part of 64 log2 is odd: +1, where the norm is zero, is what -inf gives, whose remainder is NaN.
    odd = torch.remainder(64 * torch.log2(norm2), 2) >= 1
    return 1 - 2 * odd.to(norm2.dtype)
