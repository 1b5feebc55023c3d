"""TensorFloat-32 on a machine that has none: float32 products whose factors are rounded to 10 bits of mantissa."""

import jax
import jax.numpy as jnp

from igr._jax import bind

PRODUCTS = ("dot_general", "conv_general_dilated")
CALLS = ("closed_call", "custom_jvp_call", "remat2", "checkpoint")


def with_tf32(function):
    """The same function with the products of a GPU: rounded float32 factors, multiplied exactly, summed in float32.

    Differentiated, it rounds the factors of the derivative's products too, as a GPU does. NVIDIA's units add in another
    order than a CPU; nothing else differs.
    """

    def rounded(*args):
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        outs = _run(closed.jaxpr, closed.consts, jax.tree.leaves(args))
        return jax.tree.structure(shape).unflatten(outs)

    return rounded


def _run(program, consts, args):
    known = dict(zip([*program.constvars, *program.invars], [*consts, *args], strict=True))

    def read(variable):
        return variable.val if hasattr(variable, "val") else known[variable]

    for equation in program.eqns:
        known.update(zip(equation.outvars, _apply(equation, [*map(read, equation.invars)]), strict=True))
    return [*map(read, program.outvars)]


def _apply(equation, values):
    name, params = equation.primitive.name, equation.params
    inner = params.get("jaxpr", params.get("call_jaxpr"))

    def body(*values):
        return _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", []), values)

    if name in CALLS:
        return body(*values)
    if name in ("jit", "pjit"):
        body.__name__ = params["name"]  # igr knows log_softmax and others by it
        return jax.jit(body)(*values)
    if name == "scan":
        fixed, carried = params["num_consts"], params["num_carry"]
        consts, carry, xs = values[:fixed], values[fixed : fixed + carried], values[fixed + carried :]

        def step(carry, xs):
            outs = body(*consts, *carry, *xs)
            return outs[:carried], outs[carried:]

        carry, ys = jax.lax.scan(step, carry, xs, params["length"], params["reverse"])
        return [*carry, *ys]
    if inner is not None or "branches" in params or "body_jaxpr" in params:
        raise NotImplementedError(f"no rule for {name}: products inside it would stay in float32.")
    if name in PRODUCTS:
        values = [jax.lax.reduce_precision(v, 8, 10) if v.dtype == jnp.float32 else v for v in values]
    return bind(equation, values)
