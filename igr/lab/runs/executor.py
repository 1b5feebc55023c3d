"""Executors, which have units computed: their protocol, the job they are given, and the watcher they report to."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from igr.lab.runs.execute import Order
from igr.lab.runs.unit import Unit
from igr.lab.sinks.sink import Event, Sinks
from igr.lab.store.folder import Folder
from igr.lab.store.store import Store

PATIENCE = 10.0  # seconds of waiting for another process before it is named, and again at each tenfold


class Watcher:
    """Receives the progress of a run; the default ignores it. Calls come from several threads."""

    def started(self, unit: Unit) -> None:
        """The computation of `unit` began."""

    def placed(self, unit: Unit, node: str) -> None:
        """`unit` is computed in another process; `node` names it or its machine."""

    def progressed(self, unit: Unit, fraction: float, text: str) -> None:
        """The `fraction` of `unit` that is done, and a few words of `text`."""

    def waiting(self, unit: Unit, holder: str) -> None:
        """The run waits for `unit`, which another process computes; `holder` names it."""

    def retried(self, unit: Unit, why: str) -> None:
        """The process that computed `unit` was lost (`why`). The unit resumes elsewhere from its last checkpoint."""

    def ended(self, unit: Unit, how: str) -> None:
        """`unit` ended; `how` is `computed`, `skipped`, `failed` or `cancelled`."""


@dataclass
class Summary:
    """The units of a run by how they ended."""

    computed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)  # how often the process of a unit was lost


@dataclass(frozen=True)
class Job:
    """What an executor is given besides the units: the store, the watcher and sinks, and the request to stop."""

    store: Store
    experiment: str
    watcher: Watcher
    sinks: Sinks
    stop: threading.Event
    outcome: Summary
    save_every: float = 2.0
    data_dir: str | None = None

    def order(self, unit: Unit, **more: Any) -> Order:
        """One attempt at a unit, as plain data for `igr.lab.runs.execute.execute`."""
        root = str(self.store.root)
        return Order(self.experiment, unit.config.to_json(), root, self.data_dir, self.save_every, **more)

    def folder(self, unit: Unit) -> Folder:
        """Where a unit is stored."""
        return self.store.folder(self.experiment, unit.config)

    def emit(self, unit: Unit) -> Callable[[int, Mapping[str, Any]], None]:
        """A function that sends the measurements of `unit` to the sinks."""
        name = unit.config.digest()[:16]
        return lambda step, numbers: self.sinks.event(Event(self.experiment, name, unit.label, step, numbers))

    def ended(self, unit: Unit, how: str, why: str = "") -> None:
        """Record that `unit` ended; `how` is `computed`, `skipped`, `failed` (with the reason `why`) or `cancelled`."""
        if how == "failed":
            self.outcome.failed[unit.label] = why
        elif how != "cancelled":
            getattr(self.outcome, how).append(unit.label)
        self.watcher.ended(unit, how)


class Executor(Protocol):
    """Has units computed.

    `run` returns when each unit has ended and `job.ended` was called for it. When `job.stop` is set it ends early,
    after the units have kept a checkpoint. It raises `StoreError` where nothing can be stored.

    An executor of other machines may have two methods more, which `igr run` uses where they are there: `held()`, a
    context in which a connection stays open once it is made, and `look(function)`, which returns the number of units
    at a time and the result of a function on a worker (None where none is free), for the estimate beforehand.
    """

    def run(self, job: Job, units: list[Unit]) -> None:
        """Compute those of the `units` that are not stored yet; `job` says where results go."""
        ...
