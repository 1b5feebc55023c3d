"""The penalized gradient g + 2 mu H g of a traced program, by one of three methods."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from igr._jax import is_traced, platform
from igr._typing import RealScalarLike, Scalar
from igr.calculus import add_scaled, along
from igr.penalty.parts import Devices
from igr.penalty.program import Direct, Point, Program
from igr.penalty.radius import radius_of

Method = Literal["exact", "forward", "central"]


class Penalized(NamedTuple):
    """What one step gives: the arrays of the value and of aux, |g|^2, the gradient, and |2 mu Hg|^2."""

    rest: PyTree
    norm2: Scalar
    gradient: Point
    penalty2: Scalar


def penalized(
    program: Program | Direct,
    point: Point,
    mu: RealScalarLike,
    method: Method,
    radius: RealScalarLike | None,
    devices: Devices,
    hold: bool = False,
) -> Penalized:
    """The value, the penalized gradient and its norms; only what `mu` needs is computed where branches are cheap.

    `hold` makes the choices of the first pass in the others too.
    """

    def straight(
        mu: RealScalarLike, radius: RealScalarLike | None, point: Point, consts: list, select: bool = False
    ) -> Penalized:
        rest, g = program.run(consts, point)
        norm2 = devices.norm2(g)
        scale, added = direction(mu, radius, point, consts, g, norm2, branch=False)
        active = jnp.asarray(mu != 0) if select else None
        return finish(rest, norm2, g, scale, added, active)

    def branching(mu: RealScalarLike, radius: RealScalarLike | None, point: Point, consts: list) -> Penalized:
        active = jnp.asarray(mu != 0)
        if method == "exact":  # the derivative of the gradient shares its pass, but only within one branch

            def unpenalized() -> Penalized:
                rest, g = program.run(consts, point)
                norm2 = devices.norm2(g)
                return Penalized(rest, norm2, g, jnp.zeros_like(norm2))

            if not is_traced(mu):
                return straight(mu, radius, point, consts)
            return jax.lax.cond(active, lambda: straight(mu, radius, point, consts), unpenalized)
        rest, g = program.run(consts, point)
        norm2 = devices.norm2(g)

        def added() -> tuple[Point, Scalar]:
            scale, change = direction(mu, radius, point, consts, g, norm2, branch=True)
            done = finish(rest, norm2, g, scale, change, None)
            return done.gradient, done.penalty2

        # A zero gradient has no penalty. The predicate comes from the first pass, and the buffers of the second are
        # then those of the first: written one after the other the two would be held at the same time.
        gradient, penalty2 = jax.lax.cond(active & (norm2 > 0), added, lambda: (g, jnp.zeros_like(norm2)))
        return Penalized(rest, norm2, gradient, penalty2)

    def direction(
        mu: RealScalarLike,
        radius: RealScalarLike | None,
        point: Point,
        consts: list,
        g: Point,
        norm2: Scalar,
        *,
        branch: bool,
    ) -> tuple[Scalar, Point]:
        """(a factor, a vector) whose product is 2 mu Hg."""

        def gradient(p: Point, moving: bool = False) -> Point:
            return program.run(consts, p, moving)[1]

        def elsewhere(p: Point) -> Point:
            return program.held(consts, point, p) if hold else gradient(p)

        mu = jnp.asarray(mu).astype(norm2.dtype)
        if method == "exact":
            return 2 * mu, _derivative(program, gradient, point, g)
        scale = jnp.asarray(radius) if radius is not None else radius_of(program, point, method, devices, hold)
        if radius is None and method == "forward":
            scale = scale * side(norm2).astype(scale.dtype)
        eps = scale.astype(norm2.dtype) / jnp.sqrt(jnp.where(norm2 > 0, norm2, jnp.ones_like(norm2)))
        ahead = elsewhere(add_scaled(point, eps, g))
        if method == "forward":
            return 2 * mu / eps, jax.tree.map(jnp.subtract, ahead, g)

        def behind() -> Point:
            return jax.tree.map(jnp.subtract, ahead, elsewhere(add_scaled(point, -eps, g)))

        if not branch:
            return mu / eps, behind()
        return mu / eps, jax.lax.cond(norm2 > 0, behind, lambda: jax.tree.map(jnp.zeros_like, g))

    def finish(rest: PyTree, norm2: Scalar, g: Point, scale: Scalar, added: Point, active: Array | None) -> Penalized:
        gradient, penalty2 = add_scaled(g, scale, added), scale**2 * devices.norm2(added)
        if active is not None:
            gradient = jax.tree.map(lambda a, b: jnp.where(active, a, b), gradient, g)
            penalty2 = jnp.where(active, penalty2, jnp.zeros_like(penalty2))
        return Penalized(rest, norm2, gradient, penalty2)

    if isinstance(program, Direct):
        return straight(mu, radius, point, program.consts)
    branches = program.may_branch()
    if not is_traced(mu):
        # On the CPU a program without branches is compiled better, and memory is no matter.
        return (branching if branches and platform() != "cpu" else straight)(mu, radius, point, program.consts)

    @jax.custom_jvp
    def scheduled(mu: RealScalarLike, radius: RealScalarLike | None, point: Point, consts: list) -> Penalized:
        """A schedule that is zero at this step pays for nothing, and gets g itself."""
        return branching(mu, radius, point, consts) if branches else straight(mu, radius, point, consts, select=True)

    @scheduled.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[Penalized, Penalized]:
        return jax.jvp(straight, primals, tangents)  # of mu at 0 too, where a branch would be constant

    return scheduled(mu, radius, point, program.consts)


def side(norm2: Scalar) -> Scalar:
    """On which side of the parameters the forward difference looks, +1 or -1: by the digits of |g|^2.

    The errors of the two sides cancel to first order, so what a radius is too long for averages out over the steps of a
    training, and without a counter to carry. Digits of one percent change from step to step but not with rounding: the
    side is the same however the batch is split over micro-batches and devices.
    """
    positive = jnp.where(norm2 > 0, norm2, jnp.ones_like(norm2))
    return 1 - 2 * (jnp.floor(64 * jnp.log2(positive)) % 2)


def _derivative(program: Program | Direct, gradient: Callable[..., Point], point: Point, direction: Point) -> Point:
    """Hg, forward over reverse, of the gradient as it is computed: `stop_gradient` holds in the gradient alone."""
    advice = 'use method="forward"'
    return along(lambda p: gradient(p, moving=True), point, direction, program.refusal, 'method="exact"', advice)
