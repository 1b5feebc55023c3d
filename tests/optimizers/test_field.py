"""What the modified field refuses, takes and survives."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import relative
from optax import contrib
from problems import GENERIC_START, POLYNOMIAL_START, generic, mlp_loss, polynomial

import igr
from igr.optimizers import modified_field

H = 1e-3


@pytest.mark.parametrize(
    ("tx", "reason"),
    [
        (optax.adagrad(H), "does not forget"),
        (optax.amsgrad(H), "does not forget"),
        (optax.adafactor(H), "does not forget"),
        (contrib.schedule_free_sgd(H), "does not forget"),
        (optax.yogi(H, b2=0.9), "changes by .* while the gradient stays the same"),
        (contrib.adopt(H, b2=0.9), "not smooth"),
        (contrib.sam(optax.sgd(H), optax.sgd(0.1)), "a cycle of steps such as SAM"),
        (optax.MultiSteps(optax.sgd(H), 4), "a cycle of steps such as SAM or MultiSteps"),
        (optax.sgd(optax.cosine_decay_schedule(H, 10**5)), "give count= if it has a schedule"),
    ],
    ids=["adagrad", "amsgrad", "adafactor", "schedule free", "yogi", "adopt", "sam", "multisteps", "schedule"],
)
def test_what_follows_no_field_is_refused_in_one_sentence(tx, reason):
    with pytest.raises(ValueError, match=f"(?s){reason}.*use igr.step_field on its live state instead") as raised:
        modified_field(tx, generic)(GENERIC_START)
    assert "\n" not in str(raised.value)
    assert str(raised.value).count(". ") == 0


def test_what_forgets_ever_more_slowly_is_refused_in_any_precision():
    """The memory of Adafactor grows with the number of steps; b2 = 0.999 is as long and steady."""
    with jax.enable_x64(False):
        start = jnp.ones((1, 2))
        with pytest.raises(ValueError, match="the more steps it has made the longer its memory"):
            modified_field(optax.adafactor(H), polynomial).history_length(start)
        assert modified_field(optax.adam(H), polynomial).history_length(start) > 10_000


def test_an_exact_sign_is_refused_where_it_changes_and_taken_elsewhere():
    field = modified_field(optax.sign_sgd(0.01), lambda p: -jnp.sum(p**2) / 2)
    assert jnp.allclose(field(jnp.array([1.0, -0.5])), jnp.array([0.01, -0.01]))
    with pytest.raises(ValueError, match="not smooth here"):  # it has just come from the other side of zero
        field(jnp.array([0.001, 0.002]))


def test_a_correction_larger_than_the_rule_is_a_warning():
    field = modified_field(optax.adam(0.05, b1=0.5, b2=0.9, eps=0.1), generic)
    with pytest.warns(UserWarning, match=r"the correction is .* of the update"):
        assert field.terms(GENERIC_START).ratio > 0.3
    jax.jit(field)(GENERIC_START)  # says nothing: no number is known while it is traced


def test_bad_arguments_are_one_sentence():
    with pytest.raises(TypeError, match="call the constructor with its learning rate"):
        modified_field(optax.sgd, generic)
    with pytest.raises(ValueError, match="order must be 0, 1 or 2"):
        modified_field(optax.sgd(H), generic, order=3)
    with pytest.raises(ValueError, match="history must be a positive whole number"):
        modified_field(optax.sgd(H), generic, history=0)
    with pytest.raises(ValueError, match="count must be a step"):
        modified_field(optax.sgd(H), generic, count=-1)
    with pytest.raises(ValueError, match="history must be a positive whole number"):
        igr.optimizers.modified_rate(optax.sgd(H), history=0)
    with pytest.raises(ValueError, match="give history=, or make the transformation outside"):
        jax.jit(lambda h: modified_field(optax.sgd(h), generic)(GENERIC_START))(H)
    with pytest.raises(ValueError, match="weighted sum of past gradients"):
        igr.optimizers.modified_rate(optax.sign_sgd(H))
    with pytest.raises(ValueError, match="steps must be a whole number"):
        igr.optimizers.settle(lambda s: s, (GENERIC_START, ()), -1)


def test_a_dead_coordinate_has_no_correction_and_makes_no_nan():
    def loss(p):
        return generic(p[:2])  # the third parameter is a dead pixel's

    def field(h, loss, start):
        return modified_field(optax.adam(h, b1=0.5, b2=0.6), loss, history=60).terms(start)

    alive = jax.jit(lambda h: field(h, generic, GENERIC_START))(H)
    dead = jax.jit(lambda h: field(h, loss, jnp.append(GENERIC_START, 0.7)))(H)
    for ours, other in zip(dead[1:3], alive[1:3], strict=True):
        assert ours[2] == 0
        assert relative(ours[:2], other) < 1e-12
    assert jnp.isfinite(dead.ratio)
    assert dead.ratio > 0


def test_the_length_is_what_the_transformation_remembers():
    field = modified_field(optax.sgd(H, momentum=0.9), generic)
    assert field.history_length(GENERIC_START) == pytest.approx(np.log(1e-11) / np.log(0.9), rel=0.05)
    assert modified_field(optax.sgd(H, momentum=0.9), generic, count=6).history_length(GENERIC_START) == 7
    with pytest.raises(ValueError, match="give history= if its memory is longer"):
        modified_field(optax.sgd(H, momentum=0.9999), generic).history_length(GENERIC_START)


def test_adam_on_a_large_tree_is_smooth_although_some_random_gradients_are_near_zero():
    field = modified_field(optax.adamw(1e-4), generic, history=2)
    assert field.history_length(jnp.zeros((3,) * 7)) == 2


@pytest.mark.parametrize("shape", [(), (2,), (2, 2)])
def test_clipping_and_normalizing_do_not_hide_what_comes_after_them(shape):
    """Gradients that are only longer are the same after a clip, and Adam starts from its steady state."""
    adam = optax.adam(H, b1=0.5, b2=0.6, eps=0.1)
    alone = modified_field(adam, generic).history_length(jnp.ones(shape))
    for first in (optax.clip_by_global_norm(1e-3), optax.clip(1e-3), optax.normalize_by_update_norm()):
        length = modified_field(optax.chain(first, adam), generic).history_length(jnp.ones(shape))
        assert 0.6 * alone < length < 1.4 * alone


def test_what_needs_more_than_gradients_is_one_sentence():
    for tx in (optax.polyak_sgd(), optax.lbfgs()):
        with pytest.raises(TypeError, match=r"needs more than gradients.*'value'.*use igr.step_field") as raised:
            modified_field(tx, generic)(GENERIC_START)
        assert "\n" not in str(raised.value)


def test_a_schedule_is_taken_at_the_count():
    """At count n the field is that of the rate of step n, and warm-up does not change the memory."""

    def schedule(n):
        return H * (1 + n) / 100

    tx = optax.chain(optax.trace(0.5), optax.scale_by_learning_rate(schedule))
    ours = modified_field(tx, generic, count=jnp.asarray(99))(GENERIC_START)  # as an optimizer's state has it
    fixed = jax.jit(lambda h: modified_field(optax.sgd(h, momentum=0.5), generic, history=50)(GENERIC_START))(H)
    assert relative(ours, fixed) < 1e-8
    traced = jax.jit(lambda n: modified_field(tx, generic, count=n, history=50)(GENERIC_START))
    assert relative(traced(99), ours) < 1e-8
    assert relative(traced(49), ours) > 0.1


def test_early_steps_of_a_bias_corrected_optimizer_follow_the_field_at_their_count():
    def errors(h, n):
        tx = optax.adam(h, b1=0.5, b2=0.6, eps=0.1)
        step = igr.optimizers.step(tx, generic)
        state = (GENERIC_START, tx.init(GENERIC_START))
        flowed = steady = GENERIC_START

        def advance(carry, k):
            state, flowed, steady = carry
            return (step(state), midpoint(flowed, k), midpoint(steady, jnp.asarray(1000))), None

        def midpoint(x, k):  # one step of a method of third order, whose error is far below the third order in h
            field = modified_field(tx, generic, history=40, count=k)
            k1 = field(x)
            k2 = field(x + k1 / 2)
            return x + field(x - k1 + 2 * k2) / 6 + k1 / 6 + 2 * k2 / 3

        (state, flowed, steady), _ = jax.lax.scan(advance, (state, flowed, steady), jnp.arange(n))
        return jnp.stack([jnp.linalg.norm(state[0] - x) for x in (flowed, steady)])

    run = jax.jit(errors, static_argnums=1)
    orders = jnp.log2(run(1e-3, 4) / run(5e-4, 4))  # the first four steps: a local order, one more than the global one
    assert orders[0] == pytest.approx(3, abs=0.15)
    assert orders[1] == pytest.approx(2, abs=0.15)


def test_it_takes_any_pytree_and_the_arguments_of_the_loss(getkey):
    loss, params, args = mlp_loss(getkey(), sizes=(3, 4, 2), dtype=jnp.float64)
    field = jax.jit(lambda h, p, *a: modified_field(optax.sgd(h, momentum=0.5), loss, history=40)(p, *a))
    rate = igr.optimizers.Rate(H * 2, H * 2 * 3 / 4)
    penalized = jax.grad(igr.modified_loss(loss, 4 * rate.c))(params, *args)
    assert relative(field(H, params, *args), jax.tree.map(lambda g: -rate.s * g, penalized)) < 1e-9


def test_it_survives_jit_vmap_and_grad_and_a_second_call_compiles_nothing():
    field = modified_field(optax.adam(H, b1=0.5, b2=0.6, eps=0.1), polynomial)
    with jax.log_compiles(False):
        once = field(POLYNOMIAL_START)
        programs = [field._leading._cache_size(), field._along._cache_size()]
        field(jax.tree.map(lambda x: x + 0.1, POLYNOMIAL_START))
        assert [field._leading._cache_size(), field._along._cache_size()] == programs == [1, 1]
    stacked = jax.tree.map(lambda x: jnp.stack([x, x + 0.1]), POLYNOMIAL_START)
    both = jax.jit(jax.vmap(field))(stacked)
    assert relative(jax.tree.map(lambda x: x[0], both), once) < 1e-12

    def size(p):
        return igr.squared_norm(field(p)) / H**2

    slope = jax.jit(jax.grad(size))(POLYNOMIAL_START)
    ahead, behind = (size(jax.tree.map(lambda x, s=s: x + s, POLYNOMIAL_START)) for s in (1e-5, -1e-5))
    assert sum(jnp.sum(x) for x in jax.tree.leaves(slope)) == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-6)


def test_weight_decay_moves_the_parameters_in_the_history(getkey):
    """Descent with decoupled decay is descent on E + decay |p|^2 / 2, whose field is known."""
    tx = optax.chain(optax.add_decayed_weights(0.7), optax.sgd(H))
    decayed = igr.modified_loss(lambda p: generic(p) + 0.35 * jnp.sum(p**2), H)
    assert relative(modified_field(tx, generic)(GENERIC_START), -H * jax.grad(decayed)(GENERIC_START)) < 1e-10


def test_step_is_the_optimizer_and_settle_comes_out_near_the_parameters():
    tx = optax.adam(H, b1=0.5, b2=0.6, eps=0.1)
    step = igr.optimizers.step(tx, generic)
    params, memory = GENERIC_START, tx.init(GENERIC_START)
    path = igr.descend(step, (params, memory), 3)[0]
    for at in path[1:]:
        updates, memory = tx.update(jax.grad(generic)(params), memory, params)
        params = optax.apply_updates(params, updates)
        assert relative(at, params) < 1e-14
    start = (GENERIC_START, tx.init(GENERIC_START))
    moved = igr.optimizers.settle(step, start, 40)
    field = modified_field(tx, generic, order=0, history=40)
    near = igr.optimizers.settle(step, start, 40, field)
    assert jnp.linalg.norm(near[0] - GENERIC_START) < 0.1 * jnp.linalg.norm(moved[0] - GENERIC_START)
    # at rest on the flow, the iterates alone give the same field
    iterates = igr.step_field(step, 4, of=lambda state: state[0])(near)
    errors = [relative(modified_field(tx, generic, order=n)(near[0]), iterates) for n in (0, 1, 2)]
    assert errors[2] < 1e-7 < 1e-6 < errors[1] < 1e-4 < errors[0]
