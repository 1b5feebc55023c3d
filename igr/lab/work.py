"""Doing the work: units are skipped when finished, resumed when cut, redone when damaged, and shared between processes.

A unit of work is anything with `config`, `label` and `compute(session)`; a trial of the two-parameter model is one, a
stack of networks of equal shape is one. What it returns is stored under the hash of its configuration.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from igr.lab.config import Config
from igr.lab.files import Metrics, StoreError
from igr.lab.store import Folder, Store

SAVE_SHARE = 0.03  # of the time, for checkpoints
SPENT = "session/seconds"  # in a checkpoint: what the unit took up to there, over all processes that worked on it


class Cancelled(Exception):
    """The work was asked to stop; what was saved before stays."""


@runtime_checkable
class Unit(Protocol):
    """What the laboratory can compute and store."""

    @property
    def config(self) -> Config:
        """What decides the result; its hash is the unit's name in the store."""
        ...

    @property
    def label(self) -> str:
        """A few words for the progress display."""
        ...

    def compute(self, session: "Session") -> Mapping[str, Any]:
        """The measurements, as arrays by name. Long ones call `session.progress` and `session.save` as they go."""
        ...


@dataclass(frozen=True)
class Trial(Config, ABC):
    """A configuration that is its own unit of work."""

    @property
    def precision(self) -> str | None:
        """What `compute` computes in, where it sets that itself."""
        return None

    @property
    def config(self) -> Config:
        """Itself."""
        return self

    @property
    def label(self) -> str:
        """A few words for the progress display."""
        return type(self).__name__

    @abstractmethod
    def compute(self, session: "Session") -> Mapping[str, Any]:
        """The measurements, as arrays by name."""


class Session:
    """What a unit sees of the laboratory while it computes: its checkpoint, the display, the wish to stop."""

    def __init__(
        self,
        folder: Folder | None = None,
        watch: Callable[[float, str], None] | None = None,
        stop: threading.Event | None = None,
        save_every: float = 2.0,
    ):
        self._folder, self._watch, self._stop, self.save_every = folder, watch, stop, save_every
        self._begun = self._saved = time.monotonic()
        self._cost = self._before = 0.0

    @property
    def seconds(self) -> float:
        """The time spent on the unit: by this process, and by others up to the checkpoint it was resumed from."""
        return self._before + time.monotonic() - self._begun

    def load(self) -> Metrics | None:
        """The arrays of the last checkpoint, or None at a first start."""
        saved = self._folder.load_checkpoint() if self._folder else None
        if saved is not None:
            self._before = float(saved.pop(SPENT, 0.0))
        return saved

    def save(self, arrays: Callable[[], Mapping[str, Any]]) -> bool:
        """Keep a checkpoint if one is due, and always before stopping: raises `Cancelled` where the user wants to stop.

        Due is one every `save_every` seconds, less often where writing would take more than `SAVE_SHARE` of the time;
        0 means at every call. `arrays` is only called when one is due.
        """
        if self._folder is None:
            return False
        stopping = self._stop is not None and self._stop.is_set()
        begun = time.monotonic()
        pause = max(self.save_every, self._cost / SAVE_SHARE) if self.save_every else 0.0
        if not stopping and begun - self._saved < pause:
            return False
        self._folder.save_checkpoint({**arrays(), SPENT: np.float64(self.seconds)})
        self._saved = time.monotonic()
        self._cost = self._saved - begun
        if stopping:
            raise Cancelled
        return True

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the unit is; raises `Cancelled` where the user wants to stop."""
        if self._stop is not None and self._stop.is_set():
            raise Cancelled
        if self._watch is not None:
            self._watch(fraction, text)


class Watcher:
    """What is told of the progress of a run; the default is silent. Calls come from several threads."""

    def started(self, unit: Unit) -> None:
        """A unit began to compute."""

    def progressed(self, unit: Unit, fraction: float, text: str) -> None:
        """A unit came further."""

    def ended(self, unit: Unit, how: str) -> None:
        """A unit is `computed`, `skipped`, `failed` or `cancelled`."""


@dataclass
class Outcome:
    """What became of the units of a run."""

    computed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def run_units(
    store: Store,
    experiment: str,
    units: Iterable[Unit],
    jobs: int = 1,
    watcher: Watcher | None = None,
    save_every: float = 2.0,
) -> Outcome:
    """Compute what is not stored yet, `jobs` units at a time, and store each as soon as it is done.

    Jobs are threads: compiled programs run outside Python's lock, and share their compilations. A unit that another
    process is computing is left to it, and waited for at the end. One failure does not stop the others; a store that
    cannot be written does, with `StoreError`. On Ctrl-C the units stop at their next report of progress.
    """
    store.require_writable()
    outcome, stop, watcher = Outcome(), threading.Event(), watcher or Watcher()

    def attempt(unit: Unit) -> str:
        folder = store.folder(experiment, unit.config)
        with folder.lock() as mine:
            if not mine:
                return "elsewhere"
            if folder.finished():
                return "skipped"
            watcher.started(unit)
            session = Session(folder, lambda f, text: watcher.progressed(unit, f, text), stop, save_every)
            session.progress(0.0)
            metrics = unit.compute(session)
            about = {"seconds": round(session.seconds, 3)}
            if (precision := getattr(unit, "precision", None)) is not None:
                about["precision"] = precision
            folder.write(metrics, seed=getattr(unit.config, "seed", None), **about)
            return "computed"

    def work(unit: Unit, patient: bool) -> Unit | None:
        try:
            while (how := attempt(unit)) == "elsewhere":
                if not patient:
                    return unit
                if stop.wait(0.2):
                    raise Cancelled
            getattr(outcome, how).append(unit.label)
        except Cancelled:
            how = "cancelled"
        except StoreError:
            stop.set()
            raise
        except Exception as error:
            how = "failed"
            outcome.failed[unit.label] = f"{type(error).__name__}: {error}"
        watcher.ended(unit, how)
        return None

    with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="igr") as pool:
        try:
            left = list(units)
            for patient in (False, True):  # what others compute is waited for only when nothing else is left to do
                futures = [pool.submit(work, unit, patient) for unit in left]
                left = [unit for future in futures if (unit := future.result()) is not None]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return outcome
