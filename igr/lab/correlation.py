"""Findings from rank correlations over trained networks.

A verdict asks whether the 95 % interval (bootstrap over models, seeds of a model together) lies on the predicted side
of zero: `holds`; on the other side: `fails`; across zero: `mixed`.
"""

import numpy as np

from igr.lab.findings import Finding, Verdict
from igr.lab.history import Cohort
from igr.lab.statistics import Estimate, bootstrap, partial_spearman, spearman


def models(table: Cohort) -> np.ndarray:
    """A name for each network's model: the same for seeds of one width, batch size, activation and rates."""
    columns = (table[name].astype(str) for name in ("width", "batch_size", "activation", "learning_rate", "mu"))
    return np.array(["/".join(parts) for parts in zip(*columns, strict=True)])


def verdict(estimate: Estimate, expected: int) -> Verdict:
    """`holds` where the interval is on the expected side of zero, `fails` where on the other, else `mixed`."""
    if estimate.interval is None:
        return Verdict.UNTESTABLE
    return {expected: Verdict.HOLDS, -expected: Verdict.FAILS}.get(estimate.sign(), Verdict.MIXED)


def correlation(
    claim: str,
    paper: str,
    table: Cohort,
    x: str,
    y: str,
    expected: int,
    given: str = "",
    note: str = "",
    networks: bool = False,
):
    """A finding from a rank correlation of two columns, partial where a third is `given`.

    The interval is over models; with `networks` over networks, for comparisons within a few fixed learning rates.
    """
    columns = [table[name] for name in (x, y, *([given] if given else []))]
    estimate = bootstrap(partial_spearman if given else spearman, *columns, by=None if networks else models(table))
    quantity = f"{'partial ' if given else ''}Spearman({x}, {y}{f' | {given}' if given else ''})"
    value = estimate.value if np.isfinite(estimate.value) else None
    return Finding(claim, paper, quantity, value, estimate.n, verdict(estimate, expected), estimate.interval, note)
