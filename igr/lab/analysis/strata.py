r"""Correlations within strata: what is left of a relation among networks that agree in another quantity.

A correlation over networks of many widths and learning rates mixes the relation of interest with the effects of width
and rate, and can have the opposite sign of the relation at each width (Simpson's paradox). The stratified coefficient
is the mean over strata $s$, such as the widths, of Spearman's correlation within each,

$$\bar r = \frac1S \sum_{s=1}^{S} r_s(x, y),$$

with two assessments of chance. The interval resamples clusters, such as the seeds of one model, within each stratum. A
stratum has few clusters, so that resamples repeat some of them and have weaker correlations than the networks
themselves. The interval therefore is the percentile interval on Fisher's scale, artanh r, moved so that its median is
the coefficient. The permutation test exchanges the y values of whole clusters within each stratum; its p value is
two-sided.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from igr.lab.analysis.cohort import Cohort
from igr.lab.analysis.correlation import models, verdict
from igr.lab.analysis.findings import Finding
from igr.lab.analysis.statistics import LEAST as LEAST_ALL
from igr.lab.analysis.statistics import Estimate, by_length, exchanged, partial_spearman, spearman

LEAST = 3  # values of x in a stratum that counts, and clusters in it
LARGEST = 1 - 1e-6  # a correlation beyond this is taken for it on Fisher's scale, where 1 is infinity


@dataclass(frozen=True)
class Stratified:
    """A mean of within-stratum correlations, with the coefficient of each stratum."""

    estimate: Estimate
    p: float  # of the stratified permutation test, two-sided
    strata: dict[Any, float]

    def remark(self) -> str:
        """The coefficients of the strata and the p value in words."""
        listed = ", ".join(f"{name:g}: {value:.2f}" for name, value in self.strata.items())
        return f"by stratum {listed}; stratified permutation test p = {self.p:.2g}"


def stratified(
    x: np.ndarray,
    y: np.ndarray,
    stratum: np.ndarray,
    by: np.ndarray,
    resamples: int = 2000,
    seed: int = 0,
    statistic: Callable[..., Any] = spearman,
) -> Stratified:
    """The mean over strata of the correlation of `x` and `y`, which have one row per network.

    `stratum` is the value that networks of one stratum share, and `by` the name of each network's cluster. Rows with a
    value that is not finite are left out, and so are strata with fewer than `LEAST` clusters or values of x.
    `resamples` is the number of resamples and of permutations, drawn with `seed`. `statistic` acts along the last axis.

    >>> x, width = np.tile(np.arange(6.0), 2), np.repeat([1, 2], 6)
    >>> y = -x + 20 * (width - 1)  # falls at each width, and both the width and y are larger in the second half
    >>> stratified(x, y, width, by=np.arange(12)).estimate.value
    -1.0
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    good = np.isfinite(x) & np.isfinite(y)
    groups = [(name, _clusters(good & (stratum == name), by)) for name in np.unique(stratum[good])]
    groups = [(name, c) for name, c in groups if len(c) >= LEAST and len(np.unique(x[np.concatenate(c)])) >= LEAST]
    count, n = sum(len(c) for _, c in groups), sum(len(rows) for _, c in groups for rows in c)
    if not groups:
        return Stratified(Estimate(float("nan"), float("nan"), float("nan"), 0), float("nan"), {})
    edges = np.cumsum([0, *(len(c) for _, c in groups)])
    ranges = list(pairwise(edges))
    clusters, columns = [rows for _, c in groups for rows in c], np.stack([x, y])

    def mean(picks: np.ndarray) -> np.ndarray:
        """The stratified coefficient of each line of cluster numbers; a stratum has its own columns of a line."""
        parts = []
        for low, high in ranges:
            mine, lines = clusters[low:high], picks[:, low:high] - low
            if len({len(rows) for rows in mine}) == 1:
                rows = np.stack(mine)[lines].reshape(len(lines), -1)
                parts.append(statistic(x[rows], y[rows]))
            else:
                parts.append(by_length(statistic, columns, [np.concatenate([mine[k] for k in line]) for line in lines]))
        return _mean(parts)

    def draw(rng: Any) -> np.ndarray:
        return np.hstack([rng.integers(low, high, (resamples, high - low)) for low, high in ranges])

    each = [by_length(statistic, columns, [np.concatenate(clusters[low:high])])[0] for low, high in ranges]
    value = float(_mean(np.array(each)[:, None])[0])
    rng, parts = np.random.default_rng(seed + 1), []
    for low, high in ranges:
        rows = np.concatenate(clusters[low:high])
        others = rows[exchanged(clusters[low:high], resamples, rng)]
        parts.append(statistic(np.broadcast_to(x[rows], others.shape), y[others]))
    exceed = np.abs(_mean(parts)) >= abs(value) - 1e-12
    return Stratified(
        _centred(mean(draw(np.random.default_rng(seed))), value, n, count),
        float((1 + exceed.sum()) / (1 + resamples)),
        dict(zip((name for name, _ in groups), map(float, each), strict=True)),
    )


def _centred(draws: np.ndarray, value: float, n: int, clusters: int) -> Estimate:
    """The percentile interval of `draws` on Fisher's scale, moved to have the median at `value`."""
    fisher = np.arctanh(np.clip(draws[np.isfinite(draws)], -LARGEST, LARGEST))
    if clusters < LEAST_ALL or not fisher.size:
        return Estimate(value, float("nan"), float("nan"), n, clusters=clusters)
    shift = np.arctanh(np.clip(value, -LARGEST, LARGEST)) - np.median(fisher)
    low, high = np.tanh(np.quantile(fisher, [0.025, 0.975]) + shift)
    return Estimate(value, float(low), float(high), n, "centred", clusters)


def _mean(parts: Any) -> np.ndarray:
    """The mean over strata, without those that have no coefficient."""
    parts = np.stack(parts)
    known = np.isfinite(parts)
    return np.where(known, parts, 0).sum(axis=0) / np.where(known.any(axis=0), known.sum(axis=0), np.nan)


def _clusters(mask: np.ndarray, by: np.ndarray) -> list[np.ndarray]:
    """The rows of each cluster where `mask` holds."""
    rows = np.flatnonzero(mask)
    return [rows[by[rows] == name] for name in np.unique(by[rows])]


def _finite(*columns: np.ndarray) -> np.ndarray:
    """The columns without the rows in which one of them has a value that is not finite."""
    table = np.stack([np.asarray(column, float) for column in columns])
    return table[:, np.isfinite(table).all(axis=0)]


def within(
    id: str, claim: str, paper: str, table: Cohort, x: str, y: str, stratum: str, expected: int, note: str = ""
) -> Finding:
    """A finding from the correlation of the columns `x` and `y` within the strata of a third column.

    The clusters are the models, whose seeds stay together. `expected` is the sign that the claim predicts; `id`,
    `claim`, `paper` and `note` are those of the finding.
    """
    found = stratified(table[x], table[y], table[stratum], models(table))
    quantity = f"mean within-stratum Spearman({x}, {y} | {stratum})"
    value = found.estimate.value if np.isfinite(found.estimate.value) else None
    if found.strata:
        whole = float(partial_spearman(*_finite(table[x], table[y], table[stratum])))
        partial = f"partial correlation given {stratum} {whole:.2f}" if np.isfinite(whole) else ""
        note = "; ".join(filter(None, (note, found.remark(), partial)))
    sign = verdict(found.estimate, expected)
    n, interval = found.estimate.n, found.estimate.interval
    return Finding(
        claim, paper, quantity, value, n, sign, interval, note, id=id, p=found.p if value is not None else None
    )
