import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from units import Counter, metrics_file

from igr.lab import files
from igr.lab.experiments.two_parameter_model import Descent
from igr.lab.files import StoreError, npz_arrays, npz_bytes
from igr.lab.store import Damaged, DamageWarning, Store
from igr.lab.work import run_units


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


def test_npz_bytes_depend_on_the_arrays_alone():
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.int64(3)}
    first = npz_bytes(arrays)
    time.sleep(2.1)  # the clock of a zip file ticks every two seconds
    assert npz_bytes(dict(reversed(arrays.items()))) == first
    assert npz_bytes({**arrays, "a": np.int64(4)}) != first
    again = npz_arrays(first)
    assert again["a"].dtype == np.int64
    np.testing.assert_array_equal(again["b"], arrays["b"])


def test_nothing_is_pickled():
    with pytest.raises(ValueError, match="pickle"):
        npz_bytes({"a": np.array([object()])})


def test_finished_units_are_read_back_with_their_record(store):
    outcome = run_units(store, "test", [Counter(4, seed=9)])
    assert outcome.computed == ["counter 4"]
    run = store.folder("test", Counter(4, seed=9)).read()
    assert run.config == Counter(4, seed=9)
    np.testing.assert_array_equal(run.metrics["sums"], [0, 1, 3, 6, 10])
    assert run.record["seed"] == 9
    assert run.record["digest"] == Counter(4, seed=9).digest()
    assert {"versions", "device", "precision", "commit", "created", "seconds"} <= set(run.record)


def test_finished_is_skipped_and_cut_is_redone(store, monkeypatch):
    run_units(store, "test", [Counter(3)])
    (store.folder("test", Counter(4)).path).mkdir(parents=True)
    (store.folder("test", Counter(4)).path / "metrics.npz").write_bytes(b"half")
    assert store.folder("test", Counter(4)).status() == "cut"
    outcome = run_units(store, "test", [Counter(3), Counter(4)])
    assert (outcome.skipped, outcome.computed) == (["counter 3"], ["counter 4"])
    assert store.folder("test", Counter(4)).read().metrics["count"] == 5


@pytest.mark.parametrize("name", ["metrics.npz", "config.json", "SHA256SUMS"])
@pytest.mark.parametrize("harm", ["flip", "shorten", "remove", "empty"])
def test_a_damaged_file_is_named_and_redone_and_never_read(store, name, harm):
    run_units(store, "test", [Counter(3)])
    good = metrics_file(store, Counter(3)).read_bytes()
    path = store.folder("test", Counter(3)).path / name
    data = bytearray(path.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes({"flip": bytes(data), "shorten": bytes(data[:-7]), "remove": b"", "empty": b""}[harm])
    if harm == "remove":
        path.unlink()
    if (name, harm) == ("SHA256SUMS", "remove"):  # then it only looks unfinished
        assert store.folder("test", Counter(3)).status() == "cut"
    else:
        with pytest.raises(Damaged, match=re.escape(str(path.parent))):
            store.folder("test", Counter(3)).read()
        with pytest.warns(DamageWarning, match="computed again"):
            assert not store.folder("test", Counter(3)).finished()
    assert run_units(store, "test", [Counter(3)]).computed == ["counter 3"]
    assert metrics_file(store, Counter(3)).read_bytes() == good


def test_damage_is_named_by_file(store):
    run_units(store, "test", [Counter(3)])
    path = metrics_file(store, Counter(3))
    path.write_bytes(path.read_bytes()[:-1])
    store.write_index("test", [Counter(3), Counter(8)])
    runs, problems = store.runs("test")
    assert runs == []
    assert problems[0] == f"{path} is damaged: its SHA-256 is not the one in SHA256SUMS."
    assert problems[1].startswith("1 of the 2 units in ")
    assert problems[1].endswith("are not finished: the same command goes on with them.")


def test_what_another_version_stored_is_named_and_redone(store):
    run_units(store, "test", [Counter(3)])
    folder = store.folder("test", Counter(3))
    record = (folder.path / "config.json").read_text().replace('"length"', '"extent"')
    files.write_atomically(folder.path / "config.json", record.encode())
    data = (folder.path / "metrics.npz").read_bytes()
    sums = {"config.json": hashlib.sha256(record.encode()), "metrics.npz": hashlib.sha256(data)}
    text = "".join(f"{each.hexdigest()}  {name}\n" for name, each in sums.items())
    files.write_atomically(folder.path / "SHA256SUMS", text.encode())
    store.write_index("test", [Counter(3)])
    runs, problems = store.runs("test")
    assert runs == []
    assert "stored by another version" in problems[0]
    with pytest.warns(DamageWarning, match="has no field 'extent'"):
        assert not folder.finished()
    assert run_units(store, "test", [Counter(3)]).computed == ["counter 3"]


def test_a_damaged_checkpoint_starts_the_unit_anew(store):
    folder = store.folder("test", Counter(3))
    folder.save_checkpoint({"sums": np.array([0.0, 99.0])})
    path = folder.path / "checkpoint.bin"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    with pytest.warns(DamageWarning, match="checkpoint.bin is damaged"):
        assert folder.load_checkpoint() is None
    run_units(store, "test", [Counter(3)])
    assert folder.read().metrics["sums"][-1] == 6


class Killed(BaseException):
    pass


def test_stopping_at_every_file_operation_and_restarting_gives_the_same_bytes(tmp_path, monkeypatch):
    """A process can die before or after each move of a file: try all of them, one after the other, on one unit."""
    run_units(Store(tmp_path / "whole"), "test", [Counter(6)], save_every=0.0)
    expected = metrics_file(Store(tmp_path / "whole"), Counter(6)).read_bytes()
    real, calls = os.replace, []
    deaths = 0
    for moment in range(40):
        store = Store(tmp_path / f"cut{moment}")
        store.require_writable()
        calls.clear()

        def replace(source, target, moment=moment, top=store.root.name):
            calls.append(target)
            if len(calls) - 1 == moment // 2 and Path(target).parent.name != top:
                if moment % 2:
                    real(source, target)
                raise Killed
            return real(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(files.os, "replace", replace)
            try:
                run_units(store, "test", [Counter(6)], save_every=0.0)
            except Killed:
                deaths += 1
        run_units(store, "test", [Counter(6)], save_every=0.0)
        assert metrics_file(store, Counter(6)).read_bytes() == expected
        folder = metrics_file(store, Counter(6)).parent
        assert sorted(path.name for path in folder.iterdir()) == ["SHA256SUMS", "config.json", "metrics.npz"]
    assert deaths >= 16  # six checkpoints, two data files and the sums, before and after


LONG = Descent((75.0, 74.925), learning_rate=2e-8, every=3)  # some 70 million steps: a second or two
CHILD = """
import sys
from igr.lab.config import Config
from igr.lab.experiments.two_parameter_model import Descent
from igr.lab.store import Store
from igr.lab.work import run_units
outcome = run_units(Store(sys.argv[1]), "test", [Config.from_json(sys.argv[2])], save_every=0.02)
sys.exit(1 if outcome.failed else 0)
"""


def child(root: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", CHILD, str(root), LONG.to_json()])


def test_sigkill_at_several_moments_and_restart_gives_the_same_bytes(tmp_path):
    assert child(tmp_path / "whole").wait() == 0
    expected = metrics_file(Store(tmp_path / "whole"), LONG).read_bytes()
    store = Store(tmp_path / "killed")
    folder = store.folder("test", LONG)
    checkpoint = folder.path / "checkpoint.bin"
    reached = []
    for delay in (0.0, 0.15, 0.4):  # after the first checkpoint of each life
        process = child(store.root)
        seen = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == seen):
            time.sleep(0.005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it was killed: make LONG longer"
        assert folder.status() == "cut"
        saved = folder.load_checkpoint()
        assert saved is not None
        reached.append(int(saved["step"][-1]))
    assert reached == sorted(set(reached)), "each life goes on from the last one's checkpoint"
    assert child(store.root).wait() == 0
    assert metrics_file(store, LONG).read_bytes() == expected
    assert not checkpoint.exists()


def test_two_processes_on_one_folder_share_the_work(tmp_path):
    command = [sys.executable, "-m", "igr.cli", "run", "two-parameter", "--scale", "smoke", "--out", str(tmp_path)]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) for _ in range(2)]
    counts = []
    for process in both:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        counts.append([int(n) for n in re.findall(r"(\d+) computed, (\d+) already", errors)[0]])
    total = sum(counts[0])
    assert counts[0][0] + counts[1][0] == total, "each unit is computed once"
    runs, problems = Store(tmp_path).runs("two-parameter")
    assert len(runs) == total
    assert problems == []


def test_a_full_disk_is_one_sentence_and_leaves_no_rest(store, monkeypatch):
    store.require_writable()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StoreError, match=r"^Could not write .*metrics.npz: the disk is full\.$"):
        files.write_atomically(store.root / "metrics.npz", b"data")
    assert list(store.root.iterdir()) == []
    with pytest.raises(StoreError, match="the disk is full"):
        run_units(store, "test", [Counter(2)])


def test_a_file_in_the_way_is_one_sentence(tmp_path):
    (tmp_path / "out").write_text("not a folder")
    with pytest.raises(StoreError, match=r"^Could not write .*\.$"):
        run_units(Store(tmp_path / "out"), "test", [Counter(2)])
