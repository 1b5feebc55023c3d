r"""The modified equation of two-player games: two losses, two players, simultaneous or alternating steps.

Rosca, Wu, Dherin & Barrett, Discretization Drift in Two-Player Games, ICML 2021. A game is a pair of losses
$L_1(\phi, \theta)$ and $L_2(\phi, \theta)$; the first player changes $\phi$ to lower $L_1$, the second $\theta$ to
lower $L_2$. Its state is the pair $(\phi, \theta)$ of two pytrees.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from igr._checks import check_finite, check_params, is_whole
from igr._typing import Field, Loss, Params, RealScalarLike
from igr.calculus import add_scaled, gradient

Pair = tuple[Params, Params]


def _players(
    losses: tuple[Loss, Loss], rates: tuple[RealScalarLike, RealScalarLike], substeps: tuple[int, int]
) -> tuple[Field, Field]:
    """Each player's increment in one step, $-h_i$ times the gradient of its loss in its own parameters."""
    for name, pair in (("losses", losses), ("rates", rates), ("substeps", substeps)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{name} must be a pair, one for each player.")
    for rate, n in zip(rates, substeps, strict=True):
        check_finite("a rate", rate)
        if not is_whole(n, 1):
            raise ValueError(f"substeps must be positive whole numbers, but they are {substeps!r}.")

    def descent(slope: Field, rate: RealScalarLike, *at: object) -> Params:
        return jax.tree.map(lambda g: -jnp.asarray(rate).astype(g.dtype) * g, slope(*at))

    def first(phi: Params, theta: Params, *args: object, **kwargs: object) -> Params:
        return descent(gradient(lambda p: losses[0](p, theta, *args, **kwargs)), rates[0], phi)

    def second(phi: Params, theta: Params, *args: object, **kwargs: object) -> Params:
        return descent(gradient(lambda p: losses[1](phi, p, *args, **kwargs)), rates[1], theta)

    return first, second


def game_step(
    losses: tuple[Loss, Loss],
    rates: tuple[RealScalarLike, RealScalarLike],
    *,
    alternating: bool = False,
    substeps: tuple[int, int] = (1, 1),
) -> Callable[..., Pair]:
    r"""One step of both players of a game.

    $$\phi' = \phi - h_1 \nabla_\phi L_1(\phi, \theta), \qquad
    \theta' = \theta - h_2 \nabla_\theta L_2(\phi \text{ or } \phi', \theta)$$

    Simultaneous steps use the old $\phi$, alternating ones the new $\phi'$. A player with n substeps takes n steps of
    rate $h_i / n$. Called with the pair `(phi, theta)` and the arguments of the losses.

    >>> import jax.numpy as jnp
    >>> losses = (lambda p, t: p * t, lambda p, t: -p * t)
    >>> state = (jnp.array(1.0), jnp.array(1.0))
    >>> [float(x) for x in game_step(losses, (0.5, 0.5))(state)]
    [0.5, 1.5]
    >>> [float(x) for x in game_step(losses, (0.5, 0.5), alternating=True)(state)]
    [0.5, 1.25]
    """
    first, second = _players(losses, rates, substeps)

    def repeated(move: Callable[[Params], Params], start: Params, n: int) -> Params:
        return jax.lax.fori_loop(0, n, lambda _, x: add_scaled(x, 1 / n, move(x)), start)

    def step(state: Pair, *args: object, **kwargs: object) -> Pair:
        phi, theta = jax.tree.map(jnp.asarray, state)
        new = repeated(lambda p: first(p, theta, *args, **kwargs), phi, substeps[0])
        seen = new if alternating else phi
        return new, repeated(lambda t: second(seen, t, *args, **kwargs), theta, substeps[1])

    return step


def game_field(
    losses: tuple[Loss, Loss],
    rates: tuple[RealScalarLike, RealScalarLike],
    *,
    alternating: bool = False,
    substeps: tuple[int, int] = (1, 1),
    order: int = 1,
) -> Field:
    r"""The modified field of a two-player game, one joint flow of both players.

    $$\dot\phi = f - \tfrac12\big(\tfrac1m f_\phi f + f_\theta\, g\big), \qquad
    \dot\theta = g \mp \tfrac12 g_\phi f - \tfrac1{2k} g_\theta\, g$$

    Here $f = -h_1 \nabla_\phi L_1$ and $g = -h_2 \nabla_\theta L_2$ are the increments of one step, m and k the
    `substeps`, and the sign is minus for simultaneous, plus for alternating steps. The time counts steps. One step lies
    within $O(h^3)$ of the flow, n steps within $O(h^2)$, for any two rates. (The paper's field, in which each player
    has a time of its own, describes one step only if the rates differ.) Order 0 is the game's plain flow. Called with
    the pair `(phi, theta)`, as `igr.flow` does, and the arguments of the losses.

    >>> import jax.numpy as jnp
    >>> losses = (lambda p, t: p * t, lambda p, t: -p * t)  # the plain flow turns in a circle
    >>> state = (jnp.array(0.0), jnp.array(1.0))
    >>> [round(float(x), 6) for x in game_field(losses, (0.1, 0.1))(state)]  # outwards
    [-0.1, 0.005]
    >>> [round(float(x), 6) for x in game_field(losses, (0.1, 0.1), alternating=True)(state)]  # on an ellipse
    [-0.1, -0.005]
    """
    first, second = _players(losses, rates, substeps)
    if order not in (0, 1):
        raise ValueError(f"order must be 0 or 1, but it is {order!r}.")
    sign = 0.5 if alternating else -0.5

    def field(state: Pair, *args: object, **kwargs: object) -> Pair:
        check_params(state)
        state = tuple(jax.tree.map(jnp.asarray, player) for player in state)

        def scaled(scale: float, move: Params) -> Params:
            return jax.tree.map(lambda x: scale * x, move)

        f, g = (move(*state, *args, **kwargs) for move in (first, second))
        if order == 0:
            return f, g
        toward_first = (scaled(-0.5 / substeps[0], f), scaled(-0.5, g))
        toward_second = (scaled(sign, f), scaled(-0.5 / substeps[1], g))
        df = jax.jvp(lambda *s: first(*s, *args, **kwargs), state, toward_first)[1]
        dg = jax.jvp(lambda *s: second(*s, *args, **kwargs), state, toward_second)[1]
        return jax.tree.map(jnp.add, f, df), jax.tree.map(jnp.add, g, dg)

    return field
