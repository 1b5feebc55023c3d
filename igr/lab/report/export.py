"""Stored histories for other programs: one CSV file per experiment, and TensorBoard where it is installed.

A line of the CSV is a row of `igr.lab.analysis.frame`: one network at one measurement, empty where a column was not
measured. In experiments without networks a line is one run: its configuration and its single numbers.
"""

import functools
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from igr.lab.analysis.cells import to_csv
from igr.lab.analysis.cohort import COLUMNS, has_history
from igr.lab.analysis.frames import frame, further, singles
from igr.lab.sinks.tensorboard import writer
from igr.lab.store.files import write_atomically
from igr.lab.store.store import Run, Store
from igr.lab.store.tolerant import alone, tried

SCALARS = (*COLUMNS, "r_ig_over_loss", "implicit_rate_r_ig_over_loss")
NETWORK = "{data}-{model}{width}-{activation}-b{batch_size}-h{learning_rate:g}-mu{mu:g}-s{seed}"


def export(store: Store, folder: Path, tensorboard: bool = True) -> list[Path]:
    """Write the measurements of every experiment of `store` into `folder`, and return the paths written.

    What is damaged or cannot be exported is left out and named in `store.harm`.
    """
    written = []
    for name in store.experiments():
        runs = store.runs(name)[0]
        stacks, others = ([run for run in runs if has_history(run) is kind] for kind in (True, False))
        table, stacks, problems = tried(lambda some: to_csv(frame(some)), name, stacks, "exported")
        if not stacks:
            table, others, more = tried(lambda some: to_csv(singles(some)), name, others, "exported")
            problems += more
        store.harm += problems
        if not (stacks or others):
            continue
        path = folder / f"{name}.csv"
        write_atomically(path, table.encode())
        written.append(path)
        found = writer() if tensorboard else None
        if found is not None and stacks:
            to = folder / "tensorboard" / name
            store.harm += alone(functools.partial(to_tensorboard, folder=to, writer=found), name, stacks, "exported")[1]
            written.append(to)
    return written


def to_tensorboard(run: Run, folder: Path, writer: Any) -> None:
    """A TensorBoard run in `folder` for each network of `run`, its columns as scalars over steps."""
    table = frame([run])
    for _, rows in table.groupby(["learning_rate", "mu", "rho", "seed"], sort=False):
        records = rows.to_dict("records")
        radius = f"-rho{records[0]['rho']:g}" if records[0]["rho"] else ""
        name = NETWORK.format(**records[0]) + radius
        if PurePath(name).name != name:  # the arrays of somebody else may have paths in the place of numbers
            raise ValueError(f"{name!r} is no name of a folder")
        log = writer(str(folder / name))
        for row in records:
            for column in (*SCALARS, *further(run)):
                if np.isfinite(row[column]):
                    log.add_scalar(column, row[column], row["step"])
        log.close()
