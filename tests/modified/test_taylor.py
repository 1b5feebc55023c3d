"""Taylor rules, one operation after another, against nested differentiation: what is trusted was compared."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import igr
from igr._jax import equations, jet
from igr.modified import taylor

ORDER = 3
LARGE = jnp.array([-30.0, -0.7, 0.4, 30.0])
SMALL = jnp.array([-1e-6, 1e-6, 1e-4, 2e-3])
POSITIVE = jnp.array([1e-3, 0.4, 2.0, 300.0])
A = jnp.arange(8.0).reshape(2, 4) / 7 - 0.4
INDEX = jnp.array([2, 0])

EVERYWHERE = {
    "abs": jnp.abs, "add": lambda x: x + x[::-1], "cos": jnp.cos, "copy": lambda x: jnp.array(x) + 0 * x,
    "exp": lambda x: jnp.exp(x / 10), "integer_pow": lambda x: x**3, "logistic": jax.nn.sigmoid,
    "mul": lambda x: x * x[::-1],
    "neg": jnp.negative, "sin": jnp.sin, "sinh": lambda x: jnp.sinh(x / 10), "cosh": lambda x: jnp.cosh(x / 10),
    "square": jnp.square, "sub": lambda x: x - x[::-1] ** 2, "tanh": jnp.tanh, "expm1": lambda x: jnp.expm1(x / 10),
    "max": lambda x: jnp.maximum(x, x[::-1] ** 2), "select_n": lambda x: jnp.where(x > 0, x**2, x),
    "reduce_sum": lambda x: jnp.sum(x**2, keepdims=True), "reduce_max": lambda x: jnp.max(x**3, keepdims=True),
    "broadcast_in_dim": lambda x: jnp.broadcast_to(x, (2, 4)) ** 2, "reshape": lambda x: x.reshape(2, 2) ** 2,
    "squeeze": lambda x: jnp.squeeze(x[None]) ** 2, "transpose": lambda x: x.reshape(2, 2).T ** 2,
    "rev": lambda x: lax.rev(x, (0,)) ** 2, "slice": lambda x: lax.slice(x, (1,), (3,)) ** 2,
    "split": lambda x: lax.split(x**2, (1, 3))[1], "pad": lambda x: jnp.pad(x**2, 1),
    "concatenate": lambda x: jnp.concatenate([x, x**2]), "cumsum": lambda x: jnp.cumsum(x**2),
    "convert_element_type": lambda x: x.astype(jnp.float32).astype(x.dtype) ** 2,
    "add_any": jax.grad(lambda x: jnp.sum(x**4)),
    "dot_general": lambda x: x @ A.T.astype(x.dtype) * (x @ x), "gather": lambda x: x[INDEX] ** 2,
    "dynamic_slice": lambda x: lax.dynamic_slice(x**2, (INDEX[0],), (2,)),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, x[:2] ** 2, (INDEX[0],)),
    "scatter-add": lambda x: x.at[INDEX].add(x[:2] ** 2),
    "conv_general_dilated": lambda x: lax.conv(x.reshape(1, 1, 4), (x[:2] / 7).reshape(1, 1, 2), (1,), "SAME"),
}  # fmt: skip
WHERE_POSITIVE = {
    "div": lambda x: x[::-1] / x, "log": jnp.log, "rsqrt": lax.rsqrt, "sqrt": jnp.sqrt, "log1p": jnp.log1p,
}  # fmt: skip
CASES = [(n, f, at) for n, f in EVERYWHERE.items() for at in (LARGE, SMALL)]
CASES += [(n, f, POSITIVE) for n, f in WHERE_POSITIVE.items()] + [("log1p", jnp.log1p, SMALL)]


# The last term of the tolerance is the oracle's own rounding: (1 - y)(1 + y) differentiated cancels.


def both_ways(function, at, dtype):
    series = [jnp.asarray(v, dtype) for v in (at, jnp.cos(at), jnp.sin(3 * at), 0.3 + 0 * at)]
    program = jax.make_jaxpr(function)(series[0])
    wide = jax.make_jaxpr(function)(at)
    ours = taylor._by_rules(program, [series], ORDER)
    oracle = taylor._by_nesting(wide, [[s.astype(at.dtype) for s in series]], ORDER)
    return program.jaxpr, [r[0] for r in ours], [r[0] for r in oracle]


@pytest.mark.parametrize(("name", "function", "at"), CASES, ids=[f"{c[0]} at {c[2][0]:g}" for c in CASES])
def test_trusted_rules_are_those_of_nested_differentiation(name, function, at):
    """In float64, and in float32 against the float64 oracle, where a rule that cancels shows."""
    for dtype, tolerance in ((jnp.float64, 1e-12), (jnp.float32, 3e-5)):
        program, ours, oracle = both_ways(function, at, dtype)
        tolerance = 3e-5 if name == "convert_element_type" else tolerance  # its case rounds to float32
        if dtype == jnp.float64:
            assert name in {e.primitive.name for e in equations(program)} | {"copy", "add_any"}
        assert taylor.knows(program)
        for a, b in zip(ours, oracle, strict=True):
            scale = np.maximum(np.abs(b), 1e-3 * np.max(np.abs(b)))
            assert np.all(np.abs(np.asarray(a, np.float64) - b) <= tolerance * scale + 1e-15), (dtype, a, b)


def test_every_trusted_rule_was_compared():
    assert {n for n, _, _ in CASES} == taylor.TRUSTED | set(taylor.RULES)


UNTRUSTED = {
    "a cast to integers": lambda x: x * jnp.asarray(x, jnp.int32).astype(x.dtype),
    "rem": lambda x: lax.rem(x**2, 0.3 + 0 * x), "fmod": lambda x: jnp.fmod(x**3, 1.7),
    "arctan2 at 0": lambda x: jnp.arctan2(x, x * 0 + 1), "arcsinh": jnp.arcsinh,
    "clip": lambda x: jnp.clip(x**2, -0.5, 20.0),
    "minimum": lambda x: jnp.minimum(x**2, 1.0 + x), "clamp": lambda x: lax.clamp(-1.0, x**2, 5.0),
    "power": lambda x: (x**2 + 1) ** 1.5, "erfc": lambda x: lax.erfc(x / 10),
    "huber": lambda x: jnp.where(jnp.abs(x) < 1, x**2 / 2, jnp.abs(x) - 0.5),
    "abs of a complex number": lambda x: jnp.abs(x + 1j * x**2 + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTRUSTED)
def test_the_others_are_right_as_well(name):
    """Each was wrong or an error through `jax.experimental.jet`."""
    function, at = UNTRUSTED[name], jnp.array([-40.3, -0.7, 0.4, 7.2])
    with jax.numpy_dtype_promotion("standard"):
        series = [at, jnp.cos(at), jnp.sin(3 * at)]
        ours = taylor.compose(function, at, 2)(series)
        oracle = taylor._by_nesting(jax.make_jaxpr(function)(at), [series], 2)
        assert all(np.allclose(a, b[0], rtol=1e-10, atol=1e-12) for a, b in zip(ours, oracle, strict=True))
        # and of a loss: the terms of its field are finite and those of derivatives
        terms = igr.modified_terms(igr.gradient_field(lambda x: jnp.sum(function(x) ** 2) / 100), 1)
        f = igr.gradient_field(lambda x: jnp.sum(function(x) ** 2) / 100)
        assert np.allclose(terms[1](at), -igr.derivative(f, at, f(at)) / 2, rtol=1e-9, atol=1e-12)


def test_a_function_with_a_derivative_of_its_own_keeps_it():
    """Softplus is a maximum and an absolute value inside, whose derivatives at 0 are not those of softplus."""
    x = jnp.array([0.0, 0.4, -3.0])
    series = [x, jnp.cos(x), jnp.sin(3 * x)]
    assert taylor.knows(jax.make_jaxpr(jax.nn.softplus)(x).jaxpr)
    ours = taylor.compose(jax.nn.softplus, x, 2)(series)
    first = jax.nn.sigmoid(x)
    assert np.allclose(ours[1], first * series[1], rtol=1e-14)
    assert np.allclose(ours[2], first * (1 - first) * series[1] ** 2 / 2 + first * series[2], rtol=1e-13)


def test_jaxs_own_rules_of_small_arguments_cancel():
    """Why there are rules of our own: float32, x = 1e-6."""
    x = jnp.float32(1e-6)
    for function in (jnp.tanh, jnp.expm1, jnp.log1p):
        theirs, _ = jet.jet(function, (x,), ([jnp.float32(1)],))
        assert abs(float(theirs) / 1e-6 - 1) > 1e-2
        ours = taylor.compose(function, x, 1)([x, jnp.float32(1)])
        assert abs(float(ours[0]) / 1e-6 - 1) < 1e-5
