"""The units of an experiment in two rounds: its trials, and the units that depend on the finished ones."""

import contextlib
import warnings
from collections.abc import Iterable
from typing import Any

from igr.lab.runs.unit import Unit
from igr.lab.store.config import Config, ConfigError, Scale
from igr.lab.store.files import Damaged, DamageWarning, Unreadable
from igr.lab.store.store import Store, Table
from igr.lab.store.tolerant import tried


def rounds(
    store: Store, name: str, experiment: Any, scale: Scale, options: Config | None = None
) -> tuple[list[Unit], list[Unit]]:
    """The trials of an `experiment` (a module called `name`), and the units that follow from the trials in `store`.

    `scale` and `options` are those of the trials.
    """
    trials = experiment.trials(scale, options) if options is not None else experiment.trials(scale)
    if not decides(experiment):
        return trials, []
    return trials, _later(experiment, scale, options, name, finished(store, name, trials))


def _later(experiment: Any, scale: Scale, options: Config | None, name: str, runs: Table) -> list[Unit]:
    """What the runs decide. Those with other arrays than the experiment measures are left out, with a warning."""

    def work(some: Table) -> list[Unit]:
        return experiment.follow_up(scale, options, some)

    try:
        return work(runs)
    except Exception:
        later, kept, problems = tried(work, name, runs, "followed up")
        if not kept:
            raise
    for problem in problems:
        warnings.warn(DamageWarning(problem), stacklevel=2)
    return later


def decides(experiment: Any) -> bool:
    """Whether an `experiment` has units that depend on the results of others."""
    return hasattr(experiment, "follow_up")


def finished(store: Store, name: str, units: Iterable[Unit]) -> Table:
    """The runs of `units` that are stored in `store` under the experiment `name`.

    Those that are missing or cannot be read are left out.
    """
    runs = []
    for unit in units:
        with contextlib.suppress(FileNotFoundError, Damaged, Unreadable, ConfigError):
            runs.append(store.folder(name, unit.config).read())
    return runs
