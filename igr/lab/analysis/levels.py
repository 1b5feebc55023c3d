"""Slopes at equal training loss.

After equal numbers of steps, a larger learning rate has also brought the loss further down, and slopes fall with the
loss in any training. Comparing networks where they have the same loss removes this effect. A path passes a loss more
than once where it is not monotone, and no measurement is exactly there, so that a rule has to say which slope counts:

    first      log slope is linear in log loss up to the first measurement below; where the loss rises again, its first
               passage counts. The rule of all findings but those on the rules.
    measured   the slope of the first measurement at or below the loss. Large rates fall further between measurements.
    last       linear as above, where the path passes the loss for the last time
"""

import numpy as np

from igr.lab.store.store import Run, Table

RULES = ("first", "measured", "last")
LEVELS = 9  # losses at which slopes are compared, evenly spaced in their logarithm


def slopes_at_equal_loss(
    runs: Table, keep: np.ndarray | None = None, levels: np.ndarray | None = None, rule: str = "first"
) -> np.ndarray:
    """The geometric mean of each network's slopes at some losses, by default those that all networks reach.

    These are `LEVELS` losses from the highest to the lowest that all networks pass after their first measurement.
    `levels` are other losses; a network that does not pass all of them has NaN. `keep` says which networks are
    compared, all without it; the others have NaN, and so have those that diverged or were measured only at their end.
    `rule` says which slope counts: see the head of this module.
    """
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r} for slopes at equal loss: choose one of {', '.join(RULES)}.")
    paths = [path for run in runs for path in _paths(run, rule)]
    if keep is not None:
        paths = [path if kept else None for path, kept in zip(paths, keep, strict=True)]
    compared = [path for path in paths if path is not None]
    nothing = np.full(len(paths), np.nan)
    if not compared:
        return nothing
    if levels is None:
        high, low = min(loss[0] for loss, _ in compared), max(loss[-1] for loss, _ in compared)
        if high <= low:
            return nothing
        at = np.linspace(high, low, LEVELS)
    else:
        at = np.log(np.asarray(levels, float))

    def mean(path: tuple[np.ndarray, np.ndarray] | None) -> float:
        if path is None or at.max() > path[0][0] + 1e-12 or at.min() < path[0][-1] - 1e-12:
            return float("nan")
        if rule == "measured":
            return float(path[1][np.searchsorted(-path[0], -at - 1e-12)].mean())
        return float(np.interp(-at, -path[0], path[1]).mean())

    return np.exp([mean(path) for path in paths])


def _paths(run: Run, rule: str) -> list[tuple[np.ndarray, np.ndarray] | None]:
    """For each network the logarithms of loss and slope at falling losses; None without a path.

    These are the measurements at which the loss is lower than ever before; with the rule "last", those after which it
    is never as high again.
    """
    metrics, found = run.metrics, []
    for k in range(len(metrics["seed"])):
        loss, slope = metrics["loss"][:, k], metrics["slope"][:, k]
        seen = (metrics["step"] > 0) & (loss > 0) & (slope > 0)  # False where they are NaN, which is: not measured
        x, y = np.log(loss[seen]), np.log(slope[seen])
        if rule == "last":
            lower = x > np.maximum.accumulate(np.concatenate([[-np.inf], x[:0:-1]]))[::-1] if x.size else x > 0
        else:
            lower = x < np.minimum.accumulate(np.concatenate([[np.inf], x[:-1]])) if x.size else x > 0
        found.append((x[lower], y[lower]) if lower.sum() > 1 and metrics["diverged"][k] < 0 else None)
    return found
