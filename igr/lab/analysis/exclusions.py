"""What is left out of the numbers, and why: networks that diverged or never fitted, paths that did not finish."""

from collections import Counter
from typing import Any

import numpy as np

from igr.lab.analysis.cohort import fitted, has_history
from igr.lab.store.store import Run, Table
from igr.lab.store.tolerant import label_of


def excluded(runs: Table) -> list[str]:
    """One sentence for each of `runs` from which something is left out."""
    return [sentence for run in runs if (sentence := (_stack(run) if has_history(run) else _path(run)))]


def _stack(run: Run) -> str:
    """Networks that never fit their training set are left out of the correlations, as in the paper.

    Of ResNets only those that diverged are: the paper says that all interpolate, and how many do is a finding.
    """
    fits, diverged = fitted(run), run.metrics["diverged"] >= 0
    residual = run.config.shape.entry.has_batch_statistics
    out = diverged if residual else ~fits
    if not out.any():
        return ""
    rates = Counter(run.metrics["learning_rate"][out].tolist())
    listed = ", ".join(f"h = {rate:g}: {count}" for rate, count in sorted(rates.items(), reverse=True))
    never = f"never fit the training set exactly ({listed}); {_count(diverged)} of these diverged"
    return f"{label_of(run)}: {_count(out)} of {len(out)} networks {'diverged' if residual else never}."


def _path(run: Run) -> str:
    """Paths that do not reach a minimum have no end to compare."""
    outcome = np.atleast_1d(run.metrics.get("outcome", np.zeros(1)))
    if not outcome.any():
        return ""
    parts = [(_count(outcome == code), word) for code, word in ((1, "diverged"), (2, "did not finish"))]
    words = " and ".join(f"{count} {word}" for count, word in parts if count)
    return f"{label_of(run)}: {words}, of {len(outcome)}. These are drawn, and left out where ends are compared."


def _count(mask: Any) -> int:
    return int(np.sum(mask))
