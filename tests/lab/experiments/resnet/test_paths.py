"""Slopes at equal steps and at equal loss, of planted paths with known answers."""

import numpy as np
import pytest
from planted_resnets import planted, verdicts

from igr.lab.analysis.findings import Verdict
from igr.lab.analysis.levels import slopes_at_equal_loss
from igr.lab.experiments.resnet import grid as resnet
from igr.lab.experiments.resnet.paths import slopes_at_equal_steps
from igr.lab.store.config import Scale
from igr.lab.store.store import Run
from igr.lab.training.config import Shape
from igr.lab.training.stack import StackRun

STEPS = np.array([0, 1, 2, 4, 8, 16])
ID = "resnet.slope-falls-with-h.equal-loss"


def path(h, loss, slope, seed=0, steps=STEPS, diverged=-1):
    """A network whose loss and slope are given at some steps."""
    unit = StackRun(Shape(model="resnet18"), (h,), (0.0,), (seed,))
    metrics = {
        "step": np.asarray(steps), "full": np.ones(len(steps), bool), "seed": np.array([seed]),
        "learning_rate": np.array([h]), "diverged": np.array([diverged]),
        "loss": np.asarray(loss, float)[:, None], "slope": np.asarray(slope, float)[:, None],
    }  # fmt: skip
    return Run(unit, metrics, {})


def decay(speed):
    return np.exp(-speed * STEPS)


def test_at_equal_loss_the_speed_of_a_training_is_out_of_the_comparison():
    slow, fast = decay(0.2), decay(0.5)
    alike = [path(0.1, slow, slow**0.7), path(0.2, fast, fast**0.7)]
    steps, losses = slopes_at_equal_steps(alike), slopes_at_equal_loss(alike)
    assert steps[1] < 0.5 * steps[0], "further down after as many steps"
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    flatter = [alike[0], path(0.2, fast, fast**0.7 / 3)]
    assert np.divide(*slopes_at_equal_loss(flatter)) == pytest.approx(3, rel=1e-12)
    # the losses all pass: from the lower one after the first epoch down to where the slow one ends
    assert losses[0] == pytest.approx(np.exp(0.7 * -(0.5 + 0.2 * 16) / 2), rel=1e-12)


def test_the_first_time_a_loss_was_as_low_counts():
    loss = decay(0.3)
    again = loss.copy()
    again[4] = 1.5 * loss[3]  # up, with a slope that would show
    slope = loss**0.7
    spike = slope.copy()
    spike[4] = 1e6
    plain, other = slopes_at_equal_loss([path(0.1, loss, slope), path(0.2, again, spike)])
    assert other == pytest.approx(plain, rel=1e-12)


def test_networks_without_a_path_have_none_and_decide_nothing():
    loss = decay(0.3)
    usual = [path(0.1, loss, loss), path(0.2, loss, loss)]
    once = path(0.1, loss[-1:], loss[-1:], seed=1, steps=STEPS[-1:])
    broken = np.where(STEPS > 2, np.nan, 5.0 - STEPS)  # falls at first, and never as low as the others
    lost = path(0.4, broken, broken, diverged=4)
    values = slopes_at_equal_loss([*usual, once, lost])
    assert values[:2] == pytest.approx(slopes_at_equal_loss(usual), rel=1e-12)
    assert np.isnan(values[2:]).all()
    assert np.isnan(slopes_at_equal_loss([once, lost])).all()
    apart = [path(0.1, 10 + loss, loss), path(0.2, loss, loss)]
    assert np.isnan(slopes_at_equal_loss(apart)).all(), "no loss that both pass"


@pytest.mark.parametrize(("effect", "verdict"), [(1.0, Verdict.HOLDS), (-1.0, Verdict.FAILS)])
def test_a_planted_effect_is_found_at_equal_loss(effect, verdict):
    found = verdicts(planted(resnet.trials(Scale.QUICK), effect=effect))[ID]
    assert (found.verdict, found.n) == (verdict, 15)


def test_what_only_comes_further_has_smaller_slopes_along_the_path_and_not_at_equal_loss():
    runs = planted(resnet.trials(Scale.QUICK), effect=0.0)
    noise = np.random.default_rng(0)
    for run in runs:
        speed = 1 + np.log10(run.metrics["learning_rate"] / 0.01)  # of the training; its slopes know the loss alone
        run.metrics["loss"] = run.metrics["loss"] ** speed
        run.metrics["slope"] = run.metrics["loss"] ** 0.7 * np.exp(0.01 * noise.normal())
    found = verdicts(runs)
    assert found["resnet.slope-falls-with-h.path"].verdict == Verdict.HOLDS
    assert found[ID].verdict == Verdict.MIXED


def test_paths_of_further_seeds_make_findings_of_their_own_and_change_no_other():
    """They train networks of the grid again, and would count twice."""
    grid = planted(resnet.trials(Scale.QUICK), effect=1.0)
    measured = Shape(model="resnet18").measure.replace(metrics=("batch_r_ig_512",))
    units = [run.config.replace(shape=run.config.shape.replace(measure=measured)) for run in grid[:5]]
    again = [Run(unit, run.metrics, {}) for unit, run in zip(units, grid, strict=False)]
    alone, both = verdicts(grid), verdicts(grid + again)
    assert not any(id.startswith("resnet.paths") for id in alone)
    assert both["resnet.paths.slope-falls-with-h.common-range"].n == 20
    assert both["resnet.paths.slope-falls-with-h.common-range"].verdict == Verdict.HOLDS
    for id, each in alone.items():
        assert (both[id].n, both[id].value) == (each.n, each.value), id
