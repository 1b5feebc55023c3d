"""How far differences of gradients are from the exact penalty, by radius: a check to run on your own network."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from igr._typing import Loss, Params, Scalar
from igr.calculus import add_scaled, along, squared_norm
from igr.penalty.parts import Devices
from igr.penalty.program import Direct, Kinks, Point, Program, holds, of_loss
from igr.penalty.radius import radius_of

RADII = tuple(float(r) for r in 10.0 ** np.arange(-5, 0.01, 0.5))


class PenaltyError(NamedTuple):
    """Relative errors of Hg by radius, and at the radius in use; printed as a table."""

    radius: np.ndarray
    forward: np.ndarray
    central: np.ndarray
    default: dict[str, float]  # method -> the default radius
    error: dict[str, float]  # method -> the error there
    curvature: float  # |Hg| / |g|

    def __str__(self) -> str:
        lines = ["   radius   forward   central"]
        lines += [
            f"{r:9.1e} {f:9.1e} {c:9.1e}" for r, f, c in zip(self.radius, self.forward, self.central, strict=True)
        ]
        lines += [f"default of {m}: {self.default[m]:.1e}, error {self.error[m]:.1e}" for m in self.default]
        return "\n".join([*lines, f"|Hg| / |g| = {self.curvature:.2g}"])


def penalty_error(
    loss: Loss,
    params: Params,
    *args: object,
    has_aux: bool = False,
    radii: Sequence[float] = RADII,
    kinks: Kinks | None = None,
    **kwargs: object,
) -> PenaltyError:
    r"""The error of the penalty by differences against the exact one, at several radii and at the default.

    $$\frac{|(Hg)_\rho - Hg|}{|Hg|}$$

    `loss(params, *args, **kwargs)`, `has_aux` and `kinks` as in `value_and_grad`; `radii` are the lengths to try. It
    costs an exact penalty once and three gradients at each radius. The exact penalty does not see kinks: where
    differences cross them, the error does not go to 0, and `kinks="hold"` says how much of it they are.

    >>> import jax.numpy as jnp
    >>> table = penalty_error(lambda x: jnp.sum(x**2), jnp.ones(3, jnp.float32), radii=[0.1])
    >>> bool(table.forward[0] < 1e-5)  # a quadratic has no error but rounding
    True
    """
    program, leaves = of_loss(loss, params, args, kwargs, has_aux)
    compiled: Callable = jax.jit if isinstance(program, Program) else lambda function: function
    g, hg = compiled(partial(exact_of, program))(leaves)
    hold = holds(program, kinks)
    errors = compiled(partial(errors_of, program, hold=hold))
    default = {m: float(radius_of(program, leaves, m, Devices((), leaves), hold)) for m in ("forward", "central")}
    rows = np.array([[float(e) for e in errors(leaves, g, hg, jnp.asarray(r))] for r in [*radii, *default.values()]])
    curvature = float(jnp.sqrt(squared_norm(hg) / squared_norm(g)))
    count = len(radii)
    found = {"forward": float(rows[count, 0]), "central": float(rows[count + 1, 1])}
    return PenaltyError(np.asarray(radii), rows[:count, 0], rows[:count, 1], default, found, curvature)


def exact_of(program: Program | Direct, point: Point) -> tuple[Point, Point]:
    """(g, Hg) of a traced program, by forward over reverse."""

    def gradient(p: Point) -> Point:
        return program.run(program.consts, p, moving=True)[1]

    g, advice = gradient(point), 'replace it for this check (attention: implementation="xla")'
    return g, along(gradient, point, g, program.refusal, "penalty_error", advice)


def errors_of(
    program: Program | Direct, point: Point, g: Point, hg: Point, radius: Scalar, *, hold: bool = False
) -> tuple[Scalar, Scalar]:
    """The relative errors of the forward and of the central difference at one radius, given the exact Hg."""
    norm = jnp.sqrt(squared_norm(g))
    eps = radius.astype(norm.dtype) / norm

    def gradient(p: Point) -> Point:
        return program.held(program.consts, point, p) if hold else program.run(program.consts, p)[1]

    ahead, behind = gradient(add_scaled(point, eps, g)), gradient(add_scaled(point, -eps, g))

    def relative(difference: Point, over: Scalar) -> Scalar:
        off = jax.tree.map(lambda d, h: d.astype(eps.dtype) / over - h.astype(eps.dtype), difference, hg)
        return jnp.sqrt(squared_norm(off) / squared_norm(hg))

    def subtract(a: Point, b: Point) -> Point:
        return jax.tree.map(jnp.subtract, a, b)

    return relative(subtract(ahead, g), eps), relative(subtract(ahead, behind), 2 * eps)
