"""Links in a store from somebody else: nothing is written or removed where they lead."""

import os
import re
import stat

import pytest
from units import Counter, contents

from igr.lab.runs.local import run_units
from igr.lab.sinks.registry import SINKS, make
from igr.lab.store.care import leftovers
from igr.lab.store.files import StoreError, confined, refuse_links
from igr.lab.store.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


@pytest.mark.parametrize(
    "link", [".locks", ".locks/.gitignore", "test", "unit", "unit/checkpoint.bin", "test/index.json"]
)
def test_nothing_is_written_through_a_link(store, tmp_path, link):
    victim = tmp_path / "victim"
    place = store.root / link.replace("unit", f"test/{Counter(3).digest()[:16]}")
    place.parent.mkdir(parents=True)
    if "." in place.name[1:]:
        victim.write_text("precious")
    else:
        victim.mkdir()
        (victim / ".tmp-mine").write_text("precious")
    place.symlink_to(victim)
    before = contents(tmp_path)
    try:
        store.write_index("test", [Counter(3)])
        run_units(store, "test", [Counter(3)], save_every=0.0)
    except StoreError as error:
        assert "is a link" in str(error)  # noqa: PT017 (some links are replaced, the others are refused)
    after = contents(tmp_path)
    assert {path: after[path] for path in before if path.is_relative_to(victim)} == {
        path: data for path, data in before.items() if path.is_relative_to(victim)
    }
    assert [path for path in after if path.is_relative_to(victim)] == [p for p in before if p.is_relative_to(victim)]


@pytest.mark.parametrize("what", ["the unit's folder", "its lock", "a folder for its lock"])
def test_a_unit_with_a_link_in_its_place_fails_alone(store, tmp_path, what):
    run_units(store, "test", [Counter(3)])
    folder, victim = store.folder("test", Counter(3)), tmp_path / "victim"
    lock = store.root / ".locks" / folder.lock_name
    os.rename(folder.path, victim)
    (victim / "checkpoint.bin").write_text("precious")
    if what == "the unit's folder":
        folder.path.symlink_to(victim)
    else:
        lock.unlink(missing_ok=True)
        lock.mkdir() if what == "a folder for its lock" else lock.symlink_to(victim / "checkpoint.bin")
    before = contents(victim)
    outcome = run_units(store, "test", [Counter(3), Counter(4)])
    assert outcome.computed == ["counter 4"]
    assert re.search("is a link|Could not lock", outcome.failed["counter 3"])
    assert contents(victim) == before


def test_paths_stay_inside_and_trees_with_links_are_refused(tmp_path):
    assert confined(tmp_path, tmp_path / "a" / "b") == tmp_path / "a" / "b"
    with pytest.raises(StoreError, match="leaves the output folder"):
        confined(tmp_path, tmp_path / ".." / "b")
    (tmp_path / "figures").mkdir()
    refuse_links(tmp_path / "figures")
    (tmp_path / "figures" / "a.png").symlink_to("/etc/hostname")
    with pytest.raises(StoreError, match=r"a\.png is a link"):
        refuse_links(tmp_path / "figures")


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("place", ["", "inner"])
def test_no_sink_writes_through_a_link(tmp_path, sink, place):
    """Neither into a folder elsewhere nor over a file elsewhere, by the name that the sink is going to use."""
    victim = tmp_path / "victim"
    victim.mkdir()
    link = tmp_path / "out" / sink / place
    link.parent.mkdir(parents=True)
    link.symlink_to(victim, target_is_directory=True)
    with pytest.raises(StoreError, match="is a link"):
        make(sink, tmp_path / "out")
    assert list(victim.iterdir()) == []


@pytest.mark.parametrize("link", [".locks", "test", "test/0123456789abcdef"])
def test_what_is_left_over_behind_a_link_is_not_the_stores(tmp_path, link):
    """`igr gc` would remove the files of somebody else."""
    victim, place = tmp_path / "victim", tmp_path / "out" / link
    victim.mkdir()
    for name in (".damaged-mine", ".tmp-mine", "mine.holder", "mine.claim", "mine"):
        (victim / name).write_text("precious")
        os.utime(victim / name, (0, 0))
    place.parent.mkdir(parents=True)
    place.symlink_to(victim)
    assert leftovers(tmp_path / "out") == []
    place.unlink()
    os.rename(victim, place)  # the same files in the store itself are found
    assert leftovers(tmp_path / "out") != []


@pytest.mark.parametrize("thing", ["pipe", "socket"])
def test_a_tree_with_a_thing_that_a_writer_would_wait_for_is_refused(tmp_path, thing):
    (tmp_path / "csv" / "inner").mkdir(parents=True)
    path = tmp_path / "csv" / "inner" / "test-0.csv"
    os.mknod(path, 0o600 | (stat.S_IFIFO if thing == "pipe" else stat.S_IFSOCK))
    with pytest.raises(StoreError, match=r"test-0\.csv is neither a file nor a folder"):
        make("csv", tmp_path)
