"""The experiment of section 6 on planted histories: an effect that is there is found, one that is not is not."""

import numpy as np
import pytest

from igr.lab.analysis.findings import Verdict
from igr.lab.experiments.mlp import grid as mlp
from igr.lab.plots import style as drawing
from igr.lab.runs.unit import Session
from igr.lab.store.config import ConfigError, Scale
from igr.lab.store.store import Run

COLUMNS = (
    "loss",
    "r_ig",
    "slope",
    "param_norm",
    "train_accuracy",
    "test_loss",
    "test_r_ig",
    "test_slope",
    "test_accuracy",
)


def planted(effect, seed=0, scale=Scale.QUICK, lost=()):
    """Histories as if lambda drove R_IG down and accuracy up by `effect` decades; `lost` rates diverge at step 10."""
    return plant(mlp.trials(scale), effect, seed, lost)


def plant(units, effect, seed=0, lost=()):
    """The same for any units."""
    rng, runs = np.random.default_rng(seed), []
    for unit in units:
        n, m = len(unit.seeds), unit.shape.num_params
        step = np.array([0, 1, 10, 100, unit.shape.steps])
        rate = np.array(unit.learning_rates)
        log_lambda = np.log10(rate * m / 4)
        strength = -effect * log_lambda + 0.2 * rng.normal(size=n)
        decay = np.array([0, 0, 1, 2, 3])[:, None] * np.ones(n)
        r_ig = 10 ** (strength - decay)
        accuracy = np.clip(0.9 - 0.01 * strength + 0.001 * rng.normal(size=n), 0, 1)
        columns = {
            "loss": 10 ** (-decay), "r_ig": r_ig, "slope": np.sqrt(m * r_ig), "param_norm": 1 + decay,
            "train_accuracy": np.array([0.1, 0.2, 0.9, 1, 1])[:, None] * np.ones(n),
            "test_loss": 10 ** (-decay), "test_r_ig": r_ig, "test_slope": np.sqrt(m * r_ig),
            "test_accuracy": np.array([0.1, 0.1, 0.5, 0.9, 1])[:, None] * accuracy[None, :],
        }  # fmt: skip
        gone = np.isin(rate, lost)
        for name in columns:
            columns[name][2:, gone] = np.nan
        metrics = columns | {f"best_{name}": columns[name][-1] for name in COLUMNS}
        metrics |= {
            "step": step, "full": np.ones(5, bool), "learning_rate": rate, "mu": np.array(unit.mus),
            "seed": np.array(unit.seeds), "num_params": np.int64(m), "diverged": np.where(gone, 10, -1),
            "best_step": np.full(n, step[-1]),
        }  # fmt: skip
        if sigmas := unit.shape.noise.sigmas:
            grow = 10 ** np.minimum(np.array(sigmas), 1)[None, :, None]
            metrics["noise_sigma"] = np.array(sigmas)
            metrics["noise_slope"] = metrics["best_slope"][:, None, None] * grow * np.ones((1, 1, 4))
            fall = np.exp(-np.array(sigmas))[None, :, None]
            metrics["noise_test_accuracy"] = accuracy[:, None, None] * fall * np.ones((1, 1, 5))
        runs.append(Run(unit, metrics, {}))
    return runs


def verdicts(runs):
    return {finding.id: finding for finding in mlp.findings(runs)}


EXPECTED = [
    "mlp.r-ig-falls-with-lambda.max-test",
    "mlp.accuracy-grows-with-lambda.max-test",
    "mlp.r-ig-falls-with-h",
    "mlp.slope-falls-with-h.optimum",
    "mlp.accuracy-under-noise-grows-with-h",
    "mlp.tanh.r-ig-falls-with-h",
]


@pytest.mark.parametrize(("effect", "verdict"), [(1.0, Verdict.HOLDS), (-1.0, Verdict.FAILS)])
def test_a_planted_effect_is_found_with_its_sign(effect, verdict):
    found = verdicts(planted(effect))
    for id in EXPECTED:
        assert found[id].verdict == verdict, found[id]
        low, high = found[id].interval or (np.nan, np.nan)
        assert (
            low - 0.02 <= float(found[id].value) <= high + 0.02
        )  # percentiles shrink near 1, where resamples have ties
        assert low * high > 0


def test_none_is_found_where_none_is_planted():
    found = [verdicts(planted(0.0, seed))[EXPECTED[0]].verdict for seed in range(6)]
    assert found.count(Verdict.MIXED) >= 5


def test_given_lambda_a_mediated_correlation_is_told_from_a_direct_one():
    found = verdicts(planted(0.5))
    assert found["mlp.accuracy-falls-with-r-ig"].verdict == Verdict.HOLDS
    partial = found["mlp.accuracy-falls-with-r-ig.given-lambda"]
    assert partial.verdict == Verdict.HOLDS  # here accuracy follows R_IG itself
    assert partial.quantity == "partial Spearman(r_ig, test_accuracy | implicit_rate)"
    runs = planted(0.5)
    for run in runs:  # now accuracy follows lambda alone
        lam = run.metrics["learning_rate"] * run.metrics["num_params"] / 4
        noise = np.random.default_rng(int(run.metrics["num_params"])).normal(size=len(lam))
        run.metrics["best_test_accuracy"] = 0.9 + 0.01 * np.log10(lam) + 0.001 * noise
    found = verdicts(runs)
    assert found["mlp.accuracy-falls-with-r-ig"].verdict == Verdict.HOLDS
    assert found["mlp.accuracy-falls-with-r-ig.given-lambda"].verdict == Verdict.MIXED


def test_networks_that_do_not_fit_are_counted_and_left_out():
    found = verdicts(planted(0.5, lost=(0.5,)))
    counted = found["mlp.networks-fit"]
    assert (counted.value, counted.n, counted.verdict) == (54, 63, Verdict.MIXED)
    assert counted.note == "9 diverged; excluded by learning rate: 0.5: 9"
    assert found[EXPECTED[0]].n == 54


def test_three_stopping_rules_stand_side_by_side():
    found = [each for id, each in verdicts(planted(0.5)).items() if id.startswith("mlp.ratio-falls-with-lambda.")]
    assert [(each.id.split(".")[-1], each.claim.split(", ", 1)[1]) for each in found] == [
        ("max-test", "at maximum test accuracy"),
        ("equal-steps", "after 11,000 steps"),
        ("equal-time", "at physical time 550 (h >= 0.05)"),
    ]


def test_with_images_held_out_the_maximum_of_validation_accuracy_is_a_fourth_rule():
    runs = planted(0.5)
    for run in runs:
        run.metrics["validation_accuracy"] = run.metrics["test_accuracy"]
    assert "mlp.r-ig-falls-with-lambda.max-validation" in verdicts(runs)
    units = mlp.trials(Scale.QUICK, mlp.Options(validation=137))
    assert {u.shape.validation for u in units} == {137}
    assert units[0].shape.steps == 250 * (1300 // 32)
    with pytest.raises(ConfigError, match="must leave at least 32"):
        mlp.trials(Scale.QUICK, mlp.Options(validation=1420))


def test_every_figure_of_the_family_is_drawn_also_with_diverged_networks(tmp_path):
    with drawing.style():
        drawn = mlp.figures(planted(0.5, lost=(0.5,)))
        assert set(drawn) == {
            "mlp-2", "mlp-A3", "mlp-A4", "mlp-A5", "mlp-A6", "mlp-3a", "mlp-3b", "mlp-activations", "mlp-controls",
        }  # fmt: skip
        for name, figure in drawn.items():
            paths = drawing.save(figure, tmp_path / name)
            assert all(path.stat().st_size > 5000 for path in paths)
    crosses = [line for line in drawn["mlp-2"].axes[0].get_lines() if line.get_marker() == "x"]
    assert sum(len(line.get_xdata()) for line in crosses) == 9
    assert len(drawn["mlp-A6"].axes) == 6


def test_nothing_is_drawn_or_claimed_of_what_is_not_stored():
    runs = [run for run in planted(0.5) if run.config.shape.width == 64]
    assert set(mlp.figures(runs)) == {"mlp-2", "mlp-A6", "mlp-controls"}
    assert not any("noise" in id for id in verdicts(runs))


def test_the_paper_grid_is_the_papers():
    units = mlp.trials(Scale.PAPER)
    grid = [u for u in units if u.shape.batch_size == 32 and u.shape.activation == "relu"]
    networks = {(u.shape.width, h, s) for u in grid for h, s in zip(u.learning_rates, u.seeds, strict=True)}
    assert {w for w, _, _ in networks} == {50, 100, 200, 400, 800, 1600}
    assert {h for _, h, _ in networks} == {0.5, 0.1, 0.05, 0.01, 0.005, 0.001, 0.0005}
    assert len(networks) == 42 * 3
    assert all(u.shape.data == "mnist" and u.shape.steps == 200 * 1875 for u in grid)
    assert [u.shape.num_params for u in grid if u.shape.width == 400] == [959_610]
    wide = [u for u in grid if u.shape.width == 1600]
    assert [set(u.seeds) for u in wide] == [{0}, {1}, {2}]  # small enough for minutes, all rates of a seed together
    assert {u.shape.batch_size for u in units} == {0, 32, 128, 512, 4096}
    assert {u.shape.activation for u in units} == {"relu", "tanh", "gelu"}
    assert max(u.shape.noise.sigmas for u in grid)[-1] == 3.0
    assert len({u.digest() for u in units}) == len({u.label for u in units}) == len(units)


def test_beyond_the_grid_nothing_of_it_changes():
    """Its units are further ones, none of which counts twice in the findings on the grid."""
    for scale in Scale:
        grid, more = mlp.trials(scale), mlp.trials(scale, mlp.Options(beyond=True))
        assert more[: len(grid)] == grid
        assert len({u.label for u in more}) == len({u.digest() for u in more}) == len(more)
    full = [u for u in more if not u.shape.batch_size][1:]
    assert {round(u.learning_rates[0] * u.shape.steps, -1) for u in full} == {4000}, "one physical time"
    assert {len(u.seeds) for u in full} == {3}
    flat = [u for u in more if u.shape.measure.metrics]
    assert [set(u.learning_rates) for u in flat] == [set(grid[0].learning_rates)]
    extra = [u for u in mlp.trials(Scale.QUICK, mlp.Options(beyond=True)) if u not in mlp.trials(Scale.QUICK)]
    runs, before = planted(0.5), verdicts(planted(0.5))
    plain = [u for u in extra if not u.shape.measure.metrics and u.shape.activation == "relu"]
    after = verdicts(runs + plant(plain, 2.0))
    full = {id: each for id, each in after.items() if id.startswith("mlp.full-batch.to-interpolation")}
    assert len(full) == 8
    assert full["mlp.full-batch.to-interpolation.r-ig-falls-with-h.max-test"].verdict == Verdict.HOLDS
    for id in ("mlp.r-ig-falls-with-lambda.max-test", "mlp.equal-loss.slope-falls-with-h.common-range",
               "mlp.networks-fit", "mlp.full-batch"):  # fmt: skip
        assert (after[id].n, after[id].value) == (before[id].n, before[id].value), id
    assert after["mlp.slope-falls-with-h.optimum"].n == before["mlp.slope-falls-with-h.optimum"].n * 2


def test_options_change_seeds_and_epochs():
    units = mlp.trials(Scale.QUICK, mlp.Options(seeds=2, epochs=3))
    assert {s for u in units for s in u.seeds} == {0, 1}
    assert units[0].shape.steps == 3 * 44
    with pytest.raises(ConfigError, match="must not be negative"):
        mlp.Options(seeds=-1)


def test_a_small_training_of_the_family_runs_from_end_to_end():
    unit = mlp.trials(Scale.SMOKE)[1]
    assert unit.shape.noise.sigmas
    short = unit.shape.replace(steps=20)
    metrics = unit.replace(shape=short).compute(Session())
    run = Run(unit.replace(shape=short), metrics, {})
    assert np.isfinite(metrics["best_r_ig"]).all()
    assert mlp.findings([run])[0].n == 6
    with drawing.style():
        assert "mlp-3b" in mlp.figures([run])
