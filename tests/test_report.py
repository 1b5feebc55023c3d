import json
import re
from pathlib import Path

import pytest

from igr.lab import report
from igr.lab.config import Scale
from igr.lab.experiments import two_parameter, two_parameter_model, two_parameter_scans
from igr.lab.store import Store
from igr.lab.work import run_units


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("out"))
    trials = two_parameter.trials(Scale.SMOKE)
    store.write_index("two-parameter", list(trials), scale="smoke")
    assert not run_units(store, "two-parameter", trials).failed
    return store


@pytest.fixture(scope="module")
def built(stored):
    return report.build(stored)


def no_computing(*_, **__):
    raise AssertionError("the report must not compute")


def test_everything_is_redrawn_from_the_store_without_computing(stored, built, monkeypatch):
    before = {path: path.read_bytes() for path in built[0].figures}
    for module in (two_parameter_model, two_parameter_scans):
        monkeypatch.setattr(module, "advance", no_computing)
        monkeypatch.setattr(module, "flow_path", no_computing)
    monkeypatch.setattr(two_parameter_scans, "_scan_one", no_computing)
    for kind in (two_parameter_model.Descent, two_parameter_model.Flow):
        monkeypatch.setattr(kind, "compute", no_computing)
    (chapter,) = report.build(stored)
    assert chapter.runs == len(two_parameter.trials(Scale.SMOKE))
    assert chapter.missing == []
    assert len(chapter.figures) == 12
    assert all(path.stat().st_size > 5000 for path in chapter.figures)
    assert all(path.read_bytes() == data for path, data in before.items())


def test_findings_are_written_for_people_and_machines(stored, built):
    (found,) = json.loads((stored.root / "findings.json").read_text())
    assert found["experiment"] == "two-parameter"
    assert found["scale"] == "smoke"
    assert {"claim", "value", "n", "verdict", "note"} <= set(found["findings"][0])
    assert found["record"]["precision"] == ["float64"]
    text = (stored.root / "findings.md").read_text()
    for each in found["findings"]:
        assert each["claim"] in text


def test_the_page_needs_nothing_else(stored, built):
    page = (stored.root / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 6
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert "<script" not in page
    assert "fails" in page


def test_a_damaged_run_is_named_and_left_out(stored):
    trial = two_parameter.trials(Scale.SMOKE)[-1]
    path = stored.folder("two-parameter", trial).path / "metrics.npz"
    good = path.read_bytes()
    try:
        path.write_bytes(good[:-3])
        (chapter,) = report.build(stored)
        assert chapter.missing == [f"{path} is damaged: its SHA-256 is not the one in SHA256SUMS."]
        assert str(path) in (stored.root / "index.html").read_text()
        assert not any("A2" in figure.name for figure in chapter.figures)
        verdicts = {each.claim: each.verdict for each in chapter.findings}
        assert verdicts["Test error falls with mu"] == "not testable"
    finally:
        path.write_bytes(good)


def test_the_repository_has_the_paper_scale_runs_undamaged():
    """What `igr report --out results` redraws: all of today's trials, so a change of the experiment shows here."""
    root = Path(__file__).parent.parent / "results"
    runs, problems = Store(root).runs("two-parameter")
    assert problems == []
    assert [run.config for run in runs] == two_parameter.trials(Scale.PAPER)
    assert {run.record["precision"] for run in runs} == {"float64"}
