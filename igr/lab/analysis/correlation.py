"""Findings from rank correlations over trained networks.

The verdict depends on the 95 % interval, a bootstrap over models in which the seeds of a model stay together: `holds`
where the interval lies on the predicted side of zero, `fails` where it lies on the other side, else `mixed`.
"""

import numpy as np

from igr.lab.analysis.cohort import Cohort
from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.analysis.statistics import Estimate, bootstrap, exchange_p, partial_spearman, spearman


def models(table: Cohort) -> np.ndarray:
    """The name of each network's model: the same for seeds of one width, batch size, activation and rates."""
    columns = (table[name].astype(str) for name in ("width", "batch_size", "activation", "learning_rate", "mu"))
    return np.array(["/".join(parts) for parts in zip(*columns, strict=True)])


def verdict(estimate: Estimate, expected: int) -> Verdict:
    """The verdict on a claim that predicts the sign `expected`, +1 or -1."""
    if estimate.interval is None:
        return Verdict.UNTESTABLE
    return {expected: Verdict.HOLDS, -expected: Verdict.FAILS}.get(estimate.sign(), Verdict.MIXED)


def correlation(
    id: str,
    claim: str,
    paper: str,
    table: Cohort,
    x: str,
    y: str,
    expected: int,
    given: str = "",
    note: str = "",
) -> Finding:
    """A finding from the rank correlation of the columns `x` and `y` of `table`, which should have the sign `expected`.

    With `given`, a third column, the correlation is partial. The interval resamples models, and the p value is that of
    a test that exchanges models: seeds of one model are not independent of each other, and neither are those of one
    learning rate where nothing else differs. `id`, `claim`, `paper` and `note` are those of the finding.
    """
    columns = [table[name] for name in (x, y, *([given] if given else []))]
    clusters = models(table)
    estimate = bootstrap(partial_spearman if given else spearman, *columns, by=clusters)
    p = exchange_p(columns[0], columns[1], clusters, columns[2] if given else None)
    quantity = f"{'partial ' if given else ''}Spearman({x}, {y}{f' | {given}' if given else ''})"
    value = estimate.value if np.isfinite(estimate.value) else None
    note = "; ".join(filter(None, (note, estimate.remark())))
    sign, known = verdict(estimate, expected), p if np.isfinite(p) and value is not None else None
    return Finding(claim, paper, quantity, value, estimate.n, sign, estimate.interval, note, id=id, p=known)
