"""What long work shows: a bar with an estimate and the last unit's words, or lines where no terminal is."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from igr.lab.work import Unit, Watcher

LINE_EVERY = 15.0  # seconds between two lines of one unit, where the output is not a terminal


class _Bars(Progress):
    """A progress bar with a few lines of text under it."""

    detail = ""

    def __init__(self, console: Console):
        columns = (TextColumn("{task.description}"), BarColumn(14), TextColumn("{task.percentage:>3.0f} %"))
        super().__init__(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)

    def get_renderables(self) -> Any:
        yield self.make_tasks_table(self.tasks)
        if self.detail:
            yield Text(self.detail, style="dim")


class Display(Watcher):
    """One bar for the whole run, moved by parts of units, and below it what the unit that spoke last has to say.

    A unit's words are one line for the bar and, after a line break, more for below: a stack of networks says there how
    each learning rate is doing. Without a terminal, a unit's words are printed at most every `LINE_EVERY` seconds.
    """

    def __init__(self, console: Console, name: str, count: int):
        self.bars = _Bars(console)
        self.console, self.parts, self.spoken = console, dict[str, float](), dict[str, float]()
        self.task = self.bars.add_task(f"{name:38}", total=count)
        self.lock, self.begun = threading.Lock(), time.monotonic()

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.console.is_terminal:
            self.bars.stop()

    def started(self, unit: Unit) -> None:
        """A unit began: its first line comes after `LINE_EVERY` seconds, so short ones stay silent."""
        self.spoken[unit.label] = time.monotonic()

    def progressed(self, unit: Unit, fraction: float, text: str) -> None:
        """A unit came further."""
        with self.lock:
            self.parts[unit.label] = max(fraction, self.parts.get(unit.label, 0.0))
            first, _, detail = text.partition("\n")
            words = f"{unit.label}, {first}" if first else unit.label
            self.bars.detail = f"{words}\n{detail}" if detail else ""
            self.bars.update(self.task, completed=sum(self.parts.values()), description=f"{words[:38]:38}")
            now = time.monotonic()
            if not self.console.is_terminal and now - self.spoken.get(unit.label, now) > LINE_EVERY:  # skipped: silent
                self.spoken[unit.label] = now
                elapsed = time.monotonic() - self.begun
                self._say(f"[{elapsed:.0f} s] {fraction:.0%} of {words}" + (f"\n{detail}" if detail else ""))

    def ended(self, unit: Unit, how: str) -> None:
        """A unit is done, for better or worse."""
        self.progressed(unit, 1.0, how)
        if not self.console.is_terminal and how != "skipped" and unit.label in self.spoken:
            self._say(f"[{time.monotonic() - self.begun:.0f} s] {how}: {unit.label}")

    def _say(self, words: str) -> None:
        """As it stands: where there is no terminal, there is no width to wrap at."""
        self.console.print(words, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def counting(console: Console, name: str) -> Iterator[Callable[[str, float], None]]:
    """`say(what, share)` for work done piece by piece: a bar of the shares, or a line before the first piece.

    Nothing is shown of work that turns out to be done already.
    """
    bars, started = _Bars(console), False
    task = bars.add_task(f"{name:38}", total=1.0)

    def say(what: str, share: float) -> None:
        nonlocal started
        if not started and console.is_terminal:
            bars.start()
        elif not started:
            console.print(f"{name} ...", markup=False, highlight=False)
        started = True
        bars.update(task, completed=share, description=f"{what[:38]:38}")

    try:
        yield say
    finally:
        if started and console.is_terminal:
            bars.stop()
