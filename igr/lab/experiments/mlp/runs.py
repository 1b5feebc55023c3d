"""The stored MLPs by kind, and the quantities that findings and figures take from them."""

import numpy as np

from igr.lab.analysis.cohort import Cohort, cohort, pick
from igr.lab.store.store import Run, Table

NOISE = 0.5  # slopes are compared at this noise, and accuracies up to it: with more, all networks fail alike


def of(runs: Table, activation: str = "relu", batch_size: int | None = 32, width: int | None = None) -> Table:
    """The stacks in `runs` with this activation, batch size and width; None stands for any.

    Those of `igr.lab.experiments.mlp.beyond` that train networks of the grid again are not among them. Where all widths
    are asked for, neither are seeds that were trained at some of them only: these would give their width more weight.
    """
    shapes = [(run, run.config.shape) for run in runs if not again(run)]
    found = [
        run
        for run, shape in shapes
        if shape.activation == activation
        and batch_size in (None, shape.batch_size)
        and width in (None, shape.width)
        and not any(run.config.mus)
    ]
    if width is not None:
        return found
    seeds: dict[int, set[int]] = {}
    for run in found:
        seeds.setdefault(run.config.shape.width, set()).update(run.config.seeds)
    common = set.intersection(*seeds.values()) if seeds else set()
    return [run for run in found if set(run.config.seeds) & common]


def again(run: Run) -> bool:
    """Whether a stack trains networks again, to measure flatness or for as long as full batches need to interpolate."""
    shape = run.config.shape
    return bool(shape.measure.metrics) or (not shape.batch_size and len(set(run.config.learning_rates)) == 1)


def focus_width(runs: Table) -> int:
    """The width at which noise, batch sizes and activations were tried, or 0 where none of these is stored."""
    return next((run.config.shape.width for run in runs if run.config.shape.noise.sigmas), 0)


def fitted_cohort(runs: Table, rule: str = "max_test", at: float | None = None) -> Cohort:
    """The networks that fit their training set exactly, at the time at which `rule` stops them, with R_IG/E."""
    table = cohort(runs, rule, at)
    if not table:
        return table
    return pick(table | {"r_ig / loss": table["r_ig"] / table["loss"]}, table["fitted"])


def rule_settings(grid: Table) -> list[tuple[str, float | None, str, str]]:
    """The stopping rules to compare: name, step or time, the last part of the findings' ids, and words.

    They are the paper's three, and the maximum of the validation accuracy where images were held out.
    """
    steps = min(int(run.metrics["step"][-1]) for run in grid)
    middle = float(np.median(np.unique(np.concatenate([run.metrics["learning_rate"] for run in grid]))))
    time, held = steps * middle, all("validation_accuracy" in run.metrics for run in grid)
    return [
        ("max_test", None, "max-test", "at maximum test accuracy"),
        ("iteration", steps, "equal-steps", f"after {steps:,} steps"),
        ("time", time, "equal-time", f"at physical time {time:,.4g} (h >= {middle:g})"),
        *([("max_validation", None, "max-validation", "at maximum validation accuracy")] if held else []),
    ]


def noise_table(noisy: Table) -> Cohort:
    """One row per network that fits, with its slope after noise (median) and its accuracy under noise (mean)."""
    table = cohort(noisy)
    sigma = noisy[0].metrics["noise_sigma"]
    near, low = int(np.argmin(np.abs(sigma - NOISE))), sigma <= NOISE
    slopes = [np.median(run.metrics["noise_slope"], axis=2) for run in noisy]
    accuracies = [run.metrics["noise_test_accuracy"].mean(axis=2) for run in noisy]
    table["slope after noise"] = np.concatenate([values[:, near] for values in slopes])
    table["accuracy under noise"] = np.concatenate([values[:, low].mean(axis=1) for values in accuracies])
    return pick(table, table["fitted"])
