import numpy as np
import pytest

from igr.lab.history import cohort, fitted, pick, stopping_row
from igr.lab.store import Run
from igr.lab.sweep import Shape, StackRun

nan = np.nan


def stored(**changes):
    """Two networks, five rows of which the fourth was only watched; the second network never fits and diverges."""
    metrics = {
        "step": np.array([0, 10, 20, 30, 40]),
        "full": np.array([True, True, True, False, True]),
        "learning_rate": np.array([0.5, 0.1]),
        "mu": np.zeros(2),
        "seed": np.array([0, 1]),
        "num_params": np.int64(80),
        "diverged": np.array([-1, 35]),
        "loss": np.array([[2.0, 2.0], [1.0, 1.5], [0.5, 1.2], [nan, nan], [0.1, nan]]),
        "train_accuracy": np.array([[0.1, 0.1], [0.9, 0.5], [1.0, 0.6], [nan, nan], [1.0, nan]]),
        "test_accuracy": np.array([[0.1, 0.1], [0.8, 0.5], [0.85, 0.55], [0.9, 0.6], [0.88, nan]]),
        "validation_accuracy": np.array([[0.1, 0.1], [0.7, 0.6], [0.7, 0.5], [0.9, 0.9], [0.6, nan]]),
        "best_step": np.array([30, 30]),
    }
    names = ("r_ig", "slope", "param_norm", "test_loss", "test_r_ig", "test_slope")
    metrics |= {name: 10 * i + np.arange(10.0).reshape(5, 2) for i, name in enumerate(names)}
    best = ("loss", "train_accuracy", "test_accuracy", *names)
    metrics |= {f"best_{name}": np.array([0.25, 0.5]) for name in best} | changes
    config = StackRun(Shape(width=3, steps=40), (0.5, 0.1), (0.0, 0.0), (0, 1))
    return Run(config, metrics, {})


@pytest.mark.parametrize(
    ("rule", "at", "rows"),
    [
        ("max_validation", None, [1, 1]),  # the first maximum, among the rows measured in full
        ("first_fit", None, [2, -1]),
        ("end", None, [4, 4]),
        ("iteration", 20, [2, 2]),
        ("iteration", 35, [2, 2]),
        ("iteration", 41, [-1, -1]),
        ("time", 3.0, [0, 2]),
        ("time", 4.0, [0, 4]),
        ("time", 5.0, [1, -1]),  # the second ended at t = 4
    ],
)
def test_rules_pick_rows(rule, at, rows):
    assert stopping_row(stored(), rule, at).tolist() == rows


def test_the_cohort_has_what_held_at_the_stop():
    table = cohort([stored(), stored()], "iteration", 20)
    assert table["loss"].tolist() == [0.5, 1.2, 0.5, 1.2]
    assert table["time"].tolist() == [10.0, 2.0, 10.0, 2.0]
    assert table["implicit_rate"].tolist() == [10.0, 2.0, 10.0, 2.0]
    assert table["width"].tolist() == [3] * 4
    assert table["fitted"].tolist() == [True, False, True, False]
    assert pick(table, table["fitted"])["loss"].tolist() == [0.5, 0.5]
    best = cohort([stored()])
    assert best["loss"].tolist() == [0.25, 0.5]
    assert best["step"].tolist() == [30, 30]
    assert np.isnan(cohort([stored()], "first_fit")["r_ig"][1])
    assert np.isnan(cohort([stored()], "time", 4.0)["loss"][1])  # it had diverged by then
    assert cohort([]) == {}


def test_what_was_not_measured_is_nan():
    run = stored()
    metrics = {k: v for k, v in run.metrics.items() if not k.endswith(("test_r_ig", "test_slope"))}
    for table in (cohort([Run(run.config, metrics, {})], *rule) for rule in ((), ("iteration", 20))):
        assert np.isnan(table["test_r_ig"]).all()
        assert np.isfinite(table["r_ig"]).all()


def test_fitting_at_the_best_parameters_counts():
    run = stored(best_train_accuracy=np.array([0.5, 1.0]))
    assert fitted(run).tolist() == [True, True]


def test_without_validation_images_the_rule_is_never_met():
    run = stored()
    del run.metrics["validation_accuracy"]
    assert stopping_row(run, "max_validation").tolist() == [-1, -1]


def test_unknown_or_incomplete_rules_are_refused():
    with pytest.raises(ValueError, match="needs to know at what time"):
        stopping_row(stored(), "time")
    with pytest.raises(ValueError, match="choose one of max_test"):
        stopping_row(stored(), "patience")
