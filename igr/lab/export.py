"""Stored histories for other programs: a CSV file for each experiment, and TensorBoard where it is installed.

One line of the CSV is one network at one measurement: what it is, the iteration `step` and the physical time
`time` = step times learning rate, and every column measured there; empty where a column was not.
"""

import csv
import importlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from igr.lab.files import write_atomically
from igr.lab.history import COLUMNS, fitted, times
from igr.lab.store import Run, Store, Table

HEAD = (
    "unit", "data", "model", "width", "activation", "batch_size", "learning_rate", "mu", "seed", "num_params",
    "implicit_rate", "fitted", "diverged", "step", "time",
)  # fmt: skip
TAIL = ("r_ig_over_loss", "implicit_rate_r_ig_over_loss")
WRITERS = ("tensorboardX", "torch.utils.tensorboard")


def has_history(run: Run) -> bool:
    """True for stacks of networks, whose metrics are columns over steps and replicas."""
    return all(name in run.metrics for name in ("step", "full", "seed", "test_accuracy"))


def lines(run: Run) -> Iterator[dict[str, Any]]:
    """The measurements of a stack, network by network."""
    m, shape = run.metrics, run.config.shape
    clock, fits = times(run), fitted(run)
    names = [name for name in (*COLUMNS, "validation_loss", "validation_accuracy") if name in m]
    for k in range(len(m["seed"])):
        rate = float(m["learning_rate"][k]) * int(m["num_params"]) / 4
        about: dict[str, Any] = {"unit": run.config.digest()[:16], "num_params": int(m["num_params"])}
        about |= {name: getattr(shape, name) for name in ("data", "model", "width", "activation", "batch_size")}
        about |= {name: m[name][k].item() for name in ("learning_rate", "mu", "seed", "diverged")}
        about |= {"implicit_rate": rate, "fitted": bool(fits[k])}
        for i, step in enumerate(m["step"].tolist()):
            row = about | {"step": step, "time": clock[i, k].item()} | {name: m[name][i, k].item() for name in names}
            ratio = row["r_ig"] / row["loss"] if row["loss"] else float("nan")
            yield row | {"r_ig_over_loss": ratio, "implicit_rate_r_ig_over_loss": rate * ratio}


def to_csv(runs: Table) -> str:
    """All stacks of a table as one CSV text."""
    rows = [row for run in runs if has_history(run) for row in lines(run)]
    extra = [name for name in ("validation_loss", "validation_accuracy") if any(name in row for row in rows)]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [*HEAD, *COLUMNS, *extra, *TAIL], restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: "" if isinstance(v, float) and np.isnan(v) else v for k, v in row.items()})
    return buffer.getvalue()


def export(store: Store, folder: Path, tensorboard: bool = True) -> list[Path]:
    """Write what every experiment of a store has measured; the paths written."""
    written = []
    for name in store.experiments():
        runs = [run for run in store.runs(name)[0] if has_history(run)]
        if not runs:
            continue
        path = folder / f"{name}.csv"
        write_atomically(path, to_csv(runs).encode())
        written.append(path)
        writer = _writer() if tensorboard else None
        if writer is not None:
            written.append(to_tensorboard(runs, folder / "tensorboard" / name, writer))
    return written


def _writer() -> Any:
    """The class that writes TensorBoard's files, or None where no package has it."""
    for name in WRITERS:
        try:
            return importlib.import_module(name).SummaryWriter
        except (ImportError, AttributeError):
            continue
    return None


def to_tensorboard(runs: Table, folder: Path, writer: Any) -> Path:
    """A TensorBoard run for each network, its columns as scalars over steps."""
    for run in runs:
        logs: dict[str, Any] = {}
        for row in lines(run):
            name = "{data}-{model}{width}-{activation}-b{batch_size}-h{learning_rate:g}-mu{mu:g}-s{seed}".format(**row)
            if name not in logs:
                logs[name] = writer(str(folder / name))
            for column in (*COLUMNS, *TAIL):
                if np.isfinite(row[column]):
                    logs[name].add_scalar(column, row[column], row["step"])
        for log in logs.values():
            log.close()
    return folder
