"""What the two-parameter runs say about the paper's claims, from stored runs."""

import numpy as np
from scipy import stats

from igr.lab.analysis.findings import Finding, Verdict, judged
from igr.lab.experiments.two_parameter.model import CONVERGED, TABLE, Descent, Row
from igr.lab.experiments.two_parameter.scans import PenaltyScan, RateScan
from igr.lab.experiments.two_parameter.views import (
    LEAST_NORM,
    distances,
    held_out_error,
    leaps,
    norm,
    path_of,
    pick,
    regimes,
)
from igr.lab.store.store import Run, Table

BEYOND = "not in the paper"


def findings(runs: Table) -> list[Finding]:
    """Each claim with the numbers measured in `runs`; where the runs are missing, the claim is not testable."""
    scan, penalties = pick(runs, RateScan), pick(runs, PenaltyScan)
    return [
        *(finding for row in TABLE for finding in _closer(runs, row)),
        *_falls(scan),
        *_ricochet(runs),
        *(finding for row in TABLE for finding in _explicit(runs, row, scan)),
        *_test_error(penalties),
        *(finding for row in TABLE for finding in _integrators(runs, row)),
        *_control(runs),
        *_phases(scan),
    ]


def _missing(id: str, claim: str, paper: str) -> list[Finding]:
    return [Finding(claim, paper, "no stored run", None, 0, Verdict.UNTESTABLE, id=id)]


def _closer(runs: Table, row: Row) -> list[Finding]:
    id = f"two-parameter.closer-to-modified-flow.start-{row.name.lower()}"
    claim = f"From start {row.name}, gradient descent at h_M is closer to the modified flow than to the gradient flow"
    accurate, euler = distances(runs, row, accurate=True), distances(runs, row, accurate=False)
    if accurate is None or euler is None:
        return _missing(id, claim, "Figure 1a")
    return [
        Finding(
            claim,
            "Figure 1a",
            f"ratio of the {which} distances",
            value,
            len(accurate.steps),
            judged(value < 1),
            note=f"{near:.3g} against {far:.3g}; with the paper's Euler steps for both flows {other:.3g}",
            id=f"{id}.{which}",
        )
        for which, value, other, near, far in zip(
            ("largest", "final"),
            accurate.ratios(),
            euler.ratios(),
            (accurate.modified.max(), accurate.modified[-1]),
            (accurate.gradient.max(), accurate.gradient[-1]),
            strict=True,
        )
    ]


def _falls(scan: Run | None) -> list[Finding]:
    id = "two-parameter.norm-falls-with-h"
    claim = "R_IG/E and the norm at the end of training fall as h grows, from start I"
    if scan is None:
        return _missing(id, claim, "Figure 1b")
    sorted_, rates = regimes(scan), scan.metrics["learning_rate"]
    found = []
    for part, where, keep in (
        ("no-crossing", "while no step crosses the line of minima", np.isin(sorted_.names, ("lazy", "moderate"))),
        ("converged", "over all rates that converge", sorted_.names != "divergent"),
    ):
        ratio = sorted_.ratio[keep]
        rank = float(np.corrcoef(stats.rankdata(rates[keep]), stats.rankdata(ratio))[0, 1])
        monotone = bool(np.all(np.diff(ratio) < 0))
        best = int(np.argmin(ratio))
        verdict = Verdict.HOLDS if monotone else Verdict.MIXED if rank < 0 else Verdict.FAILS
        note = (
            f"R_IG/E from {ratio[0]:.4g} to {ratio[-1]:.4g} (norm {ratio[0] ** 0.5:.4g} to {ratio[-1] ** 0.5:.4g}), "
            f"least {ratio[best]:.4g} at h = {rates[keep][best]:.4g}"
        )
        words, n = f"{claim}, {where}", int(keep.sum())
        found.append(Finding(words, "Figure 1b", "Spearman", rank, n, verdict, note=note, id=f"{id}.{part}"))
    return found


def _explicit(runs: Table, row: Row, scan: Run | None) -> list[Finding]:
    id = f"two-parameter.explicit-reaches-least-norm.start-{row.name.lower()}"
    claim = f"From start {row.name}, explicit regularization reaches the flattest minimum, the one of least norm"
    gradient, accurate = (path_of(runs, row, mu, accurate=True) for mu in (0.0, row.mu))
    euler = path_of(runs, row, row.mu, accurate=False)
    descent = pick(runs, Descent, start=row.start, mu=0.0, learning_rate=row.moderate)
    if gradient is None or accurate is None or euler is None or descent is None:
        return _missing(id, claim, "Figure 1a")

    def closed(value: float) -> float:
        return float((norm(gradient) - value) / (norm(gradient) - LEAST_NORM))

    share, implicit = closed(norm(accurate)), closed(norm(descent))
    verdict = Verdict.HOLDS if share > 0.95 else Verdict.MIXED if share > implicit else Verdict.FAILS
    found = [
        Finding(
            claim,
            "Figure 1a",
            "share of the way from the gradient flow's end norm to the least norm",
            share,
            4,
            verdict,
            note=f"norm {norm(accurate):.4g} (Euler steps {norm(euler):.4g}), least {LEAST_NORM:.4g}, gradient flow "
            f"{norm(gradient):.4g}, descent at h_M {norm(descent):.4g}: share {implicit:.3g}",
            id=id,
        )
    ]
    if row.name == "I" and scan is not None:
        sorted_ = regimes(scan)
        keep = sorted_.names != "divergent"
        best = float(np.sqrt(sorted_.ratio[keep].min()))
        at = float(scan.metrics["learning_rate"][keep][np.argmin(sorted_.ratio[keep])])
        found.append(
            Finding(
                "No learning rate reaches minima as flat as explicit regularization does, from start I",
                "section 5",
                "least end norm over the rates / end norm with mu",
                best / norm(accurate),
                int(keep.sum()),
                judged(best > norm(accurate)),
                note=f"h = {at:.4g} ends at norm {best:.4g}, mu = {row.mu} at {norm(accurate):.4g}; that h steps over "
                "the line of minima, outside the range of the modified flow",
                id="two-parameter.no-rate-as-flat-as-explicit",
            )
        )
    return found


def _ricochet(runs: Table) -> list[Finding]:
    row, id, where = TABLE[0], "two-parameter.ricochet", "Figure A.1"
    claim = "At h_L descent steps over the line of minima until it lands where it converges"
    run = pick(runs, Descent, start=row.start, learning_rate=row.large, mu=0.0)
    flow = path_of(runs, row, 0.0, accurate=True)
    if run is None or flow is None:
        return _missing(id, claim, where)
    over, steps = leaps(run), int(run.metrics["step"][-1])
    converged = bool(np.all(run.metrics["outcome"] == CONVERGED))
    note = f"ends at norm {norm(run):.3f}, the gradient flow at {norm(flow):.3f}"
    verdict = judged(over > 0 and converged)
    return [Finding(claim, where, "steps over the line of minima", float(over), steps, verdict, note=note, id=id)]


def _test_error(penalties: Run | None) -> list[Finding]:
    id, claim = "two-parameter.test-error-falls-with-mu", "Test error falls with mu"
    if penalties is None:
        return _missing(id, claim, "Figure A.2")
    metrics, mu = penalties.metrics, penalties.metrics["mu"]
    done = metrics["outcome"] == CONVERGED
    ends = held_out_error(metrics["params"][done])
    fall = float((ends[0] - ends[-1]) / ends[0])
    # Two runs stopped at E < stop_loss differ in a b by up to sqrt(2 stop_loss) / x, whatever mu was.
    blur = 2 * np.sqrt(2 * penalties.config.stop_loss)
    verdict = Verdict.FAILS if abs(fall) < 10 * blur else judged(fall > 0)
    found = [
        Finding(
            f"{claim}, at the end of training",
            "Figure A.2",
            "relative fall from no regularization to the most",
            fall,
            int(done.sum()),
            verdict,
            note=f"test error {ends.min():.7g} to {ends.max():.7g}: every minimum has a b = y/x, so mu cannot matter",
            id=f"{id}.end",
        )
    ]
    at_times = held_out_error(metrics["flow_params"])[:, :-1]
    falls = np.sign(at_times[0] - at_times[-1])
    monotone = [bool(np.all(np.diff(column) < 0)) for column in at_times.T]
    times = metrics["flow_times"][:-1]
    found.append(
        Finding(
            f"{claim}, at a fixed time before the end",
            "Figure A.2",
            "share of the times at which it falls from no mu to the largest",
            float(np.mean(falls > 0)),
            at_times.size,
            Verdict.HOLDS if all(monotone) else Verdict.FAILS if not any(falls > 0) else Verdict.MIXED,
            note=f"falls at t = {', '.join(f'{t:g}' for t in times[falls > 0]) or 'none'}, rises at "
            f"{', '.join(f'{t:g}' for t in times[falls < 0]) or 'none'}: mu changes how soon a b passes y/x' = 1.2, "
            f"where the test error vanishes; largest mu {mu[-1]:g}",
            id=f"{id}.fixed-time",
        )
    )
    return found


def _integrators(runs: Table, row: Row) -> list[Finding]:
    found = []
    for name, mu in (("modified", row.moderate / 2), ("explicit", row.mu)):
        id = f"two-parameter.euler-step-small-enough.{name}-start-{row.name.lower()}"
        claim = f"h_Euler is small enough to follow the {name} flow from start {row.name}"
        accurate, euler = (path_of(runs, row, mu, accurate) for accurate in (True, False))
        if accurate is None or euler is None:
            found += _missing(id, claim, "appendix A.4")
            continue
        gap = norm(euler) / norm(accurate) - 1
        note = f"norm {norm(euler):.4g} by Euler steps, {norm(accurate):.4g} by the accurate solver"
        note += f"; {leaps(euler)} of the Euler steps leap over the line of minima" if leaps(euler) else ""
        quantity = "relative difference of the end norms"
        verdict = judged(abs(gap) < 0.01)
        found.append(Finding(claim, "appendix A.4", quantity, gap, 2, verdict, note=note, id=id))
    return found


def _control(runs: Table) -> list[Finding]:
    row, id = TABLE[1], "two-parameter.mu-multiplies-r-ig"
    claim = "In Table A.1 mu multiplies R_IG: if it multiplied the squared gradient norm, start II would diverge"
    right, twice = (path_of(runs, row, mu, accurate=False) for mu in (row.mu, 2 * row.mu))
    if right is None or twice is None:
        return _missing(id, claim, "Equation 8 and Table A.1")
    losses = twice.metrics["loss"]
    grown = ~(losses <= losses[0])
    steps = int(twice.metrics["step"][np.argmax(grown)]) if grown.any() else 0
    verdict = judged(twice.metrics["outcome"] != CONVERGED and right.metrics["outcome"] == CONVERGED)
    note = f"with R_IG it converges in {int(right.metrics['step'][-1]):,} steps; 0 would mean that E never grew"
    quantity = "first step at which E exceeds its initial value"
    return [Finding(claim, "Equation 8 and Table A.1", quantity, float(steps), 2, verdict, note=note, id=id)]


def _phases(scan: Run | None) -> list[Finding]:
    id = "two-parameter.phases"
    if scan is None:
        return _missing(id, "Theory predicts the boundaries between the phases of the learning rate", BEYOND)
    sorted_, metrics = regimes(scan), scan.metrics
    found = []
    for regime, claim in (
        ("moderate", "The modified flow predicts the first rate that changes R_IG/E by 1 %"),
        ("ricochet", "Steps over the line of minima begin at h lambda_max = 1"),
        ("divergent", "Divergence begins at h lambda_max = 2"),
    ):
        seen, said = sorted_.observed[regime], sorted_.theory[regime]
        verdict = Verdict.UNTESTABLE if not np.isfinite(seen / said) else judged(0.8 < seen / said < 1.25)
        top = seen / sorted_.theory["ricochet"]
        note = f"observed from h = {seen:.4g}, where h lambda_max = {top:.3g}; theory {said:.4g}"
        ratio, n = seen / said, len(metrics["step"])
        found.append(Finding(claim, BEYOND, "observed / theory", ratio, n, verdict, note=note, id=f"{id}.{regime}"))
    ends = metrics["h_sharpness_end"][sorted_.names != "divergent"]
    found.append(
        Finding(
            "A run that converges ends where h lambda_max < 2",
            BEYOND,
            "largest h lambda_max at the end",
            float(ends.max()),
            len(ends),
            judged(bool(np.all(ends < 2))),
            id=f"{id}.end-is-stable",
        )
    )
    return found
