"""Claims of the paper's appendix about the curves A.3 to A.5, network by network.

Each is a share of networks for which it is so, with a bootstrap interval over models. The claim holds where the whole
interval lies above one half, and fails where it lies below.
"""

from collections.abc import Callable

import numpy as np

from igr.lab.analysis.cohort import cohort, fitted, pick
from igr.lab.analysis.correlation import correlation, models
from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.analysis.statistics import bootstrap, spearman
from igr.lab.experiments.mlp.runs import fitted_cohort, rule_settings
from igr.lab.store.store import Run, Table

SETTLED = 0.05  # of its whole change: what a quantity may still change by where it counts as a plateau
REBOUND = 1.05  # the end over the least value of a quantity that rises again

Path = dict[str, np.ndarray]


def claims(grid: Table) -> list[Finding]:
    """The findings on the curves, and figure 2 with other exclusions."""
    return [*_decreases(grid), *_plateau(grid), *_rebound(grid), *_exclusions(grid), *_weighted(grid)]


def paths(run: Run) -> list[Path]:
    """For each network of `run` its full measurements in order, without those that are not finite."""
    m, names = run.metrics, ("loss", "r_ig", "param_norm", "test_loss", "test_r_ig", "test_accuracy")
    found = []
    for k in range(len(m["seed"])):
        rows = m["full"] & np.isfinite(m["loss"][:, k]) & (m["loss"][:, k] > 0)
        found.append({name: m[name][rows, k].astype(float) for name in names} | {"step": m["step"][rows]})
    return found


def _share(id: str, claim: str, paper: str, grid: Table, holds: Callable[[Path], float], note: str = "") -> Finding:
    """The share of the networks that fit for which `holds` is 1; NaN leaves a network out."""
    keep = np.concatenate([fitted(run) for run in grid])
    values = np.array([holds(path) for run in grid for path in paths(run)])
    table = pick(cohort(grid) | {"value": values}, keep & np.isfinite(values))
    return share(id, claim, paper, table["value"], models(table), "share of networks", note)


def share(
    id: str, claim: str, paper: str, values: np.ndarray, by: np.ndarray, quantity: str, note: str = ""
) -> Finding:
    """A finding from a share: the mean of `values` 0 and 1, whose clusters `by` are resampled."""
    found = bootstrap(lambda v: v.mean(axis=-1), values, by=by)
    if found.interval is None:
        verdict = Verdict.UNTESTABLE
    else:
        low, high = found.interval
        verdict = Verdict.HOLDS if low > 0.5 else Verdict.FAILS if high < 0.5 else Verdict.MIXED
    value = found.value if np.isfinite(found.value) else None
    return Finding(claim, paper, quantity, value, found.n, verdict, found.interval, note, id=id)


def _decreases(grid: Table) -> list[Finding]:
    found = []
    for part, words, take in (
        ("loss", "E", lambda p: p["loss"]),
        ("r-ig", "R_IG", lambda p: p["r_ig"]),
        ("ratio", "R_IG/E", lambda p: p["r_ig"] / p["loss"]),
    ):
        keep = np.concatenate([fitted(run) for run in grid])
        every = [path for run in grid for path in paths(run)]
        curves = [take(path) for path, good in zip(every, keep, strict=True) if good]
        rises = np.median([curve.max() / curve[0] for curve in curves]) if curves else np.nan
        straight = np.mean([bool(np.all(np.diff(curve) <= 0)) for curve in curves]) if curves else np.nan
        note = f"before, it rises to {rises:.3g} times its start (median); it falls all the way in {straight:.0%}"
        claim = f"{words} is smaller at the end of training than at its start, for all learning rates"

        def ends(path: Path, take: Callable = take) -> float:
            return float(take(path)[-1] < take(path)[0])

        found.append(_share(f"mlp.decreases.{part}", claim, "figure A.3, appendix A.5", grid, ends, note))
    return found


def settled_at(values: np.ndarray) -> int:
    """The first place from which on `values` stay within `SETTLED` of their whole change from the last one.

    >>> settled_at(np.array([0.0, 0.5, 0.97, 1.0, 1.0]))
    2
    """
    far = np.abs(values - values[-1]) > SETTLED * abs(values[-1] - values[0])
    return int(np.flatnonzero(far)[-1]) + 1 if far.any() else 0


def _plateau(grid: Table) -> list[Finding]:
    """The norm against the loss, on both scales, and the norm's growth against R_IG."""
    where, words = "figure A.3d, proposition on the norm", "The parameter norm reaches its plateau before the loss does"

    def linear(path: Path) -> float:
        return float(settled_at(path["param_norm"]) < settled_at(path["loss"]))

    def logarithmic(path: Path) -> float:
        return float(settled_at(path["param_norm"]) < settled_at(np.log(path["loss"])))

    def slows(path: Path) -> float:
        growth = np.diff(path["param_norm"]) / np.diff(path["step"])
        return float(spearman(growth, np.sqrt(path["r_ig"][1:] * path["r_ig"][:-1])) > 0) if growth.size > 3 else np.nan

    note = f"plateau: within {SETTLED:.0%} of the whole change"
    return [
        _share("mlp.norm-plateaus-first.linear", f"{words} (E itself)", where, grid, linear, note),
        _share("mlp.norm-plateaus-first.logarithmic", f"{words} (log E)", where, grid, logarithmic, note),
        _share("mlp.norm-growth-slows-with-r-ig", "The norm grows more slowly where R_IG is smaller, along each path",
               where, grid, slows, "rank correlation along each path is positive"),
    ]  # fmt: skip


def _rebound(grid: Table) -> list[Finding]:
    found = []
    for name, words in (("test_loss", "test loss"), ("test_r_ig", "R_IG of the test loss")):

        def rises(path: Path, name: str = name) -> float:
            values = path[name]
            good = values[np.isfinite(values)]
            low = int(good.argmin()) if good.size else 0
            return float(0 < low < len(good) - 1 and good[-1] > REBOUND * good[low]) if good.size > 2 else np.nan

        claim = f"The {words} falls and rises again by more than {REBOUND - 1:.0%}"
        found.append(_share(f"mlp.rebound.{name.replace('_', '-')}", claim, "figure A.4", grid, rises))

    def declines(path: Path) -> float:
        values = path["test_accuracy"][np.isfinite(path["test_accuracy"])]
        return float(values[-1] < values.max()) if values.size else np.nan

    claim = "The test accuracy at the end is below its maximum"
    return [*found, _share("mlp.rebound.test-accuracy", claim, "figure A.4d", grid, declines)]


def _exclusions(grid: Table) -> list[Finding]:
    """Figure 2 for networks that fit at the maximum itself, and for all that did not diverge."""
    table, found = cohort(grid), []
    for part, words, keep in (
        ("fit-at-max", "networks with 100 % at that time", table["train_accuracy"] == 1),
        ("not-diverged", "all networks that did not diverge", table["diverged"] < 0),
        ("no-exclusion", "all networks", np.isfinite(table["r_ig"])),
    ):
        some = pick(table, keep)
        for id, claim, y, sign, number in (
            ("r-ig-falls-with-lambda", "R_IG falls as lambda grows", "r_ig", -1, 1),
            ("accuracy-grows-with-lambda", "Test accuracy grows with lambda", "test_accuracy", +1, 3),
        ):
            place = f"prediction {number}, figure 2"
            words_ = f"{claim}, at maximum test accuracy, {words}"
            found.append(correlation(f"mlp.{id}.{part}", words_, place, some, "implicit_rate", y, sign))
    return found


def _weighted(grid: Table) -> list[Finding]:
    """The caption of A.3c: lambda R_IG/E against h, at each stopping time."""
    found, name = [], "lambda r_ig / loss"
    for rule, at, part, words in rule_settings(grid):
        table = fitted_cohort(grid, rule, at)
        table[name] = table["implicit_rate"] * table["r_ig / loss"]
        claim, id = f"lambda R_IG/E falls as h grows, {words}", f"mlp.weighted-ratio-falls-with-h.{part}"
        found.append(correlation(id, claim, "figure A.3c", table, "learning_rate", name, -1))
    return found
