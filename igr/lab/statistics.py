"""Rank correlations between what models are and how they do, with intervals by resampling whole models.

Ranks, because the quantities span decades and nothing says that their relation is a line. The interval is the
percentile bootstrap over *models* (Efron 1979): a model enters a resample with all its numbers or not at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Estimate:
    """A number, its 95 % interval and the count of models behind it."""

    value: float
    low: float
    high: float
    n: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval, or None where there is none."""
        return (self.low, self.high) if np.isfinite([self.low, self.high]).all() else None

    def sign(self) -> int:
        """+1 or -1 where the interval excludes zero, else 0."""
        return int(np.sign(self.value)) if self.low * self.high > 0 else 0


def spearman(x: np.ndarray, y: np.ndarray) -> Any:
    """Spearman's correlation along the last axis: Pearson's, of the ranks; ties share their mean rank.

    >>> round(float(spearman(np.array([1.0, 10.0, 100.0]), np.array([3.0, 2.0, 1.0]))), 12)
    -1.0
    """
    return _pearson(stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1))


def partial_spearman(x: np.ndarray, y: np.ndarray, given: np.ndarray) -> Any:
    r"""Spearman's correlation of x and y given a third quantity: what is left of it between models of equal `given`.

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


def student(values: np.ndarray) -> Estimate:
    r"""The mean of a few independent numbers with its 95 % interval, $\bar x \pm t_{n-1}\, s / \sqrt n$.

    For differences between seeds: three numbers are too few to resample. With fewer than three there is no interval.

    >>> e = student(np.array([1.0, 2.0, 3.0]))
    >>> round(e.value, 3), round(e.low, 3), round(e.high, 3), e.sign()
    (2.0, -0.484, 4.484, 0)
    """
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    n, mean = len(values), float(values.mean()) if len(values) else float("nan")
    if n < 3:
        return Estimate(mean, float("nan"), float("nan"), n)
    reach = float(stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - reach, mean + reach, n)


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
    least: int = 5,
) -> Estimate:
    """A statistic of columns that have a row a network, with its 95 % percentile interval over resampled models.

    `by` names the model of each network: networks that differ in their seed alone are one model, drawn together, since
    three seeds of one learning rate are not three independent learning rates. Rows with a value that is not finite are
    left out. With fewer than `least` models there is no interval, with fewer than three networks no value. The
    statistic must act along the last axis, so that resamples of one length are computed together.
    """
    table = np.stack([np.asarray(column, float) for column in columns])
    good = np.isfinite(table).all(axis=0)
    table = table[:, good]
    labels = np.arange(table.shape[1]) if by is None else np.unique(np.asarray(by)[good], return_inverse=True)[1]
    n, models = table.shape[1], [np.flatnonzero(labels == k) for k in np.unique(labels)]
    value = float(statistic(*table)) if n >= 3 else float("nan")
    if n < 3 or len(models) < least:
        return Estimate(value, float("nan"), float("nan"), n)
    rng = np.random.default_rng(seed)
    picks = [np.concatenate([models[k] for k in rng.integers(0, len(models), len(models))]) for _ in range(resamples)]
    lengths = {len(pick) for pick in picks}
    batches = [np.stack([pick for pick in picks if len(pick) == length]) for length in sorted(lengths)]
    draws = np.concatenate([statistic(*table[:, batch]) for batch in batches])
    draws = draws[np.isfinite(draws)]
    low, high = np.quantile(draws, [0.025, 0.975]) if draws.size else (np.nan, np.nan)
    return Estimate(value, float(low), float(high), n)
