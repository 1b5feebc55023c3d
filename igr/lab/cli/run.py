"""What `igr run` does: an experiment's units, then those that they decide, with what is said on the way.

What needs JAX is imported where it is used, so that `igr list` and `igr --help` answer at once.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console

from igr.lab.cli.flags import words
from igr.lab.cli.lines import ProgressLines
from igr.lab.cli.progress import Display, Part, parts
from igr.lab.cli.signals import working
from igr.lab.experiments import load, source_of
from igr.lab.runs.executor import Executor
from igr.lab.runs.follow_up import decides, rounds
from igr.lab.runs.local import LocalExecutor, run_units
from igr.lab.runs.unit import Unit
from igr.lab.sinks.registry import make
from igr.lab.sinks.sink import Sink
from igr.lab.store.config import Config, ConfigError, Scale, option
from igr.lab.store.files import StoreError
from igr.lab.store.folder import Folder
from igr.lab.store.store import Store

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
    on: str = option("where units are computed: local, ray, or the address of a cluster, ray://HOST:PORT", "local")
    gpus_per_unit: float = option("with --on ray: GPUs of a unit; 0.25 lets four share one", 0.0)
    cpus_per_unit: float = option("with --on ray: CPU threads of a unit", 1.0)
    retries: int = option("with --on ray: how often a unit is tried again when its worker is lost", 3)
    only: str = option("compute only the units whose description contains this", "")
    sink: tuple[str, ...] = option(
        "where events go as they come: csv, tensorboard, or a Python file with sink(folder)", ()
    )

    def check(self) -> None:
        """At least one job, and folders that have names."""
        if not self.out:
            raise ConfigError("The output folder needs a name: `--out .` is the current one.")
        if self.jobs < 1:
            raise ConfigError(f"jobs must be at least 1, and it is {self.jobs}.")
        kind, scheme, _ = self.on.partition("://")
        if kind not in EXECUTORS or (scheme and kind != "ray"):
            raise ConfigError(f"--on is {', '.join(EXECUTORS)} or ray://HOST:PORT, and it is {self.on!r}.")
        if kind == "ray" and self.jobs != 1:
            raise ConfigError("--jobs is for --on local: a cluster computes as many units as --cpus-per-unit lets fit.")
        self.executor()
        if self.data_dir and not os.path.isdir(self.data_dir):
            raise ConfigError(f"There is no folder {self.data_dir!r} to read data sets from.")

    def executor(self) -> Executor:
        """What has the units computed."""
        return EXECUTORS[self.on.partition("://")[0]](self)

    def sinks(self) -> list[Sink]:
        """What listens to the trainings."""
        return [make(name, self.out) for name in self.sink]


def _local(options: RunOptions) -> Executor:
    return LocalExecutor(options.jobs)


def _ray(options: RunOptions) -> Executor:
    from igr.lab.runs.ray import RayExecutor

    address = "" if options.on == "ray" else options.on
    return RayExecutor(address, options.cpus_per_unit, options.gpus_per_unit, options.retries)


# By what --on says. A new one is a file in `igr/lab/runs` and a line here.
EXECUTORS: dict[str, Callable[[RunOptions], Executor]] = {
    "local": _local,
    "ray": _ray,
}


def compute(
    name: str,
    options: RunOptions,
    own: Config | None,
    store: Store,
    full: bool = False,
    part: Part = Part(),  # noqa: B008 (it is frozen)
) -> bool:
    """Run an experiment's units, then those that they decide; False where one failed.

    `full` checks the measurements of what is stored before it is believed: damaged units are set aside. `part` is the
    part of the whole command that this experiment is.
    """
    console = Console(stderr=True)
    store.require_writable()
    trials, later = _index(store, name, options, own)
    if not any(options.only in unit.label for unit in trials + later):
        example = trials[0].label
        raise ConfigError(f"No unit of {name} has {options.only!r} in its description; one of them is {example!r}.")
    if full:
        for unit in trials + later:
            with store.folder(name, unit.config).lock() as mine:
                if mine:
                    _mend(store.folder(name, unit.config))
    if not console.is_terminal and not options.json:
        console.print(f"== {name}: {_number(trials + later)} at scale {options.scale} ==", highlight=False)
    first, second = part.halves() if decides(load(name)) else (part, part)
    done = _work(store, name, trials, options, console, first)
    if decides(load(name)):
        _, later = _index(store, name, options, own)
        if not later and not options.json:
            console.print(f"{name}: what follows from these units is decided when more are finished.", highlight=False)
        done = _work(store, name, later, options, console, second) and done
    return done


def _number(units: list[Unit]) -> str:
    return f"{len(units)} unit{'s' if len(units) != 1 else ''}"


def _mend(folder: Folder) -> None:
    """Set a damaged unit aside; one that cannot be read for another reason is left to the run, which names it."""
    with contextlib.suppress(ConfigError, StoreError):
        folder.finished()


def _index(store: Store, name: str, options: RunOptions, own: Config | None) -> tuple[list[Unit], list[Unit]]:
    """The units of both rounds as far as they are decided, noted as those the report is about."""
    trials, later = rounds(store, name, load(name), options.scale, own)
    about = {"scale": options.scale.value, "options": own.to_dict() if own else {}, "flags": words(own) if own else []}
    about |= {"source": source} if (source := source_of(name)) else {}
    store.write_index(name, [unit.config for unit in trials + later], **about)
    return trials, later


def _work(store: Store, name: str, units: list[Unit], options: RunOptions, console: Console, part: Part) -> bool:
    """Compute the units that are asked for, with a progress display; False where one failed."""
    chosen = [unit for unit in units if options.only in unit.label]
    if not chosen:
        return True
    from igr.lab.cli.estimate import prepare

    sinks = options.sinks()
    prepare(store, name, chosen, options.data_dir)
    show = ProgressLines(name, len(chosen)) if options.json else Display(console, name, len(chosen), part)
    with show as display, working() as stop:
        outcome = run_units(
            store,
            name,
            chosen,
            options.jobs,
            display,
            data_dir=options.data_dir or None,
            stop=stop,
            sinks=[display, *sinks],
            executor=options.executor(),
        )
    display.summary(outcome)
    return not outcome.failed


def connected(options: RunOptions) -> contextlib.AbstractContextManager[object]:
    """One connection to the cluster for all that a command does there, made when there is something to compute."""
    return getattr(options.executor(), "held", contextlib.nullcontext)()


def say_beforehand(options: RunOptions, names: Iterable[str]) -> dict[str, Part]:
    """Print what is going to happen, before anything is computed; return the part of the work of each experiment."""
    from igr.lab.cli.estimate import Place, announce, here, is_left, look_ahead

    look, place = getattr(options.executor(), "look", None), None
    if look is not None and is_left(Store(options.out), options.scale, names):
        workers, one = look(here)
        if one is None:
            Console(stderr=True).print("All workers are busy, so there is no estimate: the units wait for them.")
            return parts(dict.fromkeys(names, 1.0))
        place = Place(one.device, one.speed, workers)
    plans = look_ahead(Store(options.out), options.scale, names, options.data_dir, place)
    for line in announce(options.scale, plans, place):
        Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)
    return parts({each.experiment: each.seconds for each in plans})
