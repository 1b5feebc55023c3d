"""The measurements of any stored run as CSV: a line for each entry of the first axis, a column for each number there.

    params[0], params[1], step, loss      a path, one line per step that was kept

Stacks of networks have the form of `igr.lab.analysis.frame`, with what each network is beside its measurements. A table
has at most `WIDEST` columns: what would need more, such as all weights at each step, is in `metrics.npz` alone.
"""

import math
from collections import Counter
from pathlib import Path

import numpy as np

from igr.lab.analysis.cells import to_csv
from igr.lab.analysis.cohort import has_history
from igr.lab.analysis.frames import frame, singles
from igr.lab.store.files import write_atomically
from igr.lab.store.store import Run

WIDEST = 10_000


def as_csv(run: Run) -> str:
    """The arrays of `run` that share the longest common first axis; those with more axes take several columns.

    A run of single numbers is one line, with its configuration before them.

    >>> print(as_csv(Run(None, {"step": np.arange(2), "params": np.ones((2, 2)), "outcome": np.array(0)}, {})))
    params[0],params[1],step
    1.0,1.0,0
    1.0,1.0,1
    """
    import pandas

    if has_history(run):
        return to_csv(frame([run]))
    arrays = {name: np.asarray(values) for name, values in sorted(run.metrics.items()) if np.ndim(values) > 0}
    if not arrays:
        return to_csv(singles([run]))
    counts = Counter(len(values) for values in arrays.values())
    length = max(counts, key=lambda n: (counts[n], n))
    columns = {}
    for name, values in arrays.items():
        if len(values) == length and len(columns) + math.prod(values.shape[1:]) <= WIDEST:
            for place in np.ndindex(values.shape[1:]):
                columns[name + "".join(f"[{i}]" for i in place)] = values[(slice(None), *place)]
    return to_csv(pandas.DataFrame(columns))


def csv_name(run: Run) -> str:
    """The file name of a run's CSV: its experiment and the digest of its configuration."""
    return f"{run.record['experiment']}-{run.config.digest()[:16]}.csv"


def write_csv(run: Run, folder: Path) -> None:
    """Write the measurements of `run` into `folder`."""
    write_atomically(folder / csv_name(run), as_csv(run).encode())
