"""One attempt at one unit, on this machine or on another. Its arguments are plain data.

`execute` is a top-level function of a unit's configuration as JSON, the path of a store and the data folder, so that
any system for remote calls can call it. All executors do (see `igr.lab.runs.executor`).
"""

import functools
import importlib
import json
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from igr.lab.runs.unit import Cancelled, Session, Unit
from igr.lab.store.claim import Taken
from igr.lab.store.config import Config, ConfigError
from igr.lab.store.files import DamageWarning, StoreError
from igr.lab.store.folder import Folder

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Order:
    """What to compute and where to store it, as plain data."""

    experiment: str
    config: str  # JSON, from `Config.to_json`
    store: str  # the output folder
    data_dir: str | None = None
    save_every: float = 2.0
    token: str = ""  # of the claim under which this attempt may write, where another process holds it


def execute(
    order: Order,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    started: Callable[[], None] = lambda: None,
    emit: Callable[[int, Mapping[str, Any]], None] | None = None,
    place: type[Folder] | Callable[..., Folder] = Folder,
) -> str:
    """Compute a unit unless it is stored: `computed`, `skipped`, or `elsewhere` where another process does.

    `order` says what to compute; its configuration names the module of its class, which is imported, so an order must
    come from the user's own process and never from a store. `progress` is told of the fraction done and a few words.
    When `stop` is set, the unit keeps a checkpoint and `Cancelled` is raised. `started` is called where there is
    something to compute, `emit` with each step and what was measured there. `place` makes the unit's folder from the
    arguments of `Folder`. The unit's own error is raised, and `StoreError` where nothing can be stored.
    """
    unit = _unit(order.config)
    path = Path(order.store) / order.experiment / unit.config.digest()[:16]
    folder = place(path, order.experiment, unit.config, order.token)
    try:
        with folder.lock() as mine:
            if not mine:
                return "elsewhere"
            if folder.finished(quick=True):
                return "skipped"
            started()
            begin = functools.partial(Session, folder, progress, stop, order.save_every, order.data_dir, emit)
            metrics, session = _compute(unit, begin, folder)
            if folder.status() == "finished":
                return _second(folder, metrics)
            folder.write(metrics, seed=getattr(unit.config, "seed", None), **_about(unit, session))
            return "computed"
    except Taken:
        return "elsewhere"


def _second(folder: Folder, metrics: Mapping[str, Any]) -> str:
    """Another attempt, which had been considered lost, finished first. Its result is kept; a difference is reported."""
    if not folder.holds(metrics):
        sentence = f"{folder.path} was computed twice, with different results; the first is kept."
        warnings.warn(DamageWarning(sentence), stacklevel=3)
    return "skipped"


def _compute(unit: Unit, begin: Callable[[], Session], folder: Folder) -> tuple[Mapping[str, Any], Session]:
    """The measurements. A unit that fails after it was resumed starts again, without its checkpoint."""
    session = begin()
    session.progress(0.0)
    try:
        return unit.compute(session), session
    except (Cancelled, StoreError, Taken):
        raise
    except Exception as error:
        if not session.resumed:
            raise
        folder.drop_checkpoint(f"{unit.label} failed after it was resumed ({type(error).__name__}: {error}).")
    return _compute(unit, begin, folder)


def _about(unit: Unit, session: Session) -> Mapping[str, Any]:
    """What the record says about the computation, in addition to what the store adds."""
    about: dict[str, Any] = {"seconds": round(session.seconds, 3)}
    if (precision := getattr(unit, "precision", None)) is not None:
        about["precision"] = precision
    if used := getattr(unit, "used", None):
        about["used"] = dict(used)
    if len(session.conditions) > 1:
        about["resumed"] = session.conditions[:-1]
    return about


def _unit(config: str) -> Any:
    kind = str(json.loads(config)["kind"])
    if not Config.is_known(kind):
        importlib.import_module(kind.partition(":")[0])
    unit = Config.from_json(config)
    if not isinstance(unit, Unit):
        raise ConfigError(f"{type(unit).__name__} is not a unit of work: it has no `compute`.")
    return unit
