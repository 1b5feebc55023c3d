import numpy as np
import pytest
from scipy import stats

from igr.lab.analysis.statistics import LEAST, LEAST_BCA, bootstrap, partial_spearman, spearman


def test_spearman_is_scipys_with_ties():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, 50).astype(float), rng.normal(size=50)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    assert np.isnan(spearman(np.ones(5), np.arange(5.0)))


def test_partial_spearman_is_the_correlation_of_what_the_third_does_not_explain():
    rng = np.random.default_rng(1)
    x, y, z = rng.normal(size=(3, 300))
    y = y + z
    x = x - z
    ranks = [stats.rankdata(v) for v in (x, y, z)]
    residual = [v - np.polyval(np.polyfit(ranks[2], v, 1), ranks[2]) for v in ranks[:2]]
    assert partial_spearman(x, y, z) == pytest.approx(np.corrcoef(residual)[0, 1], abs=1e-12)
    assert np.isnan(partial_spearman(x, z, z))


def models(effect, rng, n=42):
    """A planted world: lambda drives R_IG down, and drives accuracy by `effect`."""
    rate = rng.normal(size=n)
    r_ig = -rate + 0.3 * rng.normal(size=n)
    return rate, r_ig, effect * rate + rng.normal(size=n)


def test_a_planted_effect_is_found():
    signs = []
    for seed in range(20):
        rate, _, accuracy = models(1.5, np.random.default_rng(seed))
        signs.append(bootstrap(spearman, rate, accuracy, resamples=200).sign())
    assert signs.count(1) >= 19


def test_none_is_found_where_none_is_planted():
    found = 0
    for seed in range(60):
        rate, _, accuracy = models(0.0, np.random.default_rng(seed))
        found += bootstrap(spearman, rate, accuracy, resamples=200).sign() != 0
    assert found <= 8  # 5 % of 60 is 3; more than 8 would have a chance below 1 %


def test_a_mediated_correlation_vanishes_given_the_mediator():
    plain, partial = [], []
    for seed in range(20):
        rate, r_ig, accuracy = models(1.5, np.random.default_rng(seed), n=200)
        plain.append(bootstrap(spearman, accuracy, r_ig, resamples=200).sign())
        partial.append(bootstrap(partial_spearman, accuracy, r_ig, rate, resamples=200).sign())
    assert plain == [-1] * 20
    assert partial.count(0) >= 16


def test_the_interval_covers_and_shrinks():
    rng = np.random.default_rng(3)
    x = rng.normal(size=400)
    y = x + rng.normal(size=400)
    wide, narrow = (bootstrap(spearman, x[:n], y[:n], resamples=400) for n in (25, 400))
    for estimate in (wide, narrow):
        assert estimate.low < 0.69 < estimate.high  # 6/pi arcsin(rho/2) at rho = 0.707
    assert narrow.high - narrow.low < 0.5 * (wide.high - wide.low)


def test_few_or_unusable_models_give_no_interval():
    x = np.array([1.0, 2.0, 3.0, np.nan])
    few = bootstrap(spearman, x, x)
    assert (few.value, few.n, few.interval) == (pytest.approx(1.0), 3, None)
    assert few.sign() == 0
    assert bootstrap(spearman, x[:2], x[:2]).n == 2
    assert np.isnan(bootstrap(spearman, x[:2], x[:2]).value)


def test_copies_of_a_model_are_not_more_evidence():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, 20))
    alone = bootstrap(spearman, x, y)
    copies = [np.repeat(v, 10) for v in (x, y)]
    together = bootstrap(spearman, *copies, by=np.repeat(np.arange(20), 10))
    pretended = bootstrap(spearman, *copies)
    assert together.value == pytest.approx(alone.value)
    assert together.n == 200
    assert together.high - together.low > 0.8 * (alone.high - alone.low)
    assert pretended.high - pretended.low < 0.5 * (alone.high - alone.low)


def test_the_interval_is_scipys_bca_where_each_network_is_a_cluster():
    """On a skewed statistic, where percentiles are wrong: the variance of a sample of exponential numbers."""

    def variance(x, axis=-1):
        return x.var(axis=axis)

    x = np.random.default_rng(5).exponential(size=40)
    ours = bootstrap(variance, x, resamples=10_000)
    theirs, percentiles = (
        stats.bootstrap((x,), variance, method=method, rng=np.random.default_rng(6)).confidence_interval
        for method in ("BCa", "percentile")
    )
    assert ours.method == "BCa"
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), rel=0.03)
    assert (ours.low, ours.high) != pytest.approx(tuple(percentiles), rel=0.1)


def test_with_few_clusters_the_interval_is_one_of_percentiles_and_says_so():
    rng = np.random.default_rng(8)
    x = rng.normal(size=3 * LEAST_BCA)
    y, by = x + rng.normal(size=len(x)), np.repeat(np.arange(LEAST_BCA), 3)
    enough, few = bootstrap(spearman, x, y, by=by), bootstrap(spearman, x, y, by=np.minimum(by, LEAST_BCA - 2))
    assert (enough.method, enough.remark()) == ("BCa", "")
    assert (few.method, few.remark()) == ("percentile", f"percentile interval (only {LEAST_BCA - 1} clusters)")
    none = bootstrap(spearman, x, y, by=np.minimum(by, LEAST - 2))
    assert (none.interval, none.method, none.sign()) == (None, "", 0)
    order = np.arange(40.0)
    same = bootstrap(spearman, order, order)
    assert (same.low, same.high, same.sign()) == (1.0, 1.0, 1)
    assert "resamples coincide" in same.remark()
