"""The runs that the repository has: today's code reads every one of them, under the name it was stored by."""

import hashlib
from pathlib import Path

import pytest

from igr.lab.experiments import REGISTRY, load
from igr.lab.store.care import verify
from igr.lab.store.store import Store

RESULTS = Path(__file__).parents[3] / "results"
AT_LEAST = {"two-parameter": 20, "mlp": 14, "resnet": 73, "theorem": 12, "regime": 181, "optimizers": 126}
FIRST = [line.split() for line in Path(__file__).with_name("first_edition.txt").read_text().splitlines()]


def test_every_experiment_of_the_paper_is_looked_at():
    assert AT_LEAST.keys() == REGISTRY.keys()


@pytest.mark.parametrize("experiment", AT_LEAST)
def test_every_stored_unit_is_read_and_found_under_its_digest(experiment):
    """More may come, and none may go."""
    load(experiment)  # defines the classes that are stored
    runs, problems = Store(RESULTS).runs(experiment)
    unfinished = [each for each in problems if "are not finished" in each]  # planned, and not yet computed
    assert problems == unfinished
    assert not unfinished or experiment in ("theorem", "regime")
    there = {path.parent.name for path in (RESULTS / experiment).glob("*/config.json")}
    assert {run.config.digest()[:16] for run in runs} == there
    assert len(there) >= AT_LEAST[experiment]
    assert {Store(RESULTS).folder(experiment, run.config).status(quick=True) for run in runs} == {"finished"}


def test_nothing_else_is_in_the_store():
    for experiment in AT_LEAST:
        load(experiment)
    found = list(verify(RESULTS))
    assert [each for each in found if each.status != "sound"] == []
    assert len(found) >= sum(AT_LEAST.values())


def test_the_units_of_the_first_edition_have_the_same_bytes():
    """Each line names a unit of igr 0.1 and the digest of its SHA256SUMS, which has those of its two other files."""
    assert len(FIRST) == 93
    for unit, sums in FIRST:
        listed = (RESULTS / unit / "SHA256SUMS").read_bytes()
        assert hashlib.sha256(listed).hexdigest()[:16] == sums, unit
        for line in listed.decode().splitlines():
            expected, name = line.split()
            assert hashlib.sha256((RESULTS / unit / name).read_bytes()).hexdigest() == expected, (unit, name)
