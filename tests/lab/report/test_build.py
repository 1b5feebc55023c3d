import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.analysis.findings import as_csv as findings_csv
from igr.lab.experiments import REGISTRY, load
from igr.lab.experiments.two_parameter import grid as two_parameter
from igr.lab.experiments.two_parameter import model as two_parameter_model
from igr.lab.experiments.two_parameter import scans as two_parameter_scans
from igr.lab.plots import style as drawing
from igr.lab.report import build as report
from igr.lab.report import html
from igr.lab.report.columns import as_csv
from igr.lab.runs.local import run_units
from igr.lab.store.config import Scale
from igr.lab.store.store import Run, Store


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
    assert len(chapter.figures) == 3 * 6, "PNG, PDF and SVG"
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
    assert page.count('src="data:image/svg+xml,') == 6
    assert len(page) < 1_000_000
    assert "http" not in re.sub(r'src="data:[^"]*"', "", page)
    assert not re.search(r"<(script|img|link)[^>]*(src|href)=\"(?!data:)", page)
    assert "fails" in page


def test_a_second_time_only_what_changed_is_drawn(stored, built, monkeypatch):
    trial = two_parameter.trials(Scale.SMOKE)[0]
    drawn = []
    monkeypatch.setattr(drawing, "save", lambda figure, stem: drawn.append(stem) or [])
    (chapter,) = report.build(stored, again=False)
    assert drawn == []
    assert len(chapter.figures) == 3 * 6, "PNG, PDF and SVG"
    assert (stored.root / "index.html").read_text().count('src="data:image/svg+xml,') == 6
    chapter.figures[0].unlink()
    told = []
    report.build(stored, again=False, watch=lambda what, share: told.append((what, share)))
    assert len(drawn) == 6 + 1, "a figure that is gone is drawn again"
    assert [what for what, _ in told] == [f"drawing {stem.name}" for stem in drawn]
    assert [share for _, share in told] == pytest.approx([k / 6 for k in range(6 + 1)])
    monkeypatch.undo()
    report.build(stored)
    folder = stored.folder("two-parameter", trial)
    folder.write(folder.read().metrics, seconds=1e6)
    (chapter,) = report.build(stored, again=False)
    assert chapter.record["seconds"] > 1e6
    assert "1e+06 s of computing" in (stored.root / "index.html").read_text()


def test_figures_beside_ones_own_are_drawn_again_only_if_they_changed(stored, built, tmp_path, monkeypatch):
    shutil.copytree(stored.root, tmp_path / "own")
    own, beside = Store(tmp_path / "own"), stored
    report.build(own, beside)
    drawn, save = [], drawing.save
    monkeypatch.setattr(drawing, "save", lambda figure, stem: drawn.append(stem.parent.name) or save(figure, stem))
    report.build(own, beside)
    assert set(drawn) == {"figures"}
    count = len(drawn)
    next((own.root / "figures" / "beside").glob("*.png")).unlink()
    report.build(own, beside)
    assert drawn.count("beside") == count


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
        family = Path(module.__file__).parent.glob("*.py")
        source = "".join(path.read_text() for path in family if "captions" not in path.name)
        for stem in module.CAPTIONS:
            assert f'"{stem}"' in source


def test_the_wheel_has_what_the_page_is_made_of(tmp_path):
    templates = Path(html.__file__).parent / "templates"
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=templates.parents[4], capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        packed = {name.rpartition("/")[2] for name in wheel.namelist() if "report/html/templates/" in name}
    assert packed == {path.name for path in templates.iterdir()} >= {"page.html", "style.css", "page.js"}


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
    assert "start II, steps of 5e-07, mu = 0.082: 1 diverged, of 1." in " ".join(chapter.excluded)
    scan = next(each for each in chapter.excluded if "learning rates" in each)
    assert re.search(r"start I, 40 learning rates: 16 diverged, of 40\.", scan)


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
        verdicts = {each.id: each.verdict for each in chapter.findings}
        assert verdicts["two-parameter.test-error-falls-with-mu"] == "not testable"
    finally:
        path.write_bytes(good)


@pytest.mark.parametrize("harm", ["arrays of another experiment", "text in the place of numbers"])
def test_a_sound_run_with_wrong_arrays_is_named_and_the_others_stay(stored, harm):
    """Right sums say that the bytes are those that were written, not that they are what the experiment measures."""
    trial = next(each for each in two_parameter.trials(Scale.SMOKE) if isinstance(each, two_parameter_model.Descent))
    folder = stored.folder("two-parameter", trial)
    kept = {path: path.read_bytes() for path in folder.path.iterdir()}
    try:
        arrays = (
            {"loss": np.zeros(3)} if harm.startswith("arrays") else {k: np.array("=1+1") for k in folder.read().metrics}
        )
        (folder.path / "SHA256SUMS").unlink()
        folder.write(arrays)
        store = Store(stored.root)
        (chapter,) = report.build(store)
        (problem,) = (each for each in chapter.missing if "is left out" in each)
        assert folder.path.name in problem
        assert store.harm, "a report that met it ends with exit code 1"
        assert chapter.findings
        assert chapter.figures
        assert problem in html_of(stored)
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


def html_of(store):
    return unescape((store.root / "index.html").read_text())


def test_the_page_says_what_is_repeated_bit_by_bit_and_what_other_code_computed(stored):
    (chapter,) = report.build(stored)
    assert chapter.bits == [
        "All units ran under the same conditions: where these hold, the same command gives the same bits."
    ]
    assert chapter.bits[0] in html_of(stored)
    folder = stored.folder("two-parameter", two_parameter.trials(Scale.SMOKE)[0])
    kept = {path: path.read_bytes() for path in folder.path.iterdir()}
    try:
        record = json.loads(kept[folder.path / "config.json"]) | {"code": "0" * 16}
        text = (json.dumps(record, indent=1, sort_keys=True) + "\n").encode()
        (folder.path / "config.json").write_bytes(text)
        sums = {"config.json": text, "metrics.npz": kept[folder.path / "metrics.npz"]}
        lines = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sums.items())
        (folder.path / "SHA256SUMS").write_text(lines)
        (chapter,) = report.build(Store(stored.root))
        assert chapter.bits[1:] == [f"1 of {chapter.runs} runs were computed by an older version of the code."]
        assert chapter.bits[1] in html_of(stored)
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


def test_no_cell_of_a_table_is_a_formula():
    run = Run(None, {"=cmd": np.array(["@SUM(A1)", "plain", "-0.5"]), "x": np.array([-1.0, 2.0, 3.0])}, {})
    assert as_csv(run).splitlines() == ["'=cmd,x", "'@SUM(A1),-1.0", "plain,2.0", "-0.5,3.0"]
    finding = Finding("-claim", "+paper", "=quantity", -0.5, 3, Verdict.HOLDS, id="a.b")
    line = findings_csv([("@name", "these runs", "quick", finding)]).splitlines()[1]
    assert line.startswith("'@name,these runs,quick,a.b,'-claim,'+paper,'=quantity,-0.5,3,")


def test_the_repository_has_the_paper_scale_runs_undamaged():
    """What `igr report --out results` redraws: all of today's trials, so a change of the experiment shows here."""
    root = Path(__file__).parents[3] / "results"
    runs, problems = Store(root).runs("two-parameter")
    assert problems == []
    assert [run.config for run in runs] == two_parameter.trials(Scale.PAPER)
    assert {run.record["precision"] for run in runs} == {"float64"}
