"""Experiments that are not part of the package: a file, and an entry point of an installed package."""

import json
import subprocess
import sys

import pytest

from igr.lab import experiments
from igr.lab.cli import app as cli
from igr.lab.experiments import load, name_of, names, stored
from igr.lab.report.build import build
from igr.lab.store import config
from igr.lab.store.config import ConfigError, _kinds
from igr.lab.store.store import Store

FILE = """
from dataclasses import dataclass
import numpy as np
from igr.lab.plots.style import axes_grid
from igr.lab.runs.unit import Trial
from igr.lab.store.config import Config, option

CLAIM = "Squares grow."


@dataclass(frozen=True)
class Options(Config):
    count: int = option("how many squares", 3)


@dataclass(frozen=True)
class SquareOfMine(Trial):
    number: int = option("what is squared", 1)

    def compute(self, session):
        return {"square": np.array(self.number**2)}


def trials(scale, options=None):
    return [SquareOfMine(n) for n in range((options or Options()).count)]


def figures(runs):
    figure, axes = axes_grid()
    axes.plot([run.config.number for run in runs], [run.metrics["square"] for run in runs])
    return {"squares-of-mine": figure}


def findings(runs):
    return []
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "_FILES", {})
    path = tmp_path / "my_squares.py"
    path.write_text(FILE)
    return path


def test_a_file_imports_what_lies_beside_it(file, monkeypatch):
    """As in a script, but installed modules come first."""
    monkeypatch.setattr(experiments.sys, "path", [*experiments.sys.path])
    file.with_name("my_power.py").write_text("square = 2\n")
    file.with_name("json.py").write_text("raise AssertionError\n")
    file.write_text(
        FILE.replace("**2", "**square").replace(
            "import numpy", "import json\nfrom my_power import square\nimport numpy"
        )
    )
    assert load(name_of(str(file))).trials(None)[2].compute(None)["square"] == 4


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["igr", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


def test_igr_run_takes_a_file_and_igr_report_shows_it(file, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert call(monkeypatch, "run", file, "--count", 4, "--out", out) == 0
    nowhere = "ray://127.0.0.1:1"  # all is stored, so that no cluster is asked for
    assert call(monkeypatch, "run", file, "--count", 4, "--out", out, "--on", nowhere) == 0
    store = Store(out)
    assert len(store.runs("my-squares")[0]) == 4
    index = store.read_index("my-squares")
    assert index["source"] == str(file)
    assert index["flags"] == ["--count", "4"]
    monkeypatch.setattr(experiments, "_FILES", {})  # as another process, which was told of no file
    assert stored(store) == ["my-squares"]
    (chapter,) = build(store)
    assert chapter.claim == "Squares grow."
    assert chapter.command == f"igr run {file} --scale quick --count 4"
    assert (out / "figures" / "squares-of-mine.png").exists()
    capsys.readouterr()
    monkeypatch.setattr(experiments, "_FILES", {})
    monkeypatch.delitem(config._kinds, "SquareOfMine")  # a class of a process that has ended
    experiments._from_file.cache_clear()
    assert call(monkeypatch, "verify", "--out", out) == 0
    assert capsys.readouterr().out == "4 sound.\n"
    assert "Squares grow." in (out / "index.html").read_text()
    file.unlink()
    monkeypatch.setattr(experiments, "_FILES", {})
    assert stored(store) == []
    capsys.readouterr()
    assert call(monkeypatch, "report", "--out", out, "--alone", "--json") == 0
    assert "my-squares cannot be shown" in capsys.readouterr().err


SWEEP = '''
"""Ends of descents.

More words."""
from dataclasses import dataclass
import jax.numpy as jnp
from igr.lab.runs.unit import Trial

@dataclass(frozen=True)
class EndOfMine(Trial):
    h: float

    def compute(self, session):
        return {"norm": jnp.float32(2 * self.h)}

trials = lambda scale: [EndOfMine(h) for h in (0.25, 0.5)]
'''


def test_a_file_with_trials_alone_is_run_and_exported(file, tmp_path, monkeypatch, capsys):
    path, out = tmp_path / "my_ends.py", tmp_path / "out"
    path.write_text(SWEEP)
    assert call(monkeypatch, "run", path, "--out", out) == 0
    shown = capsys.readouterr()
    assert "EndOfMine, h = 0.25" in shown.err
    assert "igr export" in shown.out
    assert load("my-ends").CLAIM == "Ends of descents."
    assert call(monkeypatch, "export", "--out", out) == 0
    head, *lines = (out / "export" / "my-ends.csv").read_text().splitlines()
    assert head == "unit,h,norm"
    assert sorted(line.partition(",")[2] for line in lines) == ["0.25,0.5", "0.5,1.0"]
    (chapter,) = build(Store(out))
    assert chapter.claim == "Ends of descents."
    (first, _) = chapter.units
    assert (out / first["csv"]).read_text().startswith("unit,h,norm\n")


def test_an_entry_point_of_an_installed_package_is_an_experiment(file, tmp_path, monkeypatch):
    package = tmp_path / "site"
    information = package / "of_others-1.0.dist-info"
    information.mkdir(parents=True)
    (package / "of_others_squares.py").write_text(FILE.replace("SquareOfMine", "SquareOfOthers"))
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: of-others\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[igr.experiments]\nsquares = of_others_squares\n")
    before = names()
    assert "squares" not in before
    monkeypatch.syspath_prepend(package)
    assert names() == [*before, "squares"]
    assert load("squares").CLAIM == "Squares grow."
    out = tmp_path / "out"
    assert call(monkeypatch, "run", "squares", "--out", out) == 0
    assert stored(Store(out)) == ["squares"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("absent.py", None, "There is no file"),
        ("mlp.py", FILE, "would be stored as 'mlp', which is another experiment"),
        ("half.py", "CLAIM = 'x'", r"is no experiment: it needs a function trials\(scale\)"),
    ],
)
def test_a_file_that_is_no_experiment_is_one_sentence(file, tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(str(tmp_path / name))


def test_a_notebook_that_did_not_load_the_file_is_told_to(file, tmp_path, monkeypatch):
    """In a process of its own: the class of the trials is known where the file was run."""
    out = tmp_path / "out"
    assert call(monkeypatch, "run", file, "--out", out) == 0
    read = f"from igr.lab.store.store import Store; runs, problems = Store({str(out)!r}).runs('my-squares'); "
    load_it = f"from igr.lab.experiments import load; load({str(file)!r}); "
    code = f"{read}print(len(runs), problems); {load_it}{read}print(len(runs))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    without, loaded = done.stdout.splitlines()
    assert without.startswith("0 ")
    assert "load its file first, igr.lab.experiments.load('FILE.py')" in without
    assert loaded == "3"


def test_a_change_of_the_file_is_seen_in_the_stamps_of_its_units_and_figures(file, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    assert call(monkeypatch, "run", file, "--count", 2, "--out", out) == 0
    build(Store(out), again=False)
    drawn = (out / "figures" / "squares-of-mine.png").read_bytes()

    def again(change):
        file.write_text(change(FILE))
        monkeypatch.setattr(experiments, "_FILES", {})
        monkeypatch.delitem(config._kinds, "SquareOfMine")
        experiments._from_file.cache_clear()
        capsys.readouterr()
        assert call(monkeypatch, "verify", "--out", out) == 0
        build(Store(out), again=False)
        return capsys.readouterr().out.splitlines()

    assert again(lambda text: text + "# a comment\n") == ["2 sound."]
    assert (out / "figures" / "squares-of-mine.png").read_bytes() == drawn
    found = again(lambda text: text.replace("self.number**2", "self.number**3").replace(".plot(", ".semilogx("))
    assert found == ["2 sound.", "2 computed by an older version of the code, 0 by one that did not record itself."]
    assert (out / "figures" / "squares-of-mine.png").read_bytes() != drawn


def test_a_file_keeps_its_name_in_this_process(file):
    assert load(name_of(str(file))) is load(str(file))
    json.dumps(names())


def test_a_change_of_the_users_file_is_told_from_a_change_of_its_comments(file, tmp_path, monkeypatch):
    out = tmp_path / "out"
    assert call(monkeypatch, "run", file, "--out", out) == 0

    def told():
        for cache in (experiments._from_file.cache_clear, experiments._FILES.clear):  # as another process
            cache()
        name_of(str(file))
        (chapter,) = build(Store(out))
        return chapter.bits[1:]

    assert told() == []
    file.write_text(FILE.replace("number**2)}", "number**2)}  # its square"))
    assert told() == []
    file.write_text(FILE.replace("self.number**2", "self.number**3"))
    assert told() == ["3 of 3 runs were computed by an older version of the code."]


@pytest.mark.parametrize("broken", [False, True])
def test_igr_verify_knows_the_units_of_a_file_that_was_run_here(file, tmp_path, monkeypatch, capsys, broken):
    out = tmp_path / "out"
    assert call(monkeypatch, "run", file, "--out", out) == 0
    monkeypatch.setattr(experiments, "_FILES", {})  # as another process
    experiments._from_file.cache_clear()
    monkeypatch.delitem(_kinds, "SquareOfMine")
    if broken:
        file.write_text("CLAIM =")
    capsys.readouterr()
    assert call(monkeypatch, "verify", "--out", out) == 0
    assert ("3 unknown." if broken else "3 sound.") in capsys.readouterr().out


def test_a_figure_that_cannot_be_drawn_and_findings_without_numbers_take_no_others_with_them(
    file, tmp_path, monkeypatch, capsys
):
    """As with logarithmic axes where all networks have diverged: the fault shows when the figure is saved."""
    text = FILE.replace(
        '    return {"squares',
        '    other, _ = axes_grid()\n    other.draw = lambda renderer: 1 / 0\n    return {"broken": other, "squares',
    )
    nowhere = 'Finding(CLAIM, "", "end", float("nan"), 3, Verdict.MIXED, interval=(float("-inf"), float("inf")))'
    text = text.replace("return []", f"return [{nowhere}]")
    file.write_text(f"from igr.lab.analysis.findings import Finding, Verdict\n{text}")
    out = tmp_path / "out"
    assert call(monkeypatch, "run", file, "--out", out) == 0
    capsys.readouterr()
    assert call(monkeypatch, "report", "--alone", "--json", "--out", out) == 1
    sentence = "The figure broken cannot be drawn: ZeroDivisionError: division by zero."
    for words in (capsys.readouterr().out, (out / "findings.json").read_text()):
        (chapter,) = json.loads(words, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert chapter["missing"] == [sentence]
        (finding,) = chapter["findings"]
        assert (finding["value"], finding["interval"]) == (None, [None, None])
    assert sentence in (out / "index.html").read_text()
    assert (out / "figures" / "squares-of-mine.png").exists()
    assert not (out / "figures" / "broken.png").exists()
