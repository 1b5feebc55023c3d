import csv
import io

import numpy as np
import pytest
from test_history import stored

from igr import cli
from igr.lab import export
from igr.lab.store import Store
from igr.lab.sweep import Schedule, Shape, StackRun
from igr.lab.work import run_units


def test_a_line_is_a_network_at_a_measurement_and_gaps_are_empty():
    rows = list(csv.DictReader(io.StringIO(export.to_csv([stored(), stored()]))))
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
    export.to_tensorboard([stored()], tmp_path, Writer)
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
    monkeypatch.setattr(export, "_writer", lambda: Writer if installed else None)
    cli.export(str(store))
    printed = capsys.readouterr().out.split()
    assert [path.rsplit("/", 2)[-2:] for path in printed] == [["export", "mlp.csv"], ["tensorboard", "mlp"]][
        : 1 + installed
    ]
    rows = list(csv.DictReader(io.StringIO((store / "export" / "mlp.csv").read_text())))
    assert [row["step"] for row in rows] == ["0", "2"]


def test_missing_packages_mean_no_writer(monkeypatch):
    monkeypatch.setattr(export, "WRITERS", ("igr.no_such_package", "igr.lab.store"))
    assert export._writer() is None
    monkeypatch.setattr(export, "WRITERS", ("igr.no_such_package", "test_export_writer"))
    monkeypatch.setitem(__import__("sys").modules, "test_export_writer", type("M", (), {"SummaryWriter": Writer}))
    assert export._writer() is Writer


def test_a_store_without_curves_is_one_sentence(tmp_path):
    with pytest.raises(cli.StoreError, match="There are no training curves"):
        cli.export(str(tmp_path))
