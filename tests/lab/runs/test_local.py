"""When a unit of work keeps a checkpoint, and how units share a run."""

import os
import shutil
import threading
from collections import Counter as Tally
from pathlib import Path

import numpy as np
import pytest
from units import Broken, Counter, metrics_file

from igr.lab.runs.local import run_units
from igr.lab.runs.unit import Cancelled, Session, Trial
from igr.lab.store import files
from igr.lab.store.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


def test_a_trial_says_how_it_is_computed():
    with pytest.raises(TypeError, match="abstract"):
        Trial()  # pyright: ignore[reportAbstractUsage]


def test_a_unit_that_is_asked_to_stop_saves_first(tmp_path):
    """Ctrl-C between two checkpoints loses nothing: the next one is written before the unit ends."""
    stop = threading.Event()
    folder = Store(tmp_path).folder("test", Counter(6))
    session = Session(folder, stop=stop, save_every=1e9)
    assert not session.save(lambda: {"step": np.array(1)})
    stop.set()
    with pytest.raises(Cancelled):
        session.save(lambda: {"step": np.array(2)})
    saved = folder.load_checkpoint()
    assert saved is not None
    assert saved["step"] == 2


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    """A checkpoint that takes 3 s is written every 100 s, not every 2 s."""
    clock = [0.0]
    monkeypatch.setattr("igr.lab.runs.unit.time.monotonic", lambda: clock[0])
    session = Session(Store(tmp_path).folder("test", Counter(6)), save_every=2.0)

    def slow():
        clock[0] += 3.0
        return {"step": np.array(1)}

    clock[0] = 2.5
    assert session.save(slow)
    clock[0] += 50
    assert not session.save(slow)
    clock[0] += 51
    assert session.save(slow)


def test_a_resumed_unit_adds_up_its_seconds(tmp_path, monkeypatch):
    """The cost of a unit is that of all processes that worked on it, less what was lost after the last checkpoint."""
    clock = [0.0]
    monkeypatch.setattr("igr.lab.runs.unit.time.monotonic", lambda: clock[0])
    folder = Store(tmp_path).folder("test", Counter(6))
    first = Session(folder, save_every=0.0)
    clock[0] = 40.0
    assert first.save(lambda: {"step": np.array(1)})
    clock[0] = 100.0
    second = Session(folder)
    saved = second.load()
    assert saved is not None
    assert set(saved) == {"step"}
    clock[0] = 103.0
    assert second.seconds == pytest.approx(43.0)


def test_a_unit_that_another_one_holds_is_waited_for(store):
    folder = store.folder("test", Counter(2))
    held, release = threading.Event(), threading.Event()

    def hold():
        with folder.lock() as mine:
            assert mine
            held.set()
            release.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    with folder.lock() as mine:
        assert not mine
    threading.Timer(0.5, release.set).start()
    outcome = run_units(store, "test", [Counter(2), Counter(3)])
    assert sorted(outcome.computed) == ["counter 2", "counter 3"]
    assert outcome.computed[0] == "counter 3"  # what is free comes first
    holder.join()


def test_one_failure_does_not_stop_the_others(store):
    outcome = run_units(store, "test", [Broken(1), Counter(2)])
    assert outcome.failed == {"counter 1": "FloatingPointError: no"}
    assert outcome.computed == ["counter 2"]
    assert store.folder("test", Broken(1)).status() == "absent"


def test_jobs_give_the_same_bytes(tmp_path):
    units = [Counter(length) for length in range(2, 8)]
    for jobs in (1, 3):
        run_units(Store(tmp_path / str(jobs)), "test", units, jobs=jobs)
    for unit in units:
        one, three = (metrics_file(Store(tmp_path / str(jobs)), unit).read_bytes() for jobs in (1, 3))
        assert one == three


def test_deciding_that_nothing_is_left_opens_two_small_files_of_each_unit(store, monkeypatch):
    """10,000 finished units took 412 s and 1.35 GB when each was read three times, measurements and all."""
    units = [Counter(3, seed=seed) for seed in range(40)]
    run_units(store, "test", units)
    shutil.rmtree(store.root / ".locks")
    opened, real = [], os.open
    monkeypatch.setattr(files.os, "open", lambda path, *more: opened.append(Path(path)) or real(path, *more))
    assert len(run_units(store, "test", units).skipped) == 40
    beside = [path for path in opened if path.parent.parent.parent != store.root]
    assert Tally(path.name for path in opened if path not in beside) == {"SHA256SUMS": 40, "config.json": 40}
    assert len(beside) <= 2, "whether the folder can be written"
    assert not (store.root / ".locks").exists()
