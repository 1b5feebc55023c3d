"""Where a gradient jumps: whether a loss has kinks, as with ReLU, found in the program of its gradient."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from igr._jax import CONCRETE_VALUES, Equation, Jaxpr, Literal, Variable, known_primitives, programs, scan_parts
from igr._typing import Loss, Params
from igr.calculus import gradient
from igr.penalty.shifts import shift_masks

# What a value is as a function of the parameters (a square and what is signed never change their sign); a result is as
# bad as the worst it is made of. Signs count because programs guard against what cannot be: the sum inside `logsumexp`
# is compared with 0, and so is a variance.
_ZERO, _CONSTANT, _SQUARE, _SIGNED, _CONTINUOUS, _JUMPING = range(6)

# A positive constant up to this one guards against a division by zero, and is taken for zero.
_TINY = 1e-4

_STEPS = {"sign", "floor", "ceil", "round", "rem", "select_and_scatter_add"}
# The pivots of a decomposition cancel in what is solved with it, and so do the two parts that bits are split into.
_NO_STEPS = {"is_finite", "lu", "bitcast_convert_type"}
_ORDERS = {"lt", "le", "gt", "ge", "sign"}
_NONNEGATIVE = {"exp", "logistic", "sqrt"}
# Constant factors are taken for weights of one sign.
_KEEP_SIGN = {"mul", "div", "reduce_sum", "select_n", "sign"}
_KEEP_SIGN |= {"broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type"}
# Functions of JAX that choose by a comparison between two sides whose derivatives meet. Those of `selu` do not.
_MEETING = {"elu", "celu", "sparse_plus", "sinc"}


def has_kinks(loss: Loss, params: Params, has_aux: bool = False) -> bool:
    r"""Whether the gradient of a loss jumps somewhere, found by tracing it.

    $$\nabla E(\theta + \epsilon v) - \nabla E(\theta) \not\to 0 \quad\text{as } \epsilon \to 0,
    \text{ for some } \theta, v$$

    A comparison of values that depend on the parameters is a step, and so are a sign, the index of a largest value and
    max-pooling's choice. The gradient jumps if a step reaches it. `max` and `abs` themselves are continuous: what
    counts is their derivative, so the maximum inside `log_softmax`, the rule of `softplus` and masks of data do not.

    With `has_aux` the loss returns a pair, whose second part does not count.

    Only the program is known, not the function. A choice whose two sides meet (Huber's loss, a solver that stops at a
    tolerance) counts as a kink, but for `elu`, `celu` and `sinc`, and so does an operation that is not JAX's own (a
    kernel, a callback): a radius that is longer than needed costs accuracy, one that is too short over a kink costs a
    training. So does a loss that chooses in Python by the values of the parameters and cannot be traced.

    >>> import jax, jax.numpy as jnp
    >>> has_kinks(lambda x: jnp.sum(jax.nn.relu(x)), jnp.ones(3)), has_kinks(jax.nn.logsumexp, jnp.ones(3))
    (True, False)
    """
    try:
        return jumps(jax.make_jaxpr(gradient(loss, has_aux))(params).jaxpr)
    except CONCRETE_VALUES:
        return True


def jumps(program: Jaxpr) -> bool:
    """Whether an output of a program jumps as its inputs vary."""
    return _JUMPING in outputs(program, [_CONTINUOUS] * len(program.invars))


def pools(program: Jaxpr) -> bool:
    """Whether a gradient passes through a largest value among several that vary, as in max-pooling."""
    found = []

    def visit(equation: Equation, varies: list[bool]) -> None:
        found.append(equation.primitive.name == "select_and_scatter_add" and varies[1])

    visit_varying(program, visit)
    return any(found)


Visit = Callable[[Any, list[bool]], None]


def visit_varying(program: Jaxpr, visit: Visit) -> None:
    """Call `visit(equation, which of its inputs vary)` for every operation on what varies with the inputs."""
    outputs(program, [_CONTINUOUS] * len(program.invars), visit)


def outputs(program: Jaxpr, inputs: list[int], visit: Visit | None = None) -> list[int]:
    """What the outputs of a program are, given what its inputs are."""
    known = dict(zip(program.invars, inputs, strict=True))

    def kind(variable: Variable) -> int:
        if isinstance(variable, Literal):
            return _ZERO if np.ndim(variable.val) == 0 and 0 <= variable.val <= _TINY else _CONSTANT
        return known.get(variable, _CONSTANT)

    masks = shift_masks(program)
    for equation in program.eqns:
        if id(equation) in masks:
            known.update(dict.fromkeys(equation.outvars, _CONSTANT))
            continue
        kinds = [*map(kind, equation.invars)]
        known.update(zip(equation.outvars, _results(equation, kinds, visit), strict=True))
    return [*map(kind, program.outvars)]


def _results(equation: Equation, inputs: list[int], visit: Visit | None) -> list[int]:
    name, inner = equation.primitive.name, list(programs(equation))
    if not inner or name not in known_primitives():
        if visit is not None and max(inputs, default=_CONSTANT) > _CONSTANT:
            visit(equation, [kind > _CONSTANT for kind in inputs])
        return [_result(equation, inputs, out) for out in equation.outvars]
    if name == "cond":
        branches = [outputs(program, inputs[1:], visit) for program in inner]
        return [max(inputs[0], *results) for results in zip(*branches, strict=True)]
    if name == "scan":
        return _scanned(equation, inner[0], inputs, visit)
    if len(inner) == 1 and len(inner[0].invars) == len(inputs):  # a call: jit, remat, shard_map, one with its own rule
        results = outputs(inner[0], inputs, visit)
        meets = equation.params.get("name") in _MEETING and _JUMPING not in inputs and not _bent(equation)
        return [min(kind, _CONTINUOUS) for kind in results] if meets else results
    worst = max(inputs, default=_CONSTANT)
    worst = worst if worst <= _CONSTANT else max(worst, _CONTINUOUS)  # what a loop carries on need not keep its sign
    results = [kind for program in inner for kind in outputs(program, [worst] * len(program.invars), visit)]
    return [max([worst, *results])] * len(equation.outvars)


def _bent(equation: Equation) -> bool:
    """Whether this is `elu(x, alpha)` with an alpha that is not known to be 1: its slopes at 0 are 1 and alpha."""
    if equation.params.get("name") != "elu" or len(equation.invars) != 2:  # its derivative is given more than these
        return False
    alpha = equation.invars[1]
    return not (isinstance(alpha, Literal) and np.ndim(alpha.val) == 0 and alpha.val == 1)


def _scanned(equation: Equation, body: Jaxpr, inputs: list[int], visit: Visit | None) -> list[int]:
    start, count = scan_parts(equation, body)
    before = inputs[start : start + count]
    results = outputs(body, inputs, visit)
    carry = [*map(max, before, results[:count])]
    if carry == before:
        return carry + results[count:]
    return _scanned(equation, body, [*inputs[:start], *carry, *inputs[start + count :]], visit)


def _result(equation: Equation, inputs: list[int], out: Variable) -> int:
    """What one result of a single operation is."""
    name, worst = equation.primitive.name, max(inputs, default=_CONSTANT)
    if worst == _JUMPING or _is_step(equation, inputs, out):
        return _JUMPING
    if worst > _CONSTANT and name not in known_primitives() and _is_real(out):
        return _JUMPING
    if name in _KEEP_SIGN or (name == "max" and worst < _CONTINUOUS and _ZERO in inputs):
        return worst
    if worst <= _CONSTANT:
        return _CONSTANT
    if name == "square" or (name == "integer_pow" and equation.params["y"] == 2):
        return _SQUARE
    # A variance may be the mean square less the square of the mean.
    if name in _NONNEGATIVE or (name == "sub" and inputs == [_SQUARE, _SQUARE]):
        return _SIGNED
    return _CONTINUOUS


def _is_step(equation: Equation, inputs: list[int], out: Variable) -> bool:
    """Whether an operation takes values that vary continuously to one that does not."""
    name = equation.primitive.name
    varying = {v for v, kind in zip(equation.invars, inputs, strict=True) if kind > _CONSTANT and _is_real(v)}
    if not varying or name in _NO_STEPS or (_is_real(out) and name not in _STEPS):
        return False
    one_sign = max(inputs) < _CONTINUOUS
    if name in ("eq", "ne"):  # with a constant or with itself: a guard against zero, infinity or NaN
        return len(varying) == 2 and not one_sign
    return not (name in _ORDERS and one_sign and len(varying) == 1 and _CONSTANT not in inputs)


def _is_real(variable: Variable) -> bool:
    return jnp.issubdtype(getattr(variable.aval, "dtype", bool), jnp.inexact)
