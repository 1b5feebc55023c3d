"""The penalty as a drop-in for jax.value_and_grad."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import relative
from problems import conv_loss, generic, mlp_loss

import igr

METHODS = ["exact", "forward", "central"]


def reverse_over_reverse(loss, mu):
    """The textbook way: differentiate E + mu |grad E|^2 as it stands."""

    def penalized(params, *args):
        value, grads = jax.value_and_grad(loss)(params, *args)
        return value + mu * sum(jnp.sum(g**2) for g in jax.tree.leaves(grads))

    return jax.grad(penalized)


def without_aux(loss):
    return lambda *args: loss(*args)[0]


def test_exact_equals_double_backward(getkey):
    loss, params, args = mlp_loss(getkey(), dtype=jnp.float64)
    _, grads = igr.value_and_grad(loss, 0.3)(params, *args)
    assert relative(grads, reverse_over_reverse(loss, 0.3)(params, *args)) < 1e-13
    assert relative(grads, reverse_over_reverse(loss, 0.15)(params, *args)) > 1e-3  # no factor of two to spare


@pytest.mark.parametrize(("method", "dtype", "tolerance"), [
    ("forward", jnp.float32, 1e-3),
    ("central", jnp.float32, 1e-3),
    ("forward", jnp.float64, 1e-5),
    ("central", jnp.float64, 1e-4),
])  # fmt: skip
@pytest.mark.parametrize("net", ["mlp", "conv"])
def test_the_methods_agree(getkey, net, method, dtype, tolerance):
    mu = 0.5
    if net == "mlp":
        loss, params, args = mlp_loss(getkey(), dtype=dtype)
    else:
        loss_aux, params, args = conv_loss(getkey(), dtype=dtype)
        loss = without_aux(loss_aux)
    plain = jax.jit(jax.grad(loss))(params, *args)
    with jax.default_matmul_precision("highest"):
        exact = jax.jit(igr.value_and_grad(loss, mu))(params, *args)[1]
        other = jax.jit(igr.value_and_grad(loss, mu, method))(params, *args)[1]
    assert relative(other, exact) < tolerance
    penalty = relative(jax.tree.map(jnp.subtract, exact, plain), plain)
    assert penalty > 0.05  # there was something to agree on
    # and the penalty's own gradient, 2 mu H g, without the plain part that all share
    parts = [jax.tree.map(jnp.subtract, grads, plain) for grads in (other, exact)]
    assert relative(*parts) < 20 * tolerance


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("traced", [False, True])
def test_mu_zero_is_the_plain_gradient_bit_for_bit(getkey, method, traced):
    loss, params, args = mlp_loss(getkey(), activation=jax.nn.relu)
    plain = jax.jit(jax.value_and_grad(loss))(params, *args)
    if traced:
        ours = jax.jit(lambda mu, *rest: igr.value_and_grad(loss, mu, method)(*rest))(0.0, params, *args)
    else:
        ours = jax.jit(igr.value_and_grad(loss, 0.0, method))(params, *args)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("method", METHODS)
def test_mu_may_be_traced_and_mapped(getkey, method):
    loss, params, args = mlp_loss(getkey(), dtype=jnp.float64)
    mus = jnp.array([0.0, 0.1, 0.7])
    many = jax.jit(jax.vmap(lambda mu: igr.value_and_grad(loss, mu, method)(params, *args)[1]))(mus)
    for i, mu in enumerate(mus):
        one = jax.jit(igr.value_and_grad(loss, float(mu), method))(params, *args)[1]
        assert relative(jax.tree.map(lambda x, i=i: x[i], many), one) < 1e-7


def test_a_schedule_that_is_zero_pays_for_nothing():
    calls = []

    def loss(x):
        jax.debug.callback(lambda: calls.append(1))
        return jnp.sum(x**4)

    step = jax.jit(lambda mu, x: igr.value_and_grad(loss, mu, "forward")(x))
    for mu, passes in [(0.0, 1), (0.1, 2)]:
        calls.clear()
        jax.block_until_ready(step(mu, jnp.ones(2)))
        jax.effects_barrier()
        assert len(calls) == passes


def test_an_exact_penalty_on_a_schedule_shares_the_pass_of_the_gradient(getkey):
    """Products outside the branches could not be shared with those of the derivative within."""
    loss, params, args = mlp_loss(getkey())
    program = jax.make_jaxpr(lambda mu: igr.value_and_grad(loss, mu)(params, *args))(0.1)
    (rule,) = [equation for equation in program.eqns if equation.primitive.name == "custom_jvp_call"]
    outside = [equation.primitive.name for equation in [*program.eqns, *rule.params["call_jaxpr"].jaxpr.eqns]]
    assert "cond" in outside
    assert "dot_general" not in outside


@pytest.mark.parametrize(("method", "passes"), [("forward", 2), ("central", 3)])
def test_number_of_gradients(method, passes):
    calls = []

    def loss(x):
        jax.debug.callback(lambda: calls.append(1))
        return jnp.sum(x**4)

    jax.block_until_ready(igr.value_and_grad(loss, 0.1, method, with_norm=True, value="penalized")(jnp.ones(2)))
    jax.effects_barrier()
    assert len(calls) == passes


@pytest.mark.parametrize("method", METHODS)
def test_what_is_returned(getkey, method):
    loss, params, args = conv_loss(getkey())
    value, state = jax.jit(loss)(params, *args)
    g = jax.jit(jax.grad(without_aux(loss)))(params, *args)
    norm2 = float(igr.squared_norm(g))

    def call(loss, **options):
        return jax.jit(igr.value_and_grad(loss, 0.2, method, **options))(params, *args)

    (v, aux), grads = call(loss, has_aux=True)
    assert v == pytest.approx(float(value), rel=1e-6)
    # aux is that of the unperturbed pass
    assert relative(aux, state) < 1e-6
    (v, (aux, n)), same = call(loss, has_aux=True, with_norm=True)
    assert relative(aux, state) < 1e-6
    assert (v, n) == (pytest.approx(float(value), rel=1e-6), pytest.approx(norm2, rel=1e-5))
    assert relative(same, grads) < 1e-5

    (v, n), _ = call(without_aux(loss), with_norm=True)
    assert (v, n) == (pytest.approx(float(value), rel=1e-6), pytest.approx(norm2, rel=1e-5))
    v, _ = call(without_aux(loss), value="penalized")
    assert v == pytest.approx(float(value) + 0.2 * norm2, rel=1e-6)
    assert jax.tree.map(lambda x: x.dtype, grads) == jax.tree.map(lambda x: x.dtype, params)


def keyword_loss(params, x, power, *, wide=False, name="sum"):
    """It chooses in Python by what it is given, as losses with a `training` flag do."""
    values = (params * x) ** (power if wide else 2)
    return {"sum": jnp.sum, "mean": jnp.mean}[name](values)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("traced", [False, True])
def test_arguments_by_name_and_ones_that_are_no_arrays_pass_as_in_jax(method, traced):
    params, x = jnp.array([1.0, -2.0]), jnp.array([0.5, 0.25])
    given = {"wide": True, "name": "mean"}

    def penalized(mu):
        return igr.value_and_grad(keyword_loss, mu, method)(params, x, 4, **given)

    value, grads = jax.jit(penalized)(jnp.array(0.25)) if traced else penalized(0.25)
    assert value == jax.value_and_grad(keyword_loss)(params, x, 4, **given)[0]
    bound = reverse_over_reverse(lambda p: keyword_loss(p, x, 4, **given), 0.25)(params)
    assert relative(grads, bound) < 1e-4


@pytest.mark.parametrize("method", METHODS)
def test_random_keys_are_the_same_in_all_passes(getkey, method):
    """With dropout, the gradient is that of the loss with one fixed mask."""
    loss, params, (x, labels) = mlp_loss(getkey(), dtype=jnp.float64)

    def noisy(params, key, x):
        keep = jax.random.bernoulli(key, 0.5, x.shape)
        return loss(params, jnp.where(keep, x, 0.0), labels)

    key = getkey()
    ours = jax.jit(igr.value_and_grad(noisy, 0.4, method))(params, key, x)[1]
    exact = jax.jit(lambda p, key: igr.value_and_grad(lambda q: noisy(q, key, x), 0.4)(p)[1])
    fixed = exact(params, key)
    assert relative(ours, fixed) < 1e-4
    other = exact(params, getkey())
    assert relative(ours, other) > 1e-2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("start", [0.0, 1e-30, 1.0])
def test_a_zero_gradient_is_survived(method, start):
    x = jnp.full(3, start, jnp.float32)
    (value, norm2), grads = igr.value_and_grad(lambda x: jnp.sum(x) * 0.0, 0.5, method, with_norm=True)(x)
    assert (float(value), float(norm2)) == (0.0, 0.0)
    assert jnp.array_equal(grads, jnp.zeros(3, jnp.float32))
    at_minimum = igr.value_and_grad(lambda x: jnp.sum((x - start) ** 2), 0.5, method)(x)[1]
    assert jnp.array_equal(at_minimum, jnp.zeros(3, jnp.float32))


@pytest.mark.parametrize("method", METHODS)
def test_float32_parameters_with_bfloat16_compute(getkey, method):
    """The penalty survives: its direction is that of float32, and its sums are float32."""
    loss, params, (x, labels) = mlp_loss(getkey(), sizes=(16, 64, 64, 4), batch=64)

    def low(params, x, labels):
        cast = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        return loss(cast, x.astype(jnp.bfloat16), labels.astype(jnp.bfloat16)).astype(jnp.float32)

    mu = 0.5
    exact = jax.jit(igr.value_and_grad(loss, mu))(params, x, labels)[1]
    (_, norm2), ours = jax.jit(igr.value_and_grad(low, mu, method, with_norm=True))(params, x, labels)
    assert norm2.dtype == jnp.float32
    assert {g.dtype for g in jax.tree.leaves(ours)} == {np.dtype("float32")}
    plain = jax.jit(jax.grad(loss))(params, x, labels)
    low_plain = jax.jit(jax.grad(low))(params, x, labels)
    wanted = jax.tree.map(jnp.subtract, exact, plain)
    got = jax.tree.map(jnp.subtract, ours, low_plain)
    assert relative(got, wanted) < 0.25
    if method == "forward":  # a radius made for float32 drowns in bfloat16's rounding
        drowned = jax.jit(igr.value_and_grad(low, mu, method, radius=3.5e-4))(params, x, labels)[1]
        assert relative(jax.tree.map(jnp.subtract, drowned, low_plain), wanted) > 0.5


def test_it_trains_with_optax_as_value_and_grad_does(getkey):
    """Two lines in a training loop, and R/E at the end is smaller with the penalty than without."""
    loss, params, args = mlp_loss(getkey())
    optimizer = optax.sgd(0.2)

    def train(mu):
        @jax.jit
        def step(params, state):
            _, grads = igr.value_and_grad(loss, mu, "forward")(params, *args)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        p, state = params, optimizer.init(params)
        for _ in range(60):
            p, state = step(p, state)
        return float(igr.regularizer(loss)(p, *args) / loss(p, *args))

    assert train(0.2) < train(0.0)


def test_a_second_call_compiles_nothing(getkey):
    loss, params, args = mlp_loss(getkey())
    traces = []

    @jax.jit
    def step(params, mu):
        traces.append(1)
        return igr.value_and_grad(loss, mu, "forward")(params, *args)

    step(params, 0.1)
    step(jax.tree.map(lambda x: 2 * x, params), 0.2)
    assert len(traces) == 1


def test_it_takes_a_loss_over_a_whole_data_set(getkey):
    loss, params, (x, labels) = mlp_loss(getkey(), batch=24, dtype=jnp.float64)
    whole = igr.full_batch(loss, 10)
    for method in METHODS:
        ours = jax.jit(igr.value_and_grad(whole, 0.3, method))(params, x, labels)[1]
        assert relative(ours, jax.jit(igr.value_and_grad(loss, 0.3))(params, x, labels)[1]) < 1e-5


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mu": 0.1, "method": "backward"}, "unknown method 'backward': choose one of exact, forward, central"),
        ({"mu": float("inf")}, "mu must be finite"),
        ({"mu": 0.1, "value": "total"}, "unknown value 'total'"),
        ({"mu": 0.1, "method": "forward", "radius": 0.0}, "radius must be positive"),
        ({"mu": 0.1, "method": "forward", "radius": float("nan")}, "radius must be finite"),
    ],
)
def test_bad_options(kwargs, message):
    with pytest.raises(ValueError, match=message):
        igr.value_and_grad(generic, **kwargs)


@pytest.mark.parametrize(("h", "mu"), [(0.02, 0.06), (0.1, 0.02), (0.5, 0.2)])
def test_penalized_descent_is_stable_up_to_the_curvature_of_the_docs(h, mu):
    edge = (np.sqrt(1 + 16 * mu / h) - 1) / (4 * mu)
    assert 2 / edge == pytest.approx(h / 2 * (1 + np.sqrt(1 + 16 * mu / h)))

    def growth(curvature, mu=mu):
        def step(x):
            return x - h * igr.value_and_grad(lambda x: curvature * x**2 / 2, mu)(x)[1]

        path = igr.descend(step, jnp.float64(1.0), 40)
        return float(abs(path[-1] / path[0])) ** (1 / 40)

    assert growth(0.99 * edge) < 1 < growth(1.01 * edge)
    assert growth(1.01 * edge, mu=0.0) < 1, "without penalty it is stable there"
    total = 2 / (h + 4 * mu)
    assert growth(1.01 * total) < 1, "equal total rates are not equal limits: that of h + 4 mu is lower"
