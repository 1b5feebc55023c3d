"""What ResNet-18 says about predictions 1 to 3 and about explicit regularization, each claim with a chance to fail.

Networks of the grid count whether or not they fit their training set exactly, unless they diverged; how many do is a
finding of its own. Intervals of their correlations resample networks, as the rates are few and fixed. Boosts are
differences of test accuracy between networks of one seed, in points, with Student's interval over seeds: with fewer
than three there is a number and no verdict. Plain networks have at most the time of those they are compared with.
"""

import numpy as np

from igr.lab.correlation import correlation, verdict
from igr.lab.experiments.resnet_paths import grid_table
from igr.lab.experiments.resnet_runs import (
    Outcome,
    best_rate,
    chosen,
    equal_total_rates,
    gains,
    grid_runs,
    matched,
    outcomes,
    pairs,
    select,
    table_rates,
    top,
)
from igr.lab.findings import Finding, Verdict
from igr.lab.history import Cohort, cohort, pick
from igr.lab.statistics import student
from igr.lab.store import Table

PAPER_BOOST = 12.0  # points
MARGIN = 1.0  # points by which the control may fall short and still count as no worse


def findings(runs: Table) -> list[Finding]:
    """The predictions on the grid, the boosts of the search and the comparisons, each where its runs are stored."""
    grid, found = grid_runs(runs), outcomes(runs)
    return [*(_grid(grid) if grid else []), *(_explicit(found, runs) if found else [])]


def _grid(grid: Table) -> list[Finding]:
    table = grid_table(grid)
    kept = pick(table, table["diverged"] < 0)
    claims = [_counted(table), *_predictions(kept, "at maximum test accuracy")]
    fits = pick(kept, kept["fitted"])
    if 0 < len(fits["seed"]) < len(kept["seed"]):
        claims += _predictions(fits, "at maximum test accuracy, those that fit exactly")[:2]
    last = grid_table(grid, "end")
    return claims + _predictions(pick(last, last["diverged"] < 0), "at the end of training")[:3]


def _counted(table: Cohort) -> Finding:
    fits, lost = table["fitted"], int((table["diverged"] >= 0).sum())
    short = table["train_accuracy"][~fits & (table["diverged"] < 0)]
    note = f"{lost} diverged" if lost else ""
    if short.size:
        least = f"{short.size} do not; the least training accuracy of these at their best epoch is {short.min():.4f}"
        note = "; ".join(filter(None, (note, least)))
    sort = Verdict.HOLDS if fits.all() else Verdict.MIXED if fits.any() else Verdict.FAILS
    claim = "Networks of the grid reach 100 % training accuracy (the others are not excluded)"
    return Finding(claim, "appendix A.5, figure A.7", "networks that do", float(fits.sum()), len(fits), sort, note=note)


def _predictions(table: Cohort, when: str) -> list[Finding]:
    def ranks(claim: str, paper: str, x: str, y: str, expected: int, given: str = "", note: str = "") -> Finding:
        # The rates are few and fixed: what is random is the networks.
        return correlation(claim, paper, table, x, y, expected, given, note, networks=True)

    rate, accuracy = "learning_rate", "test_accuracy"
    path = "geometric mean over the measurements"
    losses = "geometric mean over the losses that all networks with a path pass, interpolated between measurements"
    return [
        ranks(f"R_IG falls as h grows, {when}", "prediction 1, A.7, A.8", rate, "r_ig", -1),
        ranks(f"Test accuracy grows with h, {when}", "prediction 3, A.7, A.8", rate, accuracy, +1),
        ranks(f"Slopes fall as h grows, {when}", "prediction 2, A.7", rate, "slope", -1),
        ranks("Slopes along the path fall as h grows", "prediction 2, A.7", rate, "path slope", -1, note=path),
        ranks(
            "Slopes at equal training loss fall as h grows",
            "not in the paper",
            rate,
            "slope at equal loss",
            -1,
            note=losses,
        ),
        ranks(f"Networks with smaller R_IG test better, {when}", "A.8", "r_ig", accuracy, -1),
        ranks(
            "Networks with smaller R_IG test better also at equal h",
            "not in the paper",
            "r_ig",
            accuracy,
            -1,
            rate,
            "mediated by h if not negative",
        ),
    ]


def gain(claim: str, paper: str, values: np.ndarray, over: float = 0.0, note: str = "") -> Finding:
    """A finding from differences between seeds: `holds` where their interval lies above `over`, `fails` below."""
    estimate, beyond = student(values), student(values - over)
    value = estimate.value if np.isfinite(estimate.value) else None
    quantity = "difference of test accuracy in points"
    return Finding(claim, paper, quantity, value, estimate.n, verdict(beyond, +1), estimate.interval, note)


def _explicit(found: list[Outcome], runs: Table) -> list[Finding]:
    lost = sum(each.diverged for each in found)
    sort = Verdict.MIXED if lost else Verdict.HOLDS
    claim = "Networks train without diverging"
    counted = Finding(
        claim, "not in the paper", "networks that do", float(len(found) - lost), len(found), sort,
        note="those that diverged count with the epochs before" if lost else "",
    )  # fmt: skip
    return [counted, *_boosts(found), *_strength(found, runs), *_comparisons(found), *_control(found), *_stem(found)]


def _means(ours: list[Outcome], theirs: list[Outcome]) -> str:
    accuracies = matched(ours, theirs)
    return "{:.4f} against {:.4f}".format(*accuracies.mean(axis=0)) if len(accuracies) else ""


def _boosts(found: list[Outcome]) -> list[Finding]:
    rates, mus = table_rates(found)
    claims, place = [], "figure 3c"
    for h in rates:
        ours, plain = pairs(found, h)
        if ours and plain:
            note = f"mu = {ours[0].mu:g}, the best of {len(mus)} on the held-out images; {_means(ours, plain)}"
            claims.append(gain(f"The penalty raises test accuracy at h = {h:g}", place, gains(ours, plain), note=note))
    if not claims:
        return []
    rate = best_rate(found)
    ours, plain = pairs(found, rate)
    note = f"at h = {rate:g}, where validation accuracy rises most, and mu = {ours[0].mu:g}"
    claim = f"The boost is more than {PAPER_BOOST:g} points at the best"
    claims.append(gain(claim, place, gains(ours, plain), PAPER_BOOST, note))
    ours = top(each for each in select(found, kind="penalty") if each.mu in mus)
    plain = top(select(found, kind="plain"))
    note = f"h = {ours[0].h:g}, mu = {ours[0].mu:g} against h = {plain[0].h:g}, chosen on the held-out images; "
    claim = "The best penalized network beats the best plain learning rate"
    return [*claims, gain(claim, "figure 3c, section 7", gains(ours, plain), note=note + _means(ours, plain))]


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
    claim = "R_IG falls as mu grows, at equal h"  # mu = 0 is left out: plain networks train longer
    return [correlation(claim, "equation 8", table, "mu", "r_ig", -1, "learning_rate", "at maximum test accuracy")]


def _comparisons(found: list[Outcome]) -> list[Finding]:
    """The penalty at some steps only, and sharpness-aware minimization, each against plain training in its time."""
    claims, place = [], "not in the paper"
    for kind in sorted({each.kind for each in found} - {"plain", "penalty"}):
        for h in sorted({each.h for each in select(found, kind=kind)}):
            ours = select(found, kind=kind, h=h, mu=chosen(found, kind, h=h))
            full, plain = pairs(found, h)
            if not ours or not plain:
                continue
            price = f"{ours[0].cost[-1]:.3g} epochs of gradients against {min(p.cost[-1] for p in plain):.3g}"
            name = {"sam": "SAM", "warm-up": "The penalty after a warm-up"}.get(kind, f"The penalty at {kind} steps")
            symbol = "rho" if kind == "sam" else "mu"
            note = f"h = {h:g}, {symbol} = {ours[0].mu:g}, {price}; {_means(ours, plain)}"
            short = gains(full, ours)
            if short.size and kind != "sam":
                note += f"; at every step {short.mean():+.2f} points for {full[0].cost[-1]:.3g} epochs"
            claims.append(gain(f"{name} beats plain training in its time", place, gains(ours, plain), note=note))
            if kind == "sam":
                claims.append(gain("The penalty beats SAM at equal time", place, short, note=_means(full, ours)))
    return claims


def _control(found: list[Outcome]) -> list[Finding]:
    claims = []
    for ours, plain in equal_total_rates(found):
        h, mu, big = ours[0].h, ours[0].mu, plain[0].h
        claim = f"h = {h:g} with mu = {mu:g} is less than {MARGIN:g} point worse than h = h + 4 mu = {big:g} alone"
        claims.append(gain(claim, "not in the paper", gains(ours, plain), -MARGIN, _means(ours, plain)))
    return claims


def _stem(found: list[Outcome]) -> list[Finding]:
    claims = []
    for h in sorted({each.h for each in select(found, stem="7x7")}):
        ours, plain = pairs(found, h, "7x7")
        if ours and plain:
            note = f"h = {h:g}, mu = {ours[0].mu:g}; {_means(ours, plain)}"
            claim = "The penalty raises test accuracy with the 7x7 stem"
            claims.append(gain(claim, "figure 3c", gains(ours, plain), note=note))
    return claims
