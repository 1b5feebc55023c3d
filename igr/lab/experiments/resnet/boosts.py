"""What the explicit penalty and its alternatives add to the test accuracy of ResNet-18.

A boost is the difference of test accuracy between two networks of one seed, in points, with Student's interval over
seeds; with fewer than three seeds there is a number and no verdict. Accuracies are test accuracies at the epoch of best
validation accuracy, and no network has more time, counted in gradients, than the one it is compared with.
"""

import numpy as np

from igr.lab.analysis.correlation import verdict
from igr.lab.analysis.findings import Finding
from igr.lab.analysis.statistics import Estimate, student, student_p, words_without
from igr.lab.experiments.resnet.runs import (
    Outcome,
    best_rate,
    chosen,
    equal_total_rates,
    gains,
    matched,
    pairs,
    select,
    table_rates,
    top,
)

PAPER_BOOST = 12.0  # points
MARGIN = 1.0  # points by which the control may fall short and still count as no worse
SHARED = "the plain networks are those of the grid, and all comparisons at this h share them"
MANY = 10  # seeds from which on an interval says little about normality any more
BEYOND = "not in the paper"


def gain(id: str, claim: str, paper: str, values: np.ndarray, over: float = 0.0, note: str = "") -> Finding:
    """A finding from the differences `values` between networks of one seed, in points.

    The claim `holds` where the whole interval of the mean lies above `over`, and `fails` where it lies below. With few
    seeds the note says what the interval assumes, and how the verdict changes with each seed left out.
    """
    estimate, beyond, p = student(values), student(values - over), student_p(values, over)
    value = estimate.value if np.isfinite(estimate.value) else None
    quantity = "difference of test accuracy in points"
    if estimate.interval and estimate.n < MANY:
        without = words_without(values, lambda each: judge(each, over))
        note = "; ".join(filter(None, (note, f"assumes normality (n = {estimate.n}); {without}")))
    known = p if np.isfinite(p) else None
    sign = verdict(beyond, +1)
    return Finding(claim, paper, quantity, value, estimate.n, sign, estimate.interval, note, id=id, p=known)


def judge(estimate: Estimate, over: float = 0.0) -> str:
    """The verdict in a word on the claim that the mean is larger than `over`."""
    moved = Estimate(estimate.value - over, estimate.low - over, estimate.high - over, estimate.n)
    return verdict(moved, +1).value


def _means(ours: list[Outcome], theirs: list[Outcome]) -> str:
    accuracies = matched(ours, theirs)
    return "{:.4f} against {:.4f}".format(*accuracies.mean(axis=0)) if len(accuracies) else ""


def boosts(found: list[Outcome]) -> list[Finding]:
    """The penalty against none: at each rate of the search, at the best rate, and best cell against best rate."""
    rates, mus = table_rates(found)
    claims, place = [], "figure 3c"
    for h in rates:
        ours, plain = pairs(found, h)
        if ours and plain:
            note = (
                f"mu = {ours[0].mu:g}, the best of {len(mus)} on the held-out images; {_means(ours, plain)}; {SHARED}"
            )
            id, claim = f"resnet.penalty-raises-accuracy.h-{h:g}", f"The penalty raises test accuracy at h = {h:g}"
            claims.append(gain(id, claim, place, gains(ours, plain), note=note))
    if not claims:
        return []
    rate = best_rate(found)
    ours, plain = pairs(found, rate)
    note = f"at h = {rate:g}, where validation accuracy rises most, and mu = {ours[0].mu:g}"
    claim = f"The boost at the best learning rate is more than {PAPER_BOOST:g} points"
    new = confirming(found)
    if len({each.seed for each in ours} & new) >= 3:
        some = [
            [each for each in group if (each.seed in new) is wanted]
            for wanted in (True, False)
            for group in (ours, plain)
        ]
        words = f"{note}; judged by the seeds that were trained after the rule was written, as the first had chosen mu"
        claims.append(gain("resnet.boost-of-12-points", claim, place, gains(*some[:2]), PAPER_BOOST, words))
        for part, group in (("first-seeds", some[2:]), ("all-seeds", [ours, plain])):
            words = f"{claim}, {part.replace('-', ' ')}"
            claims.append(gain(f"resnet.boost-of-12-points.{part}", words, place, gains(*group), PAPER_BOOST, note))
    else:
        claims.append(gain("resnet.boost-of-12-points", claim, place, gains(ours, plain), PAPER_BOOST, note))
    ours = top(each for each in select(found, kind="penalty") if each.mu in mus)
    plain = top(select(found, kind="plain"))
    note = f"h = {ours[0].h:g}, mu = {ours[0].mu:g} against h = {plain[0].h:g}, chosen on the held-out images; "
    claim = "The best penalized network beats the best plain learning rate"
    id, values = "resnet.best-penalty-beats-best-rate", gains(ours, plain)
    return [*claims, gain(id, claim, "figure 3c, section 7", values, note=note + _means(ours, plain))]


def confirming(found: list[Outcome]) -> set[int]:
    """The seeds that were trained at one rate alone, to confirm what the first ones showed there."""
    rates: dict[int, set[float]] = {}
    for each in select(found, kind="plain"):
        rates.setdefault(each.seed, set()).add(each.h)
    return (
        {seed for seed, mine in rates.items() if len(mine) == 1}
        if len(set.union(set(), *rates.values())) > 1
        else set()
    )


NAMES = {
    "every": ("penalty-at-every-kth-step", "The penalty at {} steps"),
    "warm-up": ("penalty-after-warm-up", "The penalty after a warm-up"),
    "sam": ("sam", "SAM"),
}


def comparisons(found: list[Outcome]) -> list[Finding]:
    """The penalty at some steps only, and sharpness-aware minimization, each against plain training in its time."""
    claims, seen = [], set[str]()
    for kind in sorted({each.kind for each in found if each.kind.split()[0] in NAMES}):
        for h in sorted({each.h for each in select(found, kind=kind)}):
            ours = select(found, kind=kind, h=h, mu=chosen(found, kind, h=h))
            full, plain = pairs(found, h)
            if not ours or not plain:
                continue
            price = f"{ours[0].cost[-1]:.3g} epochs of gradients against {min(p.cost[-1] for p in plain):.3g}"
            part, name = NAMES[kind.split()[0]]
            id, symbol = f"resnet.{part}-beats-plain", "rho" if kind == "sam" else "mu"
            where = f".{kind.replace(' ', '-')}-h-{h:g}" if id in seen else ""  # the first one has the scale's setting
            seen.add(id)
            note = f"h = {h:g}, {symbol} = {ours[0].mu:g}, {price}; {_means(ours, plain)}"
            short = gains(full, ours)
            if short.size and kind != "sam":
                note += f"; at every step {short.mean():+.2f} points for {full[0].cost[-1]:.3g} epochs"
            claim = f"{name.format(kind)} beats plain training of equal cost"
            claims.append(gain(id + where, claim, BEYOND, gains(ours, plain), note=note))
            if kind == "sam":
                claim = "The penalty beats SAM at equal cost"
                claims.append(gain(f"resnet.penalty-beats-sam{where}", claim, BEYOND, short, note=_means(full, ours)))
    return claims


def differences(found: list[Outcome]) -> list[Finding]:
    """The exact penalty, and differences over other lengths, each against plain training and the default length."""
    claims = []
    for kind in sorted({each.kind for each in found if each.kind.split()[0] in ("exact", "radius")}):
        for h in sorted({each.h for each in select(found, kind=kind)}):
            ours, (full, plain) = select(found, kind=kind, h=h), pairs(found, h)
            name = "The exact penalty" if kind == "exact" else f"The penalty by differences over {kind.split()[1]}"
            id = f"resnet.{kind.replace(' ', '-')}.h-{h:g}"
            note = f"mu = {ours[0].mu:g}; {_means(ours, plain)}; {SHARED}"
            claim = f"{name} raises test accuracy at h = {h:g}"
            claims.append(gain(f"{id}.beats-plain", claim, "figure 3c", gains(ours, plain), note=note))
            claim = f"{name} beats the penalty over the default length at h = {h:g}"
            claims.append(gain(f"{id}.against-default", claim, BEYOND, gains(ours, full), note=_means(ours, full)))
    return claims


def control(found: list[Outcome]) -> list[Finding]:
    """A small step with the penalty against the larger step of equal total rate h + 4 mu."""
    claims = []
    for ours, plain in equal_total_rates(found):
        h, mu, big = ours[0].h, ours[0].mu, plain[0].h
        id = f"resnet.penalty-replaces-step.total-{big:g}-h-{h:g}"
        claim = f"h = {h:g} with mu = {mu:g} is less than {MARGIN:g} point worse than h = {big:g}, of equal h + 4 mu"
        claims.append(gain(id, claim, BEYOND, gains(ours, plain), -MARGIN, _means(ours, plain)))
    return claims


def other_stem(found: list[Outcome]) -> list[Finding]:
    """The penalty against none with the 7x7 stem."""
    claims = []
    for place, h in enumerate(sorted({each.h for each in select(found, stem="7x7")})):
        ours, plain = pairs(found, h, "7x7")
        if ours and plain:
            note = f"h = {h:g}, mu = {ours[0].mu:g}; {_means(ours, plain)}"
            claim = "The penalty raises test accuracy with the 7x7 stem"
            id = "resnet.penalty-raises-accuracy-7x7" + (f".h-{h:g}" if place else "")
            claims.append(gain(id, claim, "figure 3c", gains(ours, plain), note=note))
    return claims
