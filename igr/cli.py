"""The command line: `igr list | run | report | reproduce | explore | export | data`.

Exit codes: 0 done, 1 a run failed, 2 bad input or an output folder that cannot be used, 130 interrupted.
"""

import json
import os
import sys
import warnings
import webbrowser
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.table import Column
    from rich.table import Table as RichTable
    from rich.text import Text
    from typer.core import TyperGroup
except ImportError as error:  # the mathematics installs without these
    print(f"The igr command needs {error.name}: install the laboratory with `pip install 'igr[lab]'`.", file=sys.stderr)
    sys.exit(2)

from igr.lab.config import Config, ConfigError, Scale
from igr.lab.experiments import REGISTRY, load
from igr.lab.files import StoreError
from igr.lab.findings import Verdict
from igr.lab.flags import command_of, split
from igr.lab.run import OUT, SCALES, RunOptions, compute, say_beforehand
from igr.lab.store import DamageWarning, Store


class Commands(TyperGroup):
    """`igr COMMAND`, in the order of use; typer would put `run`, which has commands of its own, last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """`list` and `run` before the others."""
        return sorted(super().list_commands(ctx), key=lambda name: name not in ("list", "run"))


class Experiments(TyperGroup):
    """`igr run NAME`: the commands are the registry's, made from their options when asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The registry."""
        return list(REGISTRY)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of an experiment, with the flags of `RunOptions` and of its own `Options`."""
        module = load(cmd_name)
        own = getattr(module, "Options", None)

        def command(**values: Any) -> None:
            options, rest = split(RunOptions, values)
            _run(cmd_name, options, own(**rest) if own else None)

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
FOLDER = Annotated[str, typer.Option("--out", help="folder of stored runs and figures")]


@app.command("list")
def list_experiments(as_json: JSON = False) -> None:
    """Show the experiments and what each one claims."""
    claims = {name: load(name).CLAIM for name in REGISTRY}
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
    as_json: JSON = False,
) -> None:
    """Redraw figures, findings and a page from stored runs."""
    _report(Store(out), as_json, beside, alone)


@app.command()
def reproduce(
    scale: Annotated[Scale, typer.Option(help=SCALES)] = Scale.QUICK,
    out: FOLDER = OUT,
    jobs: Annotated[int, typer.Option(help="units computed at the same time")] = 1,
    data_dir: Annotated[str, typer.Option(help="folder of data sets; nothing is downloaded then")] = "",
) -> None:
    """Run every experiment, then report."""
    options = RunOptions(scale, out, jobs, data_dir=data_dir)
    say_beforehand(options, REGISTRY)
    failed = [name for name in REGISTRY if not compute(name, options, None)]
    _report(Store(out), as_json=False, again=False, paths=False)
    if failed:
        raise typer.Exit(1)


@app.command()
def explore(
    show: Annotated[bool, typer.Option("--open/--no-open", help="open it in a browser")] = True,
) -> None:
    """Open a page where start and step size are moved by hand."""
    from igr.lab.explorer import page

    print(page())
    if show and not webbrowser.open(page().as_uri()):
        _complain("No browser could be started here: open the file above in one.")


@app.command()
def export(
    out: FOLDER = OUT,
    to: Annotated[str, typer.Option("--to", help="folder to write to; default OUT/export")] = "",
    tensorboard: Annotated[bool, typer.Option(help="also for TensorBoard, where installed")] = True,
) -> None:
    """Write the stored curves as CSV and for TensorBoard."""
    from igr.lab.export import export as write

    store = Store(out)
    written = write(store, Path(to) if to else store.root / "export", tensorboard)
    if not written:
        raise StoreError(f"There are no training curves in {out}: `igr run mlp --out {out}` makes some.")
    for path in written:
        print(path)


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="digits, mnist or cifar10")],
    data_dir: Annotated[str, typer.Option(help="folder that has it; nothing is downloaded then")] = "",
) -> None:
    """Download a data set, or check the one in a folder."""
    from igr.lab.data import load as load_data

    found = load_data(name, data_dir or None)
    print(f"{name}: {len(found.train):,} training and {len(found.test):,} test images of {found.train.x.shape[1:]}")


def main() -> None:
    """Entry point: errors that the user can mend are one sentence and exit code 2."""
    warnings.showwarning = _show_warning
    try:
        code = app(standalone_mode=False) or 0
        if code == 130:  # what typer makes of Ctrl-C, without a word
            raise KeyboardInterrupt
        sys.exit(code)
    except (ConfigError, StoreError) as error:
        _complain(str(error))
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        _complain("Stopped. What is finished is kept: the same command goes on from there.")
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _complain(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]  (a usage error of typer's)
        sys.exit(2)


def _run(name: str, options: RunOptions, own: Config | None) -> None:
    from igr.lab.report import chapter

    if options.scale is Scale.PAPER and (own is None or own == type(own)()):
        say_beforehand(options, [name])
    done = compute(name, options, own)
    found = chapter(Store(options.out), name, draw=False)
    if options.json:
        print(json.dumps(found.to_dict(), indent=1, default=str))
    else:
        console = Console()
        console.print(_findings(found.findings, f"{name}, scale {options.scale}"))
        console.print(f"`igr report --out {options.out}` draws the figures.", markup=False, highlight=False)
    if not done:
        raise typer.Exit(1)


def _report(
    store: Store, as_json: bool, beside: str = "", alone: bool = False, again: bool = True, paths: bool = True
) -> None:
    from igr.lab.display import counting
    from igr.lab.report import build, shipped

    for root in (store.root, *([Path(beside)] if beside else [])):
        if not Store(root).experiments():
            raise StoreError(f"There are no stored runs in {root}: `igr run NAME --out {root}` makes them.")
    other = None if alone else Store(beside) if beside else shipped()
    if other and other.root.resolve() == store.root.resolve():
        other = None
    with counting(Console(stderr=True), "drawing the figures") as watch:
        chapters = build(store, other, again, watch)
    if as_json:
        print(json.dumps([each.to_dict() for each in chapters], indent=1, default=str))
        return
    console = Console()
    for each in chapters:
        for problem in each.missing:
            _complain(problem)
        for path in each.figures if paths else []:
            console.print(str(path), markup=False, highlight=False, soft_wrap=True)
    for each in chapters:
        console.print(_findings(each.findings, f"{each.name}, scale {each.scale}, {each.runs} runs"))
    counts = Counter(finding.verdict for each in chapters for finding in each.findings)
    console.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict) + ".", highlight=False)
    console.print("The report, with every figure and the repository's runs beside:" if other else "The report:")
    console.print(str(store.root / "index.html"), markup=False, highlight=False, soft_wrap=True)


def _findings(findings: list[Any], title: str) -> RichTable:
    colours = {"holds": "green", "fails": "red", "mixed": "yellow"}
    table = RichTable("claim", Column("number", overflow="fold"), "n", "95 %", "verdict", title=title)
    table.title_justify = "left"
    for each in findings:
        verdict = Text(each.verdict, style=colours.get(each.verdict, ""))
        table.add_row(Text(each.claim), Text(each.number), str(each.n), Text(each.range), verdict)
    return table


def _complain(sentence: str) -> None:
    Console(stderr=True).print(Text(sentence, style="red"), soft_wrap=True)


def _show_warning(message: Any, category: type, *_: Any) -> None:
    prefix = "" if issubclass(category, DamageWarning) else f"{category.__name__}: "
    Console(stderr=True).print(Text(f"Warning: {prefix}{message}", style="yellow"), soft_wrap=True)


if __name__ == "__main__":
    main()
