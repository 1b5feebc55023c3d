"""Correlations within strata: planted effects, none, and reversals that a correlation over all networks gets wrong."""

import numpy as np
import pytest

from igr.lab.analysis.correlation import correlation
from igr.lab.analysis.findings import Verdict
from igr.lab.analysis.strata import stratified, within

WIDTHS = np.repeat([50, 100, 200, 400, 800, 1600], 15)
RATES = np.tile(np.repeat([0.1, 0.05, 0.01, 0.005, 0.001], 3), 6)


def networks(effect, confound=0.0, scatter=0.5, seed=0):
    """Six widths, five rates, three seeds; y changes by `effect` per decade of h and by `confound` per octave of width.

    Seeds of a model share a deviation of size `scatter`, as trainings at one rate do; wide networks have larger rates.
    """
    rng = np.random.default_rng(seed)
    octave = np.log2(WIDTHS / 50)
    rate = RATES * 2.0 ** (2 * octave if confound else 0)
    shared = np.repeat(rng.normal(size=30), 3)
    y = effect * np.log10(RATES) + confound * octave + scatter * shared + 0.1 * rng.normal(size=90)
    return {
        "width": WIDTHS, "learning_rate": rate, "batch_size": np.full(90, 32), "activation": np.full(90, "relu"),
        "mu": np.zeros(90), "y": y,
    }  # fmt: skip


def judged(table, expected=-1):
    return within("a", "", "", table, "learning_rate", "y", "width", expected)


@pytest.mark.parametrize(("effect", "verdict"), [(-1.0, Verdict.HOLDS), (1.0, Verdict.FAILS)])
def test_a_planted_effect_is_found_in_every_stratum(effect, verdict):
    found = judged(networks(effect))
    assert found.verdict == verdict
    assert found.n == 90
    assert found.note.count(": ") == 6
    assert found.p < 0.01


def test_none_is_found_where_none_is_planted():
    found = [stratified(t["learning_rate"], t["y"], t["width"], np.repeat(np.arange(30), 3), 300)
             for t in (networks(0.0, seed=seed) for seed in range(40))]  # fmt: skip
    assert sum(each.estimate.sign() != 0 for each in found) <= 7  # 5 % of 40 is 2; more than 7 has a chance of 0.1 %
    assert sum(each.p < 0.05 for each in found) <= 6
    assert np.mean([each.p for each in found]) == pytest.approx(0.5, abs=0.15)


def test_seeds_that_share_a_deviation_are_not_independent_evidence():
    """With each network as its own cluster, chance is found to be an effect; the planted scatter is that of rates."""
    tables = [networks(0.0, scatter=2.0, seed=seed) for seed in range(30)]
    alone = [stratified(t["learning_rate"], t["y"], t["width"], np.arange(90), 300).p < 0.05 for t in tables]
    together = [stratified(t["learning_rate"], t["y"], t["width"], np.repeat(np.arange(30), 3), 300).p < 0.05
                for t in tables]  # fmt: skip
    assert sum(together) <= 5
    assert sum(alone) >= 8


def test_a_reversal_between_strata_fails_the_marginal_rule_and_not_this_one():
    """Simpson's paradox: y falls with h at each width, and wide networks have both larger rates and larger y."""
    table = networks(-1.0, confound=2.0)
    marginal = correlation("a", "", "", table, "learning_rate", "y", -1)
    assert marginal.verdict == Verdict.FAILS, "over all widths y seems to grow"
    assert judged(table).verdict == Verdict.HOLDS


def test_an_effect_of_the_width_alone_is_not_taken_for_one_of_the_rate():
    table = networks(0.0, confound=2.0)
    assert correlation("a", "", "", table, "learning_rate", "y", +1).verdict == Verdict.HOLDS
    assert judged(table, +1).verdict == Verdict.MIXED


def test_strata_that_cannot_speak_are_left_out():
    table = networks(-1.0)
    table["y"][(table["width"] == 50) & (table["learning_rate"] > 0.005)] = np.nan  # two rates are left
    found = judged(table)
    assert "50: " not in found.note.replace("250: ", "")
    assert found.n == 75
    nothing = judged({name: values[:3] for name, values in table.items()})
    assert (nothing.verdict, nothing.value, nothing.n) == (Verdict.UNTESTABLE, None, 0)


def test_the_note_has_the_partial_correlation_over_all_strata():
    """One number without strata, beside the mean of those within: a linear confounder is out of it too."""
    found = judged(networks(-1.0, confound=0.5))
    assert found.verdict == Verdict.HOLDS
    assert float(found.note.rsplit("given width ", 1)[1]) < -0.5
