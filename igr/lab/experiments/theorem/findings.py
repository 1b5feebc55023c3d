"""What the paths say about theorem 3.1, from the stored runs alone.

Orders are read off the two smallest learning rates of each network and seed, and a number is the mean over seeds with
Student's interval. An order holds where the whole interval is within `TOLERANCE` of the theorem's, fails where all of
it is farther off, and is mixed otherwise: a finite learning rate shows an order only roughly.
"""

import numpy as np

from igr.lab.analysis.findings import Finding, Verdict, judged, pending
from igr.lab.analysis.statistics import Estimate, student
from igr.lab.experiments.theorem.paths import FLOWS, Paths
from igr.lab.experiments.theorem.plan import trials
from igr.lab.experiments.theorem.views import (
    Architecture,
    architectures,
    lost_at,
    order,
    peak,
    ratio,
    slopes,
    step_order,
)
from igr.lab.store.config import Scale
from igr.lab.store.store import Table

PAPER, BEYOND = "theorem 3.1", "not in the paper: the theorem asks for a smooth loss"
TOLERANCE = 0.15
EDGE = 2.0  # of h lambda_max: gradient descent on a quadratic is stable below


def findings(runs: Table) -> list[Finding]:
    """The orders, the lead of the modified flow and what kinks do, over all networks and for each."""
    found, groups = [], architectures(runs)
    small = [each for each in groups if each.runs[0].config.data == "digits"]
    smooth = [each for each in small if each.smooth]
    if smooth:
        found += [_headline(smooth, flow) for flow in range(3)]
        found += [_closer(smooth), _edge(smooth)]
    for each in groups:
        found += [_order(each, flow) for flow in range(3)] + [_step(each, flow) for flow in range(2)] + [_lead(each)]
    return [*found, *_kinks([each for each in small if not each.smooth], smooth), *_large(runs)]


def _kind(flow: int) -> str:
    return ("gradient-flow", "modified-flow", "modified-flow-order-2")[flow]


def _mean(id: str, claim: str, paper: str, quantity: str, values: np.ndarray, target: float, note: str) -> Finding:
    """A finding from one order for each run, which should be `target`."""
    known, estimate = values[np.isfinite(values)], student(values)
    if not known.size:
        return Finding(claim, paper, quantity, None, 0, Verdict.UNTESTABLE, note="no trusted distance", id=id)
    note = f"{known.min():.3f} to {known.max():.3f}; {note}".removesuffix("; ")
    verdict = _near(estimate, target)
    return Finding(claim, paper, quantity, estimate.value, known.size, verdict, estimate.interval, note, id=id)


def _near(estimate: Estimate, target: float) -> Verdict:
    """Whether the interval says that a number is `target`, up to `TOLERANCE`."""
    if estimate.interval is None:
        return Verdict.UNTESTABLE
    low, high = (end - target for end in estimate.interval)
    if low > -TOLERANCE and high < TOLERANCE:
        return Verdict.HOLDS
    return Verdict.FAILS if low > TOLERANCE or high < -TOLERANCE else Verdict.MIXED


def _headline(smooth: list[Architecture], flow: int) -> Finding:
    claim = f"On smooth networks the distance of descent to the {FLOWS[flow]} at a fixed time is O(h^{flow + 1})"
    values = np.array([order(run, flow) for each in smooth for run in each.runs])
    note = f"{len(smooth)} networks of {len(smooth[0].runs)} seeds, T = {smooth[0].time:g}"
    return _mean(f"theorem.order.{_kind(flow)}.smooth", claim, PAPER, "observed order", values, flow + 1, note)


def _order(network: Architecture, flow: int) -> Finding:
    where = PAPER if network.smooth else BEYOND
    claim = f"The distance of descent to the {FLOWS[flow]} at T = {network.time:g} is O(h^{flow + 1}) ({network.name})"
    values = np.array([order(run, flow) for run in network.runs])
    low, high = network.rates[-1], network.rates[-2]
    note = f"between h = {low:g} and {high:g}"
    id = f"theorem.order.{_kind(flow)}.{network.id}"
    return _mean(id, claim, where, "observed order", values, flow + 1, note)


def _step(network: Architecture, flow: int) -> Finding:
    where = PAPER if network.smooth else BEYOND
    claim = f"The first step of descent misses the {FLOWS[flow]} by O(h^{flow + 2}) ({network.name})"
    values = np.array([step_order(run, flow) for run in network.runs])
    id = f"theorem.one-step-order.{_kind(flow)}.{network.id}"
    return _mean(id, claim, where, "observed order", values, flow + 2, "")


def _closer(smooth: list[Architecture]) -> Finding:
    """How much closer, over all rates below the edge of stability."""
    stable = [ratio(run)[peak(run) < EDGE, -1] for each in smooth for run in each.runs]
    values = np.concatenate(stable)
    claim = "On smooth networks descent ends closer to the modified flow than to the gradient flow, below h lambda = 2"
    quantity = "median ratio of the distances at the final time"
    ahead = f"closer in {int((values < 1).sum())} of {len(values)} paths"
    note = f"{ahead}; ratios from {values.min():.2g} to {values.max():.2g}"
    value = float(np.median(values))
    id = "theorem.closer-to-modified-flow.smooth"
    return Finding(
        claim, f"{PAPER}, figure 1a", quantity, value, len(values), judged(bool((values < 1).all())), note=note, id=id
    )


def _edge(smooth: list[Architecture]) -> Finding:
    """Whether the limit of stability is where the modified flow loses its lead."""
    runs = [run for each in smooth for run in each.runs]
    kept = np.concatenate([np.isnan(lost_at(run)) for run in runs])
    stable = np.concatenate([peak(run) < EDGE for run in runs])
    agree = kept == stable
    claim = "The modified flow keeps its lead exactly where h lambda_max stays below 2 along the path of descent"
    note = (
        f"below 2 it is kept in {int((kept & stable).sum())} of {int(stable.sum())} paths, above 2 in "
        f"{int((kept & ~stable).sum())} of {int((~stable).sum())}"
    )
    verdict = Verdict.HOLDS if agree.all() else Verdict.MIXED if agree.mean() > 0.8 else Verdict.FAILS
    quantity = "share of paths for which this is so"
    where, id = "section 3, the moderate regime", "theorem.lead-ends-at-edge.smooth"
    return Finding(claim, where, quantity, float(agree.mean()), len(agree), verdict, note=note, id=id)


def _lead(network: Architecture) -> Finding:
    """The time until the modified flow loses its lead, by learning rate."""
    lost, largest = np.array([lost_at(run) for run in network.runs]), np.array([peak(run) for run in network.runs])
    words = []
    for i, h in enumerate(network.rates):
        gone = lost[:, i][np.isfinite(lost[:, i])]
        when = f"lost by {len(gone)} of {len(lost)} at T = {np.median(gone):g}" if gone.size else "kept by all"
        words.append(f"h = {h:g} (h lambda up to {np.nanmax(largest[:, i]):.2g}): {when}")
    kept = np.isnan(lost).all(axis=0)
    value = float(network.rates[kept].max()) if kept.any() else None
    claim = f"The modified flow stays closer than the gradient flow up to T = {network.time:g} ({network.name})"
    verdict = Verdict.HOLDS if kept.all() else Verdict.MIXED if kept.any() else Verdict.FAILS
    where, quantity = (PAPER if network.smooth else BEYOND), "largest h at which all seeds keep the lead"
    id = f"theorem.lead.{network.id}"
    return Finding(claim, where, quantity, value, lost.size, verdict, note="; ".join(words), id=id)


def _kinks(kinked: list[Architecture], smooth: list[Architecture]) -> list[Finding]:
    """What kinks do: the lead no longer grows as the learning rate falls."""
    if not kinked:
        return []
    runs = [run for each in kinked for run in each.runs]
    last = np.array([ratio(run)[-1, -1] for run in runs])
    exponent = np.array([slopes(ratio(run)[:, -1], run.metrics["learning_rate"])[-1] for run in runs])
    rates = kinked[0].rates
    crossings = [run.metrics["crossings"][-1, -1] / (run.metrics["time"][-1] / rates[-1]) for run in runs]
    note = f"at h = {rates[-1]:g}; ratios {', '.join(f'{value:.2f}' for value in last)}"
    if smooth:
        others = [ratio(run)[-1, -1] for each in smooth for run in each.runs]
        note += f"; smooth networks {min(others):.2g} to {max(others):.2g}"
    estimate = student(last)
    below = student(last - 1)
    sign = (
        Verdict.UNTESTABLE
        if below.interval is None
        else {-1: Verdict.HOLDS, 1: Verdict.FAILS}.get(below.sign(), Verdict.MIXED)
    )
    closer = Finding(
        "With kinks (ReLU) descent is still closer to the modified flow than to the gradient flow",
        BEYOND, "ratio of the distances at the final time", estimate.value, estimate.n, sign, estimate.interval, note,
        id="theorem.kinks.closer",
    )  # fmt: skip
    words = f"the theorem's exponent is 1; {np.mean(crossings):.3g} units change sides for an image in a step"
    grows = _mean("theorem.kinks.lead-grows", "With kinks (ReLU) the lead of the modified flow grows as 1/h", BEYOND,
                  "observed exponent of the ratio of the distances", exponent, 1.0, words)  # fmt: skip
    return [closer, grows]


def _large(runs: Table) -> list[Finding]:
    """What the plan has at paper scale and is not stored."""
    plan, known = [unit.config for unit in trials(Scale.PAPER)], {run.config for run in runs}
    if not any(config in known for config in plan):
        return []
    rest = [config for config in plan if isinstance(config, Paths) and config.data == "mnist" and config not in known]
    claim = "On smooth networks with 5,000 images the distance to the modified flow is O(h^2)"
    command = 'igr run theorem --scale paper --only "mnist"'
    return [pending("theorem.large.not-computed", claim, PAPER, len(rest), command)] if rest else []
