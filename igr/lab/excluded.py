"""What a run holds that no number counts, and why: diverged, never fitted, not finished."""

from collections import Counter
from typing import Any

import numpy as np

from igr.lab.export import has_history
from igr.lab.history import fitted
from igr.lab.store import Run, Table


def label_of(run: Run) -> str:
    """What a stored run is, in the words of its progress display."""
    return str(getattr(run.config, "label", run.config.kind()))


def excluded(runs: Table) -> list[str]:
    """One sentence for each stored run of which something is left out."""
    return [sentence for run in runs if (sentence := (_stack(run) if has_history(run) else _path(run)))]


def _stack(run: Run) -> str:
    """Networks that never fit their training set are left out of the correlations, as in the paper.

    Of ResNets only those that diverged are: the paper says that all interpolate, and how many do is a finding.
    """
    fits, diverged = fitted(run), run.metrics["diverged"] >= 0
    residual = run.config.shape.model == "resnet18"
    out = diverged if residual else ~fits
    if not out.any():
        return ""
    rates = Counter(run.metrics["learning_rate"][out].tolist())
    listed = ", ".join(f"h = {rate:g}: {count}" for rate, count in sorted(rates.items(), reverse=True))
    never = f"never fit the training set exactly ({listed}), {_count(diverged)} of them diverged"
    return f"{label_of(run)}: {_count(out)} of {len(out)} networks {'diverged' if residual else never}."


def _path(run: Run) -> str:
    """Paths that end at no minimum have no end to compare."""
    outcome = np.atleast_1d(run.metrics.get("outcome", np.zeros(1)))
    if not outcome.any():
        return ""
    parts = [f"{_count(outcome == code)} {word}" for code, word in ((1, "diverged"), (2, "did not finish"))]
    words = " and ".join(part for part in parts if not part.startswith("0 "))
    return f"{label_of(run)}: {words}, of {len(outcome)}; drawn, and left out where an end is compared."


def _count(mask: Any) -> int:
    return int(np.sum(mask))
