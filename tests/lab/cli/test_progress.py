import io

import pytest
from rich.console import Console

from igr.lab.cli import progress as display
from igr.lab.cli.progress import Display, Part, counting
from igr.lab.training.config import Shape
from igr.lab.training.stack import StackRun

UNIT = StackRun(Shape(width=7))
WORDS = "step 5, 100 steps/s\nh = 0.1  E = 1e-3"


@pytest.fixture
def shown(monkeypatch):
    """What a display prints for two reports of a unit and its end."""

    def show(terminal, every=0.0):
        monkeypatch.setattr(display, "LINE_EVERY", every)
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=100 if terminal else 30)
        with Display(console, "mlp", 1, Part(0.6, 1.0)) as screen:
            screen.started(UNIT)
            screen.progressed(UNIT, 0.25, WORDS)
            screen.progressed(UNIT, 0.5, WORDS)
            screen.bars.refresh()
            screen.ended(UNIT, "computed")
        return file.getvalue()

    return show


def test_without_a_terminal_it_prints_lines_with_the_detail(shown):
    lines = shown(False).splitlines()
    assert lines[0] == f"[0 s, 70%] 25% of {UNIT.label}, step 5, 100 steps/s", "of the unit, and of the whole command"
    assert lines[1] == "h = 0.1  E = 1e-3"
    assert "50% of" in lines[2]
    assert lines[-1].endswith(f"computed: {UNIT.label}")


def test_lines_are_not_too_frequent(shown):
    assert shown(False, every=100.0).splitlines() == [f"[0 s, 100%] computed: {UNIT.label}"]


def test_on_a_terminal_there_is_a_bar_with_an_estimate_and_the_learning_rates_below(shown):
    text = shown(True)
    assert "50 %" in text
    assert "h = 0.1  E = 1e-3" in text
    assert "━" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_piece_by_piece_there_is_a_bar_or_one_line(terminal):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100)
    with counting(console, "drawing the figures"):
        pass
    assert file.getvalue() == "", "what is there already is not spoken of"
    with counting(console, "drawing the figures") as say:
        for k in range(4):
            say(f"drawing mlp-{k}", k / 4)
    if terminal:
        assert "drawing mlp-3" in file.getvalue()
        assert "75 %" in file.getvalue()
    else:
        assert file.getvalue() == "drawing the figures ...\n"
