"""The animation of the README: its paths are what its words say, and the file in docs is the package's."""

import numpy as np
import pytest
from architecture import ROOT
from PIL import Image

from igr.lab.explorer import animation


def frames(path):
    with Image.open(path) as image:
        for n in range(image.n_frames):
            image.seek(n)
            yield image.convert("RGB"), dict(image.info)


@pytest.fixture(scope="module")
def drawn():
    return animation.paths()


def test_descent_leaves_the_gradient_flow_and_stays_on_the_modified_one(drawn):
    gradient, modified = drawn.gap("gradient"), drawn.gap("modified")
    assert gradient[-1] > 1.8  # the other minimum
    assert modified[-1] < 0.02
    assert (modified[1:] < 0.5 * gradient[1:]).all()


def has(picture, colour):
    """Whether some pixel has about this colour."""
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return np.abs(np.asarray(picture).astype(int) - wanted).max(-1).min() < 24


def test_it_is_written_as_frames_that_repeat(drawn, tmp_path):
    """A short one: descent is in the first picture already, the flows in the last."""
    fine = 3 * animation.FINE + 1
    animation.write(
        tmp_path / "short.gif", animation.Trajectories(drawn.descent[:4], drawn.gradient[:fine], drawn.modified[:fine])
    )
    seen = list(frames(tmp_path / "short.gif"))
    assert seen[0][1]["loop"] == 0
    assert len(seen) == 4  # the last step and the rest on it are one picture
    assert all(has(seen[-1][0], colour) for colour in animation.COLOURS.values())
    assert not has(seen[-1][0], "#FF00FF")


def test_the_file_of_the_documentation_is_the_packages():
    """Its pixels depend on the version of Matplotlib; its times and its size do not."""
    path = ROOT / "docs" / "igr.gif"
    assert path.stat().st_size < 1_000_000
    kept = list(frames(path))
    assert sum(info["duration"] for _, info in kept) == sum(each for _, each in animation._schedule(animation.STEPS))
    assert kept[0][1]["loop"] == 0
    assert kept[0][0].size[0] == 10 * animation.DPI
    assert all(has(kept[-1][0], colour) for colour in animation.COLOURS.values())
