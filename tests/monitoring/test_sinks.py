"""Sinks: what is written is what the format's own reader reads back."""

import csv
import io
import json
import re
import time
import warnings
from pathlib import Path

import jax.numpy as jnp
import pytest

from igr.monitoring.sinks import Csv, JsonLines, Live, TensorBoard

ROWS = [(0, {"q2": jnp.array(0.5), "cosine": float("nan")}), (10, {"q2": 0.25, "cosine": 0.75})]


def write(sink):
    with sink:
        for step, numbers in ROWS:
            sink(step, numbers)


def test_json_lines_are_strict_json_and_are_appended_to(tmp_path):
    path = tmp_path / "run.jsonl"
    write(JsonLines(path))
    write(JsonLines(path))

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    rows = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    assert rows == 2 * [{"step": 0, "q2": 0.5, "cosine": None}, {"step": 10, "q2": 0.25, "cosine": 0.75}]


def test_csv_has_a_header_and_empty_cells(tmp_path):
    path = tmp_path / "run.csv"
    write(Csv(path))
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{"step": "0", "q2": "0.5", "cosine": ""}, {"step": "10", "q2": "0.25", "cosine": "0.75"}]


def test_csv_is_continued_and_keeps_its_columns(tmp_path):
    path = tmp_path / "run.csv"
    write(Csv(path))
    write(Csv(path))
    with open(path, newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["0", "10", "0", "10"]
    with Csv(path) as sink, pytest.raises(ValueError, match="has the columns step, q2, cosine"):
        sink(20, {"q2": 0.5})


def test_tensorboards_own_reader_reads_the_numbers_back(tmp_path):
    pytest.importorskip("tensorboard", reason="no test of its sink: tensorboard is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tensorboard's own imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        write(TensorBoard(tmp_path))
        reader = EventAccumulator(str(tmp_path))
        reader.Reload()
    found = {
        tag: [(e.step, e.tensor_proto.float_val[0]) for e in reader.Tensors(tag)] for tag in reader.Tags()["tensors"]
    }
    assert found == {"igr/q2": [(0, 0.5), (10, 0.25)], "igr/cosine": [(10, 0.75)]}


def recipe(service):
    """The lines for a service on the page about the monitor."""
    page = (Path(__file__).parent.parent.parent / "docs" / "monitor.md").read_text()
    (block,) = (b for b in re.findall(r"```text\n(.*?)```", page, re.S) if "wandb" in b)
    (lines,) = (part for part in block.split("\n\n") if service in part)
    return lines


@pytest.mark.parametrize("service", ["wandb", "mlflow", "trackio"])
def test_the_recipe_for_a_service_writes_to_it_offline(service, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
    }.items():
        monkeypatch.setenv(name, value)
    module = pytest.importorskip(service, reason=f"no test of its recipe: {service} is not installed")
    names = {service: module}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(recipe(service), names)
        for step, numbers in ROWS:
            names["sink"](step, numbers)  # pyright: ignore[reportCallIssue]
        run = module.active_run().info.run_id if service == "mlflow" else None
        getattr(module, {"mlflow": "end_run"}.get(service, "finish"))()
    if service == "mlflow":
        history = module.MlflowClient().get_metric_history(run, "q2")
        assert [(m.step, m.value) for m in history] == [(0, 0.5), (10, 0.25)]
    else:
        files = {"wandb": "*.wandb", "trackio": "*.db*"}[service]
        for _ in range(100):  # a process of theirs may still be writing
            if any(b"igr/q2" in path.read_bytes() for path in tmp_path.rglob(files) if path.is_file()):
                return
            time.sleep(0.1)
        pytest.fail(f"{service} has not written the numbers")


def test_the_live_line_shows_the_numbers_and_the_verdict():
    rich = pytest.importorskip("rich.console", reason="no test of the live line: rich is not installed")
    out = io.StringIO()
    write(Live(console=rich.Console(file=out, force_terminal=True, width=100)))
    text = out.getvalue()
    assert "step 10" in text
    assert "q2 0.25" in text
    assert "inside" in text
