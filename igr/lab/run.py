"""What `igr run` does: an experiment's units, then those that they decide, with what is said on the way."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from igr.lab.config import Config, ConfigError, Scale, option
from igr.lab.display import Display
from igr.lab.plan import announce, prepare
from igr.lab.rounds import decides, rounds
from igr.lab.store import Store
from igr.lab.work import Unit, run_units

OUT = "out"
SCALES = "how much: smoke shows that it runs, quick fits a laptop, paper is the paper's"


@dataclass(frozen=True)
class RunOptions(Config):
    """The flags of every `igr run NAME`."""

    scale: Scale = option(SCALES, Scale.QUICK)  # noqa: RUF009 (it is `dataclasses.field`)
    out: str = option("folder of stored runs and figures", OUT)
    jobs: int = option("units computed at the same time", 1)
    json: bool = option("print the findings as JSON", False)
    data_dir: str = option("folder of data sets; nothing is downloaded then", "")
    only: str = option("compute only the units whose description contains this", "")

    def check(self) -> None:
        """At least one job."""
        if self.jobs < 1:
            raise ConfigError(f"jobs must be at least 1, and it is {self.jobs}.")
        if self.data_dir and not os.path.isdir(self.data_dir):
            raise ConfigError(f"There is no folder {self.data_dir!r} to read data sets from.")


def compute(name: str, options: RunOptions, own: Config | None) -> bool:
    """Run an experiment's units, then those that they decide; False where one failed."""
    store, console = Store(options.out), Console(stderr=True)
    store.require_writable()
    if options.data_dir:
        os.environ["IGR_DATA_DIR"] = options.data_dir
    trials, later = _index(store, name, options, own)
    if not any(options.only in unit.label for unit in trials + later):
        example = trials[0].label
        raise ConfigError(f"No unit of {name} has {options.only!r} in its description; one of them is {example!r}.")
    done = _work(store, name, trials, options, console)
    if decides(name):
        _, later = _index(store, name, options, own)
        if not later:
            console.print(f"{name}: what follows from these units is decided when more are finished.", highlight=False)
        done = _work(store, name, later, options, console) and done
    return done


def _index(store: Store, name: str, options: RunOptions, own: Config | None) -> tuple[list[Unit], list[Unit]]:
    """The units of both rounds as far as they are decided, noted as those the report is about."""
    trials, later = rounds(store, name, options.scale, own)
    about = {"scale": options.scale.value, "options": own.to_dict() if own else {}}
    store.write_index(name, [unit.config for unit in trials + later], **about)
    return trials, later


def _work(store: Store, name: str, units: list[Unit], options: RunOptions, console: Console) -> bool:
    """Compute the units that are asked for, with a progress display; False where one failed."""
    chosen = [unit for unit in units if options.only in unit.label]
    if not chosen:
        return True
    prepare(store, name, chosen, options.data_dir)
    with Display(console, name, len(chosen)) as display:
        outcome = run_units(store, name, chosen, options.jobs, display)
    text = f"{name}: {len(outcome.computed)} computed, {len(outcome.skipped)} already there"
    console.print(f"{text}, {len(outcome.failed)} failed." if outcome.failed else f"{text}.", highlight=False)
    for label, reason in outcome.failed.items():
        console.print(Text(f"failed: {label}: {reason}", style="red"), soft_wrap=True)
    return not outcome.failed


def say_beforehand(options: RunOptions, names: Iterable[str]) -> None:
    """Print what is going to happen, before anything is computed."""
    for line in announce(Store(options.out), options.scale, names, options.data_dir):
        Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)
