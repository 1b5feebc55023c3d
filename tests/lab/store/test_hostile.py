"""A store from somebody else: names and files made to harm. Only our own errors come out, and nobody is blocked."""

import errno
import hashlib
import json
import os
import re
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from units import Counter, contents

from igr.lab.cli import app
from igr.lab.runs.local import run_units
from igr.lab.runs.unit import SPENT
from igr.lab.store import files
from igr.lab.store.care import verify
from igr.lab.store.config import ConfigError
from igr.lab.store.files import Damaged, Unreadable, npz_bytes
from igr.lab.store.store import DamageWarning, Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


def sealed(folder, record, metrics=None):
    """A unit's files with sums that are right."""
    data = npz_bytes({"sums": np.zeros(2)}) if metrics is None else metrics
    text = record if isinstance(record, bytes) else json.dumps(record).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_bytes(text)
    (folder / "metrics.npz").write_bytes(data)
    sums = {"config.json": text, "metrics.npz": data}
    lines = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sums.items())
    (folder / "SHA256SUMS").write_text(lines)


def test_a_unit_in_another_units_folder_is_damaged_and_kept(store):
    run_units(store, "test", [Counter(3), Counter(4)])
    one, other = store.folder("test", Counter(3)), store.folder("test", Counter(4))
    shutil.rmtree(one.path)
    shutil.copytree(other.path, one.path)
    assert one.status() == one.status(quick=True) == "damaged"
    with pytest.raises(Damaged, match="which is another one"):
        one.read()
    with pytest.warns(DamageWarning, match="computed again"):
        outcome = run_units(store, "test", [Counter(3), Counter(4)])
    assert (outcome.computed, outcome.skipped) == (["counter 3"], ["counter 4"])
    assert one.read().metrics["count"] == 4


def test_a_unit_of_another_experiment_is_not_taken_for_ours(store):
    run_units(store, "test", [Counter(3)])
    path = store.folder("test", Counter(3)).path
    shutil.copytree(path, store.root / "other" / path.name)
    assert store.folder("other", Counter(3)).status() == "damaged"


@pytest.mark.parametrize("origin", ["another unit", "an older version"])
def test_a_sound_checkpoint_that_is_not_this_units_is_moved_aside(store, origin):
    run_units(Store(store.root), "test", [Counter(2)])
    mine, other = store.folder("test", Counter(3)), store.folder("test", Counter(8))
    other.save_checkpoint({"sums": np.array([0.0, 99.0])})
    mine.path.mkdir()
    if origin == "another unit":
        os.rename(other.path / "checkpoint.bin", mine.path / "checkpoint.bin")
    else:
        data = npz_bytes({"sums": np.array([0.0, 99.0])}, compress=False)
        (mine.path / "checkpoint.bin").write_bytes(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    with pytest.warns(DamageWarning, match="starts from its beginning"):
        run_units(store, "test", [Counter(3)])
    assert mine.read().metrics["sums"].tolist() == [0, 1, 3, 6]
    assert (store.root / "test" / f".damaged-{mine.path.name}-checkpoint-1").is_file()


def test_a_sound_checkpoint_of_no_use_does_not_fail_its_unit_for_ever(store):
    folder = store.folder("test", Counter(3))
    folder.save_checkpoint({"something": np.zeros(1)})  # Counter looks for "sums"
    with pytest.warns(DamageWarning, match="failed after it was resumed"):
        assert run_units(store, "test", [Counter(3)]).computed == ["counter 3"]
    assert folder.read().metrics["count"] == 4


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE])
def test_an_error_of_reading_is_an_error_and_changes_nothing(store, monkeypatch, code):
    run_units(store, "test", [Counter(3)])
    folder, before = store.folder("test", Counter(3)), contents(store.root)
    real = os.open

    def failing(path, *arguments, **options):
        if str(path).endswith("metrics.npz") or str(path).endswith("config.json"):
            raise OSError(code, os.strerror(code))
        return real(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "open", failing)
        assert folder.status() == "unreadable"
        with pytest.raises(Unreadable, match=re.escape(os.strerror(code))):
            folder.finished()
        outcome = run_units(store, "test", [Counter(3), Counter(4)])
    assert outcome.computed == ["counter 4"]  # one that cannot be read does not stop the others
    assert "Nothing was changed" in outcome.failed["counter 3"]
    after = contents(store.root)
    assert all(after[path] == data for path, data in before.items() if path.parent == folder.path)
    assert run_units(store, "test", [Counter(3)]).skipped == ["counter 3"]


RECORD = {"format": 1, "experiment": "test", "kind": "units:Counter", "config": {"length": 3, "seed": 0},
          "digest": Counter(3).digest(), "precision": "float32", "device": "cpu"}  # fmt: skip
HOSTILE = {
    "not JSON": b"{",
    "no object": b"[]",
    "null": b"null",
    "deep nesting": b"[" * 100_000 + b"]" * 100_000,
    "deep object": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "not UTF-8": b"\xff\xfe\x00",
    "no fields": {},
    "bool format": RECORD | {"format": True},
    "text format": RECORD | {"format": "1"},
    "later format": RECORD | {"format": 999},
    "huge format": RECORD | {"format": 10**4000},
    "kind number": RECORD | {"kind": 3},
    "kind list": RECORD | {"kind": []},
    "kind of the system": RECORD | {"kind": "os:system"},
    "config list": RECORD | {"config": []},
    "config text": RECORD | {"config": "x"},
    "config nested": RECORD | {"config": {"length": {"length": {}}, "seed": 0}},
    "config huge": RECORD | {"config": {"length": 10**400, "seed": 0}},
    "config null": RECORD | {"config": {"length": None, "seed": None}},
    "config of another": RECORD | {"config": {"length": 4, "seed": 0}},
    "path as experiment": RECORD | {"experiment": "../../x"},
    "absolute experiment": RECORD | {"experiment": "/tmp/x"},
    "list as experiment": RECORD | {"experiment": ["test"]},
    "other digest": RECORD | {"digest": "0" * 64},
    "short digest": RECORD | {"digest": ""},
    "endless seconds": RECORD | {"seconds": float("inf")},
    "text seconds": RECORD | {"seconds": "1"},
    "negative seconds": RECORD | {"seconds": -1},
    "versions list": RECORD | {"versions": []},
    "bytes list": RECORD | {"bytes": []},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_record_with_right_sums_is_refused_by_one_of_our_errors_and_blocks_nobody(store, name):
    run_units(store, "test", [Counter(4)])
    folder = store.folder("test", Counter(3))
    sealed(folder.path, HOSTILE[name])
    found = contents(folder.path)
    with pytest.raises((Damaged, ConfigError)) as caught:
        folder.read()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert folder.status(quick=True) in ("damaged", "unknown")
    store.write_index("test", [Counter(3), Counter(4)])
    runs, problems = store.runs("test")
    assert [run.config for run in runs] == [Counter(4)]
    assert len(problems) == 1
    status = folder.status()
    if status == "damaged":
        with pytest.warns(DamageWarning):
            assert run_units(store, "test", [Counter(3)]).computed == ["counter 3"]
        kept = store.root / "test" / f".damaged-{folder.path.name}-1"
    else:
        assert run_units(store, "test", [Counter(3)]).failed
        kept = folder.path
    assert {path.name: data for path, data in contents(kept).items()} == {p.name: data for p, data in found.items()}


def test_a_record_with_fields_of_a_later_version_is_read(store):
    folder = store.folder("test", Counter(3))
    sealed(folder.path, RECORD | {"mood": {"good": [1, 2]}})
    assert folder.read().record["mood"] == {"good": [1, 2]}
    assert folder.status(quick=True) == "finished"


@pytest.mark.parametrize("thing", ["folder", "pipe", "file for the folder"])
@pytest.mark.parametrize("name", ["config.json", "metrics.npz", "SHA256SUMS"])
def test_something_else_in_the_place_of_a_file_is_damage(store, name, thing):
    run_units(store, "test", [Counter(3)])
    folder = store.folder("test", Counter(3))
    path = folder.path / name
    path.unlink()
    if thing == "folder":
        path.mkdir()
    elif thing == "pipe":
        os.mkfifo(path)  # a reader would wait for ever
    else:
        shutil.rmtree(folder.path)
        folder.path.write_text("")
    assert folder.status() == "damaged"
    with pytest.warns(DamageWarning):
        assert run_units(store, "test", [Counter(3)]).computed == ["counter 3"]


ESCAPE = "\x1b]0;title\x07\n"


def test_nothing_in_a_store_steers_the_terminal_or_ends_in_a_traceback(store, capsys, monkeypatch, tmp_path):
    """The name of a folder, the scale, the flags and the source of an index, the fields of a record."""
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache")
    store.write_index(f"x{ESCAPE}", [], scale="smoke")
    store.write_index("two-parameter", [], scale=ESCAPE, flags=[ESCAPE], source=ESCAPE)
    store.write_index("long", [], source="/" + "a" * 5000)
    sealed(store.folder("test", Counter(3)).path, RECORD | {"device": ESCAPE, "precision": 3, ESCAPE: ESCAPE})
    sealed(store.folder("test", Counter(4)).path, RECORD | {"config": {ESCAPE: ESCAPE * 9999}})
    sealed(store.folder("test", Counter(5)).path, RECORD | {"config": {"length": ESCAPE * 9999}})
    store.write_index("test", [Counter(k) for k in (3, 4, 5)])
    for command in (["report", "--alone"], ["verify"], ["export"], ["gc", "--yes"]):
        monkeypatch.setattr("sys.argv", ["igr", *command, "--out", str(store.root)])
        with pytest.raises(SystemExit):
            app.main()
        said = "".join(capsys.readouterr())
        assert "\x1b" not in said
        assert "\x07" not in said
        assert max(len(line) for line in said.splitlines()) < 1000


def test_two_runs_at_once_each_report_on_their_own_units(store):
    first, second = Store(store.root), Store(store.root)
    run_units(first, "test", [Counter(3), Counter(4)])
    first.write_index("test", [Counter(3)], scale="smoke")
    second.write_index("test", [Counter(4)], scale="quick")
    assert [run.config for run in first.runs("test")[0]] == [Counter(3)]
    assert [run.config for run in second.runs("test")[0]] == [Counter(4)]
    assert (Store(store.root).read_index("test") or {})["scale"] == "quick"


def test_an_output_folder_without_a_name_is_refused():
    with pytest.raises(ConfigError, match="needs a name"):
        Store("")


def test_a_file_that_a_store_names_is_not_executed_unless_the_user_ran_it(store, tmp_path, monkeypatch):
    from igr.lab import experiments

    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache")
    monkeypatch.setattr(experiments, "_FILES", {})
    file, proof = tmp_path / "evil.py", tmp_path / "executed"
    text = f"open({str(proof)!r}, 'w')\nCLAIM, trials, figures, findings = 'x', None, None, None\n"
    file.write_text(text)
    store.write_index("evil", [], scale="smoke", source=str(file))
    assert experiments.stored(Store(store.root)) == []
    assert not proof.exists()
    assert experiments.name_of(str(file)) == "evil"  # the user names it: `igr run evil.py`
    monkeypatch.setattr(experiments, "_FILES", {})
    assert experiments.stored(Store(store.root)) == ["evil"]


def test_units_that_unpack_to_far_more_than_they_hold_do_not_fill_the_memory_together(store, monkeypatch):
    monkeypatch.setattr("igr.lab.store.store.SPARE", 5_000_000)
    units = [Counter(k) for k in range(3, 23)]
    for unit in units:
        store.folder("test", unit).write({"sums": np.zeros(2_000_000, np.int8)})  # of 2 kB
    store.write_index("test", units)
    runs, problems = store.runs("test")
    assert len(runs) == 2
    assert len([each for each in problems if "unpack to far more than they hold" in each]) == 18
    assert store.harm == problems
    assert {each.status for each in verify(store.root)} == {"sound"}


def test_two_processes_that_name_a_file_each_are_both_remembered(tmp_path, monkeypatch):
    from igr.lab.store import trusted

    monkeypatch.setattr(trusted, "_list", lambda: tmp_path / "cache" / "experiments.json")
    paths = [tmp_path / f"experiment{number}.py" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(trusted.remember, paths))
    assert [path for path in paths if not trusted.is_trusted(path)] == []


@pytest.mark.parametrize("name", ["config.json", "metrics.npz", ".tmp-x", "checkpoint.bin"])
def test_a_folder_in_the_place_of_a_file_to_be_written_stops_nobody(store, name):
    path = store.folder("test", Counter(3)).path / name
    path.mkdir(parents=True)
    (path / "precious").write_text("precious")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        outcome = run_units(store, "test", [Counter(3), Counter(4)])
    assert sorted(outcome.computed) == ["counter 3", "counter 4"]
    assert [found.read_text() for found in store.root.rglob("precious")] == ["precious"]
    assert bool(said) == (name != ".tmp-x")
    assert run_units(store, "test", [Counter(3)]).skipped == ["counter 3"]


@pytest.mark.parametrize("seconds", [np.nan, np.inf, -1.0, 1e300])
def test_a_checkpoint_of_impossible_seconds_does_not_make_a_record_that_is_refused(store, seconds):
    folder = store.folder("test", Counter(3))
    folder.save_checkpoint({"sums": np.zeros(1), SPENT: np.array(seconds)})
    with pytest.warns(DamageWarning, match="is invalid"):
        run_units(store, "test", [Counter(3)])
    assert folder.status() == "finished"
