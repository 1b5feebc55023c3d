"""Indices that are broken, hostile or somebody else's: named, never an empty report, and nobody is blocked."""

import errno
import os
import stat
from pathlib import Path

import pytest
from units import Counter

from igr.lab.runs.local import run_units
from igr.lab.store import files, schema
from igr.lab.store.care import verify
from igr.lab.store.config import ConfigError
from igr.lab.store.files import Damaged
from igr.lab.store.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


INDICES = [
    b"[]",
    b"null",
    b"{}",
    b'{"format":1,"units":["../../x"]}',
    b'{"format":1,"units":3}',
    b'{"format":1,"units":[],"scale":[]}',
    schema.index_bytes([], {"flags": 3}),
    schema.index_bytes([], {"flags": [1, None]}),
    schema.index_bytes([], {"source": []}),
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", INDICES)
def test_a_hostile_index_is_named_and_is_no_empty_report(store, content):
    store.write_index("test", [Counter(3)])
    (store.root / "test" / "index.json").write_bytes(content)
    fresh = Store(store.root)
    runs, problems = fresh.runs("test")
    assert runs == []
    assert fresh.harm == problems != []
    store.write_index("test", [Counter(3)])
    assert Store(store.root).harm == []


@pytest.mark.parametrize("thing", ["link to itself", "link to nothing", "socket", "pipe", "unreadable"])
def test_something_else_in_the_place_of_an_index_is_named_and_blocks_nobody(store, thing, monkeypatch):
    run_units(store, "fine", [Counter(3)])
    store.write_index("fine", [Counter(3)])
    path = store.root / "test" / "index.json"
    path.parent.mkdir()
    if thing == "pipe":
        os.mkfifo(path)
    elif thing == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif thing == "unreadable":
        path.write_text("{}")
        real = os.open
        monkeypatch.setattr(files.os, "open", lambda name, *more: failing() if name == path else real(name, *more))

        def failing():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    else:
        path.symlink_to(path if thing == "link to itself" else store.root / "nothing")
    fresh = Store(store.root)
    assert fresh.experiments() == ["fine", "test"]
    assert fresh.runs("test") == ([], fresh.harm)
    assert len(fresh.harm) == 1
    assert [run.config for run in fresh.runs("fine")[0]] == [Counter(3)]
    assert [each.path for each in verify(store.root) if each.status != "sound"] == [path]


@pytest.mark.parametrize("closed", ["to all", "to a listing"])
def test_an_experiment_that_the_system_does_not_let_us_look_into_is_named_and_is_not_nothing(
    store, monkeypatch, closed
):
    """As after `chmod 000 out/test`, which does not stop the root user, as whom tests may run."""
    run_units(store, "test", [Counter(3)])
    store.write_index("test", [Counter(3)])
    folder = store.root / "test"

    def guarded(real, lists):
        def function(path, *more, **options):
            here = isinstance(path, str | Path) and (Path(path) == folder if lists else folder in Path(path).parents)
            if here and (lists or closed == "to all"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, *more, **options)

        return function

    for name in ("listdir", "scandir", "lstat", "stat", "open"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name), name in ("listdir", "scandir")))
    fresh = Store(store.root)
    assert fresh.experiments() == ["test"]
    first = next(verify(store.root))  # Python 3.13 lists folders by a function of its own after this
    assert (first.status, first.path) == ("unreadable", folder / "index.json" if closed == "to all" else folder)
    runs, problems = fresh.runs("test")
    assert (len(runs), bool(problems)) == ((0, True) if closed == "to all" else (1, False))
    assert fresh.harm == problems


def test_every_flipped_bit_of_an_index_is_seen(store):
    store.write_index("test", [Counter(3), Counter(4)], scale="smoke", options={"rates": 0})
    path = store.root / "test" / "index.json"
    good = path.read_bytes()
    meant = schema.index(good, path)
    for place in range(8 * len(good)):
        data = bytearray(good)
        data[place // 8] ^= 1 << place % 8
        try:
            found = schema.index(bytes(data), path)
        except (Damaged, ConfigError):
            continue
        assert {k: v for k, v in found.items() if k != "sha256"} == {k: v for k, v in meant.items() if k != "sha256"}


def test_an_index_that_names_a_unit_twice_is_damage(store):
    """Each would count twice in the findings, with twice the n."""
    run_units(store, "test", [Counter(3)])
    store.write_index("test", [Counter(3), Counter(3)])
    fresh = Store(store.root)
    assert [run.config for run in fresh.runs("test")[0]] == [Counter(3)]
    name = store.folder("test", Counter(3)).path.name
    (store.root / "test" / "index.json").write_bytes(schema.index_bytes([name, name], {}))
    assert fresh.runs("test")[0] == []
    assert "names a unit twice" in fresh.harm[0]


def test_units_that_are_not_there_are_counted_without_being_looked_for(store, monkeypatch):
    """An index may name a million of them."""
    run_units(store, "test", [Counter(3)])
    names = [f"{number:016x}" for number in range(1000)] + [store.folder("test", Counter(3)).path.name]
    (store.root / "test" / "index.json").write_bytes(schema.index_bytes(names, {}))
    opened, real = [], os.open
    monkeypatch.setattr(files.os, "open", lambda path, *more: opened.append(path) or real(path, *more))
    runs, problems = store.runs("test")
    assert [run.config for run in runs] == [Counter(3)]
    assert problems[0].startswith("1000 of the 1001 units in ")
    assert len(opened) < 10
