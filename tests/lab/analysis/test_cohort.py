import numpy as np
import pytest
from histories import stored

from igr.lab.analysis import frame
from igr.lab.analysis.cohort import cohort, fitted, pick
from igr.lab.analysis.stopping import ROWS, stopping_row
from igr.lab.store.store import Run

nan = np.nan


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


def test_a_new_rule_is_a_function_and_a_line(monkeypatch):
    """A rule that is not ours: the row of the least training loss, under a name of its own."""
    monkeypatch.setitem(ROWS, "least_loss", lambda run, at: np.nanargmin(run.metrics["loss"], axis=0))
    table = cohort([stored()], "least_loss")
    assert table["loss"].tolist() == [0.1, 1.2]
    assert table["step"].tolist() == [40, 20]


def test_a_frame_has_what_the_cohort_and_the_history_have():
    run = stored()
    whole, best = frame([run, run]), frame([run], "max_test")
    assert len(whole) == 2 * 2 * 5
    first = whole[(whole["seed"] == 0) & (whole["step"] == 20)].iloc[0]
    assert (first["loss"], first["time"], first["implicit_rate"], first["r_ig_over_loss"]) == (0.5, 10.0, 10.0, 8.0)
    assert np.isnan(whole[whole["step"] == 30]["loss"]).all()
    assert whole["fitted"].dtype == bool
    assert whole["step"].dtype == np.int64
    table = cohort([run])
    assert list(best.columns) == list(table)
    assert best.groupby("learning_rate")["loss"].median().to_dict() == {0.1: 0.5, 0.5: 0.25}
    assert frame([run], "time", 4.0)["loss"].isna().tolist() == [False, True]
    assert len(frame([])) == 0
    assert len(frame([Run(None, {"loss": np.ones(3)}, {})])) == 0, "a path has no networks"
