"""What the penalty does with the program of a loss: one trace, Python's ifs, stopped gradients, schedules, errors."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import relative
from problems import GENERIC_START, conv_loss, generic, mlp_loss

import igr

METHODS = ["exact", "forward", "central"]
X = jnp.array([0.3, -0.5, 0.7])


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_is_traced_once(method):
    traces = []

    def loss(x):
        traces.append(1)
        return jnp.sum(jnp.tanh(x) ** 4)

    step = jax.jit(igr.value_and_grad(loss, 0.1, method))
    step(X)
    assert len(traces) == 1
    scheduled = jax.jit(lambda mu, x: igr.value_and_grad(loss, mu, method)(x))
    scheduled(0.1, X)
    assert len(traces) == 2


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_chooses_in_python_by_its_values(method):
    """As with `jax.grad`: outside of jit it may, inside it may not."""

    def loss(x):
        return jnp.sum(x**4) if x[0] > 0 else jnp.sum(x**2)

    ours = igr.value_and_grad(loss, 0.1, method)(X)[1]
    assert relative(ours, 4 * X**3 + 0.2 * 12 * X**2 * 4 * X**3) < (1e-12 if method == "exact" else 0.1)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(igr.value_and_grad(loss, 0.1, method))(X)
    # what is not known of it counts as a kink
    assert igr.has_kinks(loss, X)
    assert igr.default_radius(loss, X) == igr.default_radius(lambda x: jnp.sum(x**4), X)  # float64 has no kink radius
    assert igr.default_radius(loss, X.astype(jnp.float32)) == pytest.approx(0.2 * float(jnp.linalg.norm(X)))
    assert igr.penalty_error(loss, X, radii=[1e-4]).forward[0] < 1e-2


def temporal_difference(x):
    return jnp.sum((x - jax.lax.stop_gradient(jnp.tanh(2 * x))) ** 2)


def test_what_is_stopped_still_moves_with_the_parameters():
    """The gradient of a temporal difference is a field like any other; its derivative has the target's."""

    def field(x):
        return -2 * (x - jnp.tanh(2 * x))

    jacobian = jax.jacobian(field)(X)
    stopped = jax.jacobian(igr.gradient_field(temporal_difference))(X)
    assert (
        relative(igr.modified_terms(igr.gradient_field(temporal_difference), 1)[1](X), -jacobian @ field(X) / 2) < 1e-12
    )
    assert relative(stopped @ field(X), jacobian @ field(X)) > 0.1  # what jax says is another derivative
    assert relative(igr.derivative(igr.gradient_field(temporal_difference), X, X), jacobian @ X) < 1e-12
    wanted = -field(X) - 0.2 * jacobian @ -field(X)
    for method, within in zip(METHODS, (1e-12, 1e-6, 1e-6), strict=True):
        assert relative(igr.value_and_grad(temporal_difference, 0.1, method)(X)[1], wanted) < within


def test_a_softmax_whose_maximum_is_stopped_has_its_hessian():
    def loss(x):
        shifted = x - jax.lax.stop_gradient(jnp.max(x))
        return jnp.log(jnp.sum(jnp.exp(shifted))) - shifted[0]

    g, hessian = jax.grad(loss)(X), jax.hessian(loss)(X)
    assert relative(igr.value_and_grad(loss, 0.5)(X)[1], g + hessian @ g) < 1e-12


def test_a_loss_with_a_linear_solve():
    """Its programs are those of a named tuple, and the pivots of its decomposition are stopped."""

    def loss(x):
        kernel = jnp.exp(-((x[:, None] - x[None, :]) ** 2)) + jnp.eye(3)
        return x @ jnp.linalg.solve(kernel, x)

    g, hessian = jax.grad(loss)(X), jax.hessian(loss)(X)
    for method, within in zip(METHODS, (1e-12, 1e-6, 1e-6), strict=True):
        assert relative(igr.value_and_grad(loss, 0.5, method)(X)[1], g + hessian @ g) < within


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_it_can_be_differentiated_by_mu(method, mu):
    def projected(mu):
        return igr.value_and_grad(generic, mu, method)(GENERIC_START)[1] @ jnp.array([0.4, -1.0])

    hessian, g = jax.hessian(generic)(GENERIC_START), jax.grad(generic)(GENERIC_START)
    wanted = float(2 * (hessian @ g) @ jnp.array([0.4, -1.0]))
    assert jax.grad(projected)(mu) == pytest.approx(wanted, rel=1e-6)
    assert jax.grad(jax.jit(projected))(mu) == pytest.approx(wanted, rel=1e-6)
    across = jax.grad(lambda s: igr.value_and_grad(lambda x: generic(s * x), 0.1 * s, method)(GENERIC_START)[1][0])(1.0)
    exact = jax.grad(lambda s: igr.value_and_grad(lambda x: generic(s * x), 0.1 * s)(GENERIC_START)[1][0])(1.0)
    assert across == pytest.approx(float(exact), rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_convolutional_net_on_a_schedule_is_plain_where_mu_is_zero_and_has_no_branch_on_the_cpu(getkey, method):
    """XLA's CPU convolutions are twenty times slower in a branch, and differ in their last bits."""
    loss, params, args = conv_loss(getkey())
    step = jax.jit(lambda mu, *rest: igr.value_and_grad(loss, mu, method, has_aux=True)(*rest))
    for a, b in zip(
        jax.tree.leaves(step(0.0, params, *args)),
        jax.tree.leaves(jax.jit(jax.value_and_grad(loss, has_aux=True))(params, *args)),
        strict=True,
    ):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert "cond[" not in str(jax.make_jaxpr(step)(0.1, params, *args))
    wanted = jax.jit(igr.value_and_grad(loss, 0.1, method, has_aux=True))(params, *args)[1]
    assert relative(step(0.1, params, *args)[1], wanted) < 1e-5


def test_on_an_accelerator_the_second_pass_stands_in_a_branch(getkey, monkeypatch):
    """Its buffers are then those of the first. What platform it is, only the program tells."""
    loss, params, args = mlp_loss(getkey(), dtype=jnp.float64)
    here = igr.value_and_grad(loss, 0.1, "central")(params, *args)[1]
    for module in ("igr.penalty.differences.platform", "igr.penalty.program.platform"):
        monkeypatch.setattr(module, lambda: "gpu")
    for method, branches in (("forward", 1), ("central", 2), ("exact", 0)):
        program = str(jax.make_jaxpr(igr.value_and_grad(loss, 0.1, method))(params, *args))
        assert program.count("cond[") == branches, method
    assert relative(igr.value_and_grad(loss, 0.1, "central")(params, *args)[1], here) < 1e-7


@jax.custom_vjp
def kernel(x):
    return x**2


@jax.custom_vjp
def kernel_rule(x, g):
    return 2 * x * g


kernel.defvjp(lambda x: (x**2, x), lambda x, g: (kernel_rule(x, g),))
kernel_rule.defvjp(lambda x, g: (2 * x * g, None), lambda _, g: (g, g))


def test_a_loss_that_forbids_forward_mode_is_one_sentence():
    """As cuDNN's attention and diffrax's adjoints do."""
    with pytest.raises(TypeError, match=r'custom_vjp_call of kernel_rule does not allow: use method="forward"'):
        igr.value_and_grad(lambda x: jnp.sum(kernel(x)), 0.1)(X)
    for compiled in (
        jax.jit(igr.value_and_grad(lambda x: jnp.sum(kernel(x)), 0.1)),
        jax.jit(lambda x: igr.value_and_grad(lambda x: jnp.sum(kernel(x)), x[0])(x)),
    ):
        with pytest.raises(TypeError, match=r'custom_vjp_call of kernel_rule does not allow: use method="forward"'):
            compiled(X)
    ours = igr.value_and_grad(lambda x: jnp.sum(kernel(x)), 0.1, "forward")(X)[1]
    assert relative(ours, 2 * X + 0.2 * 4 * X) < 1e-6
    with pytest.raises(
        TypeError, match=r"penalty_error differentiates .* custom_vjp_call of kernel_rule does not allow"
    ):
        igr.penalty_error(lambda x: jnp.sum(kernel(x)), X)
    with pytest.raises(TypeError, match=r"a Hessian product differentiates .* custom_vjp_call of kernel_rule does not"):
        igr.hvp(lambda x: jnp.sum(kernel(x)))(X, X)


def test_a_loss_with_a_solver_of_diffrax_is_one_sentence():
    """Its adjoint raises a RuntimeError of its own where the step is adaptive."""

    def loss(rate):
        term, control = diffrax.ODETerm(lambda t, y, _: -rate * y), diffrax.PIDController(rtol=1e-3, atol=1e-6)
        solved = diffrax.diffeqsolve(term, diffrax.Bosh3(), 0.0, 1.0, 0.25, jnp.ones(2), stepsize_controller=control)
        return jnp.sum(solved.ys**2)

    with pytest.raises(TypeError, match=r'method="exact" .* custom_vjp_call.* does not allow: use method="forward"'):
        jax.jit(igr.value_and_grad(loss, 0.1))(jnp.array(0.5))
    grads = jax.jit(igr.value_and_grad(loss, 0.1, "forward"))(jnp.array(0.5))[1]
    g = -4 * np.exp(-1.0)  # of 2 exp(-2 rate)
    assert grads == pytest.approx(g - 0.4 * g**2, rel=0.02)


def test_a_pair_without_has_aux_is_one_sentence():
    for call in (igr.value_and_grad(lambda x: (x @ x, x), 0.1), igr.regularizer(lambda x: (x @ x, x))):
        with pytest.raises(TypeError, match=r"the loss returned a tuple.*use has_aux=True"):
            call(X)


@pytest.mark.parametrize("method", METHODS)
def test_the_share_of_the_penalty(method, getkey):
    loss, params, args = mlp_loss(getkey(), dtype=jnp.float64)
    hg = igr.hvp(loss)(params, g := jax.grad(loss)(params, *args), *args)
    wanted = 2 * 0.3 * float(jnp.sqrt(igr.squared_norm(hg) / igr.squared_norm(g)))
    (_, share), _ = igr.value_and_grad(loss, 0.3, method, with_share=True)(params, *args)
    assert share == pytest.approx(wanted, rel=1e-3)
    (_, (norm2, share)), _ = jax.jit(
        lambda mu: igr.value_and_grad(loss, mu, method, with_norm=True, with_share=True)(params, *args)
    )(0.3)
    assert share == pytest.approx(wanted, rel=1e-3)
    assert norm2 == pytest.approx(float(igr.squared_norm(g)))
    assert igr.value_and_grad(loss, 0.0, method, with_share=True)(params, *args)[0][1] == 0


def test_argnums_and_integers():
    def loss(a, n, b):
        return jnp.sum((a * b) ** 2) * n["power"] + jnp.sum(b**4)

    a, n, b = jnp.array([0.5, -1.0]), {"power": jnp.int32(2)}, jnp.array([0.3, 0.8])
    with jax.numpy_dtype_promotion("standard"):
        ours = igr.value_and_grad(loss, 0.1, argnums=(2, 0))(a, n, b)[1]
        both = igr.value_and_grad(lambda p: loss(p[1], n, p[0]), 0.1)((b, a))[1]
        assert relative(ours, both) < 1e-14
        assert relative(igr.value_and_grad(loss, 0.1, argnums=-1)(a, n, b)[1], both[0]) > 1e-3  # a is fixed there
        with pytest.raises(TypeError, match="is int32"):
            igr.value_and_grad(loss, 0.1, argnums=(0, 1))(a, n, b)
        grads = igr.value_and_grad(loss, 0.1, argnums=(0, 1, 2), allow_int=True)(a, n, b)[1]
        assert relative((grads[2], grads[0]), both) < 1e-14
        assert grads[1]["power"].dtype == jax.dtypes.float0
        with pytest.raises(TypeError, match="is complex128, but the gradient needs real"):
            igr.value_and_grad(lambda z: jnp.sum(jnp.abs(z)), 0.1, allow_int=True)(a + 1j)
    with pytest.raises(ValueError, match="argnums is 3, but only 1"):
        igr.value_and_grad(generic, 0.1, argnums=3)(GENERIC_START)


def test_float16_does_not_underflow_with_a_loss_scale(getkey):
    loss, params, (x, labels) = mlp_loss(getkey(), batch=8)

    def half(params, x, labels):
        low = jax.tree.map(lambda p: p.astype(jnp.float16), params)
        return loss(low, x.astype(jnp.float16), labels.astype(jnp.float16)) * jnp.float16(2e-6)

    exact = jax.tree.map(lambda g: 2e-6 * g, jax.grad(loss)(params, x, labels))
    (value, norm2), grads = igr.value_and_grad(half, 0.0, loss_scale=2.0**14, with_norm=True)(params, x, labels)
    assert relative(grads, exact) < 0.02
    assert value < 1e-3
    assert norm2 == pytest.approx(float(igr.squared_norm(exact)), rel=0.05)
    assert relative(jax.grad(half)(params, x, labels), exact) > 0.1
    # the penalty is that of the loss, not of the scaled one
    scaled = igr.value_and_grad(generic, 0.2, loss_scale=64.0)(GENERIC_START)[1]
    assert relative(scaled, igr.value_and_grad(generic, 0.2)(GENERIC_START)[1]) < 1e-13


def test_one_number_means_one_number():
    for make in (
        lambda: igr.value_and_grad(generic, jnp.ones(2)),
        lambda: igr.modified_loss(generic, jnp.ones(2)),
        lambda: igr.modified_field(igr.gradient_field(generic), np.ones(2), 1),
        lambda: igr.perturb(jax.random.key(0), GENERIC_START, jnp.ones(2)),
        lambda: jax.jit(lambda h: igr.gradient_step(generic, h)(GENERIC_START))(jnp.ones(2)),
    ):
        with pytest.raises(TypeError, match=r"(mu|h|sigma) must be one number, but its shape is \(2,\)"):
            make()


def test_penalty_error_is_the_table_of_the_differences(getkey):
    loss, params, args = mlp_loss(getkey(), dtype=jnp.float64)
    table = igr.penalty_error(loss, params, *args, radii=[1e-2, 1e-3])
    assert table.forward[0] / table.forward[1] == pytest.approx(10, rel=0.1)
    assert table.central[0] / table.central[1] == pytest.approx(100, rel=0.1)
    assert table.default["forward"] == pytest.approx(float(igr.default_radius(loss, params, *args)))
    assert table.error["forward"] < 1e-6
    g = jax.grad(loss)(params, *args)
    hg = igr.hvp(loss)(params, g, *args)
    assert table.curvature == pytest.approx(float(jnp.sqrt(igr.squared_norm(hg) / igr.squared_norm(g))))
    assert "default of forward" in str(table)
