import json
import re
from pathlib import Path

import pytest

from igr.lab import report
from igr.lab.config import Scale
from igr.lab.experiments import REGISTRY, load, two_parameter, two_parameter_model, two_parameter_scans
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
    assert not re.search(r"<(script|img|link)[^>]*(src|href)=\"(?!data:)", page)
    assert "fails" in page


def test_a_second_time_only_what_changed_is_drawn(stored, built, monkeypatch):
    trial = two_parameter.trials(Scale.SMOKE)[0]
    drawn = []
    monkeypatch.setattr(report.chapter.__globals__["drawing"], "save", lambda figure, stem: drawn.append(stem) or [])
    (chapter,) = report.build(stored, again=False)
    assert drawn == []
    assert len(chapter.figures) == 12
    assert (stored.root / "index.html").read_text().count("data:image/png;base64,") == 6
    chapter.figures[0].unlink()
    told = []
    report.build(stored, again=False, watch=lambda what, share: told.append((what, share)))
    assert len(drawn) == 6, "a figure that is gone is drawn again"
    assert [what for what, _ in told] == [f"drawing {stem.name}" for stem in drawn]
    assert [share for _, share in told] == pytest.approx([k / 6 for k in range(6)])
    monkeypatch.undo()
    report.build(stored)
    folder = stored.folder("two-parameter", trial)
    folder.write(folder.read().metrics, seconds=1e6)
    (chapter,) = report.build(stored, again=False)
    assert chapter.record["seconds"] > 1e6
    assert "1e+06 s of computing" in (stored.root / "index.html").read_text()


def test_every_figure_has_a_caption_and_numbers(built):
    (chapter,) = built
    assert set(chapter.captions) == {path.stem for path in chapter.figures}
    for stem, caption in chapter.captions.items():
        assert caption.title != stem
        assert len(caption.text) > 40
        assert caption.numbers(chapter.findings), stem


def test_captions_are_of_figures_that_exist():
    """A figure renamed or a caption left behind shows here, for every experiment."""
    for name in REGISTRY:
        module = load(name)
        family = Path(module.__file__).parent.glob(f"{Path(module.__file__).stem}*.py")
        source = "".join(path.read_text() for path in family if "captions" not in path.name)
        for stem, caption in module.CAPTIONS.items():
            assert f'"{stem}"' in source
            assert re.compile(caption.about)


def test_the_command_names_what_differs_from_the_default(stored):
    trials = two_parameter.trials(Scale.SMOKE)
    stored.write_index("two-parameter", list(trials), scale="smoke", options={"stop_loss": 1e-12, "rates": 17})
    try:
        assert (
            report.chapter(stored, "two-parameter", draw=False).command
            == "igr run two-parameter --scale smoke --rates 17"
        )
    finally:
        stored.write_index("two-parameter", list(trials), scale="smoke")


def test_what_diverged_is_counted_and_named(built):
    (chapter,) = built
    assert "start II, steps of 5e-07, mu = 0.082: 1 diverged, of 1;" in " ".join(chapter.excluded)
    scan = next(each for each in chapter.excluded if "learning rates" in each)
    assert re.search(r"start I, 40 learning rates: 16 diverged, of 40;", scan)


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
