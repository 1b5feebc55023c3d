r"""Rank correlations between what networks are and how they perform, with bootstrap intervals over clusters.

Ranks, because the quantities span decades and their relation need not be a line. The bootstrap resamples *clusters*: a
cluster, such as the seeds of one model, enters a resample with all its networks or not at all. The interval is the
bias-corrected and accelerated one (BCa; Efron 1987, as implemented by `scipy.stats.bootstrap`), where there are enough
clusters for its acceleration, which is a jackknife over clusters; with fewer, it is the percentile interval, extended
to the coefficient where that lies outside.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import stats

LEAST = 5  # clusters for any interval
LEAST_BCA = 15  # clusters for a BCa interval; with 10, simulations had less coverage (88 %) than percentiles (91 %)


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float
    n: int  # networks behind it
    method: str = ""  # of the interval: "BCa", "percentile" or "Student"
    clusters: int = 0  # that the bootstrap resampled

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval, or None where there is none."""
        return (self.low, self.high) if np.isfinite([self.low, self.high]).all() else None

    def sign(self) -> int:
        """+1 or -1 where the whole interval has that sign, else 0."""
        return int(np.sign(self.low)) if self.interval and self.low * self.high > 0 else 0

    def remark(self) -> str:
        """A few words for the reader where the interval is not the usual BCa interval, else nothing."""
        if self.method != "percentile":
            return ""
        why = f"only {self.clusters} clusters" if self.clusters < LEAST_BCA else "no BCa interval as resamples coincide"
        return f"percentile interval ({why})"


def words_without(values: np.ndarray, judge: Callable[[Estimate], str]) -> str:
    """How the verdict changes with each of the values left out, in words; `judge` gives the verdict of an estimate.

    >>> words_without(np.array([1.0, 2.0, 3.0]), lambda e: "holds" if e.low > 0 else "mixed")
    'with one seed left out: 2.5 mixed, 2 mixed, 1.5 mixed'
    """
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    parts = [student(np.delete(values, k), least=2) for k in range(len(values))]
    return "with one seed left out: " + ", ".join(f"{each.value:.3g} {judge(each)}" for each in parts)


def spearman(x: np.ndarray, y: np.ndarray) -> Any:
    """Spearman's correlation of `x` and `y` along the last axis: Pearson's correlation of the ranks.

    Ties share their mean rank.

    >>> round(float(spearman(np.array([1.0, 10.0, 100.0]), np.array([3.0, 2.0, 1.0]))), 12)
    -1.0
    """
    return _pearson(stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1))


def partial_spearman(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> Any:
    r"""Spearman's correlation of `x` and `y` after a linear regression of their ranks on the ranks of `given`.

    $$r_{xy|z} = \frac{r_{xy} - r_{xz} r_{yz}}{\sqrt{(1 - r_{xz}^2)(1 - r_{yz}^2)}}$$

    >>> z = np.arange(40.0)
    >>> wiggle = np.tile([1.0, -1.0, -1.0, 1.0], 10)
    >>> x, y = z + 3 * wiggle, z - 3 * wiggle
    >>> round(float(spearman(x, y)), 2), round(float(partial_spearman(x, y, z)), 2)
    (0.88, -0.92)
    """
    x, y, z = (stats.rankdata(v, axis=-1) for v in (x, y, given))
    xy, xz, yz = _pearson(x, y), _pearson(x, z), _pearson(y, z)
    rest = (1 - xz**2) * (1 - yz**2)
    return np.where(rest > 1e-12, (xy - xz * yz) / np.sqrt(np.maximum(rest, 1e-12)), np.nan)


def student(values: np.ndarray, least: int = 3) -> Estimate:
    r"""The mean of a few independent numbers with its 95 % interval, $\bar x \pm t_{n-1}\, s / \sqrt n$.

    For differences between seeds: three `values` are too few to resample. With fewer than `least` there is no interval.
    The interval assumes that the numbers are normally distributed, which three numbers cannot show.

    >>> e = student(np.array([1.0, 2.0, 3.0]))
    >>> round(e.value, 3), round(e.low, 3), round(e.high, 3), e.sign()
    (2.0, -0.484, 4.484, 0)
    """
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    n, mean = len(values), float(values.mean()) if len(values) else float("nan")
    if n < max(least, 2):
        return Estimate(mean, float("nan"), float("nan"), n)
    reach = float(stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - reach, mean + reach, n, "Student")


def student_p(values: np.ndarray, against: float = 0.0) -> float:
    """The two-sided p value of Student's test that the mean of `values` is `against`; NaN with fewer than three.

    >>> round(student_p(np.array([1.0, 2.0, 3.0])), 3)
    0.074
    """
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    if len(values) < 3 or values.std() == 0:
        return float("nan")
    _, p = stats.ttest_1samp(values, against)
    return float(np.asarray(p))


def exchange_p(
    x: np.ndarray, y: np.ndarray, by: np.ndarray, given: np.ndarray | None = None, count: int = 4999, seed: int = 0
) -> float:
    """The two-sided p value of a rank correlation by a permutation test that exchanges whole clusters.

    `by` names the cluster of each row, as in `bootstrap`. With `given` the ranks are those that a linear regression on
    the ranks of `given` leaves. There are `count` permutations, drawn with `seed`; rows with a value that is not finite
    are left out. NaN with fewer than `LEAST` clusters.

    >>> x = np.repeat(np.arange(8.0), 3)
    >>> exchange_p(x, x + 0.1, by=x) < 0.001, exchange_p(x, np.tile([1.0, 2.0, 3.0], 8), by=x)
    (True, 1.0)
    """
    columns = np.stack([np.asarray(v, float) for v in (x, y, *([] if given is None else [given]))])
    good = np.isfinite(columns).all(axis=0)
    ranks, names = stats.rankdata(columns[:, good], axis=-1), np.asarray(by)[good]
    clusters = [np.flatnonzero(names == name) for name in np.unique(names)]
    if len(clusters) < LEAST:
        return float("nan")
    ranks = ranks - ranks.mean(axis=1, keepdims=True)
    if given is not None and (ranks[2] ** 2).sum() > 0:
        ranks[:2] -= np.outer(ranks[:2] @ ranks[2] / (ranks[2] @ ranks[2]), ranks[2])
    a, b = ranks[:2]
    scale = np.sqrt((a @ a) * (b @ b))
    if scale == 0:
        return float("nan")
    rows = np.concatenate(clusters)
    others = b[rows[exchanged(clusters, count, np.random.default_rng(seed))]]
    exceed = np.abs(others @ a[rows]) >= abs(a @ b) - 1e-12 * scale
    return float((1 + exceed.sum()) / (1 + count))


def exchanged(clusters: list[np.ndarray], count: int, rng: Any) -> np.ndarray:
    """`count` orders of the rows of all clusters in which the clusters are exchanged and their rows stay neighbours."""
    cluster = np.repeat(np.arange(len(clusters)), [len(rows) for rows in clusters])
    keys = rng.permuted(np.tile(np.arange(len(clusters)), (count, 1)), axis=1)[:, cluster]
    return np.argsort(keys + rng.random(keys.shape), axis=1)  # within a cluster the order is random too


def holm(ps: Any) -> np.ndarray:
    """The p values after Holm's correction for their number; NaN stays NaN and is not counted.

    >>> holm(np.array([0.01, 0.04, np.nan, 0.03])).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    ps = np.asarray(ps, float)
    known = np.flatnonzero(np.isfinite(ps))
    order = known[np.argsort(ps[known], kind="stable")]
    adjusted = np.full(len(ps), np.nan)
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * ps[order]))
    return adjusted


def _pearson(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    scale = np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))
    return np.where(scale > 0, (x * y).sum(axis=-1) / np.where(scale > 0, scale, 1), np.nan)


def bootstrap(
    statistic: Callable[..., Any],
    *columns: np.ndarray,
    by: np.ndarray | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """A statistic of `columns`, which have one row per network, with its 95 % interval over resampled clusters.

    `statistic` takes the columns and acts along their last axis, so that resamples of one length are computed together.
    `by` names the cluster of each row: networks that differ in their seed alone form one cluster, since three seeds of
    one learning rate are not three independent learning rates. Without it each row is a cluster. `resamples` is the
    number of resamples, drawn with `seed`. Rows with a value that is not finite are left out. With fewer than `LEAST`
    clusters there is no interval, with fewer than three rows no value.
    """
    table = np.stack([np.asarray(column, float) for column in columns])
    good = np.isfinite(table).all(axis=0)
    table = table[:, good]
    labels = np.arange(table.shape[1]) if by is None else np.unique(np.asarray(by)[good], return_inverse=True)[1]
    n, clusters = table.shape[1], [np.flatnonzero(labels == k) for k in np.unique(labels)]
    value = float(statistic(*table)) if n >= 3 else float("nan")
    if n < 3 or len(clusters) < LEAST:
        return Estimate(value, float("nan"), float("nan"), n, clusters=len(clusters))

    def of_clusters(picks: np.ndarray) -> np.ndarray:
        return by_length(statistic, table, [np.concatenate([clusters[k] for k in pick]) for pick in picks])

    return interval(of_clusters, value, n, len(clusters), resamples, seed)


def by_length(statistic: Callable[..., Any], table: np.ndarray, rows: list[np.ndarray]) -> np.ndarray:
    """`statistic` of the columns of `table` at each of some lists of `rows`; lists of one length are done together."""
    lengths, values = np.array([len(each) for each in rows]), np.empty(len(rows))
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        values[same] = statistic(*table[:, np.stack([rows[i] for i in same])]) if length else np.nan
    return values


def interval(
    of_clusters: Callable[[np.ndarray], np.ndarray],
    value: float,
    n: int,
    clusters: int,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """The 95 % interval of a statistic of clusters: BCa with at least `LEAST_BCA` of them, else percentiles.

    `of_clusters` takes lines of cluster numbers from 0 to `clusters` - 1 and returns the statistic of each line;
    `value` is that of all clusters and `n` the number of networks in them. There are `resamples` lines, drawn with
    `seed`.
    """
    rng, whole = np.random.default_rng(seed), np.arange(clusters)
    draws = of_clusters(rng.integers(0, clusters, (resamples, clusters)))
    draws = draws[np.isfinite(draws)]
    if not draws.size:
        return Estimate(value, float("nan"), float("nan"), n, clusters=clusters)
    if clusters >= LEAST_BCA:

        def statistic(picks: np.ndarray, axis: int = -1) -> np.ndarray:
            picks = np.asarray(picks).astype(int)
            return of_clusters(picks.reshape(-1, picks.shape[-1])).reshape(picks.shape[:-1])

        with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
            warnings.simplefilter("ignore")  # a degenerate one is NaN, which is looked for below
            found = stats.bootstrap(
                (whole,), statistic, n_resamples=0, vectorized=True, method="BCa",
                bootstrap_result=SimpleNamespace(bootstrap_distribution=draws),  # pyright: ignore[reportArgumentType]
            ).confidence_interval  # fmt: skip
        if np.isfinite([found.low, found.high]).all():
            return Estimate(value, float(found.low), float(found.high), n, "BCa", clusters)
    low, high = np.quantile(draws, [0.025, 0.975])  # with few clusters most resamples repeat some, and may lie beside
    return Estimate(value, min(float(low), value), max(float(high), value), n, "percentile", clusters)
