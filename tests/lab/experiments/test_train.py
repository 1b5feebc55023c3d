"""A training of one's own, from the command line to the report."""

import sys

import numpy as np
import pytest

from igr.lab.cli import app as cli
from igr.lab.report.build import build
from igr.lab.store.store import Store

LINE = (
    "run train --scale smoke --width 6 --depth 1 --train-images 96 --optimizer adam,b2=0.95 "
    "--learning-rates 0.01,0.001 --measure.metrics confidence --schedule.early 1 --sink csv"
)


def test_igr_run_train_stores_draws_and_tells_its_sinks(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["igr", *LINE.split(), "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 0
    store = Store(tmp_path)
    ((run,), problems) = store.runs("train")
    assert not problems
    assert run.metrics["learning_rate"].tolist() == [0.01, 0.001]
    assert np.isfinite(run.metrics["confidence"][run.metrics["full"]]).all()
    (lines,) = (path.read_text().splitlines() for path in (tmp_path / "csv").glob("*.csv"))
    assert len(lines) == 1 + 2 * len(run.metrics["step"])
    assert "confidence" in lines[0]
    (chapter,) = build(store)
    assert [path.name for path in chapter.figures] == ["train.png", "train.pdf", "train.svg"]
    assert chapter.command.startswith("igr run train --scale smoke --train-images 96 --width 6 --depth 1 ")
    assert "--optimizer adam,b2=0.95" in chapter.command
