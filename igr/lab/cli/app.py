"""The command line: `igr list | run | report | reproduce | explore | export | data | verify | gc`.

Exit codes: 0 done, 1 a run failed or damage was found, 2 bad input or an output folder that cannot be used, 130 after
Ctrl-C, 143 after SIGTERM.
"""

import json
import os
import sys
import warnings
import webbrowser
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text
    from typer.core import TyperGroup
except ImportError as error:  # the mathematics installs without these
    print(f"The igr command needs {error.name}: install the laboratory with `pip install 'igr[lab]'`.", file=sys.stderr)
    sys.exit(2)

import igr
from igr.lab.cli import care, signals
from igr.lab.cli.flags import command_of, split
from igr.lab.cli.report import complain, print_findings, show_report
from igr.lab.cli.run import OUT, SCALES, RunOptions, compute, connected, say_beforehand
from igr.lab.data.registry import DATASETS
from igr.lab.data.registry import load as load_data
from igr.lab.experiments import REGISTRY, claim_of, load, name_of, names, stored
from igr.lab.store.config import Config, ConfigError, Scale
from igr.lab.store.files import StoreError, reason, refuse_links
from igr.lab.store.store import DamageWarning, Store
from igr.lab.store.text import plain


class Commands(TyperGroup):
    """`igr COMMAND`, in the order of use; typer would put `run`, which has commands of its own, last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """`list` and `run` before the others."""
        return sorted(super().list_commands(ctx), key=lambda name: name not in ("list", "run"))


class Experiments(TyperGroup):
    """`igr run NAME`: the commands are the registry's, made from their options when asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The registry, and those of installed packages."""
        return names()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The experiments and their claims, read without importing the experiments."""
        with formatter.section("Experiments"):
            formatter.write_dl([(name, claim_of(name)) for name in names()])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of an experiment, with the flags of `RunOptions` and of its own `Options`."""
        name = name_of(cmd_name)
        module = load(name)
        own = getattr(module, "Options", None)

        def command(**values: Any) -> None:
            options, rest = split(RunOptions, values)
            _run(name, options, split(own, rest)[0] if own else None)

        return command_of(command, [RunOptions, *([own] if own else [])], cmd_name, module.CLAIM)


app = typer.Typer(
    cls=Commands,
    help="Implicit gradient regularization: run the paper's experiments, keep the runs, draw the figures.",
    epilog="Example:  igr run two-parameter --scale quick, then  igr report",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
RUN = "Run one experiment: compute what is not stored yet."
app.add_typer(
    typer.Typer(cls=Experiments, help=RUN, subcommand_metavar="EXPERIMENT [OPTIONS]", no_args_is_help=True), name="run"
)
JSON = Annotated[bool, typer.Option("--json", help="print JSON instead of tables")]
FULL = Annotated[bool, typer.Option("--full", help="print every finding and the path of every figure")]
FOLDER = Annotated[str, typer.Option("--out", help="folder of stored runs and figures")]


@app.callback()
def options(version: Annotated[bool, typer.Option("--version", help="show the version and exit")] = False) -> None:
    """Before every command; `main` prints the version when it is asked for alone."""
    if version:
        print(f"igr {igr.__version__}")
        raise typer.Exit


@app.command("list")
def list_experiments(as_json: JSON = False) -> None:
    """Show the experiments and what each one claims."""
    claims = {name: claim_of(name) for name in names()}
    if as_json:
        print(json.dumps(claims, indent=1))
        return
    table = RichTable("experiment", "claim")
    for name, claim in claims.items():
        table.add_row(Text(name, style="bold"), claim)
    Console().print(table)


@app.command()
def report(
    out: FOLDER = OUT,
    beside: Annotated[str, typer.Option(help="folder of runs to show beside these; default: the repository's")] = "",
    alone: Annotated[bool, typer.Option("--alone", help="show these runs alone")] = False,
    full: FULL = False,
    as_json: JSON = False,
) -> None:
    """Redraw figures, findings and a page from stored runs."""
    show_report(Store(out), as_json, beside, alone, full=full)


@app.command()
def reproduce(
    scale: Annotated[Scale, typer.Option(help=SCALES)] = Scale.QUICK,
    out: FOLDER = OUT,
    jobs: Annotated[int, typer.Option(help="units computed at the same time")] = 1,
    data_dir: Annotated[str, typer.Option(help="folder of data sets; nothing is downloaded then")] = "",
    on: Annotated[str, typer.Option(help="where: local, ray, or the address of a cluster, ray://HOST:PORT")] = "local",
    gpus_per_unit: Annotated[float, typer.Option(help="with --on ray: GPUs of a unit")] = 0.0,
    cpus_per_unit: Annotated[float, typer.Option(help="with --on ray: CPU threads of a unit")] = 1.0,
    retries: Annotated[int, typer.Option(help="with --on ray: tries after the loss of a worker")] = 3,
    full: FULL = False,
) -> None:
    """Run every experiment, then report."""
    where = {"on": on, "gpus_per_unit": gpus_per_unit, "cpus_per_unit": cpus_per_unit, "retries": retries}
    options = RunOptions(scale, out, jobs, data_dir=data_dir, **where)  # pyright: ignore[reportArgumentType]
    store = Store(out)
    with connected(options):
        parts = say_beforehand(options, REGISTRY)
        failed = [name for name in REGISTRY if not compute(name, options, None, store, part=parts[name])]
    if failed:
        complain(f"Units of {', '.join(failed)} failed: see above. The same command tries those units again.")
    show_report(store, as_json=False, again=False, full=full)
    if failed:
        raise typer.Exit(1)


@app.command()
def explore(
    show: Annotated[bool, typer.Option("--open/--no-open", help="open it in a browser")] = True,
    animation: Annotated[str, typer.Option(help="write the animation of the README to this file instead, a GIF")] = "",
) -> None:
    """Open a page where start and step size are moved by hand."""
    if animation:
        from igr.lab.explorer.animation import write

        write(Path(animation))
        print(animation)
        return
    from igr.lab.explorer import page

    print(page())
    if show and not webbrowser.open(page().as_uri()):
        complain("No browser could be started here: open the file above in one.")


@app.command()
def export(
    out: FOLDER = OUT,
    to: Annotated[str, typer.Option("--to", help="folder to write to; default OUT/export")] = "",
    tensorboard: Annotated[bool, typer.Option(help="also for TensorBoard, where installed")] = True,
) -> None:
    """Write what was measured as CSV, and curves for TensorBoard."""
    from igr.lab.report.export import export as write

    store = Store(out)
    for name in stored(store):
        load(name)  # defines the classes that are stored
    refuse_links(Path(to) if to else store.root / "export")
    written = write(store, Path(to) if to else store.root / "export", tensorboard)
    if not written and not store.harm:
        raise StoreError(f"There are no stored runs in {out}: `igr run NAME --out {out}` makes them.")
    for path in written:
        print(path)
    for problem in store.harm:
        complain(problem)
    if store.harm:
        raise typer.Exit(1)


@app.command()
def data(
    name: Annotated[str, typer.Argument(help=", ".join(DATASETS))],
    data_dir: Annotated[str, typer.Option(help="folder that has it; nothing is downloaded then")] = "",
) -> None:
    """Download a data set, or check the one in a folder."""
    found = load_data(name, data_dir or None)
    print(f"{name}: {len(found.train):,} training and {len(found.test):,} test images of {found.train.x.shape[1:]}")


app.command("verify")(care.check)
app.command("gc")(care.collect)


def main() -> None:
    """Run a command: errors that the user can mend are one sentence and exit code 2."""
    warnings.showwarning = _show_warning
    try:
        signals.leave(_main())
    except BrokenPipeError:  # the reader of a pipe has gone
        _silence(sys.stdout)
        signals.leave(1)
    except OSError as error:  # such as a full disk behind the standard output, or a name that is too long
        _silence(sys.stdout)
        complain(f"{error.filename or 'The output'} cannot be used: {reason(error)}.")
        signals.leave(2)


def _main() -> int:
    try:
        code = app(standalone_mode=False) or 0
        if code == 130:  # what typer makes of Ctrl-C, without a word
            raise KeyboardInterrupt
        sys.stdout.flush()
        return code
    except (ConfigError, StoreError) as error:
        complain(str(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        complain(signals.SENTENCE)
        return signals.code()
    except OSError:
        raise
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        complain(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]  (a usage error of typer's)
        return 2


def _silence(stream: Any) -> None:
    """What is still to be written goes nowhere, so that the end of the process does not complain of it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(name: str, options: RunOptions, own: Config | None) -> None:
    from igr.lab.report.build import chapter

    store = Store(options.out)
    with connected(options):
        if options.scale is Scale.PAPER and (own is None or own == type(own)()):
            say_beforehand(options, [name])
        done = compute(name, options, own, store)
    found = chapter(store, name, draw=False)
    if store.harm and compute(name, options, own, store, full=True):  # damage within: set aside, and computed again
        store.harm.clear()
        found = chapter(store, name, draw=False)
    for problem in store.harm:
        complain(problem)
    if options.json:
        print(json.dumps(found.to_dict(), indent=1, default=str))
    else:
        console = Console()
        if found.findings:
            print_findings(console, found.findings, f"{name}, scale {options.scale}")
        elif found.runs:
            words = f"{name} states no findings; `igr export --out {options.out}` writes what was measured as CSV."
            console.print(words, markup=False, highlight=False)
        console.print(f"`igr report --out {options.out}` draws the figures.", markup=False, highlight=False)
    if not done or store.harm:
        raise typer.Exit(1)


def _show_warning(message: Any, category: type, *_: Any) -> None:
    prefix = "" if issubclass(category, DamageWarning) else f"{category.__name__}: "
    Console(stderr=True).print(Text(plain(f"Warning: {prefix}{message}"), style="yellow"), soft_wrap=True)


if __name__ == "__main__":
    signals.install()
    main()
