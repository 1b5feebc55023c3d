"""The units of an experiment in two rounds: its trials, and what the finished ones among them decide."""

import contextlib
from collections.abc import Iterable

from igr.lab.config import Config, ConfigError, Scale
from igr.lab.experiments import load
from igr.lab.store import Damaged, Store, Table
from igr.lab.work import Unit


def rounds(store: Store, name: str, scale: Scale, options: Config | None = None) -> tuple[list[Unit], list[Unit]]:
    """The trials of an experiment, and the units that follow from those of them which are stored by now."""
    module = load(name)
    trials = module.trials(scale, options) if options is not None else module.trials(scale)
    later = module.follow_up(scale, options, finished(store, name, trials)) if decides(name) else []
    return trials, later


def decides(name: str) -> bool:
    """Whether an experiment has units that depend on what others found."""
    return hasattr(load(name), "follow_up")


def finished(store: Store, name: str, units: Iterable[Unit]) -> Table:
    """The stored runs of some units; what is missing or damaged decides nothing."""
    runs = []
    for unit in units:
        with contextlib.suppress(FileNotFoundError, Damaged, ConfigError):
            runs.append(store.folder(name, unit.config).read())
    return runs
