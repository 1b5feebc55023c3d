"""The ResNet experiment on planted histories: what is there is found, what is not is not, choices follow the runs."""

import dataclasses

import numpy as np
import pytest
from planted_resnets import BEST, HIGH, LARGEST, LOW, PLAN, SMALLEST, both, planted, verdicts

from igr.lab.analysis.exclusions import excluded
from igr.lab.analysis.findings import Verdict
from igr.lab.experiments.resnet import grid as resnet
from igr.lab.experiments.resnet.runs import Outcome, chosen, gains, gradients, outcomes, select, table_rates
from igr.lab.runs.follow_up import rounds
from igr.lab.runs.local import run_units
from igr.lab.store.config import ConfigError, Scale
from igr.lab.store.store import Store
from igr.lab.training.config import Shape

PREDICTIONS = [
    "resnet.r-ig-falls-with-h.max-test",
    "resnet.accuracy-grows-with-h.max-test",
    "resnet.slope-falls-with-h.max-test",
    "resnet.slope-falls-with-h.path",
    "resnet.r-ig-falls-with-h.end",
]
BOOSTS = [f"resnet.penalty-raises-accuracy.h-{h:g}" for h, _ in PLAN.search]


@pytest.mark.parametrize(("sign", "verdict"), [(1, Verdict.HOLDS), (-1, Verdict.FAILS)])
def test_planted_effects_are_found_with_their_sign(sign, verdict):
    found = verdicts(both(effect=sign, boost=0.1 * sign))
    for id in PREDICTIONS + BOOSTS:
        assert found[id].verdict == verdict, found[id]
    assert found["resnet.best-penalty-beats-best-rate"].verdict == verdict


def test_none_are_found_where_none_are_planted():
    every = [verdicts(both(effect=0.0, boost=0.0, seed=seed)) for seed in range(5)]
    for id in (PREDICTIONS[0], PREDICTIONS[1], *BOOSTS):
        assert sum(found[id].verdict == Verdict.MIXED for found in every) >= 4, id


def test_more_than_twelve_points_is_judged_against_twelve():
    id = "resnet.boost-of-12-points"
    small, large = (verdicts(both(boost=boost))[id] for boost in (0.08, 0.2))
    assert (small.verdict, large.verdict) == (Verdict.FAILS, Verdict.HOLDS)
    assert small.interval[1] < 12 < large.interval[0]
    assert small.n == large.n == 3


def test_one_seed_has_a_number_and_no_verdict():
    found = verdicts(planted(resnet.trials(Scale.QUICK)))
    for id in BOOSTS:
        assert found[id].verdict == Verdict.UNTESTABLE
        assert found[id].value == pytest.approx(10, abs=4)
        assert found[id].n == 1


def test_networks_that_do_not_fit_are_counted_and_stay_in():
    runs = both(unfit=(SMALLEST,), lost=(LARGEST,))
    for run in runs:  # `lost` ones had fitted before
        if run.metrics["learning_rate"][0] == LARGEST:
            run.metrics["train_accuracy"][:], run.metrics["best_train_accuracy"][:] = 0.5, 0.5
    for run in runs:
        if run.metrics["learning_rate"][0] == SMALLEST:
            run.metrics["train_accuracy"][:] *= 0.99
            run.metrics["best_train_accuracy"][:] = 0.9
    found = resnet.findings(runs)
    assert (found[0].value, found[0].n, found[0].verdict) == (9, 15, Verdict.MIXED)
    assert found[0].note.startswith("3 diverged; 3 do not; the least training accuracy")
    named = {each.id: each for each in found}
    assert named[PREDICTIONS[0]].n == 12
    assert named[f"{PREDICTIONS[0]}-fitted"].n == 9
    assert len(excluded(runs)) == sum(int(run.metrics["diverged"][0] >= 0) for run in runs)


def test_follow_ups_follow_the_search():
    trials = resnet.trials(Scale.QUICK)
    runs = planted(trials)
    later = resnet.follow_up(Scale.QUICK, None, runs)
    penalized = [unit for unit in later if unit.shape.method == "forward"]
    assert {unit.mus for unit in penalized} == {(BEST,)}
    assert {(u.learning_rates[0], u.seeds[0]) for u in penalized if u.shape.every == 1 and not u.shape.warm_up} == {
        (h, s) for h in (LOW, HIGH) for s in (1, 2)
    }
    assert len({unit.digest() for unit in trials + later}) == len({unit.label for unit in trials + later})
    assert len({unit.digest() for unit in trials + later}) == len(trials + later)
    for run in runs:  # now another mu is the best, at one rate
        if run.metrics["learning_rate"][0] == LOW and run.metrics["mu"][0] == PLAN.mus[2]:
            run.metrics["validation_accuracy"][-1] = 0.99
    changed = resnet.follow_up(Scale.QUICK, None, runs)
    penalized = [unit for unit in changed if unit.shape.method == "forward"]
    assert {unit.mus for unit in penalized if unit.learning_rates == (LOW,)} == {(PLAN.mus[2],)}
    assert {unit.mus for unit in penalized if unit.learning_rates == (HIGH,)} == {(BEST,)}
    assert resnet.findings(runs + planted(changed)), "follow-ups of an older choice are not missed"


@pytest.mark.parametrize("best", [0, 1])
def test_the_first_seed_chooses_the_radius_of_sharpness_aware_minimization(best, monkeypatch):
    radii = (0.05, 0.2)
    monkeypatch.setitem(resnet.PLANS, Scale.QUICK, dataclasses.replace(PLAN, radii=radii))
    runs = planted(resnet.trials(Scale.QUICK))
    for run in runs:
        if run.config.shape.method == "sam":
            run.metrics["validation_accuracy"][-1] = 0.99 if run.config.rhos[0] == radii[best] else 0.1
    ours = [u for u in resnet.follow_up(Scale.QUICK, None, runs) if u.shape.method == "sam"]
    assert [(u.rhos[0], u.seeds[0]) for u in ours] == [(radii[best], 1), (radii[best], 2)]
    cut = [run for run in runs if run.config.shape.method != "sam" or run.config.rhos[0] != radii[1 - best]]
    assert not [u for u in resnet.follow_up(Scale.QUICK, None, cut) if u.shape.method == "sam"], "not all are tried"


def test_what_is_not_finished_decides_nothing():
    options = resnet.Options(other_seeds=1)
    runs = planted(resnet.trials(Scale.QUICK, options))
    assert resnet.follow_up(Scale.QUICK, options, []) == []
    cut = [r for r in runs if (r.metrics["learning_rate"][0], r.metrics["mu"][0]) != (HIGH, PLAN.mus[2])]
    later = resnet.follow_up(Scale.QUICK, options, cut)
    assert {unit.learning_rates for unit in later} == {(LOW,)}
    for run in runs:
        run.metrics["validation_accuracy"] = run.metrics["test_accuracy"] * np.nan
    assert resnet.follow_up(Scale.QUICK, options, runs) == [], "nothing is best where nothing was measured"


def outcome(cost, validation, test, **about):
    usual = {"h": 0.1, "mu": 0.0, "seed": 0, "kind": "plain", "stem": "3x3", "diverged": False, "r_ig": 0.0}
    return Outcome(**usual | about, cost=np.array(cost), validation=np.array(validation), test=np.array(test))


def test_accuracies_are_compared_at_equal_time_and_at_the_best_validation_accuracy():
    ours = outcome([0, 2, 4], [0.1, 0.5, 0.4], [0.1, 0.6, 0.9], kind="penalty", mu=0.1)
    plain = outcome([0, 1, 2, 3, 4, 5, 6], [0.1, 0.2, 0.3, 0.35, 0.33, 0.4, 0.8], [0.1, 0.2, 0.3, 0.5, 0.4, 0.7, 0.9])
    assert ours.best() == (0.5, 0.6)
    assert plain.best(4.0) == (0.35, 0.5)
    assert gains([ours], [plain]) == pytest.approx([10.0])
    assert gains([ours], [dataclasses.replace(plain, seed=1)]).size == 0, "seeds are paired"
    nothing = dataclasses.replace(plain, validation=np.full(7, np.nan))
    assert np.isnan(nothing.best()).all()


def test_a_penalty_at_every_kth_step_costs_one_more_gradient_every_k():
    step = np.array([0, 10, 40])
    shape = Shape(model="resnet18", method="forward", batch_size=32)
    assert gradients(shape.replace(method=""), step).tolist() == [0, 10, 40]
    assert gradients(shape, step).tolist() == gradients(shape.replace(method="sam"), step).tolist() == [0, 20, 80]
    assert gradients(shape.replace(every=4), step).tolist() == [0, 13, 50]
    assert gradients(shape.replace(warm_up=20), step).tolist() == [0, 10, 60]


def test_the_control_has_the_total_rate_of_a_larger_step():
    family = resnet.Family(Scale.PAPER, None)
    assert family.control() == [(0.02, 0.02), (0.02, 0.045)]
    assert [h + 4 * mu for h, mu in family.control()] == pytest.approx(family.plan.larger)
    found = outcomes(planted(resnet.trials(Scale.QUICK)))
    assert table_rates(found) == ([LOW, HIGH], list(PLAN.mus)), "the control's mu is no part of the search"
    assert chosen(found, h=HIGH, mus=table_rates(found)[1]) == BEST
    one = [each for each in found if each.kind == "plain" or each.h == HIGH]
    assert table_rates(one) == ([HIGH], list(PLAN.mus)), "nor where only one rate is finished"
    assert len(select(found, kind="penalty", h=PLAN.rate, seed=0)) == len(PLAN.mus) + 1
    ids = [id for id in verdicts(both()) if id.startswith("resnet.penalty-replaces-step.")]
    assert len(ids) == len(PLAN.larger)


def test_the_paper_plan_is_the_papers_where_it_says_something():
    units = resnet.trials(Scale.PAPER)
    plain = [unit for unit in units if not unit.shape.method]
    grid = [unit for unit in plain if not unit.shape.measure.metrics]
    flat = [unit for unit in plain if "sharpness" in unit.shape.measure.metrics]
    paths = [unit for unit in plain if unit.shape.measure.metrics == ("batch_r_ig_512",)]
    assert (len(grid), len(flat), len(paths)) == (18, 18, 12)
    assert {u.seeds[0] for u in paths} == {1, 2}, "the first seed has its path in the grid"
    assert {u.shape.schedule.epochs for u in paths} == {u.shape.schedule.epochs for u in grid if not u.seeds[0]}
    assert {u.learning_rates[0] for u in grid} >= {0.005, 0.01, 0.05, 0.1, 0.2}
    assert {u.seeds[0] for u in grid} == {0, 1, 2}
    assert {(u.shape.batch_size, u.shape.width, u.shape.stem, u.shape.augment) for u in units} == {
        (512, 64, "3x3", False)
    }
    assert {u.shape.validation for u in units} == {5000}, "all train on the same images"
    assert all(len(unit.seeds) == 1 for unit in units)
    for unit in grid:
        assert unit.shape.measure.images == 0, "R_IG of the whole training set"
        points, full = unit.shape.schedule.points(unit.shape.steps, 45_000 // 512)
        assert points[full][-1] == unit.shape.steps
        assert full.sum() == 1 if unit.seeds[0] else full.sum() >= 9, "one seed has curves: each takes nine epochs"
    rates = {u.learning_rates[0] for u in units if u.shape.method == "forward"}
    assert rates == {0.005, 0.01, 0.02, 0.05} <= {u.learning_rates[0] for u in grid}
    assert [u.seeds[0] for u in units[:6]] == [0] * 6
    labels = [unit.label for unit in units]
    assert len(set(labels)) == len(labels)


def test_options_reach_the_units():
    options = resnet.Options(seeds=1, epochs=3, search_epochs=2, other_seeds=2)
    units = resnet.trials(Scale.QUICK, options)
    epoch = (PLAN.base.train_images - PLAN.base.validation) // PLAN.base.batch_size
    assert {u.shape.steps for u in units} == {3 * epoch, 2 * epoch}
    assert {u.seeds[0] for u in units if not u.shape.method} == {0}
    assert {u.seeds[0] for u in units if u.shape.method == "sam"} == {0}
    later = resnet.follow_up(Scale.QUICK, options, planted(units))
    assert {u.shape.steps for u in later} == {2 * epoch}
    assert {u.seeds[0] for u in later if u.shape.method == "sam"} == {1}
    with pytest.raises(ConfigError, match="must not be negative"):
        resnet.Options(seeds=-1)


def test_a_small_network_trains_and_decides_from_end_to_end(tmp_path):
    """The search of the smoke scale at one rate, really trained; the rest of the trials is not there."""
    store, trials = Store(tmp_path), resnet.trials(Scale.SMOKE)
    assert rounds(store, "resnet", resnet, Scale.SMOKE)[1] == []
    search = [u for u in trials if u.shape.method == "forward" and u.learning_rates == (0.1,)]
    assert len(search) == 2
    assert not run_units(store, "resnet", search).failed
    for unit in search:
        assert np.isfinite(store.folder("resnet", unit).read().metrics["validation_accuracy"]).all()
    later = rounds(store, "resnet", resnet, Scale.SMOKE)[1]
    assert [(u.learning_rates, u.seeds, u.shape.method) for u in later] == [((0.1,), (1,), "forward")]
    assert later[0].mus in [(0.01,), (0.1,)]
