"""The monitor: closed forms on quadratics, what noise does to it and what it does about noise, three libraries."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import compilations
from problems import MATRIX, QUADRATIC_START, quadratic

import igr
from igr.monitoring.quantities import of_schedule

H = 0.1


@pytest.fixture(autouse=True)
def _promotion():
    """Optax promotes implicitly; users' loops run with JAX's default."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def descend(tx, loss, params, steps, extras=lambda loss, params, grads: {}):
    """A loop as anyone writes it, jitted once; returns the last parameters, the state and all readings."""
    traces, history = [], []

    @jax.jit
    def step(params, state):
        traces.append(1)
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params, value=value, **extras(loss, params, grads))
        return optax.apply_updates(params, updates), state

    state = tx.init(params)
    for _ in range(steps):
        params, state = step(params, state)
        history.append(igr.readings(state))
    assert len(traces) == 1, "a second call compiled"
    return params, state, history


def with_grad(loss, params, grads):
    return {"grad": grads, "grad_fn": jax.grad(loss)}


def test_free_quantities_in_closed_form_and_the_updates_unchanged():
    tx = optax.chain(optax.sgd(H), igr.monitor(learning_rate=H))
    end, state, history = descend(tx, quadratic, QUADRATIC_START, 2, with_grad)
    x0 = np.asarray(QUADRATIC_START)
    g0 = MATRIX @ x0
    x1 = x0 - H * g0
    g1 = MATRIX @ x1
    assert np.asarray(end).tolist() == pytest.approx((x1 - H * g1).tolist(), rel=1e-12)
    now, norm = history[1], np.linalg.norm
    assert float(now["slope"]) == pytest.approx(norm(g1))
    assert float(now["r_ig"]) == pytest.approx(float(igr.regularizer(quadratic)(jnp.asarray(x1))))
    assert float(now["loss"]) == pytest.approx(float(quadratic(jnp.asarray(x1))))
    share = igr.implicit_rate(H, 5) * float(now["r_ig"]) / float(now["loss"])
    assert float(now["penalty_share"]) == pytest.approx(share)
    assert float(now["update_norm"]) == pytest.approx(H * norm(g1))
    assert float(now["q2"]) == pytest.approx(H * norm(MATRIX @ g0) / norm(g0))
    assert float(now["cosine"]) == pytest.approx(g0 @ g1 / norm(g0) / norm(g1))
    assert np.isnan(float(history[0]["q2"]))  # there was no step before the first
    assert float(optax.tree.get(state, "q2")) == float(now["q2"])


def test_dear_quantities_on_their_schedule():
    tx = igr.monitor(optax.sgd(H), learning_rate=H, every=5, products=5, h_star=True)
    _, _, history = descend(tx, quadratic, QUADRATIC_START, 8, with_grad)
    first, held, second = history[0], history[4], history[5]
    assert float(first["sharpness"]) == pytest.approx(2.0, rel=1e-8)
    assert float(first["h_lambda"]) == pytest.approx(2.0 * H, rel=1e-8)
    g = MATRIX @ np.asarray(QUADRATIC_START)
    assert float(first["q2_batch"]) == pytest.approx(H * np.linalg.norm(MATRIX @ g) / np.linalg.norm(g))
    bound = float(igr.moderate_bound(quadratic)(QUADRATIC_START).h_star)
    assert float(first["h_star"]) == pytest.approx(bound, rel=1e-9)
    assert float(held["q2_batch"]) == float(first["q2_batch"]) != float(second["q2_batch"])
    assert igr.verdict(first).word == "inside"


def test_a_too_large_rate_is_seen_by_the_sharpness_first():
    tx = igr.monitor(optax.sgd(1.05), learning_rate=1.05, every=1)  # h lambda is 2.1
    tiny = jnp.linalg.eigh(jnp.asarray(MATRIX))[1] @ jnp.array([1.0, 0.0, 0.0, 0.0, 1e-9])
    _, _, history = descend(tx, quadratic, tiny, 3, with_grad)
    assert float(history[2]["q2"]) < 0.3
    assert igr.verdict(history[2]).word == "edge of stability"
    tx = igr.monitor(optax.sgd(1.05, momentum=0.9), learning_rate=1.05, momentum=0.9, every=1)
    _, _, history = descend(tx, quadratic, tiny, 2, with_grad)
    assert float(history[1]["h_lambda"]) == pytest.approx(2 * 1.05 * 2.0 / 3.8, rel=1e-4)


def noisy_run(batch_noise, h=0.01, steps=100, every=1, **options):
    """Descent on a quadratic whose gradients carry Gaussian noise; also a pair of half-batches with their mean."""
    tx = igr.monitor(optax.sgd(h), learning_rate=h, every=every, **options)
    matrix = jnp.asarray(MATRIX)
    bias = jnp.array([3.0, -2.0, 1.0, 2.0, 1.0])  # keeps the mean gradient from vanishing: |g| is 4.4 at the start

    def advance(carry, key):
        x, state = carry
        noise = 2**0.5 * batch_noise * jax.random.normal(key, (2, 5))
        a, b = matrix @ x + bias + noise[0], matrix @ x + bias + noise[1]
        grads = (a + b) / 2
        shift = (noise[0] + noise[1]) / 2
        updates, state = tx.update(grads, state, x, halves=(a, b), grad_fn=lambda y: matrix @ y + bias + shift)
        truth = igr.squared_norm(matrix @ x + bias) / 5
        return (x + updates, state), (igr.readings(state), truth)

    keys = jax.random.split(jax.random.key(3), steps)
    _, (history, truth) = jax.jit(lambda: jax.lax.scan(advance, (jnp.zeros(5), tx.init(jnp.zeros(5))), keys))()
    return jax.tree.map(np.asarray, history), np.asarray(truth)


def test_noise_fools_the_naive_quantities_and_not_the_averages():
    quiet, _ = noisy_run(0.0)
    noisy, truth = noisy_run(10.0, decay=0.98)
    last = {name: values[-1] for name, values in noisy.items()}
    assert np.median(quiet["q2"][1:]) < 0.02 < 1.0 < np.median(noisy["q2"][1:])  # the same curvature and rate
    assert quiet["signal"][-1] > 0.95
    assert last["signal"] < 0.3
    assert igr.verdict({name: values[-1] for name, values in quiet.items()}).word == "inside"
    naive = {name: last[name] for name in ("q2", "cosine", "signal", "slope", "update_norm")}
    assert igr.verdict(naive).word == "noisy"
    assert igr.verdict({**naive, "signal": 1.0}).word == "outside"  # what it would have said
    assert igr.verdict(last).word == "inside"  # q2_batch, from one batch, survives
    assert np.median(noisy["q2_batch"]) < 0.02
    assert noisy["r_ig"][-50:].mean() > 4 * truth[-50:].mean()


def test_two_half_batches_give_the_regularizer_without_its_noise():
    history, truth = noisy_run(2.0, h=1e-5, steps=4000, every=0, halves=True, decay=0.999)
    assert history["r_ig_halves"][-1] == pytest.approx(truth.mean(), rel=0.15)
    assert history["r_ig_mean"][-1] == pytest.approx(truth.mean(), rel=0.15)
    assert history["r_ig"].mean() > 1.6 * truth.mean()  # the batch's own carries the variance of the noise
    expected = truth.mean() / (truth.mean() + 4.0)
    assert history["signal"][-1] == pytest.approx(expected, rel=0.15)


def test_an_oscillation_is_not_taken_for_noise():
    """At the edge of stability: one mode changes sign each step, another hardly moves."""
    matrix = jnp.diag(jnp.array([1.99, 0.01]))
    tx = igr.monitor(optax.sgd(1.0))
    _, _, history = descend(tx, lambda x: 0.5 * x @ matrix @ x, jnp.array([1.0, 200.0]), 60)
    assert float(history[-1]["signal"]) > 0.9


def test_a_loop_without_jit_compiles_at_measurements_alone_and_reads_the_same():
    """A `cond` between fresh functions compiles at each call: 0.9 s for each step of a small network."""
    calls = []
    tx = igr.monitor(optax.sgd(H), learning_rate=H, every=4, sink=lambda step, _: calls.append(step), sink_every=4)
    _, _, jitted = descend(
        igr.monitor(optax.sgd(H), learning_rate=H, every=4), quadratic, QUADRATIC_START, 8, with_grad
    )
    x, state = QUADRATIC_START, tx.init(QUADRATIC_START)
    for n in range(8):
        after = []

        def step(x=x, state=state, after=after):
            value, g = jax.value_and_grad(quadratic)(x)
            after += tx.update(g, state, x, value=value, grad_fn=lambda p: jax.grad(quadratic)(p))

        compiled = compilations(step)
        assert compiled == 0 or n in (0, 1, 4)
        x, state = x + after[0], after[1]
        found, other = ({name: float(value) for name, value in r.items()} for r in (igr.readings(state), jitted[n]))
        assert found == pytest.approx(other, rel=1e-9, nan_ok=True)
    jax.effects_barrier()
    assert calls == [0, 4]


def test_nothing_reaches_the_host_unless_asked():
    text = {}
    for name, options in {"silent": {}, "loud": {"sink": print}}.items():
        tx = igr.monitor(optax.sgd(H), **options)
        state = tx.init(QUADRATIC_START)
        text[name] = jax.jit(tx.update).lower(QUADRATIC_START, state, QUADRATIC_START).as_text()
    assert "callback" not in text["silent"]
    assert "callback" in text["loud"]


def wide_quadratic():
    """A quadratic in a 60 x 80 array with curvatures from 0.1 to 2, one of them for each entry."""
    curvature = jnp.geomspace(0.1, 2.0, 4800).reshape(60, 80)
    start = jax.random.normal(jax.random.key(0), (60, 80), jnp.result_type(float))
    return (lambda p: 0.5 * jnp.sum(curvature * p["w"] ** 2)), {"w": start}


def test_a_sample_of_large_arrays_is_close_and_small():
    loss, start = wide_quadratic()
    exact, thin = (descend(igr.monitor(optax.sgd(H), sample=sample), loss, start, 6)[1] for sample in (None, 1000))
    for name in ("slope", "update_norm"):  # of all entries, whatever the sample
        assert float(igr.readings(thin)[name]) == pytest.approx(float(igr.readings(exact)[name]), rel=1e-12)
    for name in ("q2", "cosine", "signal"):
        assert float(igr.readings(thin)[name]) == pytest.approx(float(igr.readings(exact)[name]), rel=0.1)
    assert float(igr.readings(thin)["q2"]) != float(igr.readings(exact)["q2"])
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(state)) for state in (exact, thin)]
    assert sizes[1] < 3 * 1000 + 50 < 3 * 4800 < sizes[0]


def test_accumulated_gradients_do_not_count_as_steps_that_moved_nothing():
    """Around `optax.MultiSteps` three of four updates are zero; q2 is that of the steps that moved."""
    plain = igr.readings(descend(igr.monitor(optax.sgd(H)), quadratic, QUADRATIC_START, 3)[1])
    tx = igr.monitor(optax.MultiSteps(optax.sgd(H), 4).gradient_transformation())
    _, state, history = descend(tx, quadratic, QUADRATIC_START, 14)
    now = igr.readings(state)
    assert float(now["update_norm"]) == 0
    for name in ("q2", "cosine"):
        assert float(now[name]) == pytest.approx(float(plain[name]), rel=1e-6)  # it averages in float32
    assert np.isnan(float(history[4]["q2"]))  # one step so far


def test_inside_of_multi_transform_it_sees_its_own_parameters():
    """`optax.multi_transform` leaves holes in the updates, and none in the gradient that is passed."""
    params = {"a": QUADRATIC_START, "b": jnp.ones(2)}
    chain = optax.chain(optax.sgd(H), igr.monitor())
    tx = optax.multi_transform({"one": chain, "two": optax.sgd(H)}, {"a": "one", "b": "two"})
    _, state, _ = descend(tx, lambda p: quadratic(p["a"]) + jnp.sum(p["b"] ** 2), params, 2, with_grad)
    _, alone, _ = descend(chain, quadratic, QUADRATIC_START, 2, with_grad)
    for name in ("slope", "r_ig", "q2"):
        assert float(igr.readings(state)[name]) == pytest.approx(float(igr.readings(alone)[name]))
    two = optax.multi_transform({"one": chain, "two": chain}, {"a": "one", "b": "two"}).init(params)
    with pytest.raises(ValueError, match="this one has 2: pass the part"):
        igr.readings(two)
    assert np.isnan(float(igr.readings(two.inner_states["one"])["q2"]))


def test_a_loop_may_donate_the_state():
    """Two arrays of the state in one buffer cannot be donated: JAX refuses the first step."""
    tx = igr.monitor(optax.sgd(H), every=2, halves=True)
    state = tx.init(QUADRATIC_START)
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state) if leaf.size]
    assert len(set(pointers)) == len(pointers)


def test_a_measurement_costs_the_gradient_once_and_its_tangent_for_each_product():
    """By the operations of the compiled program on a network: 3 products used to cost 3 whole jvps of the gradient."""
    width = 64
    x = jnp.ones((128, width))

    def grad(p):
        return jax.grad(lambda p: jnp.sum(jnp.tanh(jnp.tanh(x @ p) @ p)))(p)

    def operations(function):
        return jax.jit(function).lower(jnp.eye(width), jnp.eye(width)).cost_analysis()["flops"]

    plain = operations(lambda p, v: grad(p))
    product = operations(lambda p, v: jax.linearize(grad, p)[1](v))
    full = operations(lambda p, v: of_schedule(grad, p, v, v, 3, False))
    assert full < 2 * plain + product  # a jvp inside the loop, which counts once here, adds a gradient and more


def test_bad_input_is_one_sentence():
    x = QUADRATIC_START
    tx = optax.chain(optax.sgd(H), igr.monitor())
    with pytest.raises(ValueError, match=r"does not see the gradient: pass it, .* or wrap the optimizer"):
        tx.update(x, tx.init(x), x)
    tx = igr.monitor(optax.sgd(H), every=3)
    with pytest.raises(ValueError, match=r"pass grad_fn .* or value_fn"):
        tx.update(x, tx.init(x), x)
    with pytest.raises(ValueError, match="needs the parameters"):
        tx.update(x, tx.init(x), grad_fn=jax.grad(quadratic))
    tx = igr.monitor(optax.sgd(H), halves=True)
    with pytest.raises(ValueError, match=r"halves=\(a, b\)"):
        tx.update(x, tx.init(x), x)
    for options, sentence in [
        ({"every": -1}, "every must be a whole number"),
        ({"sink_every": 0}, "sink_every must be a whole number"),
        ({"decay": 1.0}, "decay must be"),
        ({"sample": 0}, "sample must be a positive whole number"),
        ({"learning_rate": float("nan")}, "learning_rate must be finite"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            igr.monitor(**options)
    with pytest.raises(TypeError, match="tx must be an optax transformation"):
        igr.monitor(0.1)
    with pytest.raises(ValueError, match="this one has 0"):
        igr.readings(optax.sgd(H).init(x))
