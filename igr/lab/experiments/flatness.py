"""Flatness measured: the largest eigenvalue and the trace of the Hessian beside the slope, for experiments on networks.

The slope says how steep the loss is at a point, and is small near any minimum. How flat the minimum is, its Hessian
says. Runs that measure it name the metrics "sharpness", "trace" and "batch_r_ig_32" or "batch_r_ig_512".
"""

import numpy as np

from igr.lab.analysis.cohort import cohort, pick
from igr.lab.analysis.correlation import correlation
from igr.lab.analysis.findings import Finding, pending
from igr.lab.store.store import Table

COLUMNS = {
    "sharpness": ("lambda-max", "The largest Hessian eigenvalue"),
    "trace": ("trace", "The trace of the Hessian"),
    "batch_r_ig_32": ("batch-r-ig", "The mean squared batch gradient"),
    "batch_r_ig_512": ("batch-r-ig", "The mean squared batch gradient"),
}


def measured(runs: Table) -> Table:
    """The plain runs that measure flatness."""
    return [run for run in runs if "sharpness" in run.config.shape.measure.metrics and not any(run.config.mus)]


def flatness(experiment: str, runs: Table, command: str, missing: int) -> list[Finding]:
    """Each column against h, at maximum test accuracy and at the end of training, or that it is not yet computed.

    `experiment` begins the ids, `command` computes the `missing` runs.
    """
    some = measured(runs)
    if not some:
        claim = "The Hessian's largest eigenvalue and its trace at the optimum fall as h grows"
        return [pending(f"{experiment}.flatness", claim, "prediction 2", missing, command)] if missing else []
    found = []
    for when, words in (("max-test", "at maximum test accuracy"), ("end", "at the end of training")):
        table = cohort(some, "max_test" if when == "max-test" else "end")
        for column, (part, what) in COLUMNS.items():
            if not all(column in run.metrics for run in some):
                continue
            values = [run.metrics[f"best_{column}"] if when == "max-test" else run.metrics[column][-1] for run in some]
            both = pick(table | {column: np.concatenate(values)}, table["diverged"] < 0)
            claim, id = f"{what} falls as h grows, {words}", f"{experiment}.flatness.{part}.{when}"
            found.append(correlation(id, claim, "prediction 2", both, "learning_rate", column, -1))
    return found
