import io

import matplotlib
import numpy as np
import pytest
from PIL import Image

from igr.lab.experiments.two_parameter import grid as two_parameter
from igr.lab.plots import style as drawing
from igr.lab.runs.unit import Session
from igr.lab.store.config import Scale
from igr.lab.store.store import Run


@pytest.fixture(scope="module")
def drawn():
    runs = [Run(trial, dict(trial.compute(Session())), {}) for trial in two_parameter.trials(Scale.SMOKE)]
    with drawing.style():
        return two_parameter.figures(runs)


def test_the_four_figures_of_the_paper_the_phases_and_the_distances(drawn):
    names = {"1a", "1b", "A1", "A2", "phases", "distances"}
    assert set(drawn) == {f"two-parameter-{name}" for name in names}


def test_saved_as_png_pdf_and_svg_with_the_same_bytes_twice(drawn, tmp_path):
    with drawing.style():
        first = drawing.save(drawn["two-parameter-1b"], tmp_path / "a")
        second = drawing.save(drawn["two-parameter-1b"], tmp_path / "b")
    assert [path.suffix for path in first] == [".png", ".pdf", ".svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert first[1].read_bytes().startswith(b"%PDF")
    assert b"<svg" in first[2].read_bytes()


def test_a_figure_shows_something(drawn, tmp_path):
    with drawing.style():
        for name, figure in drawn.items():
            pixels = np.asarray(Image.open(drawing.save(figure, tmp_path / name)[0]).convert("L"))
            assert (pixels < 250).mean() > 0.02, name


def test_the_style_leaves_nothing_behind_and_pyplot_is_not_used():
    import subprocess
    import sys

    before = dict(matplotlib.rcParams)
    with drawing.style():
        assert matplotlib.rcParams["axes.spines.top"] is False
    assert dict(matplotlib.rcParams) == before
    code = "import sys; import igr.lab.experiments.two_parameter.grid; print('matplotlib.pyplot' in sys.modules)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "False"


def test_figure_1a_has_the_line_of_minima_the_cross_and_the_eight_paths_to_their_ends(drawn):
    euler, accurate = drawn["two-parameter-1a"].axes
    for axes in (euler, accurate):
        dashed = [line for line in axes.lines if line.get_linestyle() == "--" and line.get_color() == "k"]
        np.testing.assert_allclose(np.prod(dashed[0].get_xydata(), axis=1), 0.6)
        cross = next(line for line in axes.lines if line.get_marker() == "x")
        np.testing.assert_allclose(cross.get_xydata(), [[np.sqrt(0.6)] * 2])
        assert len(axes.collections) == 1  # the field of arrows
    ends = [line.get_xydata()[0] for line in euler.lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    known = [
        (0.283606, 2.115617),
        (0.292699, 2.049892),
        (0.296518, 2.023490),
        (0.347218, 1.728025),
        (3.353335, 0.178927),
        (3.165925, 0.189519),
        (3.104427, 0.193273),
        (1.710485, 0.350779),
    ]
    np.testing.assert_allclose(ends, known, atol=1e-6)
    last = [line.get_xydata()[0] for line in accurate.lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    assert np.linalg.norm(last[-1]) == pytest.approx(1.355, abs=1e-3)


def test_without_runs_there_is_no_figure():
    assert two_parameter.figures([]) == {}


def texts(figure):
    return [text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())]


def test_axes_have_the_papers_symbols_and_the_codes_names(drawn):
    assert "learning rate $h$ (learning_rate)" in texts(drawn["two-parameter-1b"])
    assert "$R_{IG}/E$ at the end (r_ig / loss)" in texts(drawn["two-parameter-1b"])
    assert any("(mu)" in text and r"$\mu$" in text for text in texts(drawn["two-parameter-A2"]))
    for name, figure in drawn.items():
        for axes in figure.axes:
            assert axes.get_ylabel() or name == "two-parameter-1a", name


def test_curves_differ_by_more_than_colour(drawn):
    """Curves of one panel that are in its legend have each their own line style or marker, seen without colour."""
    for name in ("two-parameter-1b", "two-parameter-A2", "two-parameter-phases"):
        for axes in drawn[name].axes:
            named = [line for line in axes.lines if not line.get_label().startswith("_")]
            looks = [(line.get_linestyle(), line.get_marker(), line._dash_pattern) for line in named]
            assert len(set(map(str, looks))) == len(looks), (name, looks)


MATRICES = {  # linear RGB as the three kinds of dichromats see it (Machado, Oliveira and Fernandes 2009)
    "all": np.eye(3),
    "protanopia": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "deuteranopia": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "tritanopia": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def smallest_difference(colours):
    """The least CIE 1976 colour difference between two of them, over all kinds of sight."""

    def lab(colour, matrix):
        value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
        ratio = TO_XYZ @ np.clip(matrix @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
        f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    pairs = [(a, b) for i, a in enumerate(colours) for b in colours[:i]]
    return min(np.linalg.norm(lab(a, m) - lab(b, m)) for m in MATRICES.values() for a, b in pairs)


def test_colours_are_told_apart_by_colour_blind_readers():
    used = [drawing.BLUE, drawing.ORANGE, drawing.GREEN, drawing.RED, drawing.PURPLE, drawing.SKY]
    assert smallest_difference(used) > 15
    assert smallest_difference(["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"]) < 8  # matplotlib's own: the control


def test_arrows_point_along_the_field():
    with drawing.style():
        figure, axes = drawing.axes_grid()
        axes.set(xlim=(-1, 1), ylim=(-1, 1))
        drawing.arrows(axes, lambda a, b: (-a, -b), count=4)
        quiver = axes.collections[0]
        assert np.all(quiver.U * quiver.X <= 0)
        np.testing.assert_allclose(np.hypot(quiver.U, quiver.V), 1)
        figure.savefig(io.BytesIO())
