"""What is said before a run: what is stored, what is downloaded, how long it takes, and what to do without a GPU."""

import dataclasses

import numpy as np
import pytest

from igr.lab.cli import estimate as planning
from igr.lab.cli.estimate import Speed, announce, guess, look_ahead, plan, prepare
from igr.lab.data.fetch import DataError
from igr.lab.data.mnist import SOURCE as MNIST
from igr.lab.experiments.mlp import grid as mlp
from igr.lab.experiments.two_parameter import grid as two_parameter
from igr.lab.store.config import Scale
from igr.lab.store.store import Store
from igr.lab.training.config import Measure, Shape
from igr.lab.training.stack import Network, stacks

FAST = Speed(flops=1e14, bytes=4e12, products=(3e14, 5e13, 6.5e14))  # default, highest, bfloat16: about an H200


@pytest.fixture(autouse=True)
def _fixed_speed(monkeypatch):
    """The sentences, not the machine, are tested."""
    monkeypatch.setattr(planning, "measure", lambda: FAST)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr("pooch.os_cache", lambda name: str(tmp_path / "cache" / name))
    return tmp_path / "cache" / "igr"


def stack(**shape):
    (unit,) = stacks([Network(Shape(**{"data": "mnist", "width": 400, "steps": 10_000} | shape))])
    return unit


def test_units_that_are_stored_are_not_planned(tmp_path):
    store, units = Store(tmp_path), two_parameter.trials(Scale.SMOKE)
    assert plan(store, "two-parameter", units).sentence().startswith("two-parameter: 20 of 20 units left, about")
    for unit in units[:3]:
        store.folder("two-parameter", unit.config).write({"loss": np.zeros(2)})
    some = plan(store, "two-parameter", units)
    assert (some.units, some.stored) == (20, 3)
    assert "17 of 20 units left" in some.sentence()
    assert plan(store, "two-parameter", units[:3]).sentence() == "two-parameter: all 3 units are stored"
    assert plan(store, "two-parameter", units[:3]).seconds == 0


def test_a_time_seen_on_this_kind_of_device_is_taken_and_another_devices_is_not(tmp_path, monkeypatch):
    known, here, unit = Store(tmp_path / "known"), Store(tmp_path / "here"), stack()
    known.folder("mlp", unit.config).write({"loss": np.zeros(2)}, seconds=1234.0)
    assert plan(here, "mlp", [unit], known=known).seconds == 1234
    other = planning.surroundings() | {"device": "1 x another one"}
    monkeypatch.setattr(planning, "surroundings", lambda: other)
    assert plan(here, "mlp", [unit], known=known).seconds == pytest.approx(guess(unit, FAST))
    assert guess(unit, FAST) != 1234


def test_the_guess_knows_what_makes_a_stack_slow():
    def running(unit, speed=FAST):
        return guess(unit, speed) - planning.COMPILE

    base = running(stack())
    assert running(stack(steps=20_000)) == pytest.approx(2 * base, rel=0.15)
    assert running(stack(width=1600)) > 5 * base
    assert running(stack(), dataclasses.replace(FAST, flops=FAST.flops / 100)) > 15 * base, "computing decides"
    assert running(stack(), dataclasses.replace(FAST, bytes=FAST.bytes / 100)) > 15 * base, "memory decides"
    assert running(stack(batch_size=8192)) > 15 * base
    (penalized,) = stacks([Network(stack().shape.replace(method="exact"), mu=0.1)])
    assert running(penalized) > 1.5 * base
    noisy = stack().shape.replace(noise=mlp.Noise((0.5, 1.0)))
    assert running(stacks([Network(noisy)])[0]) > 1.05 * base


def test_the_guess_for_a_resnet_is_by_what_it_computes():
    def seconds(speed=FAST, mu=0.0, **shape):
        shape = {"data": "cifar10", "model": "resnet18", "width": 64, "batch_size": 512, "steps": 3880} | shape
        (unit,) = stacks([Network(Shape(precision="bfloat16", **shape), mu=mu)])
        return guess(unit, speed) - planning.COMPILE

    rare = mlp.Schedule(early=0, every=1000)  # measured in full at the start, at the end and at the best
    plain, measured = seconds(schedule=rare), seconds(schedule=rare.replace(every=10)) - seconds(schedule=rare)
    steps, passes = 3880 * 0.006, 60_000 * 3 * 1.11e9 / 45e12  # 6 ms a step, 45 TFLOP/s in float32
    assert measured == pytest.approx(3 * passes, rel=0.7)
    assert plain == pytest.approx(steps + 3 * passes, rel=0.7)
    forward = seconds(mu=0.1, method="forward", schedule=rare)
    assert forward - plain == pytest.approx(steps, rel=0.5)
    fourth = seconds(mu=0.1, method="forward", every=4, schedule=rare)
    assert fourth - plain == pytest.approx((forward - plain) / 4, rel=1e-6)
    assert seconds(stem="7x7", schedule=rare) < plain / 4
    assert seconds(schedule=rare, measure=Measure(images=5000)) < plain
    slow = dataclasses.replace(FAST, products=tuple(speed / 100 for speed in FAST.products))
    assert seconds(slow, schedule=rare) == pytest.approx(100 * plain, rel=1e-6)


def test_downloads_are_named_once_and_only_where_they_happen(tmp_path, cache):
    store, units = Store(tmp_path), mlp.trials(Scale.PAPER)
    assert plan(store, "mlp", units).downloads == {"mnist": 11}
    assert "downloads mnist (11 MB)" in plan(store, "mlp", units).sentence()
    assert plan(store, "mlp", units, data_dir=str(tmp_path)).downloads == {}
    assert plan(store, "mlp", mlp.trials(Scale.QUICK)).downloads == {}, "digits come with scikit-learn"
    for name in MNIST.files:
        (cache / MNIST.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / MNIST.folder / name).write_bytes(b"")
    assert plan(store, "mlp", units).downloads == {}


def test_without_a_gpu_it_says_what_to_do(tmp_path, cache):
    def lines(scale, names, place=None):
        return announce(scale, look_ahead(Store(tmp_path), scale, names, place=place), place)

    both = ("two-parameter", "mlp")
    shown = lines(Scale.PAPER, both)
    assert shown[0].startswith("Scale paper on ")
    assert shown[3].startswith("  together about ")
    assert "There is no GPU here. `--scale quick`" in shown[-1]
    assert not any("GPU" in line for line in lines(Scale.QUICK, both))
    assert not any("GPU" in line for line in lines(Scale.PAPER, ["two-parameter"]))
    elsewhere = planning.Place("NVIDIA H200 (gpu)", FAST)
    assert not any("There is no GPU" in line for line in lines(Scale.PAPER, both, elsewhere))


def test_missing_data_are_one_sentence_before_anything_is_computed(tmp_path):
    store, unit = Store(tmp_path / "out"), stack()
    (tmp_path / "data").mkdir()
    with pytest.raises(
        DataError, match=r"train-images-idx3-ubyte \(plain or \.gz\) is missing: put it there, or leave"
    ):
        prepare(store, "mlp", [unit], str(tmp_path / "data"))
    store.folder("mlp", unit.config).write({"loss": np.zeros(2)})
    prepare(store, "mlp", [unit], str(tmp_path / "data"))  # nothing is left to compute, so nothing is needed


def test_speeds_are_measured_as_speeds(monkeypatch):
    """Twice the time, half the speed; on any machine both are more than a pocket calculator's."""
    monkeypatch.undo()
    seen = planning.measure.__wrapped__(size=256, rounds=2)
    assert seen.flops > 1e7
    assert seen.bytes > 1e6
    monkeypatch.setattr(planning, "_seconds", lambda function, x, rounds: 2.0)
    slow = planning.measure.__wrapped__(size=256)
    assert slow == Speed(2 * 256**3 / 2, 2 * 8 * 256**2 * 4 / 2, (2 * 256**3 / 2,) * 3)
