"""The progress of a run for machines: a JSON object a line on the standard error, as `igr run --json` prints it.

{"time": 12.3, "experiment": "mlp", "unit": "0f3a...", "event": "progressed", "label": "...", "state": "running",
 "node": "host 02ab9c", "fraction": 0.25, "step": 500, "steps_per_second": 41.2, "seconds_left": 36.0}
"""

import json
import sys
import time
from typing import Any

from igr.lab.cli.board import Board
from igr.lab.runs.executor import Summary
from igr.lab.runs.unit import Unit

EVERY = 1.0  # seconds between two lines of a unit's progress


class ProgressLines(Board):
    """Prints each change of a unit's state at once, and its progress every `EVERY` seconds."""

    def __init__(self, name: str, count: int):
        super().__init__(count)
        self.name, self.begun, self.said = name, time.monotonic(), dict[str, float]()

    def __enter__(self) -> "ProgressLines":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def started(self, unit: Unit) -> None:
        """The unit began."""
        super().started(unit)
        self._unit("started", unit)

    def placed(self, unit: Unit, node: str) -> None:
        """The unit was sent to a node."""
        super().placed(unit, node)
        self._unit("placed", unit)

    def progressed(self, unit: Unit, fraction: float, text: str) -> None:
        """The unit reported progress."""
        super().progressed(unit, fraction, text)
        now = time.monotonic()
        if now - self.said.get(unit.config.digest(), self.begun) >= EVERY:
            self.said[unit.config.digest()] = now
            self._unit("progressed", unit)

    def waiting(self, unit: Unit, holder: str) -> None:
        """Another process computes the unit."""
        super().waiting(unit, holder)
        self._unit("waiting", unit)

    def retried(self, unit: Unit, why: str) -> None:
        """The worker of the unit was lost."""
        super().retried(unit, why)
        self._unit("retried", unit)

    def ended(self, unit: Unit, how: str) -> None:
        """The unit ended, finished or failed."""
        row = self.row(unit)
        row.state, row.fraction = how, 1.0 if how in ("computed", "skipped") else row.fraction
        self._unit("ended", unit)
        super().ended(unit, how)

    def close(self) -> None:
        """Nothing more is measured."""

    def summary(self, outcome: Summary) -> None:
        """The last line: how many units were computed, skipped and failed, and why."""
        words = f"{len(outcome.computed)} computed, {len(outcome.skipped)} already there."
        counts = {"computed": len(outcome.computed), "skipped": len(outcome.skipped), "failed": outcome.failed}
        self._print({"event": "done", **counts, "retries": outcome.retries, "words": words})

    def _unit(self, event: str, unit: Unit) -> None:
        self._print({"unit": unit.config.digest()[:16], "event": event, **self.row(unit).facts()})

    def _print(self, facts: dict[str, Any]) -> None:
        line = {"time": round(time.monotonic() - self.begun, 3), "experiment": self.name, **facts}
        with self.lock:
            print(json.dumps(line), file=sys.stderr, flush=True)
