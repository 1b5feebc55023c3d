"""Units of work: what is computed, stored, cut off and taken up again."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from units import Stops

from igr.lab.experiments import load
from igr.lab.experiments.mlp import grid as mlp
from igr.lab.runs.local import run_units
from igr.lab.runs.unit import Cancelled, Session
from igr.lab.sinks.live import LiveTable
from igr.lab.sinks.sink import Event
from igr.lab.store.config import Config, Scale
from igr.lab.store.files import npz_bytes
from igr.lab.store.store import Store, shipped
from igr.lab.training import loop as stack
from igr.lab.training.config import Noise, Schedule, Shape
from igr.lab.training.optimizers import Optimizer
from igr.lab.training.stack import Network, StackRun, stacks

SHAPE = Shape(width=6, depth=1, steps=60, train_images=96, schedule=Schedule(early=2, every=4))
RUN = StackRun(SHAPE, (0.3, 0.05, 1e30), (0.0,) * 3, (0, 1, 0))


@pytest.fixture(scope="module")
def metrics():
    return RUN.compute(Session())


def test_the_history_has_a_row_a_point_and_gaps_where_only_the_test_set_was_watched(metrics):
    points, full = SHAPE.schedule.points(60, 3)
    assert metrics["step"].tolist() == points.tolist()
    assert metrics["full"].tolist() == full.tolist()
    assert 0 < full.sum() < len(full)
    assert metrics["r_ig"].shape == metrics["test_accuracy"].shape == (len(points), 3)
    for name in ("loss", "r_ig", "slope", "param_norm", "train_accuracy", "test_r_ig"):
        assert np.isfinite(metrics[name][full][:, :2]).all()
        assert np.isnan(metrics[name][~full]).all()
    assert np.isfinite(metrics["test_accuracy"][:, :2]).all()
    np.testing.assert_allclose(metrics["slope"], np.sqrt(metrics["r_ig"] * metrics["num_params"]), rtol=1e-4)
    assert metrics["loss"][-1, 0] < 0.6 * metrics["loss"][0, 0]


def test_the_parameters_of_the_best_test_accuracy_are_those_measured(metrics):
    for i in range(2):
        row = int(np.nanargmax(metrics["test_accuracy"][:, i]))
        assert metrics["best_step"][i] == metrics["step"][row]
        assert metrics["best_test_accuracy"][i] == metrics["test_accuracy"][row, i]
        if metrics["full"][row]:
            assert metrics["best_r_ig"][i] == pytest.approx(metrics["r_ig"][row, i], rel=1e-6)


def test_a_diverged_network_keeps_its_place(metrics):
    assert metrics["diverged"].tolist()[:2] == [-1, -1]
    assert 0 < metrics["diverged"][2] < 10
    assert np.isnan(metrics["test_accuracy"][-1, 2])
    assert metrics["best_step"][2] < metrics["diverged"][2]


def test_a_resumed_run_has_the_same_bytes(metrics):
    first = Stops(9)
    with pytest.raises(Cancelled):
        RUN.compute(first)
    assert first.saved is not None
    assert npz_bytes(RUN.compute(Stops(1000, first.saved))) == npz_bytes(metrics)


def test_what_is_stopped_between_two_measurements_has_the_same_bytes(metrics, monkeypatch):
    """Hours may lie between them, and a signal leaves seconds."""
    rare = RUN.replace(shape=SHAPE.replace(schedule=Schedule(early=2, every=10, watch=10)))
    whole = rare.compute(Session())
    monkeypatch.setattr(stack, "PACE", 0.0)  # a look after each program
    first = Stops(6)
    with pytest.raises(Cancelled):
        rare.compute(first)
    assert first.saved is not None
    assert first.saved[stack.AT] not in whole["step"]
    assert first.saved[stack.AT] > first.saved["history/step"][-1]
    assert npz_bytes(rare.compute(Stops(1000, first.saved))) == npz_bytes(whole)


KILLED = """
import sys
from igr.lab.store.store import Store
from igr.lab.training.config import Shape, Schedule
from igr.lab.training.stack import StackRun
from igr.lab.runs.local import run_units
shape = Shape(width=6, depth=1, steps=300, train_images=96, schedule=Schedule(early=2, stretch=1.05))
run = StackRun(shape, (0.1,), (0.0,), (0,))
run_units(Store(sys.argv[1]), "mlp", [run], save_every=0.0)
"""


def test_a_killed_process_resumes_to_the_bytes_of_one_that_was_not(tmp_path):
    command = [sys.executable, "-c", KILLED]
    env = {**os.environ, "PYTHONPATH": os.getcwd(), "JAX_PLATFORMS": "cpu"}
    killed = subprocess.Popen([*command, str(tmp_path / "killed")], env=env)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").rglob("checkpoint.bin")) and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert list((tmp_path / "killed").rglob("checkpoint.bin")), "it finished before it could be killed"
    for name in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / name)], env=env, check=True)
    stored = [next((tmp_path / name).rglob("metrics.npz")).read_bytes() for name in ("killed", "whole")]
    assert stored[0] == stored[1]


def test_a_stored_unit_is_skipped_and_reads_back(tmp_path, metrics):
    store = Store(tmp_path)
    quick = RUN.replace(shape=SHAPE.replace(steps=3))
    assert run_units(store, "mlp", [quick]).computed == [quick.label]
    assert run_units(store, "mlp", [quick]).skipped == [quick.label]
    back = store.folder("mlp", quick).read()
    assert back.config == quick
    assert back.metrics["seed"].tolist() == [0, 1, 0]
    assert back.record["seconds"] > 0


def test_noise_and_validation_are_measured_when_asked():
    shape = SHAPE.replace(steps=3, validation=20, noise=Noise((0.0, 1.0), slopes=2, accuracies=3))
    metrics = StackRun(shape, (0.1,), (0.0,), (0,)).compute(Session())
    assert metrics["noise_slope"].shape == (1, 2, 2)
    assert metrics["noise_test_accuracy"].shape == (1, 2, 3)
    assert metrics["noise_test_accuracy"][0, 0] == pytest.approx([metrics["best_test_accuracy"][0]] * 3, abs=1e-6)
    assert metrics["noise_slope"][0, 0] == pytest.approx([metrics["best_slope"][0]] * 2, rel=1e-4)
    assert np.isfinite(metrics["validation_accuracy"]).all()
    assert metrics["train_size"] == 76


def test_progress_says_group_speed_and_the_events_the_state_of_each_learning_rate():
    said, table = [], LiveTable()
    metrics = StackRun(SHAPE, (0.3, 0.1, 0.3), (0.0,) * 3, (0, 0, 1)).compute(
        Session(
            watch=lambda f, text: said.append((f, text)),
            emit=lambda step, numbers: table.event(Event("mlp", "0f", "it", step, numbers)),
        )
    )
    fractions, texts = zip(*said, strict=True)
    assert list(fractions) == sorted(fractions)
    assert texts[-1].startswith("step 60, ")
    assert texts[-1].endswith("steps/s")
    lines = table.lines("it").splitlines()
    assert [line.split("E =")[0].split() for line in lines] == [["h", "=", "0.3"], ["h", "=", "0.1"]]
    best = metrics["test_accuracy"].max(axis=0)
    for line, loss, top in zip(
        lines, (metrics["loss"][-1, [0, 2]], metrics["loss"][-1, [1]]), (best[[0, 2]], best[[1]]), strict=True
    ):
        assert f"E = {loss.mean():.3e}" in line
        assert f"best test accuracy = {top.mean():.4f}" in line


def test_stacks_group_by_shape_and_cut_by_work():
    wide, narrow = Shape(width=40, steps=10), Shape(width=4, steps=10)
    networks = [Network(s, h, seed=k) for k in (0, 1, 2) for s in (wide, narrow) for h in (0.1, 0.2)]
    units = stacks(networks, work=2 * wide.num_params * wide.steps)
    assert [(u.shape.width, u.seeds) for u in units] == [
        (40, (0, 0)),
        (40, (1, 1)),
        (40, (2, 2)),
        (4, (0, 0, 1, 1, 2, 2)),
    ]
    assert all(u.learning_rates == (0.1, 0.2) * (len(u.seeds) // 2) for u in units)
    penalized = [Network(narrow.replace(method="forward"), 0.1, mu) for mu in (0.0, 0.5)]
    assert [(u.mus, u.shape.method) for u in stacks(penalized)] == [((0.0,), ""), ((0.5,), "forward")]


def test_a_clock_that_does_not_move_between_two_measurements_stops_nothing(monkeypatch):
    """Some systems' clocks tick every 15.6 ms, longer than a few steps take."""
    monkeypatch.setattr(stack.time, "monotonic", lambda: 7.0)
    assert RUN.compute(Session())["step"][-1] == SHAPE.steps


def test_a_unit_is_named_by_what_decides_its_result():
    again = Config.from_json(RUN.to_json())
    assert again == RUN
    assert again.digest() == RUN.digest() != RUN.replace(seeds=(0, 1, 1)).digest()
    assert RUN.digest() != RUN.replace(shape=SHAPE.replace(precision="highest")).digest()


def test_the_runs_of_the_repository_keep_their_names():
    """The folder of a unit is its digest: a field that joined later must not change it."""
    store = shipped()
    assert store is not None
    for experiment in store.experiments():
        load(experiment)  # defines the classes that are stored
        folders = [sums.parent for sums in (store.root / experiment).glob("*/SHA256SUMS")]
        assert folders
        for folder in folders:
            record = json.loads((folder / "config.json").read_text())
            config = Config.from_json(json.dumps({"kind": record["kind"], **record["config"]}))
            assert config.digest()[:16] == folder.name
    planned = {unit.digest()[:16] for unit in mlp.trials(Scale.PAPER)}
    assert planned >= {sums.parent.name for sums in (store.root / "mlp").glob("*/SHA256SUMS")}


def test_a_radius_of_sam_is_found_under_the_name_it_had_among_the_mus():
    """The store of igr 0.1: one field for both. The digest of these very values was written down then."""
    sam = Shape(data="cifar10", model="resnet18", width=64, batch_size=512, method="sam", steps=10)
    old = {"shape": sam.to_dict(), "learning_rates": [0.02], "mus": [0.05], "seeds": [3]}
    read = Config.from_json(json.dumps({"kind": "igr.lab.stack:StackRun", **old}))
    assert read == StackRun(sam, (0.02,), (0.0,), (3,), (0.05,)) == Config.from_json(read.to_json())
    assert read.digest()[:16] == "63f8496dcaba1789"
    assert read.digest() != read.replace(rhos=(0.1,)).digest()
    assert stacks([Network(sam, 0.02, rho=0.05, seed=3)]) == [read]


RESNET = Shape(data="cifar10", model="resnet18", width=64, batch_size=512)


def test_labels_tell_networks_apart():
    assert RUN.label == "digits mlp 6, batch 32, 3 networks, seeds 0,1"
    assert StackRun(RESNET, (0.05,), (0.0,), (1,)).label == "cifar10 resnet18 64, batch 512, h = 0.05, seed 1"
    rich = RESNET.replace(method="forward", stem="7x7", init="haiku", every=4, warm_up=100, augment=True, validation=5)
    assert StackRun(rich, (0.05,), (0.2,), (1,)).label == (
        "cifar10 resnet18 64 7x7 haiku, batch 512, forward, every 4 steps, warm-up 100, augmented, 5 held out, "
        "h = 0.05, mu = 0.2, seed 1"
    )
    radius = StackRun(RESNET.replace(method="sam"), (0.05,), (0.0,), (1,), (0.2,))
    assert radius.label.endswith("sam, h = 0.05, rho = 0.2, seed 1")
    adam = SHAPE.replace(optimizer=Optimizer("adam", (("b2", 0.95),)))
    assert StackRun(adam).label == "digits mlp 6, batch 32, adam,b2=0.95, h = 0.1, 1 network, seed 0"


def test_a_network_without_penalty_is_the_plain_one_whatever_its_schedule():
    shape = RESNET.replace(method="forward", every=4, warm_up=10)
    assert [unit.shape for unit in stacks([Network(shape)])] == [RESNET]
    assert [unit.shape for unit in stacks([Network(shape, mu=0.1)])] == [shape]


def test_on_a_gpu_compiled_programs_are_kept_unless_the_user_has_a_place(monkeypatch, tmp_path):
    update = stack.jax.config.update
    set_to = []
    monkeypatch.setattr(stack.jax.config, "update", lambda name, value: set_to.append(name))
    stack.keep_programs()
    assert set_to == []  # this is a CPU
    monkeypatch.setattr(stack.jax, "default_backend", lambda: "gpu")
    stack.keep_programs()
    assert set_to == ["jax_compilation_cache_dir"]
    update("jax_compilation_cache_dir", str(tmp_path))
    stack.keep_programs()
    update("jax_compilation_cache_dir", None)
    assert len(set_to) == 1


def test_the_record_of_a_training_says_the_initialization_that_was_used():
    """The field `init` is the ResNet's; MLPs have one initialization, whatever it says."""
    assert "truncated" in StackRun(Shape()).used["init"]
    assert StackRun(Shape(model="resnet18", stem="7x7", init="haiku")).used == {"init": "haiku"}


def test_the_record_of_a_training_says_its_precision():
    """Measurements are in float32 whatever the training computes in, so the training's is what must be told."""
    told = {name: StackRun(Shape(precision=name)).precision for name in ("default", "highest", "bfloat16")}
    assert told["highest"] == "float32"
    assert len(set(told.values())) == 3
    assert told["bfloat16"].startswith("bfloat16")
