"""Locks where there are none, who holds one, and what `igr gc` may take away."""

import errno
import fcntl
import os
import signal
import subprocess
import time
import warnings

import numpy as np
import pytest
from units import Counter

from igr.lab.runs import local
from igr.lab.runs.local import Watcher, run_units
from igr.lab.store import lock as locking
from igr.lab.store.care import leftovers, remove, size, verify
from igr.lab.store.claim import claim, place
from igr.lab.store.files import StoreError, refuse_links
from igr.lab.store.lock import holder, lock
from igr.lab.store.store import DamageWarning, Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_without_locks_of_the_system_claims_do_instead_and_that_is_said(store, monkeypatch, code):
    """As on some network file systems: the call itself fails, whatever library makes it."""

    def flock(descriptor, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    locking._say_without.cache_clear()
    folder, again = (store.folder("test", Counter(3)) for _ in range(2))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with folder.lock() as mine, again.lock() as other, store.folder("test", Counter(4)).lock() as third:
            assert (mine, other, third) == (True, False, True)
        assert run_units(store, "test", [Counter(3), Counter(4)]).computed == ["counter 3", "counter 4"]
    told = len([each for each in said if "has no locks" in str(each.message)])
    assert told == 1 or (told == 0 and code == errno.ENOSYS)  # some versions of filelock have an answer to that one
    assert [remove(store.root, path) for path in leftovers(store.root)].count(False) == 0
    assert leftovers(store.root) == []


def test_the_holder_of_a_lock_is_named_and_whether_it_is_stopped(store, monkeypatch):
    assert holder(store.root, "one") == "another process"
    with claim(store.root, "one", True):
        assert holder(store.root, "one").startswith(f"process {os.getpid()}, for ")
    process = subprocess.Popen(["sleep", "60"])
    child = process.pid
    try:
        process.send_signal(signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: child)
            held = claim(store.root, "one", True)
            held.__enter__()
        deadline = time.monotonic() + 10
        while "stopped" not in holder(store.root, "one") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert f"process {child} (stopped: `kill -CONT {child}` lets it go on)" in holder(store.root, "one")
        held.__exit__(None, None, None)
    finally:
        process.kill()
        process.wait()
    place(store.root, "one").write_text('{"pid": "x"}')
    assert holder(store.root, "one") == "another process"


def test_who_is_waited_for_is_told(store, monkeypatch):
    monkeypatch.setattr(local, "PATIENCE", 0.1)
    told = []

    class Listens(Watcher):
        def waiting(self, unit, holder):
            told.append(f"{unit.label}: {holder}")
            release()

    folder = store.folder("test", Counter(3))
    held = folder.lock()
    assert held.__enter__()

    def release():
        held.__exit__(None, None, None)

    assert run_units(store, "test", [Counter(3)], watcher=Listens()).computed == ["counter 3"]
    assert told
    assert told[0].startswith(f"counter 3: process {os.getpid()}, for ")


def test_leftovers_are_found_and_removed_and_nothing_else(store, tmp_path):
    run_units(store, "test", [Counter(3), Counter(4)])
    damaged = store.folder("test", Counter(4))
    (damaged.path / "metrics.npz").write_bytes(b"")
    with pytest.warns(DamageWarning):
        run_units(store, "test", [Counter(4)])
    old, new = store.root / "test" / ".tmp-old", store.root / ".tmp-new"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (0, 0))
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("")
    (store.root / "test" / ".damaged-link-1").symlink_to(precious)
    with lock(store.root, "test-held") as mine:
        assert mine
        found = leftovers(store.root)
        assert old in found
        assert new not in found, "it may be being written"
        kept = [path.name for path in found if not remove(store.root, path)]
    assert kept == ["test-held"]
    assert (precious / "file").exists()
    assert [path.name for path in leftovers(store.root)] == ["test-held"]
    assert {each.status for each in verify(store.root)} == {"sound"}


def test_verify_names_what_is_wrong_and_changes_nothing(store):
    run_units(store, "test", [Counter(k) for k in (3, 4, 5)])
    store.write_index("test", [Counter(3)])
    path = store.folder("test", Counter(4)).path / "metrics.npz"
    data = bytearray(path.read_bytes())
    data[60] ^= 1  # of the same length: only a full check sees it
    path.write_bytes(bytes(data))
    (store.folder("test", Counter(5)).path / "SHA256SUMS").unlink()
    assert store.folder("test", Counter(4)).status(quick=True) == "finished"
    before = {file: file.read_bytes() for file in store.root.rglob("*") if file.is_file()}
    found = {each.path.name: each.status for each in verify(store.root)}
    digests = [Counter(k).digest()[:16] for k in (3, 4, 5)]
    assert found == dict(zip(digests, ("sound", "damaged", "cut"), strict=True))
    assert {file: file.read_bytes() for file in store.root.rglob("*") if file.is_file()} == before
    assert np.array([each.older is False for each in verify(store.root) if each.status == "sound"]).all()


def test_folders_in_each_other_deeper_than_pythons_calls_are_removed(store):
    """3,000 of them: deeper than `shutil.rmtree` and `os.walk` of Python 3.11 go, and than a path may be long."""
    damaged = store.root / "test" / ".damaged-x-1"
    damaged.mkdir(parents=True)
    (damaged / "file").write_bytes(bytes(1000))
    place = os.open(damaged, os.O_RDONLY)
    for number in range(3000):
        os.mkdir("a", dir_fd=place)
        inner = os.open("a", os.O_RDONLY, dir_fd=place)
        if number == 10:
            os.symlink(store.root, "link", dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    assert leftovers(store.root) == [damaged]
    assert size(damaged) >= 1000
    with pytest.raises(StoreError, match="cannot be used"):
        refuse_links(damaged / "a" / "a" / "a" / "a" / "a" / "a" / "a" / "a" / "a" / "a" / "a" / "a")
    assert remove(store.root, damaged)
    assert leftovers(store.root) == []
    assert store.root.is_dir()
