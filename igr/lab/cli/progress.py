"""What long work shows: a bar with an estimate and the last unit's words, or lines where no terminal is."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from igr.lab.cli.board import Board, duration
from igr.lab.runs.executor import Summary
from igr.lab.runs.unit import Unit
from igr.lab.sinks.live import LiveTable
from igr.lab.sinks.sink import Event
from igr.lab.store.text import plain

MOST_ROWS = 20  # units in the table
LINE_EVERY = 15.0  # seconds between two lines of one unit, where the output is not a terminal


@dataclass(frozen=True)
class Part:
    """The part that some work is of a whole command, from 0 to 1.

    >>> Part(0.5, 0.9).at(0.5), Part().halves()[1]
    (0.7, Part(begin=0.5, end=1.0))
    """

    begin: float = 0.0
    end: float = 1.0

    def at(self, fraction: float) -> float:
        """The share of the command that is done when `fraction` of this part is."""
        return self.begin + (self.end - self.begin) * fraction

    def halves(self) -> tuple["Part", "Part"]:
        """One after the other."""
        return Part(self.begin, self.at(0.5)), Part(self.at(0.5), self.end)


def parts(seconds: Mapping[str, float]) -> dict[str, Part]:
    """One part after the other, each as long as its work is expected to take.

    >>> parts({"mlp": 3.0, "resnet": 1.0})
    {'mlp': Part(begin=0.0, end=0.75), 'resnet': Part(begin=0.75, end=1.0)}
    """
    whole = sum(seconds.values()) or 1.0
    ends = [0.0, *(end / whole for end in itertools.accumulate(seconds.values()))]
    return dict(zip(seconds, itertools.starmap(Part, itertools.pairwise(ends)), strict=True))


class _Bars(Progress):
    """A progress bar with a few lines of text under it."""

    detail: Any = ""

    def __init__(self, console: Console):
        columns = (TextColumn("{task.description}"), BarColumn(14), TextColumn("{task.percentage:>3.0f} %"))
        super().__init__(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)

    def get_renderables(self) -> Any:
        yield self.make_tasks_table(self.tasks)
        if self.detail:
            yield Text(self.detail, style="dim") if isinstance(self.detail, str) else self.detail


class Display(Board):
    """One bar for the whole run, moved by parts of units, and below it what the unit that spoke last has to say.

    Where several units are computed at the same time, a table of them is below it instead: where each one is, how far,
    how fast, and when it will be done.

    A unit's words are one line for the bar and, after a line break, more for below. Where there is no more, the events
    of the unit say it: the display is a sink too, and shows how each learning rate is doing. Without a terminal, a
    unit's words are printed at most every `LINE_EVERY` seconds, behind the seconds of this run and the percentage of
    the whole command, of which the run is `part`.
    """

    def __init__(self, console: Console, name: str, count: int, part: Part = Part()):  # noqa: B008 (it is frozen)
        super().__init__(count)
        self.part = part
        self.bars = _Bars(console)
        self.name = name
        self.console, self.parts, self.spoken = console, dict[str, float](), dict[str, float]()
        self.task = self.bars.add_task(f"{name:38}", total=count)
        self.total = 0.0
        self.begun, self.table = time.monotonic(), LiveTable()

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.console.is_terminal:
            self.bars.stop()

    def started(self, unit: Unit) -> None:
        """A unit began: its first line comes after `LINE_EVERY` seconds, so short ones stay silent."""
        super().started(unit)
        self.spoken[unit.label] = time.monotonic()

    def retried(self, unit: Unit, why: str) -> None:
        """A unit goes on elsewhere: say why."""
        super().retried(unit, why)
        self._say(f"{unit.label} goes on elsewhere: its worker was lost ({why}).")

    def progressed(self, unit: Unit, fraction: float, text: str) -> None:
        """A unit came further."""
        super().progressed(unit, fraction, text)
        with self.lock:
            before = self.parts.get(unit.label, 0.0)
            self.parts[unit.label] = max(fraction, before)
            self.total += self.parts[unit.label] - before  # a sum over ten thousand units at each of them takes minutes
            first, _, detail = text.partition("\n")
            detail = detail or self.table.lines(unit.label)
            words = f"{unit.label}, {first}" if first else unit.label
            self.bars.detail = self._below(words, detail)
            self.bars.update(self.task, completed=self.total, description=f"{words[:38]:38}")
            now = time.monotonic()
            if not self.console.is_terminal and now - self.spoken.get(unit.label, now) > LINE_EVERY:  # skipped: silent
                self.spoken[unit.label] = now
                self._say(f"{self._mark()} {fraction:.0%} of {words}" + (f"\n{detail}" if detail else ""))

    def waiting(self, unit: Unit, holder: str) -> None:
        """A unit is waited for: say for whom."""
        super().waiting(unit, holder)
        self._say(f"{unit.label} is being computed by {holder}: waiting for it.")

    def event(self, event: Event) -> None:
        """A unit measured something: it is shown with the unit's next words."""
        super().event(event)
        self.table.event(event)

    def close(self) -> None:
        """Nothing more is measured; the bar ends with the `with` block."""

    def ended(self, unit: Unit, how: str) -> None:
        """A unit is done, for better or worse."""
        super().ended(unit, how)
        self.progressed(unit, 1.0, how)
        if not self.console.is_terminal and how != "skipped" and unit.label in self.spoken:
            self._say(f"{self._mark()} {how}: {unit.label}")

    def summary(self, outcome: Summary) -> None:
        """How many units were computed, skipped and failed, and a table of what failed and why."""
        text = f"{self.name}: {len(outcome.computed)} computed, {len(outcome.skipped)} already there"
        text += f", {len(outcome.failed)} failed." if outcome.failed else "."
        self.console.print(text, highlight=False)
        if outcome.failed and not self.console.is_terminal:  # a log is searched: nothing in it is folded
            for label, why in outcome.failed.items():
                again = outcome.retries.get(label, 0)
                self._say(plain(f"failed: {label}: {why}" + (f" ({again} retries)" if again else "")))
        elif outcome.failed:
            table = Table("failed", Column("why", overflow="fold"), Column("retries", justify="right"), style="red")
            for label, why in outcome.failed.items():
                table.add_row(Text(plain(label)), Text(plain(why)), str(outcome.retries.get(label, 0)))
            self.console.print(table)

    def _below(self, words: str, detail: str) -> Any:
        """What is shown under the bar."""
        if not self.console.is_terminal:
            return ""
        running = self.running()
        if len(running) < 2 and not any(row.node for row in running):
            return f"{words}\n{detail}" if detail else ""
        table = Table(
            "unit", "node", "done", "steps/s", "left", box=None, header_style="dim", style="dim", pad_edge=False
        )
        for row in running[:MOST_ROWS]:
            rate = "" if row.rate is None else f"{row.rate:.3g}"
            left = "" if row.left is None else duration(row.left)
            table.add_row(Text(row.label[:38]), Text(row.node), f"{row.fraction:.0%}", rate, left)
        table.caption, table.caption_justify = self.counts(), "left"
        return table

    def _mark(self) -> str:
        """The seconds since this run began, and the percentage of the whole command that is done."""
        done = self.part.at(min(1.0, self.total / max(1, self.count)))
        return f"[{time.monotonic() - self.begun:.0f} s, {done:.0%}]"

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
