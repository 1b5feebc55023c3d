"""What ResNet-18 says about predictions 1 to 3, and about explicit regularization.

All networks of the grid count unless they diverged; how many of them fit their training set exactly is a finding of its
own. The intervals of correlations resample learning rates, whose seeds stay together. Boosts are in `boosts`.
"""

import numpy as np

from igr.lab.analysis.cohort import Cohort, cohort, pick
from igr.lab.analysis.correlation import correlation
from igr.lab.analysis.findings import Finding, Verdict, pending
from igr.lab.analysis.levels import slopes_at_equal_loss
from igr.lab.experiments.flatness import flatness
from igr.lab.experiments.resnet.boosts import boosts, comparisons, control, differences, other_stem
from igr.lab.experiments.resnet.paths import grid_table
from igr.lab.experiments.resnet.runs import Outcome, grid_runs, outcomes, table_rates, with_paths
from igr.lab.store.store import Table

BEYOND = "not in the paper"
LEVELS = (1.5, 0.4, 0.02)  # losses at which slopes are compared


def findings(runs: Table) -> list[Finding]:
    """The predictions on the grid, the boosts of the search and the comparisons, each where its runs are stored."""
    grid, found = grid_runs(runs), outcomes(runs)
    explicit = [*_explicit(found, runs), *_planned(found, runs)] if found else []
    return [*(_grid(grid) if grid else []), *_all_paths(grid, with_paths(runs)), *explicit]


def _grid(grid: Table) -> list[Finding]:
    table = grid_table(grid)
    kept = pick(table, table["diverged"] < 0)
    claims = [_counted(table), *_predictions(kept, "max-test", "at maximum test accuracy"), *_paths(kept, grid)]
    fits = pick(kept, kept["fitted"])
    if 0 < len(fits["seed"]) < len(kept["seed"]):
        claims += _predictions(fits, "max-test-fitted", "at maximum test accuracy, networks that fit exactly")[:2]
    last = grid_table(grid, "end")
    return claims + _predictions(pick(last, last["diverged"] < 0), "end", "at the end of training")


def _counted(table: Cohort) -> Finding:
    fits, lost = table["fitted"], int((table["diverged"] >= 0).sum())
    short = table["train_accuracy"][~fits & (table["diverged"] < 0)]
    note = f"{lost} diverged" if lost else ""
    if short.size:
        least = f"{short.size} do not; the least training accuracy of these at their best epoch is {short.min():.4f}"
        note = "; ".join(filter(None, (note, least)))
    return Finding(
        "Networks of the grid reach 100 % training accuracy (the others are not excluded)",
        "appendix A.5, figure A.7",
        "networks that do",
        float(fits.sum()),
        len(fits),
        Verdict.HOLDS if fits.all() else Verdict.MIXED if fits.any() else Verdict.FAILS,
        note=note,
        id="resnet.networks-fit",
    )


def _predictions(table: Cohort, when: str, words: str) -> list[Finding]:
    """Predictions 1 to 3 at one stopping time, `when` in ids and `words` in claims."""
    columns: list[tuple[str, str, str, str, int]] = [
        ("r-ig-falls", "R_IG falls as h grows", "prediction 1, A.7, A.8", "r_ig", -1),
        ("accuracy-grows", "Test accuracy grows with h", "prediction 3, A.7, A.8", "test_accuracy", +1),
        ("slope-falls", "Slopes fall as h grows", "prediction 2, A.7", "slope", -1),
        ("ratio-falls", "R_IG/E falls as h grows", "prediction 1", "r_ig / loss", -1),
    ]
    with np.errstate(divide="ignore", invalid="ignore"):  # a network may fit so well that its loss rounds to zero
        table = table | {"r_ig / loss": table["r_ig"] / table["loss"]}
    return [
        correlation(f"resnet.{id}-with-h.{when}", f"{claim}, {words}", paper, table, "learning_rate", y, sign)
        for id, claim, paper, y, sign in columns
    ]


def _at_loss(grid: Table, level: float) -> Finding:
    """The sign depends on the loss."""
    table = grid_table(grid) | {"slope at equal loss": slopes_at_equal_loss(grid, levels=np.array([level]))}
    claim = f"Slopes fall as h grows where the training loss first passes {level:g}"
    id = f"resnet.slope-falls-with-h.at-loss-{level:g}"
    return correlation(id, claim, "prediction 2", pick(table, table["diverged"] < 0), "learning_rate",
                       "slope at equal loss", -1)  # fmt: skip


def _paths(table: Cohort, grid: Table) -> list[Finding]:
    """Slopes before the end of training, and R_IG and accuracy from network to network."""
    h, smaller = "learning_rate", "Networks with smaller R_IG have higher test accuracy"
    return [
        correlation(
            "resnet.slope-falls-with-h.path", "Slopes along the path fall as h grows", "prediction 2, A.7", table, h,
            "path slope", -1, note="geometric mean over the measurements",
        ),
        correlation(
            "resnet.slope-falls-with-h.equal-loss", "Slopes at equal training loss fall as h grows", BEYOND, table, h,
            "slope at equal loss", -1, note="geometric mean over the losses that all networks with a path reach, "
            "interpolated between measurements",
        ),
        *(_at_loss(grid, level) for level in LEVELS),
        correlation(
            "resnet.accuracy-falls-with-r-ig.max-test", f"{smaller}, at maximum test accuracy", "A.8", table, "r_ig",
            "test_accuracy", -1,
        ),
        correlation(
            "resnet.accuracy-falls-with-r-ig.given-h", f"{smaller} at equal h", BEYOND, table, "r_ig", "test_accuracy",
            -1, given=h, note="if this is not negative, h explains the correlation",
        ),
    ]  # fmt: skip


def _all_paths(grid: Table, more: Table) -> list[Finding]:
    """Slopes at equal training loss with the paths of all seeds, where those of further seeds are stored."""
    if not more:
        return []
    runs, claim = grid + more, "Slopes at equal training loss fall as h grows, all seeds with a path"
    table = cohort(runs)
    found = []
    for part, levels, words in [("common-range", None, ""), *((f"at-{x:g}", [x], f", at E = {x:g}") for x in LEVELS)]:
        slopes = slopes_at_equal_loss(runs, levels=None if levels is None else np.array(levels))
        both = pick(table | {"slope at equal loss": slopes}, table["diverged"] < 0)
        id, y = f"resnet.paths.slope-falls-with-h.{part}", "slope at equal loss"
        found.append(correlation(id, claim + words, "prediction 1, prediction 2", both, "learning_rate", y, -1))
    return found


def _explicit(found: list[Outcome], runs: Table) -> list[Finding]:
    lost = sum(each.diverged for each in found)
    counted = Finding(
        "Networks train without diverging",
        BEYOND,
        "networks that do",
        float(len(found) - lost),
        len(found),
        Verdict.MIXED if lost else Verdict.HOLDS,
        note="those that diverged count with the epochs before" if lost else "",
        id="resnet.networks-do-not-diverge",
    )
    return [
        counted, *boosts(found), *_strength(found, runs), *comparisons(found), *differences(found), *control(found),
        *other_stem(found),
    ]  # fmt: skip


def _planned(found: list[Outcome], runs: Table) -> list[Finding]:
    """What the plan of the paper's scale has, and is measured or not yet computed."""
    if not any(run.config.shape.data == "cifar10" for run in runs):
        return []
    command = "igr run resnet --scale paper"
    claims = flatness("resnet", runs, command, 18)
    for kind, count, claim in (
        ("exact", 12, "The exact penalty raises test accuracy as much as the difference over the default length"),
        ("radius", 12, "The length of the difference (0.01, 0.03, 0.09, 0.2) does not change the boost"),
    ):
        if not any(each.kind.startswith(kind) for each in found):
            claims.append(pending(f"resnet.{kind}", claim, "figure 3c", count, command))
    if not with_paths(runs):
        claim = "Slopes at equal training loss fall as h grows, all seeds with a path"
        claims.append(pending("resnet.paths", claim, "prediction 1, prediction 2", 12, command))
    return claims


def _strength(found: list[Outcome], runs: Table) -> list[Finding]:
    rates, mus = table_rates(found)
    shapes = ((run, run.config.shape) for run in runs)
    penalized = [
        run for run, s in shapes if s.method == "forward" and s.stem == "3x3" and (s.every, s.warm_up) == (1, 0)
    ]
    table = cohort(penalized)
    if not rates or not table:
        return []
    table = pick(table, np.isin(table["learning_rate"], rates) & np.isin(table["mu"], mus))
    table = pick(table, table["diverged"] < 0)
    id, claim = "resnet.r-ig-falls-with-mu", "R_IG falls as mu grows, at equal h"
    note = "at maximum test accuracy; without mu = 0, since plain networks train longer"
    return [correlation(id, claim, "equation 8", table, "mu", "r_ig", -1, "learning_rate", note)]
