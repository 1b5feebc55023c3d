"""What the runs say about the paper's remark on the moderate regime, read from the stored runs alone."""

import re

import numpy as np

from igr.lab.analysis.findings import Finding, Verdict, judged
from igr.lab.analysis.statistics import bootstrap, spearman
from igr.lab.experiments.regime.views import (
    WORDS,
    at_rate,
    best_rate,
    last_inside,
    mean_accuracy,
    networks,
    points,
    rates,
    shares,
    verdicts,
)
from igr.lab.store.store import Table

PAPER = "section 3, the moderate regime"
PROMISED = {"inside": 0.03, "marginal": 0.13}  # what the thresholds of the verdict are meant to bound


def findings(runs: Table) -> list[Finding]:
    """The overlap, the calibration of the verdict, the peak of the accuracy, and the edge of stability."""
    if not runs:
        return [
            Finding("The regime along training", PAPER, "no stored run", None, 0, Verdict.UNTESTABLE, id="regime.runs")
        ]
    found = []
    for name, some in networks(runs):
        found += [_overlap(name, some), _peak(name, some)]
    # Derivatives do not see the kinks of ReLU, so its expected errors are those of the smooth pieces.
    smooth = [run for run in runs if run.config.activation != "relu"]
    kinked = [run for run in runs if run.config.activation == "relu"]
    for kind, some in (("smooth activations", smooth), ("ReLU", kinked)):
        found += [*_calibration(kind, some), _order(kind, some)] if some else []
    for kind, loss in (("cross entropy", "cross_entropy"), ("squared loss", "squared")):
        some = [run for run in runs if getattr(run.config, "loss", "cross_entropy") == loss]
        found += [_edge(kind, some)] if some else []
    return found


def _overlap(name: str, runs: Table) -> Finding:
    """The share of training inside or marginal, at the learning rate that generalizes best."""
    best = best_rate(runs)
    within = shares(at_rate(runs, best), "inside", "marginal")
    share = bootstrap(lambda w: w.mean(axis=-1), within)
    by_rate = []
    for h in rates(runs):
        at = points(at_rate(runs, h))
        by_rate.append(f"h = {h:g}: " + ", ".join(f"{at.share(w):.0%} {w}" for w in WORDS if at.share(w) > 0))
    return Finding(
        f"The learning rate with the best test accuracy lies in the moderate regime ({name})",
        PAPER,
        f"share of training inside or marginal at h = {best:g}",
        float(within.mean()),
        len(within),
        judged(float(within.mean()) > 0.5),
        share.interval,
        "; ".join(by_rate),
        id=f"regime.overlap.{slug(runs[0].config.family)}",
    )


def _peak(name: str, runs: Table) -> Finding:
    """The best learning rate against the largest one most of whose training is inside or marginal."""
    claim, id = (
        f"Test accuracy peaks where the moderate regime ends ({name})",
        f"regime.peak.{slug(runs[0].config.family)}",
    )
    if len(rates(runs)) < 3:
        return Finding(claim, PAPER, "fewer than three learning rates", None, len(runs), Verdict.UNTESTABLE, id=id)
    best, last = best_rate(runs), last_inside(runs)
    if best == rates(runs)[-1]:
        quantity = f"accuracy grows up to the largest learning rate there is, {best:g}"
        return Finding(claim, PAPER, quantity, None, len(runs), Verdict.UNTESTABLE, id=id)
    if not np.isfinite(last):
        quantity = "no learning rate is mostly inside or marginal"
        return Finding(claim, PAPER, quantity, None, len(runs), Verdict.FAILS, id=id)
    tested = rates(runs)
    apart = tested.index(best) - tested.index(last)
    best_accuracy, last_accuracy = (mean_accuracy(runs, h) for h in (best, last))
    note = (
        f"best h = {best:g} (test accuracy {best_accuracy:.4f}), last h mostly inside or marginal = {last:g} "
        f"({last_accuracy:.4f}), of {len(tested)} learning rates"
    )
    verdict = judged(abs(apart) <= 1)
    return Finding(claim, PAPER, "best h / last h inside", best / last, len(runs), verdict, note=note, id=id)


def _calibration(kind: str, runs: Table) -> list[Finding]:
    """Whether the expected errors and the verdict say what is measured."""
    seen = points(runs)
    good, found = seen.trusted, []
    for order, flow in enumerate(("gradient flow", "modified flow")):
        expected, measured = seen.expected[good, order], seen.measured[good, order]
        rank = bootstrap(spearman, expected, measured, by=seen.run[good])
        covered = float(np.mean(np.abs(np.log(expected / measured)) < np.log(1.5))) if len(measured) else float("nan")
        found.append(
            Finding(
                f"The expected one-step error of the {flow} predicts the measured one ({kind})",
                "not in the paper",
                "Spearman",
                rank.value,
                rank.n,
                judged(rank.value > 0.9 and covered > 0.9) if rank.n else Verdict.UNTESTABLE,
                rank.interval,
                f"within a factor of 1.5 in {covered:.0%} of {len(measured)} measurements",
                id=f"regime.calibration.{slug(flow)}.{slug(kind)}",
            )
        )
    for word, most in PROMISED.items():
        errors = seen.measured[(seen.word == word) & good, 1]
        share = float(np.mean(errors < most)) if len(errors) else None
        verdict = Verdict.UNTESTABLE if share is None else judged(share > 0.9)
        note = f"largest {errors.max():.3g}" if len(errors) else ""
        claim = f"Where the verdict is {word}, the modified flow misses a step by less than {most:.0%} ({kind})"
        id = f"regime.{word}.{slug(kind)}"
        found.append(Finding(claim, "not in the paper", "share", share, len(errors), verdict, note=note, id=id))
    return found


def _order(kind: str, runs: Table) -> Finding:
    """Which truncation is best: beyond the paper's regime it would be the first order alone."""
    seen = points(runs)
    good = np.isfinite(seen.measured).all(axis=1) & seen.solved.all(axis=1)
    good &= (seen.measured > 3 * seen.rounding[:, None]).all(axis=1)
    best = seen.measured[good].argmin(axis=1) if good.any() else np.zeros(0)
    second = bootstrap(lambda each: each.mean(axis=-1), (best == 2).astype(float), by=seen.run[good])
    share = float(np.mean(best == 2)) if len(best) else None
    note = ", ".join(f"order {n}: {np.mean(best == n):.1%}" for n in range(3)) if len(best) else ""
    return Finding(
        f"The second correction makes the modified flow better, at all learning rates where it was solved ({kind})",
        PAPER,
        "share of measurements in which order 2 misses a step least",
        share,
        len(best),
        Verdict.UNTESTABLE if share is None else judged(share > 0.9),
        second.interval,
        note,
        id=f"regime.best-order.{slug(kind)}",
    )


def _edge(kind: str, runs: Table) -> Finding:
    """Progressive sharpening: whether runs that start below 2/h reach it, and whether those at it stay."""
    kept = [run for run in runs if verdicts(run.metrics)[-1] != "divergent"]
    below = [run for run in kept if run.metrics["h_lambda"][0] < 2]
    reached = [run for run in kept if np.nanmax(run.metrics["h_lambda"]) >= 2]
    rose = [run for run in reached if run.metrics["h_lambda"][0] < 2]
    ends = np.array([run.metrics["h_lambda"][-1] for run in reached])
    hovering = bootstrap(lambda near: near.mean(axis=-1), (abs(ends - 2) < 0.5).astype(float))
    claim, where = f"Runs whose sharpness reaches 2/h stay near it ({kind})", "not in the paper"
    id = f"regime.edge.{slug(kind)}"
    note = f"{len(rose)} of the {len(below)} runs that start below 2/h and are not lost reach it"
    if not len(ends):
        return Finding(claim, where, "no run reaches it", None, len(below), Verdict.UNTESTABLE, note=note, id=id)
    share = float(np.mean(abs(ends - 2) < 0.5))
    quantity, note = (
        "share that ends with h lambda_max between 1.5 and 2.5",
        f"{note}; median end {np.median(ends):.2f}",
    )
    return Finding(claim, where, quantity, share, len(ends), judged(share > 0.5), hovering.interval, note, id=id)


def slug(words: str) -> str:
    """Words as a part of an id.

    >>> slug("digits tanh, 2x32")
    'digits-tanh-2x32'
    """
    return "-".join(re.findall("[a-z0-9]+", words.lower()))
