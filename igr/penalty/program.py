"""The program of a value and its gradient, traced once and run at as many points as a method needs."""

from collections.abc import Callable
from typing import Any, Literal

import jax
from jaxtyping import Array, PyTree

from igr._checks import check_params, checked
from igr._jax import (
    CONCRETE_VALUES,
    Jaxpr,
    equations,
    is_eager,
    jaxpr_as_fun,
    needed,
    platform,
    unstopped,
    without_forward_mode,
)
from igr._typing import Params
from igr.penalty.held import held
from igr.penalty.kinks import jumps, pools

Kinks = Literal["cross", "hold"]
Point = list[Any]  # the leaves that are differentiated


class Program:
    """`at(point) -> ((energy, aux), gradient)` as a program: what is closed over is an argument of it, `consts`.

    Leaves of aux that are no arrays pass through as they are.
    """

    def __init__(self, at: Callable[[Point], PyTree], point: Point) -> None:
        self.kept: list[tuple | None] = []
        self.structure: Any = jax.tree.structure(None)

        def flat(*leaves: Array) -> tuple[list, Point]:
            rest, gradient = at(list(leaves))
            outs, self.structure = jax.tree.flatten(rest)
            self.kept = [None if _is_array(x) else (x,) for x in outs]
            return [x for x in outs if _is_array(x)], gradient

        self.closed = jax.make_jaxpr(flat)(*point)
        self.consts = list(self.closed.consts)
        self.size = len(point)

    def run(self, consts: list, point: Point, moving: bool = False) -> tuple[list, Point]:
        """(the arrays of the value and of aux, the gradient) at a point; `moving` ignores `stop_gradient`."""
        closed = unstopped(self.closed) if moving else self.closed
        outs = jaxpr_as_fun(closed.replace(consts=consts))(*point)
        return outs[: -self.size], outs[-self.size :]

    def held(self, consts: list, here: Point, there: Point) -> Point:
        """The gradient `there`, with every choice made as it is `here`."""
        return held(self.gradient(), consts, here, there)

    def rest(self, arrays: list) -> PyTree:
        """(energy, aux) again, from its arrays."""
        given = iter(arrays)
        return self.structure.unflatten([next(given) if kept is None else kept[0] for kept in self.kept])

    def gradient(self) -> Jaxpr:
        """The program of the gradient alone."""
        outputs = len(self.closed.jaxpr.outvars)
        return needed(self.closed.jaxpr, [i >= outputs - self.size for i in range(outputs)])

    def may_branch(self) -> bool:
        """Whether a pass may stand in a branch: XLA's CPU convolutions are twenty times slower there."""
        return platform() != "cpu" or all(
            e.primitive.name != "conv_general_dilated" for e in equations(self.closed.jaxpr)
        )

    def refusal(self) -> str | None:
        """The operation that cannot be differentiated in forward mode, for a sentence."""
        return without_forward_mode(self.closed.jaxpr)


def _is_array(value: object) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


class Direct:
    """The same for a loss that chooses in Python by its values: it runs, but has no program."""

    closed = None
    consts: list = []  # noqa: RUF012

    def __init__(self, at: Callable[[Point], PyTree]) -> None:
        self.at = at

    def run(self, consts: list[PyTree], point: Point, moving: bool = False) -> PyTree:
        """What `at` gives; nothing is known about stopped gradients."""
        return self.at(point)

    def held(self, consts: list, here: Point, there: Point) -> Point:
        """The gradient `there`: nothing is known about choices either."""
        return self.at(there)[1]

    def rest(self, rest: PyTree) -> PyTree:
        """(energy, aux), which `run` gave already."""
        return rest

    def may_branch(self) -> bool:
        """A branch would trace the loss."""
        return False

    def refusal(self) -> None:
        """Nothing is known about the operations of the loss."""
        return


def traced(at: Callable[[Point], PyTree], point: Point) -> Program | Direct:
    """The program of `at`, or `at` itself where it needs to know values."""
    try:
        return Program(at, point)
    except CONCRETE_VALUES:
        if not is_eager():
            raise
        return Direct(at)


def holds(program: Program | Direct, kinks: Kinks | None) -> bool:
    """Whether differences make the choices of the first pass in the others too."""
    if kinks == "cross" or (kinks is None and isinstance(program, Direct)):
        return False
    if isinstance(program, Direct):
        raise ValueError(
            'kinks="hold" needs the program of the loss, and this loss chooses in Python by the values of its '
            'parameters: use jnp.where or jax.lax.cond in it, or kinks="cross".'
        )
    return (pools if kinks is None else jumps)(program.gradient())


def of_loss(loss: Callable, params: Params, args: tuple, kwargs: dict, has_aux: bool) -> tuple[Program | Direct, Point]:
    """(the program of a loss and its gradient, the leaves of the parameters)."""
    check_params(params)
    leaves, structure = jax.tree.flatten(params)
    function = checked(loss, has_aux)

    def at(point: Point) -> PyTree:
        out, g = jax.value_and_grad(lambda p: function(structure.unflatten(p), *args, **kwargs), has_aux=has_aux)(point)
        return (out[0] if has_aux else out, None), g

    return traced(at, leaves), leaves


def bound(loss: Callable, argnums: int | tuple[int, ...], args: tuple) -> tuple[Params, Callable, tuple]:
    """(params, the loss as a function of params and the other positional arguments, those others)."""
    chosen = (argnums,) if isinstance(argnums, int) else argnums
    if not all(-len(args) <= i < len(args) for i in chosen):
        raise ValueError(f"argnums is {argnums}, but only {len(args)} positional arguments were given.")
    places = [i % len(args) for i in chosen]
    others = [i for i in range(len(args)) if i not in places]

    def of(params: Params, *rest: object, **kwargs: object) -> PyTree:
        full = dict(zip(others, rest, strict=True))
        full |= dict(zip(places, (params,) if isinstance(argnums, int) else params, strict=True))
        return loss(*(full[i] for i in range(len(args))), **kwargs)

    params = args[places[0]] if isinstance(argnums, int) else tuple(args[i] for i in places)
    return params, of, tuple(args[i] for i in others)
