"""Units of work, and the session that a unit uses while it computes.

A unit is anything with `config`, `label` and `compute(session)`, such as a trial of the two-parameter model or a stack
of networks of one shape. Its result is stored under the hash of its configuration.
"""

import json
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np

from igr.lab.store.config import Config
from igr.lab.store.files import DamageWarning, Metrics
from igr.lab.store.folder import Folder
from igr.lab.store.provenance import RANDOM, conditions, differing

SAVE_SHARE = 0.03  # of the time, for checkpoints
SPENT = "session/seconds"  # in a checkpoint: what the unit took up to there, over all processes that worked on it
UNDER = "session/conditions"  # in a checkpoint: the conditions that it was computed under up to there, a JSON list


class Cancelled(Exception):
    """The unit was asked to stop. Its checkpoint is kept."""


@runtime_checkable
class Unit(Protocol):
    """What the laboratory can compute and store."""

    @property
    def config(self) -> Config:
        """The configuration, which determines the result. Its hash is the unit's name in the store."""
        ...

    @property
    def label(self) -> str:
        """A few words for the progress display."""
        ...

    def compute(self, session: "Session") -> Mapping[str, Any]:
        """The measurements, as arrays by name. A long computation calls `session.progress` and `session.save`."""
        ...


@dataclass(frozen=True)
class Trial(Config, ABC):
    """A configuration that is its own unit of work."""

    @property
    def precision(self) -> str | None:
        """The precision of `compute`, where it sets its own."""
        return None

    @property
    def config(self) -> Config:
        """The trial itself."""
        return self

    @property
    def label(self) -> str:
        """A few words for the progress display: the name of the class and its fields, unless a subclass says more."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        words = (f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}" for name, value in values)
        return ", ".join([type(self).__name__, *words])

    @abstractmethod
    def compute(self, session: "Session") -> Mapping[str, Any]:
        """The measurements, as arrays by name; see `Session` for what `session` offers."""


class Session:
    """What a unit can use while it computes: its checkpoint, the display, the sinks, and the request to stop.

    `folder` is the unit's folder in the store. `watch(fraction, text)` and `emit(step, numbers)` receive progress and
    measurements. `stop` is set when the unit should stop, `save_every` is the number of seconds between checkpoints,
    and `data_dir` the folder of data sets.
    """

    def __init__(
        self,
        folder: Folder | None = None,
        watch: Callable[[float, str], None] | None = None,
        stop: threading.Event | None = None,
        save_every: float = 2.0,
        data_dir: str | None = None,
        emit: Callable[[int, Mapping[str, Any]], None] | None = None,
    ):
        self.data_dir = data_dir  # where data sets are read from; None: downloaded once
        self._emit = emit
        self._folder, self._watch, self._stop, self.save_every = folder, watch, stop, save_every
        self._begun = self._saved = time.monotonic()
        self._cost = self._before = 0.0
        self.conditions: list[dict[str, Any]] = [conditions()]  # all that the unit was computed under, the last one now
        self.resumed = False

    @property
    def seconds(self) -> float:
        """The time spent on the unit: by this process, and by others up to the checkpoint it was resumed from."""
        return self._before + time.monotonic() - self._begun

    def load(self) -> Metrics | None:
        """The arrays of the last checkpoint, or None at a first start."""
        saved = self._folder.load_checkpoint() if self._folder else None
        if self._folder is None or saved is None:
            return saved
        try:
            before, self._before = json.loads(str(saved.pop(UNDER, "[]"))), float(saved.pop(SPENT, 0.0))
            changed = {name for each in before for name in differing(each, self.conditions[0])}
            if not 0 <= self._before <= 1e12:
                raise ValueError
        except (ValueError, TypeError, AttributeError, RecursionError):
            self._folder.drop_checkpoint(f"The checkpoint of {self._folder.path} is invalid.")
            self._before = 0.0
            return None
        if random := [name for name in RANDOM if name in changed]:
            self._folder.drop_checkpoint(f"The unit was begun with other random numbers ({', '.join(random)}).")
            self._before = 0.0
            return None
        if changed:
            warnings.warn(
                DamageWarning(
                    f"{self._folder.path} was begun under other conditions ({', '.join(sorted(changed))}): its last "
                    "digits may not be those of a run in one piece. Its record says so."
                ),
                stacklevel=2,
            )
        self.conditions = [each for each in before if each != self.conditions[0]] + self.conditions
        self.resumed = True
        return saved

    def save(self, arrays: Callable[[], Mapping[str, Any]]) -> bool:
        """Keep a checkpoint if one is due, and always before stopping. Raises `Cancelled` where the user wants to stop.

        One is due every `save_every` seconds (0: at every call), or less often where writing would take more than
        `SAVE_SHARE` of the time. `arrays` is called only then.
        """
        if self._folder is None:
            return False
        stopping = self._stop is not None and self._stop.is_set()
        begun = time.monotonic()
        pause = max(self.save_every, self._cost / SAVE_SHARE) if self.save_every else 0.0
        if not stopping and begun - self._saved < pause:
            return False
        about = {SPENT: np.float64(self.seconds), UNDER: np.array(json.dumps(self.conditions))}
        self._folder.save_checkpoint({**arrays(), **about})
        self._saved = time.monotonic()
        self._cost = self._saved - begun
        if stopping:
            raise Cancelled
        return True

    def emit(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Send the `numbers` measured at `step` to the sinks: by name a number, or one for each network."""
        if self._emit is not None:
            self._emit(step, numbers)

    def progress(self, fraction: float, text: str = "") -> None:
        """Report the `fraction` that is done, with some `text`. Raises `Cancelled` where the user wants to stop."""
        if self._stop is not None and self._stop.is_set():
            raise Cancelled
        if self._watch is not None:
            self._watch(fraction, text)
