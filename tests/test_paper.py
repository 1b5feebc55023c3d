"""Every theorem, proposition and corollary of Barrett & Dherin (2021), each beside a wrong formula that must fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_order, relative, step_error
from problems import (
    GENERIC_START,
    LOSSES,
    MATRIX,
    NETWORK_START,
    QUADRATIC_START,
    generic,
    network,
    quadratic,
    two_parameter,
)

import igr

each_loss = pytest.mark.parametrize(("name", "loss", "start"), LOSSES, ids=[case[0] for case in LOSSES])


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


@each_loss
@pytest.mark.parametrize(("scale", "order"), [(1.0, 3), (0.0, 2), (2.0, 2), (0.5, 2), (-1.0, 2)])
def test_theorem_3_1_modified_equation(name, loss, start, scale, order):
    """One step lies within h^3 of the flow of E + (h/4)|grad E|^2, and with any other factor only within h^2."""

    def field_of_h(h):
        return igr.gradient_field(igr.modified_loss(loss, scale * h))

    def step(x, h):
        return igr.gradient_step(loss, h)(x)

    assert_order(step_error(field_of_h, start, step), (4e-3, 2e-3), order)


def test_equations_2_to_4_rate_times_regularizer():
    """lambda R = (h/4)|grad E|^2 whatever m; R is a mean over all m, not over the leaves."""
    h, m = 0.07, igr.num_params(NETWORK_START)
    gradient = flat(jax.grad(network)(NETWORK_START))
    R = igr.regularizer(network)(NETWORK_START)
    assert m == gradient.size == 13
    assert pytest.approx(np.sum(gradient**2) / 13) == R
    assert igr.implicit_rate(h, NETWORK_START) == igr.implicit_rate(h, 13) == h * 13 / 4
    difference = igr.modified_loss(network, h)(NETWORK_START) - network(NETWORK_START)
    assert difference == pytest.approx(igr.implicit_rate(h, 13) * R)
    assert difference == pytest.approx(h / 4 * np.sum(gradient**2))


@each_loss
def test_gradient_of_the_modified_loss(name, loss, start):
    """grad E~ = grad E + (h/2) H grad E: the half comes from differentiating the square of the quarter."""
    h = 0.3
    g = jax.grad(loss)(start)
    hg = igr.hvp(loss)(start, g)
    ours = jax.grad(igr.modified_loss(loss, h))(start)
    assert relative(ours, igr.calculus.add_scaled(g, h / 2, hg)) < 1e-12
    assert relative(ours, igr.calculus.add_scaled(g, h / 4, hg)) > 1e-3


def test_proposition_3_3_modified_loss_by_the_slope():
    h = 0.2
    by_slope = network(NETWORK_START) + h / 4 * igr.slope(network)(NETWORK_START) ** 2
    assert igr.modified_loss(network, h)(NETWORK_START) == pytest.approx(by_slope)
    assert igr.modified_loss(network, h)(NETWORK_START) != pytest.approx(
        network(NETWORK_START) + h / 4 * igr.slope(network)(NETWORK_START)
    )


@each_loss
def test_proposition_A_6_angle(name, loss, start):
    """The normal is orthogonal to every tangent vector of the graph, has length one, and cos = <N, z>."""
    across, up = igr.normal(loss)(start)
    n = np.append(flat(across), up)
    gradient = flat(jax.grad(loss)(start))
    tangents = np.hstack([np.eye(gradient.size), gradient[:, None]])
    assert np.max(np.abs(tangents @ n)) < 1e-14
    assert np.linalg.norm(n) == pytest.approx(1)
    m, R = igr.num_params(start), igr.regularizer(loss)(start)
    assert igr.cos_angle(loss)(start) == pytest.approx(n[-1]) == pytest.approx(1 / np.sqrt(1 + m * R))
    assert igr.cos_angle(loss)(start) != pytest.approx(1 / np.sqrt(1 + R), rel=1e-6)
    assert np.cos(igr.angle(loss)(start)) == pytest.approx(n[-1])


@each_loss
def test_corollary_A_6_1_slope(name, loss, start):
    m, R = igr.num_params(start), igr.regularizer(loss)(start)
    slope = igr.slope(loss)(start)
    assert slope == pytest.approx(np.tan(igr.angle(loss)(start))) == pytest.approx(np.sqrt(m * R))
    assert slope == pytest.approx(np.linalg.norm(flat(jax.grad(loss)(start))))
    assert slope != pytest.approx(np.sqrt(R), rel=1e-3)


@each_loss
def test_remark_A_8_metric(name, loss, start):
    gradient = flat(jax.grad(loss)(start))
    dense = np.linalg.det(np.eye(gradient.size) + np.outer(gradient, gradient))
    assert igr.metric_determinant(loss)(start) == pytest.approx(dense)
    assert igr.metric_determinant(loss)(start) != pytest.approx(1 + np.sum(gradient**2) / gradient.size, rel=1e-6)


def test_proposition_A_9_norm_bound():
    """Along a whole path of descent, and sharp where the gradient is radial."""
    h = 0.05
    path = igr.descend(igr.gradient_step(generic, h), GENERIC_START, 60)
    norms = jnp.linalg.norm(path, axis=1)
    bounds = jax.vmap(igr.norm_bound(generic, h))(path)[:-1]
    assert jnp.all(jnp.abs(jnp.diff(norms)) <= bounds)
    assert jnp.any(jnp.abs(jnp.diff(norms)) > bounds / 2)  # half of it would not do
    radial = jnp.array([3.0, 4.0])
    moved = igr.gradient_step(lambda x: x @ x, h)(radial)
    change = jnp.abs(jnp.linalg.norm(moved) - 5.0)
    assert change == pytest.approx(igr.norm_bound(lambda x: x @ x, h)(radial))


def test_proposition_A_10_shared_minima():
    """A minimum of E >= 0 is one of E~, with the same value at the interpolating ones; a maximum need not stay one."""
    h = 0.4
    minimum = jnp.array([2.0, 0.3])  # ab = 0.6
    modified = igr.modified_loss(two_parameter, h)
    assert jnp.abs(modified(minimum)) < 1e-15
    assert jnp.linalg.norm(jax.grad(modified)(minimum)) < 1e-12
    assert jnp.min(jnp.linalg.eigvalsh(jax.hessian(modified)(minimum))) > -1e-12
    # the Hessian there is H + (h/2) H^2: same null space, larger curvature across
    hessian = jax.hessian(two_parameter)(minimum)
    assert jnp.allclose(jax.hessian(modified)(minimum), hessian + h / 2 * hessian @ hessian)
    grid = jax.random.normal(jax.random.key(0), (200, 2)) * 2
    energies, modified_energies = jax.vmap(two_parameter)(grid), jax.vmap(modified)(grid)
    assert jnp.all(modified_energies >= energies)
    assert jnp.all((modified_energies == 0) == (energies == 0))
    # where it stops: a maximum with curvature -c is a minimum of E~ once h c > 2 (theory.md 0.3.5)
    hill = igr.modified_loss(lambda x: -(x**2) / 2, 2.5)
    assert jax.grad(jax.grad(hill))(jnp.array(0.0)) > 0


def test_proposition_A_11_neural_tangent_kernel():
    """E + h sum eps_i' K(x_i, x_j) eps_j for two outputs, and eps'(1 + hK)eps for one: not eps'(1 + K)eps."""
    h = 0.13
    key = jax.random.split(jax.random.key(1), 4)
    params = {"a": jax.random.normal(key[0], (3, 5)), "b": jax.random.normal(key[1], (5, 2))}
    x, y = jax.random.normal(key[2], (4, 3)), jax.random.normal(key[3], (4, 2))

    def model(p, x):
        return jnp.tanh(x @ p["a"]) @ p["b"]

    loss = igr.kernel.least_squares(model)
    K, eps = igr.kernel.ntk(model)(params, x), model(params, x) - y
    assert K.shape == (4, 2, 4, 2)
    double_sum = jnp.einsum("ia,iajb,jb->", eps, K, eps)
    direct = igr.modified_loss(loss, h)(params, x, y)
    assert direct == pytest.approx(float(loss(params, x, y) + h * double_sum))
    assert igr.kernel.modified_loss(model, h)(params, x, y) == pytest.approx(float(direct))

    def one_output(p, x):
        return model(p, x)[:, 0]

    K, eps = igr.kernel.ntk(one_output)(params, x), one_output(params, x) - y[:, 0]
    direct = igr.modified_loss(igr.kernel.least_squares(one_output), h)(params, x, y[:, 0])
    assert direct == pytest.approx(float(eps @ (jnp.eye(4) + h * K) @ eps))
    assert direct != pytest.approx(float(eps @ (jnp.eye(4) + K) @ eps), rel=1e-3)  # as printed in the paper


def test_the_two_parameter_model():
    """R = (a^2 + b^2) x^2 E and lambda = h/2 (appendix A.4)."""
    p = jnp.array([2.8, 3.5])
    assert igr.regularizer(two_parameter)(p) == pytest.approx((2.8**2 + 3.5**2) * two_parameter(p))
    assert igr.implicit_rate(0.1, p) == 0.05
    assert igr.slope(two_parameter)(p) == pytest.approx(jnp.linalg.norm(p) * jnp.sqrt(2 * two_parameter(p)))


def test_a_quadratic_has_R_in_closed_form():
    x = QUADRATIC_START
    assert igr.regularizer(quadratic)(x) == pytest.approx(x @ MATRIX @ MATRIX @ x / 5)
