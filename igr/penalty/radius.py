"""The default length of the perturbation by which gradients are differenced."""

import jax.numpy as jnp
from jaxtyping import Array

from igr._typing import Loss, Params
from igr.penalty.kinks import jumps
from igr.penalty.parts import Devices
from igr.penalty.program import Direct, Kinks, Point, Program, holds, of_loss
from igr.penalty.resolution import unit_of

# The minimum finite-difference step for losses with kinks. The mean square error of the difference falls as one over
# the step, until the curvature of the smooth parts matters: measured in docs/log.md and by benchmarks/radius.py.
KINK_RADIUS = 0.2
# In low precision the gradient, a sum over many examples, has a smaller rounding error than its terms, and networks
# that compute in low precision are large and have a large curvature. The root of the unit is therefore too long a step,
# and more so with more parameters. The best factors measured are 1 or more with 64 parameters and 0.1 to 0.3 on GPT-2
# with 1.2e8.
LOW_PRECISION, AVERAGING = 2.0**-20, 0.1


def default_radius(
    loss: Loss,
    params: Params,
    *args: object,
    method: str = "forward",
    kinks: Kinks | None = None,
    has_aux: bool = False,
    **kwargs: object,
) -> Array:
    r"""The length of the perturbation that differences of gradients take by default.

    $$\rho = c\,\epsilon^{1/2}\,\ell \ \text{(forward)}, \qquad c\,\epsilon^{1/3}\,\ell \ \text{(central)}$$

    with the rounding unit $\epsilon$ of the gradient's program (`resolution`) and a length $\ell$ taken from the
    parameters: 1, but no more than their norm and no less than their root mean square. The factor c is 1 in float32 and
    float64, and $m^{-1/10}$ for m parameters in lower precision, whose rounding averages out in the sums that a
    gradient is made of. Where the
    gradient jumps (`has_kinks`) and the difference crosses these kinks, or where the loss cannot be traced, it is
    $0.2\,\ell$ at least, but for float64: a shorter difference meets a kink less often, and is then a jump divided by
    that shorter way, far off. `kinks` and `has_aux` as in `value_and_grad`.

    >>> import jax.numpy as jnp
    >>> round(float(default_radius(lambda x: jnp.sum(x**4), jnp.full(4, 0.5, jnp.float32))), 8)  # 2 ** -11.5
    0.00034527
    """
    program, leaves = of_loss(loss, params, args, kwargs, has_aux)
    return radius_of(program, leaves, method, Devices((), leaves), holds(program, kinks))


def radius_of(program: Program | Direct, point: Point, method: str, devices: Devices, hold: bool = False) -> Array:
    """The default radius from a traced gradient: above rounding, and short enough to be a derivative.

    Over kinks that are not held it is long, so that it meets them.
    """
    gradient = None if isinstance(program, Direct) else program.gradient()
    dtypes = [jnp.finfo(jnp.result_type(x)).eps for x in point]
    unit = float(max(dtypes)) if gradient is None else unit_of(gradient)
    count = devices.count(point)
    factor = unit ** (1 / 2 if method == "forward" else 1 / 3)
    factor *= count**-AVERAGING if unit > LOW_PRECISION else 1.0
    short = unit > jnp.finfo(jnp.float64).eps and factor < KINK_RADIUS and not hold
    if short and (gradient is None or jumps(gradient)):
        factor = KINK_RADIUS
    norm = jnp.sqrt(devices.norm2(point))
    rms = norm / count**0.5
    length = jnp.where(norm > 0, jnp.clip(jnp.ones_like(norm), rms, norm), jnp.ones_like(norm))
    return factor * length
