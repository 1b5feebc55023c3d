"""Where each unit of a run is: its state, its node, how fast it goes, and when it will be done."""

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from igr.lab.runs.executor import Watcher
from igr.lab.runs.unit import Unit
from igr.lab.sinks.sink import Event


@dataclass
class UnitRow:
    """What is known about a unit."""

    label: str
    state: str = "waiting"  # then running, and computed, skipped, failed or cancelled
    node: str = ""
    words: str = ""
    fraction: float = 0.0
    step: int | None = None
    since: float = 0.0  # when it began where it is now, and from where
    first: tuple[float, float, int] | None = None  # time, fraction and step of the first report from there
    last: float = 0.0

    def report(self, fraction: float | None = None, step: int | None = None) -> None:
        """The unit reported progress."""
        self.last = time.monotonic()
        self.fraction = self.fraction if fraction is None else max(fraction, self.fraction)
        self.step = self.step if step is None else step
        if self.first is None:
            self.first = self.last, self.fraction, self.step or 0

    @property
    def rate(self) -> float | None:
        """Steps a second; None where the unit does not tell its steps."""
        if self.step is None or self.first is None or self.last <= self.first[0] or self.step <= self.first[2]:
            return None
        return (self.step - self.first[2]) / (self.last - self.first[0])

    @property
    def left(self) -> float | None:
        """Seconds until it is done, at the speed it had so far."""
        if self.first is None or self.fraction <= self.first[1] or self.state != "running":
            return None
        return (1 - self.fraction) * (self.last - self.first[0]) / (self.fraction - self.first[1])

    def facts(self) -> dict[str, Any]:
        """Return the row as plain values, for machines."""
        found = {"label": self.label, "state": self.state, "node": self.node, "fraction": round(self.fraction, 4)}
        found |= {"step": self.step, "steps_per_second": _three(self.rate), "seconds_left": _three(self.left)}
        return found | ({"words": self.words} if self.words else {})


def _three(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


class Board(Watcher):
    """The units of a run that have not ended, by the names of their folders; told as a watcher and as a sink."""

    def __init__(self, count: int):
        self.rows, self.count, self.lock = dict[str, UnitRow](), count, threading.Lock()
        self.done = Counter[str]()  # units that have ended, by how: they have no row any more

    def row(self, unit: Unit) -> UnitRow:
        """The row of a unit."""
        return self.rows.setdefault(unit.config.digest()[:16], UnitRow(unit.label))

    def started(self, unit: Unit) -> None:
        """The unit began, here or on a node that `placed` will name."""
        with self.lock:
            row = self.row(unit)
            row.state, row.first, row.words = "running", None, ""

    def placed(self, unit: Unit, node: str) -> None:
        """The unit was sent to a node."""
        self.row(unit).node = node

    def progressed(self, unit: Unit, fraction: float, text: str) -> None:
        """The unit reported progress."""
        self.row(unit).report(fraction)

    def event(self, event: Event) -> None:
        """The unit sent measurements."""
        if row := self.rows.get(event.unit):
            row.report(step=event.step)

    def waiting(self, unit: Unit, holder: str) -> None:
        """Another process computes the unit."""
        self.row(unit).words = f"computed by {holder}"

    def retried(self, unit: Unit, why: str) -> None:
        """The worker of the unit was lost."""
        row = self.row(unit)
        row.state, row.words, row.node = "waiting", why, ""

    def ended(self, unit: Unit, how: str) -> None:
        """The unit ended, finished or failed."""
        with self.lock:
            self.rows.pop(unit.config.digest()[:16], None)
            self.done[how] += 1

    def running(self) -> list[UnitRow]:
        """The units that are being computed."""
        return [row for row in list(self.rows.values()) if row.state == "running"]

    def counts(self) -> str:
        """How many units are in which state."""
        found = self.done + Counter(running=len(self.running()))
        found["waiting"] = self.count - found.total()
        return ", ".join(f"{found[state]} {state}" for state in STATES if found[state] > 0)


STATES = ("running", "waiting", "computed", "skipped", "failed", "cancelled")


def duration(seconds: float) -> str:
    """A duration with two digits and its unit of time.

    >>> [duration(s) for s in (3, 100, 7500, 400_000, 1.2e7)]
    ['3 seconds', '1.7 minutes', '2.1 hours', '4.6 days', '140 days']
    """
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{float(f'{seconds / length:.2g}'):,g} {unit}"
    return f"{max(1.0, seconds):.0f} seconds"
