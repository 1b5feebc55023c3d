"""The figures of the ResNets, drawn from planted histories."""

from itertools import pairwise

import numpy as np
import pytest
from planted_resnets import LARGEST, PLAN, both, planted

from igr.lab.experiments.resnet import grid as resnet
from igr.lab.plots import style as drawing
from igr.lab.store.config import Scale


@pytest.mark.parametrize("share", [3, 5, 6, 10, 100])
def test_figures_are_drawn_of_whatever_is_stored(share, tmp_path):
    runs = both(lost=(LARGEST,))[:share]
    names = {"resnet-A7", "resnet-A8", "resnet-3c", "resnet-3c-cost"}
    with drawing.style():
        drawn = resnet.figures(runs)
        for name, figure in drawn.items():
            assert drawing.save(figure, tmp_path / name)[0].stat().st_size > 5000
    assert set(drawn) == (names if share > 5 else {"resnet-A7", "resnet-A8"})
    crosses = [line for line in drawn["resnet-A8"].axes[0].get_lines() if line.get_marker() == "x"]
    assert sum(len(line.get_xdata()) for line in crosses) == {3: 0, 100: 3}.get(share, 1)
    assert resnet.findings(runs)


def test_the_heat_map_has_a_number_for_every_cell_of_the_search():
    with drawing.style():
        axes = resnet.figures(both())["resnet-3c"].axes[1]
    assert len(axes.texts) == 2 * 4
    assert len(axes.patches) == 2, "the best mu of each rate"


def test_marks_of_equal_cost_do_not_hide_each_other_and_legends_leave_the_panels_free():
    runs = both()
    with drawing.style():
        figure = resnet.figures(runs)["resnet-3c-cost"]
        figure.draw_without_rendering()
    means = [line for line in figure.axes[0].get_lines() if line.get_markersize() == 7]
    assert len(means) == 4, "the penalty, at every 2nd step, after a warm-up, SAM"
    places = sorted(float(line.get_xdata()[0]) for line in means)
    assert min(b - a for a, b in pairwise(places)) > 1, "two of each cost, side by side"
    for axes in figure.axes:
        assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0


def test_networks_measured_once_are_rings_and_no_part_of_the_curve_of_those_with_a_path():
    runs = planted(resnet.trials(Scale.QUICK))
    for run in runs:
        if run.config.seeds[0]:  # as at paper scale: a hundred times larger, and measured at the end alone
            run.metrics["r_ig"][:-1] = np.nan
            run.metrics["r_ig"][-1] *= 100
    with drawing.style():
        followed, along, *_ = resnet.figures(runs)["resnet-A7"].axes
    assert followed.get_title("left") == "(a)", "the test accuracy of every seed"
    assert along.get_title("left") == "(b) path of 1 of 3 seeds"
    rings = [line for line in along.get_lines() if line.get_marker() == "o"]
    thick, thin = (
        [line for line in along.get_lines() if line not in rings and line.get_linewidth() == width]
        for width in (1.6, 0.6)
    )
    assert (len(thick), len(thin), len(rings)) == (len(PLAN.grid), len(PLAN.grid), 2 * len(PLAN.grid))
    for line, seed in zip(thick, thin, strict=True):
        assert line.get_ydata()[-1] == seed.get_ydata()[-1], "the end of the same network"
