"""Any optimizer in the engine: that of a hand-written optax loop, resumed bit for bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from replicas import MODEL, batches, close, engine_of, images, replica, same, train
from units import Stops

from igr.lab.runs.local import run_units
from igr.lab.runs.unit import Cancelled, Session
from igr.lab.store import checkpoint
from igr.lab.store.config import ConfigError
from igr.lab.store.files import DamageWarning, npz_bytes
from igr.lab.store.store import Store
from igr.lab.training import optimizers
from igr.lab.training.config import Schedule, Shape
from igr.lab.training.gradients import cross_entropy
from igr.lab.training.optimizers import OPTIMIZERS, Optimizer
from igr.lab.training.stack import StackRun

STEPS, RATES, SEEDS = 8, [0.02, 0.005], [3, 4]
ARGUMENTS = {"momentum": {"beta": 0.8}, "adam": {"b2": 0.95}, "adamw": {"weight_decay": 0.1}, "muon": {"ns_steps": 3}}


def by_hand(optimizer, rates, steps=STEPS):
    """The loop that a user would write; vmapped as the engine is, since XLA rounds stacked products otherwise."""
    data = images()

    def start(rate, seed):
        params, _ = MODEL.init(jax.random.fold_in(jax.random.key(seed), 0))
        return params, optimizer(rate).init(params)

    @jax.jit
    @jax.vmap
    def step(params, state, rate, index):
        def loss(p):
            x = data.x[index].astype(jnp.float32) * np.float32(1 / 255)
            return cross_entropy(MODEL.apply(p, (), x, True)[0], data.y[index]).mean()

        updates, state = optimizer(rate).update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        rates = jnp.asarray(rates, jnp.float32)
        params, state = jax.vmap(start)(rates, jnp.asarray(SEEDS, jnp.uint32))
        for _, *index in zip(range(steps), *(batches(seed, steps) for seed in SEEDS), strict=False):
            params, state = step(params, state, rates, jnp.asarray(np.stack(index)))
    return params, state


@functools.cache
def plain():
    """The parameters of plain descent, of which any other optimizer's must differ."""
    return by_hand(OPTIMIZERS["sgd"], RATES)[0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_is_a_hand_written_optax_loop(name):
    arguments = ARGUMENTS.get(name, {})
    factory = Optimizer(name, tuple(arguments.items())).transformation()
    assert (factory is None) == (name == "sgd")
    ours = train(RATES, seeds=SEEDS, steps=STEPS, optimizer=factory)
    params, state = by_hand(lambda rate: OPTIMIZERS[name](rate, **arguments), RATES)
    close(ours.params, params, rtol=1e-6, atol=1e-6)
    if name != "sgd":
        close(ours.optimizer, state, rtol=1e-5, atol=1e-6)
        other = plain()
        assert not np.allclose(ours.params[0]["w"], other[0]["w"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("sgd,momentum=0.9,nesterov=yes", {"momentum": 0.9, "nesterov": True}),  # optax's default is None: not a number
        ("rmsprop,momentum=0.5,centered=true", {"momentum": 0.5, "centered": True}),
        ("adam,nesterov=false", {"nesterov": False}),
    ],
)
def test_numbers_and_switches_of_optax_are_arguments(text, arguments):
    made = Optimizer.parse(text)
    assert Optimizer.parse(str(made)) == made
    factory = made.transformation()
    params, _ = by_hand(lambda rate: OPTIMIZERS[made.name](rate, **arguments), RATES)
    close(train(RATES, seeds=SEEDS, steps=STEPS, optimizer=factory).params, params, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "text", ["adam,mu_dtype=1", "adamw,mask=1", "muon,muon_weight_dimension_numbers=1", "adam,b3=1"]
)
def test_what_is_no_number_is_no_argument(text):
    with pytest.raises(ConfigError, match=r"has no argument .*; it has .*b1"):
        Optimizer.parse(text)


def clipped(learning_rate):
    return optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(learning_rate))


@pytest.mark.parametrize("own", [optax.inject_hyperparams(clipped), optax.contrib.schedule_free_sgd])
def test_an_optimizer_of_a_users_own_whose_state_holds_its_rate_or_the_parameters(own):
    """The state must begin with the rate of each replica, and must not share the buffers that are donated."""
    ours = train(RATES, seeds=SEEDS, steps=STEPS, optimizer=own)
    params, state = by_hand(own, RATES)
    close((ours.params, ours.optimizer), (params, state))
    with pytest.raises(ValueError, match="begins with its rates"):
        engine_of(MODEL, 8, 2, 10_000, optimizer=own).init(SEEDS)


def test_replicas_with_an_optimizer_in_turn_and_cut_up_are_those_side_by_side():
    settings = {"seeds": SEEDS, "steps": STEPS, "optimizer": OPTIMIZERS["adam"]}
    whole = train(RATES, **settings)
    assert same(whole, train(RATES, cuts=(1, 6, 7), **settings))
    close(whole, train(RATES, in_turn=True, **settings), rtol=1e-4)
    assert not np.allclose(replica(whole, 0).params[0]["w"], replica(whole, 1).params[0]["w"], atol=1e-3)


def test_plain_descent_has_no_state_and_no_optimizer_in_its_program():
    assert Optimizer().transformation() is None
    assert jax.tree.leaves(train([0.1], steps=1).optimizer) == []


SHAPE = Shape(width=6, depth=1, steps=12, train_images=96, schedule=Schedule(early=2, every=2))
RUN = StackRun(SHAPE.replace(optimizer=Optimizer("adam", (("b2", 0.95),))), (0.01, 0.002), (0.0,) * 2, (0, 1))


def cut(run=RUN, points=4):
    session = Stops(points)
    with pytest.raises(Cancelled):
        run.compute(session)
    return session.saved


@pytest.fixture(scope="module")
def metrics():
    return RUN.compute(Session())


def test_a_resumed_optimizer_has_the_same_bytes(metrics):
    saved = cut()
    moments = [name for name in saved if name.startswith("tree[0].optimizer[0].nu")]
    assert len(moments) == 4, "two layers of weights and biases, each under its path"
    assert npz_bytes(RUN.compute(Stops(1000, saved))) == npz_bytes(metrics)
    forgotten = saved | {name: np.zeros_like(saved[name]) for name in moments}
    assert npz_bytes(RUN.compute(Stops(1000, forgotten))) != npz_bytes(metrics)


def test_a_resumed_muon_has_the_same_bytes():
    """Its state is a tree of two optimizers, one for matrices and one for the rest."""
    run = RUN.replace(shape=RUN.shape.replace(optimizer=Optimizer("muon", (("ns_steps", 2),))))
    saved = cut(run)
    assert any("matrix" not in name and ".mu" in name for name in saved), sorted(saved)
    assert npz_bytes(run.compute(Stops(1000, saved))) == npz_bytes(run.compute(Session()))


def noisy(learning_rate):
    return optax.chain(optax.noisy_sgd(learning_rate, key=3), optax.trace(0.5, accumulator_dtype=jnp.bfloat16))


def test_random_keys_and_bfloat16_in_a_state_are_kept_bit_for_bit(monkeypatch, tmp_path):
    """Neither is a type of a NumPy file: without care the one is an error, and the other comes back as raw bytes."""
    monkeypatch.setitem(optimizers.OPTIMIZERS, "noisy", noisy)
    run = RUN.replace(shape=RUN.shape.replace(optimizer=Optimizer("noisy")))
    saved = cut(run)
    assert {name.rpartition(":")[2] for name in saved if ":" in name} == {"bfloat16", "key<fry>"}
    kept = checkpoint.unpack(checkpoint.pack(saved, "digest"), "digest", tmp_path)
    assert npz_bytes(run.compute(Stops(1000, kept))) == npz_bytes(run.compute(Session()))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda saved: {"leaf/0": np.zeros(2)} | saved, "written by igr 0.1, which kept arrays by position"),
        (lambda saved: {k: v for k, v in saved.items() if "nu" not in k}, "is missing from the checkpoint"),
        (lambda saved: saved | {"tree[0].optimizer[9]": np.zeros(2)}, "unknown here"),
        (lambda saved: {k: v[:1] if "nu" in k else v for k, v in saved.items()}, "has shape"),
        (lambda saved: {k: v.astype(float) if "nu" in k else v for k, v in saved.items()}, "dtype float64 in the"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_in_a_sentence_and_the_unit_starts_anew(
    tmp_path, metrics, spoil, message
):
    store = Store(tmp_path)
    folder = store.folder("mlp", RUN)
    folder.save_checkpoint(spoil(cut()) | {"session/seconds": np.float64(1), "session/conditions": np.array("[]")})
    with pytest.warns(DamageWarning, match=message) as caught:
        assert run_units(store, "mlp", [RUN]).computed
    assert "\n" not in str(caught[0].message)
    assert "starts from its beginning" in str(caught[0].message)
    assert npz_bytes(folder.read().metrics) == npz_bytes(metrics)


def test_a_new_optimizer_is_one_line(monkeypatch):
    monkeypatch.setitem(optimizers.OPTIMIZERS, "signs", lambda h, decay=0.0: optax.sign_sgd(h))
    shape = SHAPE.replace(optimizer=Optimizer.parse("signs,decay=0.5"))
    assert StackRun(shape).label == "digits mlp 6, batch 32, signs,decay=0.5, h = 0.1, 1 network, seed 0"
    assert shape.digest() != SHAPE.digest()
    stack = train([0.01], steps=1, optimizer=shape.optimizer.transformation())
    moved = np.abs(np.asarray(stack.params[0]["w"]) - np.asarray(train([1e-30], steps=1).params[0]["w"]))
    assert set(np.round(moved[moved > 1e-9], 5)) == {np.float32(0.01)}
