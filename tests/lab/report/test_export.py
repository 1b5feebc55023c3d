import csv
import io
import os
import shutil

import numpy as np
import pytest
import typer
from histories import stored

from igr.lab.analysis import frame
from igr.lab.cli import app as cli
from igr.lab.report import export
from igr.lab.runs.local import run_units
from igr.lab.sinks import tensorboard
from igr.lab.store.store import Store
from igr.lab.training.config import Schedule, Shape
from igr.lab.training.stack import StackRun


def test_a_line_is_a_network_at_a_measurement_and_gaps_are_empty():
    rows = list(csv.DictReader(io.StringIO(frame([stored(), stored()]).to_csv(index=False))))
    assert len(rows) == 2 * 2 * 5
    third = rows[2]
    assert (third["step"], third["time"], third["learning_rate"], third["seed"]) == ("20", "10.0", "0.5", "0")
    assert (third["loss"], third["fitted"], third["implicit_rate"]) == ("0.5", "True", "10.0")
    assert float(third["r_ig_over_loss"]) == pytest.approx(4.0 / 0.5)
    assert float(third["implicit_rate_r_ig_over_loss"]) == pytest.approx(10 * 4.0 / 0.5)
    assert (rows[3]["loss"], rows[3]["test_accuracy"]) == ("", "0.9")
    assert rows[3]["r_ig_over_loss"] == ""
    assert rows[9]["diverged"] == "35"
    assert rows[2]["validation_accuracy"] == "0.7"


class Writer:
    logs: dict = {}  # noqa: RUF012

    def __init__(self, folder):
        self.name = folder.rsplit("/", 1)[-1]
        self.logs[self.name] = []

    def add_scalar(self, column, value, step):
        self.logs[self.name].append((column, value, step))

    def close(self):
        self.logs[self.name].append("closed")


def test_tensorboard_gets_every_network_and_no_nan(tmp_path):
    Writer.logs.clear()
    export.to_tensorboard(stored(), tmp_path, Writer)
    assert sorted(Writer.logs) == [
        "digits-mlp3-relu-b32-h0.1-mu0-s1",
        "digits-mlp3-relu-b32-h0.5-mu0-s0",
    ]
    entries = Writer.logs["digits-mlp3-relu-b32-h0.5-mu0-s0"]
    assert ("loss", 0.5, 20) in entries
    assert entries[-1] == "closed"
    assert all(np.isfinite(entry[1]) for entry in entries[:-1])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    out = tmp_path_factory.mktemp("store")
    run = StackRun(Shape(width=3, depth=0, steps=2, train_images=64, schedule=Schedule(early=0)), (0.1,), (0.0,), (0,))
    run_units(Store(out), "mlp", [run])
    Store(out).write_index("mlp", [run], scale="smoke", options={})
    return out


@pytest.mark.parametrize("installed", [True, False])
def test_the_command_writes_csv_and_tensorboard_where_it_is_installed(store, monkeypatch, capsys, installed):
    monkeypatch.setattr(export, "writer", lambda: Writer if installed else None)
    cli.export(str(store))
    printed = capsys.readouterr().out.split()
    assert [path.rsplit("/", 2)[-2:] for path in printed] == [["export", "mlp.csv"], ["tensorboard", "mlp"]][
        : 1 + installed
    ]
    rows = list(csv.DictReader(io.StringIO((store / "export" / "mlp.csv").read_text())))
    assert [row["step"] for row in rows] == ["0", "2"]


def test_missing_packages_mean_no_writer(monkeypatch):
    monkeypatch.setattr(tensorboard, "WRITERS", ("igr.no_such_package", "igr.lab.store.store"))
    assert export.writer() is None
    monkeypatch.setattr(tensorboard, "WRITERS", ("igr.no_such_package", "test_export_writer"))
    monkeypatch.setitem(__import__("sys").modules, "test_export_writer", type("M", (), {"SummaryWriter": Writer}))
    assert export.writer() is Writer


def test_a_store_without_curves_is_one_sentence(tmp_path):
    with pytest.raises(cli.StoreError, match="There are no stored runs"):
        cli.export(str(tmp_path))


def test_no_array_in_the_place_of_a_number_leads_out_of_the_folder(tmp_path, monkeypatch):
    """TensorBoard makes the folder that a run's name says, and the arrays may be those of somebody else."""
    runs = [stored(), stored(seed=np.array(["/../../../victim", "1"]))]
    source = Store(tmp_path / "out")
    monkeypatch.setattr(source, "experiments", lambda: ["mlp"])
    monkeypatch.setattr(source, "runs", lambda name: (runs, []))
    made = []
    monkeypatch.setattr(export, "writer", lambda: lambda folder: made.append(folder) or Writer(folder))
    export.export(source, tmp_path / "to")
    assert made
    assert [folder for folder in made if os.path.dirname(folder) != str(tmp_path / "to" / "tensorboard" / "mlp")] == []
    (problem,) = source.harm
    assert (
        "cannot be exported and is left out: ValueError: 'digits-mlp3-relu-b32-h0.5-mu0-s/../../../victim'" in problem
    )


@pytest.mark.parametrize("harm", ["damage", "an array that is missing"])
def test_what_cannot_be_exported_is_named_and_the_exit_code_says_so(store, tmp_path, harm, capsys):
    shutil.copytree(store, tmp_path / "out")
    run = StackRun(Shape(width=4, depth=0, steps=2, train_images=64, schedule=Schedule(early=0)), (0.1,), (0.0,), (0,))
    source = Store(tmp_path / "out")
    (one,) = source.runs("mlp")[0]
    folder = source.folder("mlp", run)
    folder.write({name: array for name, array in one.metrics.items() if name != "num_params"})
    source.write_index("mlp", [one.config, run], scale="smoke", options={})
    if harm == "damage":
        (folder.path / "metrics.npz").write_bytes(b"")
    with pytest.raises(typer.Exit) as caught:
        cli.export(str(tmp_path / "out"), tensorboard=False)
    assert caught.value.exit_code == 1
    said = capsys.readouterr()
    assert said.out.strip().endswith("mlp.csv")
    assert folder.path.name in said.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "export" / "mlp.csv").read_text())))
    assert {row["width"] for row in rows} == {"3"}
