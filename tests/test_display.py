import io

import pytest
from rich.console import Console

from igr.lab import display
from igr.lab.display import Display, counting
from igr.lab.sweep import Shape, StackRun

UNIT = StackRun(Shape(width=7))
WORDS = "step 5, 100 steps/s\nh = 0.1  E = 1e-3"


@pytest.fixture
def shown(monkeypatch):
    """What a display prints for two reports of a unit and its end."""

    def show(terminal, every=0.0):
        monkeypatch.setattr(display, "LINE_EVERY", every)
        file = io.StringIO()
        with Display(Console(file=file, force_terminal=terminal, width=100 if terminal else 30), "mlp", 1) as screen:
            screen.started(UNIT)
            screen.progressed(UNIT, 0.25, WORDS)
            screen.progressed(UNIT, 0.5, WORDS)
            screen.bars.refresh()
            screen.ended(UNIT, "computed")
        return file.getvalue()

    return show


def test_without_a_terminal_it_prints_lines_with_the_detail(shown):
    lines = shown(False).splitlines()
    assert f"25% of {UNIT.label}, step 5, 100 steps/s" in lines[0]
    assert lines[1] == "h = 0.1  E = 1e-3"
    assert "50% of" in lines[2]
    assert lines[-1].endswith(f"computed: {UNIT.label}")


def test_lines_are_not_too_frequent(shown):
    assert shown(False, every=100.0).splitlines() == [f"[0 s] computed: {UNIT.label}"]


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
