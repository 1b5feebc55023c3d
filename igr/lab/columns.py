"""The measurements of any stored run as CSV: a line for each entry of the first axis, a column for each number there.

    params[0], params[1], step, loss      a path, a line for each step that was kept

Stacks of networks have their own form, with what each network is beside its measurements: `igr.lab.export`.
"""

import csv
import io
from collections import Counter
from pathlib import Path

import numpy as np

from igr.lab.export import has_history, to_csv
from igr.lab.files import write_atomically
from igr.lab.store import Run


def as_csv(run: Run) -> str:
    """The arrays that share the longest common first axis, those of more axes spread over several columns.

    >>> print(as_csv(Run(None, {"step": np.arange(2), "params": np.ones((2, 2)), "outcome": np.array(0)}, {})))
    params[0],params[1],step
    1.0,1.0,0
    1.0,1.0,1
    """
    if has_history(run):
        return to_csv([run])
    arrays = {name: np.asarray(values) for name, values in sorted(run.metrics.items()) if np.ndim(values) > 0}
    if not arrays:
        return ""
    counts = Counter(len(values) for values in arrays.values())
    length = max(counts, key=lambda n: (counts[n], n))
    columns = {}
    for name, values in arrays.items():
        if len(values) == length:
            for place in np.ndindex(values.shape[1:]):
                columns[name + "".join(f"[{i}]" for i in place)] = values[(slice(None), *place)]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return buffer.getvalue()


def csv_name(run: Run) -> str:
    """The name of a run's CSV: that of its experiment and of its configuration."""
    return f"{run.record['experiment']}-{run.config.digest()[:16]}.csv"


def write_csv(run: Run, folder: Path) -> None:
    """Write a run's measurements into a folder."""
    write_atomically(folder / csv_name(run), as_csv(run).encode())
