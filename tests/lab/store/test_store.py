import dataclasses
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

from igr.lab.experiments import load
from igr.lab.experiments.two_parameter.model import Descent
from igr.lab.runs.local import run_units
from igr.lab.store import files
from igr.lab.store.care import verify
from igr.lab.store.config import ConfigError
from igr.lab.store.files import StoreError
from igr.lab.store.store import Damaged, DamageWarning, Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


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
    aside = store.root / "test" / f".damaged-{Counter(3).digest()[:16]}-1"
    path = store.folder("test", Counter(3)).path / name
    data = bytearray(path.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes({"flip": bytes(data), "shorten": bytes(data[:-7]), "remove": b"", "empty": b""}[harm])
    if harm == "remove":
        path.unlink()
    found = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    if (name, harm) == ("SHA256SUMS", "remove"):  # then it only looks unfinished
        assert store.folder("test", Counter(3)).status() == "cut"
    else:
        with pytest.raises(Damaged, match=re.escape(str(path.parent))):
            store.folder("test", Counter(3)).read()
        with pytest.warns(DamageWarning, match="computed again"):
            assert not store.folder("test", Counter(3)).finished()
        assert {each.name: each.read_bytes() for each in aside.iterdir()} == found  # kept, and out of the way
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
    assert problems[1].endswith("are not finished: the command that computed the others goes on with them.")


OTHER_VERSIONS = {  # what the record says instead, and what the sentence names
    "a renamed field": ('"length"', '"extent"', "has no field 'extent'"),
    "an unknown class": (':Counter"', ':Abacus"', "No configuration of kind 'units:Abacus'"),
    "a later format": ('"format": 1', '"format": 2', "has format 2"),
}


@pytest.mark.parametrize("change", OTHER_VERSIONS)
def test_what_another_version_stored_is_named_and_left_alone(store, change):
    old, new, sentence = OTHER_VERSIONS[change]
    run_units(store, "test", [Counter(3)])
    folder = store.folder("test", Counter(3))
    rewrite(folder, lambda record: record.replace(old, new))
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    store.write_index("test", [Counter(3)])
    runs, problems = store.runs("test")
    assert runs == []
    (problem,) = problems
    assert problem.startswith(f"{folder.path} was stored by another version of igr: ")
    assert sentence in problem
    assert [(each.path, each.status, each.words) for each in verify(store.root)] == [(folder.path, "unknown", problem)]
    assert folder.status() == "unknown"
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        folder.finished()
    outcome = run_units(store, "test", [Counter(3), Counter(4)])
    assert outcome.computed == ["counter 4"]  # the others go on
    assert problem in outcome.failed["counter 3"]
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


def test_a_class_that_moved_is_found_by_its_name(store):
    @dataclasses.dataclass(frozen=True)
    class Traveller(Counter):  # defined here alone, so that its name is enough
        pass

    run_units(store, "test", [Traveller(3)])
    folder = store.folder("test", Traveller(3))
    rewrite(folder, lambda record: record.replace(Traveller.kind(), "igr.gone.long_ago:Traveller"))
    assert folder.read().config == Traveller(3)
    assert run_units(store, "test", [Traveller(3)]).skipped == ["counter 3"]


def rewrite(folder, change):
    """Change a record, with the right sums."""
    record = change((folder.path / "config.json").read_text())
    assert record != (folder.path / "config.json").read_text()
    files.write_atomically(folder.path / "config.json", record.encode())
    data = (folder.path / "metrics.npz").read_bytes()
    sums = {"config.json": hashlib.sha256(record.encode()), "metrics.npz": hashlib.sha256(data)}
    text = "".join(f"{each.hexdigest()}  {name}\n" for name, each in sums.items())
    files.write_atomically(folder.path / "SHA256SUMS", text.encode())


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
from igr.lab.store.config import Config
from igr.lab.experiments import load
from igr.lab.experiments.two_parameter.model import Descent
from igr.lab.store.store import Store
from igr.lab.runs.local import run_units
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
    command = [
        sys.executable,
        "-m",
        "igr.lab.cli.app",
        "run",
        "two-parameter",
        "--scale",
        "smoke",
        "--out",
        str(tmp_path),
    ]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) for _ in range(2)]
    counts = []
    for process in both:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        counts.append([int(n) for n in re.findall(r"(\d+) computed, (\d+) already", errors)[0]])
    total = sum(counts[0])
    assert counts[0][0] + counts[1][0] == total, "each unit is computed once"
    load("two-parameter")
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
