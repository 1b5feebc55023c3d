"""The one file that touches what JAX does not promise: tracers, programs (jaxprs), mesh axes and Taylor mode."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import jax
import jax.core
import jax.extend.core
from jax.interpreters import ad
from jax.interpreters import partial_eval as pe
from jaxtyping import Array, ArrayLike

try:  # experimental, and so free to disappear: Taylor coefficients then come from nested differentiation
    from jax.experimental import jet
except ImportError:
    jet = None

Jaxpr: TypeAlias = jax.extend.core.Jaxpr
ClosedJaxpr: TypeAlias = jax.extend.core.ClosedJaxpr  # pyright: ignore[reportPrivateImportUsage]  # so in JAX 0.12
Equation: TypeAlias = jax.extend.core.JaxprEqn
Variable: TypeAlias = jax.extend.core.Var | jax.extend.core.Literal
Literal = jax.extend.core.Literal
jaxpr_as_fun = jax.extend.core.jaxpr_as_fun

# What tracing raises where a program chooses in Python by a value that is not known yet.
CONCRETE_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def is_traced(value: object) -> bool:
    """Whether `value` is not known yet, because a transformation such as `jax.jit` is tracing."""
    return isinstance(value, jax.core.Tracer)


_TOP = jax.extend.core.get_opaque_trace_state(convention="flax")


def is_eager() -> bool:
    """Whether JAX computes eagerly: no transformation is tracing."""
    return jax.extend.core.get_opaque_trace_state(convention="flax") == _TOP


def platform() -> str:
    """The kind of device on which a program made now will run, by `jax.default_device` and the backend."""
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    name = device if isinstance(device, str) else getattr(device, "platform", None)
    return name or jax.default_backend()


def equations(program: Jaxpr) -> Iterator[Equation]:
    """Every equation of a traced `program` and of the programs inside it."""
    for equation in program.eqns:
        yield equation
        for inner in programs(equation):
            yield from equations(inner)


def programs(equation: Equation) -> Iterator[Jaxpr]:
    """The programs inside an `equation`: the bodies of calls, loops and branches."""
    for value in equation.params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            if hasattr(inner, "eqns"):
                yield getattr(inner, "jaxpr", inner)


def scan_parts(equation: Equation, body: Jaxpr) -> tuple[int, int]:
    """(how many values a `scan` takes as they are, how many it carries on); the rest is scanned over, or stacked.

    JAX names these numbers in another way with each release. What is carried has the same shape outside and inside;
    what is scanned over or stacked has one axis less inside.
    """

    def alike(outer: list, inner: list) -> int:
        return sum(a.aval.ndim == b.aval.ndim for a, b in zip(outer, inner, strict=True))

    carried = alike(equation.outvars, body.outvars)
    return alike(equation.invars, body.invars) - carried, carried


def bind(equation: Equation, values: list) -> list:
    """Evaluate an `equation` at `values` other than those it was traced with."""
    params = equation.primitive.get_bind_params(equation.params)
    subfuns, params = params if isinstance(params, tuple) else ((), params)  # JAX 0.10 and later: in params
    with equation.ctx.manager:
        out = equation.primitive.bind(*subfuns, *values, **params)
    return list(out) if equation.primitive.multiple_results else [out]


def needed(program: Jaxpr, outputs: list[bool]) -> Jaxpr:
    """The same `program` without the equations on which no marked output depends. All inputs stay."""
    return pe.dce_jaxpr(program, outputs, instantiate=True)[0]


def unstopped(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The `closed` program with every `stop_gradient` replaced by an identity, so that derivatives pass through."""
    return closed.replace(jaxpr=_unstopped(closed.jaxpr))


def _unstopped(program: Jaxpr) -> Jaxpr:
    names = {equation.primitive.name for equation in equations(program)}
    if "stop_gradient" not in names:
        return program
    return program.replace(eqns=[_follow(equation) for equation in program.eqns])


# Functions of JAX that stop the gradient of a maximum which cancels: followed, it would only add rounding.
_CANCELLING = {"log_softmax", "softmax", "_softmax", "logsumexp", "_logsumexp"}


def _follow(equation: Equation) -> Equation:
    if equation.params.get("name") in _CANCELLING:
        return equation
    if equation.primitive.name == "stop_gradient":
        return equation.replace(primitive=jax.lax.copy_p, params={})
    return equation.replace(params={name: _inside(value) for name, value in equation.params.items()})


def _inside(value: Any) -> Any:
    if isinstance(value, tuple | list):
        if not any(hasattr(inner, "eqns") for inner in value):
            return value
        inside = map(_inside, value)  # those of a linear solve are fields of a named tuple
        return type(value)(*inside) if hasattr(value, "_fields") else type(value)(inside)
    if not hasattr(value, "eqns"):
        return value
    return unstopped(value) if hasattr(value, "jaxpr") else _unstopped(value)


@cache
def known_primitives() -> frozenset[str]:
    """The names of JAX's own operations. Operations of others may do anything to a number."""
    places = (jax.lax, jax.lax.linalg, jax.extend.core.primitives)
    own = {v.name for place in places for v in vars(place).values() if isinstance(v, jax.extend.core.Primitive)}
    foreign = {name for name in own if "callback" in name or "custom_call" in name or "ffi" in name}
    # Not exported: calls, collectives over a mesh, random bits, cuDNN's attention, which is smooth, and what is linear
    # in a sparse array. Which entries are zero may jump: making one from a dense array is not here.
    own |= {"jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
    own |= {"custom_vjp_call_jaxpr", "custom_lin", "shard_map", "add_any", "copy", "copy_p", "stop_gradient", "pvary"}
    own |= {"psum_invariant", "psum2", "all_gather_invariant", "reduce_scatter", "unreduced_psum", "axis_index"}
    own |= {"threefry2x32", "random_bits", "random_wrap", "random_unwrap", "random_split", "random_fold_in"}
    own |= {"random_seed", "random_gamma", "random_gamma_grad", "debug_callback", "debug_print", "optimization_barrier"}
    own |= {"sharding_constraint", "reshard", "mesh_cast", "layout_constraint", "device_put", "name", "custom_root"}
    own |= {"custom_linear_solve", "dot_product_attention_fwd_wrapper", "dot_product_attention_bwd_wrapper"}
    own |= {"dot_product_attention_fwd", "dot_product_attention_bwd", "select_and_gather_add", "empty", "empty2"}
    own |= {"bcoo_dot_general", "bcoo_dot_general_sampled", "bcoo_extract", "bcoo_spdot_general", "bcoo_todense"}
    own |= {"bcoo_transpose", "bcsr_dot_general", "bcsr_extract", "bcsr_todense", "coo_matvec", "coo_matmat"}
    own |= {"coo_todense", "csr_matvec", "csr_matmat", "csr_todense"}
    own |= {"convert_element_type", "erf_inv", "lu_pivots_to_permutation", "eigh", "tridiagonal_solve", "noinline_call"}
    return frozenset(own - foreign)


def without_forward_mode(program: Jaxpr) -> str | None:
    """The name of an operation of `program` that cannot be differentiated in forward mode, or None.

    Operations with a custom rule for reverse mode only are named first. One without any rule may be in a part of the
    program that is not differentiated.
    """
    found = []
    for equation in equations(program):
        name = equation.primitive.name
        if name.startswith("custom_vjp_call"):
            inner = next(programs(equation), None)
            function = getattr(getattr(inner, "debug_info", None), "func_name", None)
            return f"{name} of {function}" if function else name
        if equation.primitive not in ad.primitive_jvps and not next(programs(equation), None):
            found.append(name)
    return found[0] if found else None


def refuses_forward_mode(tangent: Jaxpr) -> bool:
    """Whether a traced `tangent` uses a rule for reverse mode only, which JAX reports at compilation only."""
    return any(equation.primitive.name == "custom_lin" for equation in equations(tangent))


def mesh_axes() -> frozenset:
    """The axes of a mesh over which the program being traced is mapped by `jax.shard_map`."""
    mesh = jax.sharding.get_abstract_mesh()
    return frozenset(getattr(mesh, "manual_axes", ()))


def varies_over(value: ArrayLike | jax.ShapeDtypeStruct) -> frozenset:
    """The mesh axes along which `value` differs between devices, as far as `jax.shard_map` tracks it."""
    kind = _type(value)
    account = getattr(kind, "manual_axis_type", None)  # JAX 0.10; `vma` in others
    return frozenset(getattr(account, "varying", None) or getattr(kind, "vma", None) or ())


def _type(value: ArrayLike | jax.ShapeDtypeStruct) -> Any:
    return value if isinstance(value, jax.ShapeDtypeStruct) else jax.typeof(value)


def keeps_account(axis: str) -> bool:
    """Whether JAX tracks which values differ between devices along an `axis` (`check_vma=True`)."""
    return axis in varies_over(jax.lax.axis_index(axis))


def varying(value: Array, axes: frozenset) -> Array:
    """`value`, marked as one that differs between devices along `axes`."""
    missing = tuple(sorted(axes - varies_over(value)))
    return jax.lax.pcast(value, missing, to="varying") if missing else value


def spec_of(array: Array | jax.ShapeDtypeStruct) -> tuple[jax.sharding.AbstractMesh | jax.sharding.Mesh | None, tuple]:
    """(mesh, partition spec) of an array on an explicit mesh, else (None, ())."""
    sharding = getattr(_type(array), "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    if sharding is None or mesh is None or jax.sharding.AxisType.Explicit not in mesh.axis_types:
        return None, ()
    return mesh, tuple(sharding.spec)


def layout(array: Array | jax.ShapeDtypeStruct, *leading: Any) -> Any:
    """Where to put an array like this one, with more leading axes, on an explicit mesh; None on others."""
    mesh, spec = spec_of(array)
    return None if mesh is None else jax.sharding.NamedSharding(mesh, jax.P(*leading, *spec))


def taylor_rule(function: Callable, primals: list, series: list[list]) -> tuple[list, list]:
    """Taylor mode on one operation: the value of `function` at `primals`, and its coefficients from `series`.

    These are not derivatives, whose factorials would overflow.
    """
    if jet is None:
        raise NotImplementedError("this JAX has no Taylor mode")
    return jet.jet(function, tuple(primals), tuple(series), factorial_scaled=False)
