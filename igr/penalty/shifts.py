"""Maxima that only shift: those inside a softmax written by hand, which cancel in its result."""

from igr._jax import Equation, Jaxpr, Variable

_ALIASES = {"broadcast_in_dim", "reshape", "squeeze", "stop_gradient", "copy", "convert_element_type"}
_NORMALIZING = {"div", "log", "integer_pow"}


def shift_masks(program: Jaxpr) -> set[int]:
    r"""The ids of the comparisons x == max x whose maximum only shifts, so that no step of theirs shows.

    In $e^{x - m} / \sum e^{x - m}$ and in $m + \log \sum e^{x - m}$ the maximum m cancels, and so do the two parts
    of the gradient that it has. Found where m is used in x - m (and added back to the logarithm) alone, x - m in the
    exponential (and less the logarithm), and where the sum of the exponentials divides or goes through the logarithm.
    """
    uses: dict[Variable, list[Equation]] = {}
    for equation in program.eqns:
        for v in equation.invars:
            if not hasattr(v, "val"):
                uses.setdefault(v, []).append(equation)
    masks: set[int] = set()
    for equation in program.eqns:
        if equation.primitive.name == "reduce_max":
            masks |= _masks_of(equation, uses)
    return masks


def _masks_of(equation: Equation, uses: dict[Variable, list[Equation]]) -> set[int]:
    x, found = equation.invars[0], set()
    normalized = False
    for use in _used(equation.outvars[0], uses):
        name = use.primitive.name
        if name == "eq" and x in use.invars:
            found.add(id(use))
        elif name == "sub" and use.invars[0] is x:
            sums = [s for e in _used(use.outvars[0], uses) if e.primitive.name == "exp" for s in _sums(e, uses)]
            others = {e.primitive.name for e in _used(use.outvars[0], uses)}
            if not sums or not others <= {"exp", "sub"}:
                return set()
            normalized = any(e.primitive.name in _NORMALIZING for s in sums for e in _used(s.outvars[0], uses))
        elif name != "add" and not (name == "max" and any(hasattr(v, "val") for v in use.invars)):
            return set()
    return found if normalized else set()


def _sums(exponential: Equation, uses: dict[Variable, list[Equation]]) -> list[Equation]:
    return [e for e in _used(exponential.outvars[0], uses) if e.primitive.name == "reduce_sum"]


def _used(variable: Variable, uses: dict[Variable, list[Equation]]) -> list[Equation]:
    """Where a value is used, whatever its shape."""
    found = []
    for equation in uses.get(variable, []):
        if equation.primitive.name in _ALIASES:
            found += _used(equation.outvars[0], uses)
        else:
            found.append(equation)
    return found
