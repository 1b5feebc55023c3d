"""The page on extending: twelve changes, none of more than three files, and every file is there.

That the changes do what the page says is shown by running its code (`test_examples`), in the tests of each registry,
and here for those that the page does not write out.
"""

import re
import sys
import threading
from pathlib import Path

import pytest

import igr
from igr.lab import experiments
from igr.lab.analysis.stopping import ROWS
from igr.lab.cli import app as cli
from igr.lab.cli.run import EXECUTORS
from igr.lab.data.registry import DATASETS
from igr.lab.experiments import load
from igr.lab.models.registry import MODELS
from igr.lab.runs.local import attempt, run_units
from igr.lab.sinks.registry import SINKS
from igr.lab.store.store import Store
from igr.lab.training.metrics import METRICS
from igr.lab.training.optimizers import OPTIMIZERS

ROOT = Path(igr.__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
CHANGES = (
    "optimizer", "model", "data set", "experiment", "stopping rule", "figure", "sink", "executor", "monitor",
    "front end", "command", "metric",
)  # fmt: skip


def rows():
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")
    ]
    return {change: (files, how) for change, files, how in cells[2:]}


def test_there_are_twelve_changes():
    names = list(rows())
    assert len(names) == len(CHANGES)
    for name, change in zip(names, CHANGES, strict=True):
        assert change in name


@pytest.mark.parametrize("change", rows())
def test_no_change_touches_more_than_three_files_and_each_is_there(change):
    files = re.findall(r"`([^`]+)`", rows()[change][0])
    parts = rows()[change][0].split(",")
    assert 1 <= len(parts) <= 3
    assert files or parts == ["one file anywhere"]
    for file in files:
        assert (ROOT / file).exists(), file


def test_the_registries_are_where_the_page_says():
    """Each is named in the row of its change, and its module is among the files."""
    tables = {
        "OPTIMIZERS": OPTIMIZERS,
        "MODELS": MODELS,
        "DATASETS": DATASETS,
        "ROWS": ROWS,
        "SINKS": SINKS,
        "METRICS": METRICS,
        "EXECUTORS": EXECUTORS,
    }
    for name, table in tables.items():
        assert table
        (files,) = (files for files, how in rows().values() if f"`{name}`" in how)
        paths = [ROOT / file for file in re.findall(r"`([^`]+\.py)`", files)]
        assert any(re.search(rf"^{name}\b.* = {{", path.read_text(), re.M) for path in paths), name


def test_nothing_else_in_the_package_asks_for_the_names_in_a_registry():
    """A second list of the same names, or a branch on one of them, would be a further file to touch."""
    for folder, names in (("models", MODELS), ("training", OPTIMIZERS)):
        for path in (ROOT / "igr" / "lab").rglob("*.py"):
            if path.parent.name == folder or "experiments" in path.parts:
                continue
            branches = re.findall(r"[=!]= \"([\w-]+)\"|in \(\"([\w-]+)\"", path.read_text())
            assert not {word for pair in branches for word in pair} & set(names), path


NUMBERS = """
from dataclasses import dataclass
from igr.lab.runs.unit import Trial

@dataclass(frozen=True)
class NumberOfMine(Trial):
    number: int

    def compute(self, session):
        session.emit(1, {"number": self.number})
        session.progress(1.0)
        return {"inverse": 1 / (self.number - 1)}

trials = lambda scale: [NumberOfMine(n) for n in range(3)]
"""


@pytest.fixture
def numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "_FILES", {})
    (file := tmp_path / "my_numbers.py").write_text(NUMBERS)
    return file


def test_an_executor_is_a_loop_and_a_line(monkeypatch, capsys, tmp_path, numbers):
    class Loop:
        def run(self, job, units):
            for unit in units:
                attempt(job, unit)

    monkeypatch.setitem(EXECUTORS, "loop", lambda options: Loop())
    out = tmp_path / "out"
    for on, code, said in (
        ("loop", 1, "2 computed, 0 already"),
        ("ring", 2, ", loop or ray://HOST:PORT, and it is 'ring'"),
    ):
        monkeypatch.setattr(sys, "argv", ["igr", "run", str(numbers), "--out", str(out), "--on", on, "--sink", "csv"])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == code
        assert said in capsys.readouterr().err
    heard = sorted(each.read_text() for each in (out / "csv").iterdir())
    assert heard == [f"step,network,number\n1,0,{number}\n" for number in (0, 1, 2)]


def test_an_attempt_heeds_the_request_to_stop(tmp_path, numbers):
    units = load(str(numbers)).trials(None)
    stop = threading.Event()

    class Loop:
        def run(self, job, units):
            stop.set()
            for unit in units:
                assert attempt(job, unit) is None

    store = Store(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        run_units(store, "my-numbers", units, executor=Loop(), stop=stop)
    assert {store.folder("my-numbers", unit).status() for unit in units} == {"absent"}


def test_a_command_is_a_function(monkeypatch, capsys):
    monkeypatch.setattr(cli.app, "registered_commands", [*cli.app.registered_commands])

    @cli.app.command()
    def greet(name: str = "you") -> None:
        print(f"Hello {name}.")

    monkeypatch.setattr(sys, "argv", ["igr", "greet", "--name", "reader"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 0
    assert capsys.readouterr().out == "Hello reader.\n"
