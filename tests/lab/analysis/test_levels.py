"""The rules that say which slope counts at a loss, on a path that passes it more than once."""

import numpy as np
import pytest

from igr.lab.analysis.levels import RULES, slopes_at_equal_loss
from igr.lab.store.store import Run
from igr.lab.training.config import Shape
from igr.lab.training.stack import StackRun


def path(loss, slope):
    steps = np.arange(len(loss))
    metrics = {
        "step": steps, "full": np.ones(len(steps), bool), "seed": np.array([0]), "learning_rate": np.array([0.1]),
        "diverged": np.array([-1]), "loss": np.array(loss, float)[:, None], "slope": np.array(slope, float)[:, None],
    }  # fmt: skip
    return Run(StackRun(Shape(), (0.1,), (0.0,), (0,)), metrics, {})


LOSS = [9, 8, 2, 4, 1, 0.5]  # passes 3 between 8 and 2, rises, and passes it again between 4 and 1
SLOPE = [1, 1, 4, 9, 27, 30]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("first", np.exp(np.interp(np.log(3), np.log([2, 8]), np.log([4, 1])))),
        ("measured", 4.0),
        ("last", np.exp(np.interp(np.log(3), np.log([1, 4]), np.log([27, 9])))),
    ],
)
def test_each_rule_takes_its_slope(rule, expected):
    found = slopes_at_equal_loss([path(LOSS, SLOPE)], levels=np.array([3.0]), rule=rule)
    assert found == pytest.approx([expected], rel=1e-12)
    assert np.isnan(slopes_at_equal_loss([path(LOSS, SLOPE)], levels=np.array([0.1]), rule=rule)).all()


def test_the_rules_agree_on_a_path_that_only_falls():
    steep = [path([8, 4, 2, 1], [4, 2, 1, 0.5])]
    at = np.array([4.0, 2.0])
    values = [slopes_at_equal_loss(steep, levels=at, rule=rule) for rule in RULES]
    assert np.ptp(values) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="choose one of first, measured, last"):
        slopes_at_equal_loss(steep, rule="none")
