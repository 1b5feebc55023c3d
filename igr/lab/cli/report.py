"""What `igr report` shows on the terminal: problems, the answer, the findings when asked for, and the page."""

import json
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from igr.lab.analysis.findings import Finding
from igr.lab.cli.answer import COLOURS, WIDE, show_answer
from igr.lab.cli.progress import counting
from igr.lab.experiments import REGISTRY, stored
from igr.lab.report.chapter import OWN
from igr.lab.store.files import StoreError, refuse_links
from igr.lab.store.store import Store
from igr.lab.store.text import plain


def show_report(
    store: Store, as_json: bool, beside: str = "", alone: bool = False, again: bool = True, full: bool = False
) -> None:
    """Redraw a store's figures, and print what its runs say and where its page is; exit code 1 where damage was met.

    `full` prints every finding and the path of every figure. Experiments that are not the paper's are always in full.
    """
    from igr.lab.report.build import build, shipped  # brings the pictures' library

    for root in (store.root, *([Path(beside)] if beside else [])):
        if not Store(root).experiments():
            raise StoreError(f"There are no stored runs in {root}: `igr run NAME --out {root}` makes them.")
    other = None if alone else Store(beside) if beside else shipped()
    if other and other.root.resolve() == store.root.resolve():
        other = None
    for name in set(store.experiments()) - set(stored(store)):
        complain(f"{name} cannot be shown: neither an installed package nor its file has this experiment any more.")
    for folder in ("figures", "data"):
        refuse_links(store.root / folder)
    with counting(Console(stderr=True), "drawing the figures") as watch:
        every = build(store, other, again, watch)
    chapters = [each for each in every if each.source == OWN]
    if as_json:
        print(json.dumps([each.to_dict() for each in chapters], indent=1, default=str))
        _end_harmed(store, other)
        return
    console = Console()
    for each in chapters:
        for problem in each.missing:
            complain(problem)
        for path in each.figures if full else []:
            console.print(str(path), markup=False, highlight=False, soft_wrap=True)
    for each in chapters:
        if full or each.name not in REGISTRY:
            print_findings(console, each.findings, f"{each.name}, scale {each.scale}, {each.runs} runs")
    show_answer(console, chapters, [each for each in every if each.source != OWN])
    where = str(store.root)
    if not full:
        console.print(f"Every finding: igr report --full --out {where}", highlight=False, markup=False, soft_wrap=True)
    console.print("The report, with every figure and the repository's runs beside:" if other else "The report:")
    console.print(str(store.root / "index.html"), markup=False, highlight=False, soft_wrap=True)
    _end_harmed(store, other)


def _end_harmed(*stores: Store | None) -> None:
    """Exit code 1 where damage was met on the way."""
    if any(store.harm for store in stores if store):
        raise typer.Exit(1)


def print_findings(console: Console, findings: Sequence[Finding], title: str) -> None:
    """Print a table of the findings, or where words would not fit into its columns, the findings below each other."""
    console.print(Text(plain(title), style="bold"))
    rows = [("number", "n", "95 %", "verdict"), *map(_short, findings)]
    columns = [Column(cells[0], min_width=max(map(len, cells)), no_wrap=True) for cells in zip(*rows, strict=True)]
    table = RichTable("claim", *columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for each, (number, n, interval, verdict) in zip(findings, rows[1:], strict=True):
        claim = Text(plain(each.claim)).append(f"\n{plain(each.quantity)}", style="dim")
        table.add_row(claim, number, n, interval, Text(verdict, style=COLOURS.get(each.verdict, "")))
    if WIDE.measure(table).minimum <= console.width:
        console.print(table)
        return
    for each in findings:
        verdict = Text(f"{each.verdict}: ", style=COLOURS.get(each.verdict, ""))
        console.print(verdict.append(plain(each.claim), style="default"))
        interval = f" {plain(each.range)}" if each.interval else ""
        console.print(Text(f"  {plain(each.number)}{interval}, n = {each.n:,}", style="dim"))


def _short(finding: Finding) -> tuple[str, str, str, str]:
    """The number, its n, its interval and the verdict: what stays on one line."""
    number = "" if finding.value is None else f"{finding.value:.4g}"
    return number, f"{finding.n:,}", plain(finding.range), str(finding.verdict)


def complain(sentence: str) -> None:
    """Say what is wrong, beside the output."""
    Console(stderr=True).print(Text(plain(sentence), style="red"), soft_wrap=True)
