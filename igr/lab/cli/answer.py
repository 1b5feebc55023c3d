"""The answer on the terminal: what the runs say about the theorem and the four predictions, in at most 25 lines."""

import io
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from igr.lab.analysis.findings import Verdict, tallied
from igr.lab.experiments.predictions import PREDICTIONS
from igr.lab.report.chapter import Chapter
from igr.lab.report.summary import Card, Side, cards, limits
from igr.lab.store.text import plain

COLOURS = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.MIXED: "yellow"}
NAMED = 4  # failing claims that are named; the others are counted
LEGEND = (
    f"The number is a rank correlation; for the theorem, it is the {PREDICTIONS['theorem'].quantity}. In brackets: "
    "how many networks are behind it."
)
WIDE = Console(width=1000, file=io.StringIO())  # measures without cropping


def show_answer(console: Console, own: Sequence[Chapter], other: Sequence[Chapter]) -> None:
    """Print the verdicts of `own` beside those of `other`, what fails, and what the scale of `own` cannot show."""
    found = cards(own, other)
    if any(card.sides for card in found):
        titles = [_title("here", [card.own for card in found])]
        titles += [_title("repository", [card.other for card in found])] if other else []
        table = _beside(found, titles)
        fits = WIDE.measure(table).maximum <= console.width
        console.print(table if fits else _below(found, titles))
        console.print(LEGEND, style="dim", highlight=False)
    for line in (*_against(own, console.width), *_beyond(own, other)):
        console.print(line, highlight=False)


def _title(source: str, sides: Sequence[Side | None]) -> str:
    scales = dict.fromkeys(side.chapter.scale for side in sides if side)
    return f"{source}, {' and '.join(scales)}" if scales else source


def _beside(found: Sequence[Card], titles: Sequence[str]) -> Table:
    """A line for each prediction, and a column for each source."""
    table = Table("Prediction", *titles, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in table.columns:
        column.no_wrap = True
    for card in found:
        sides = (card.own, card.other)[: len(titles)]
        table.add_row(_claim(card), *map(_verdict, sides))
    return table


def _claim(card: Card) -> str:
    """The number and the words of a prediction, such as '1. R_IG falls as lambda grows'."""
    number = card.prediction.title.split()[-1]
    return f"{number}. {card.prediction.short}" if number.isdigit() else f"Theorem: {card.prediction.short}"


def _below(found: Sequence[Card], titles: Sequence[str]) -> Text:
    """For narrow terminals: the sources of a prediction below each other."""
    text = Text()
    for card in found:
        text.append(f"{_claim(card)}\n", style="bold")
        for title, side in zip(titles, (card.own, card.other), strict=False):
            text.append(f"  {title}: ").append_text(_verdict(side)).append("\n")
    text.rstrip()
    return text


def _verdict(side: Side | None) -> Text:
    """The verdict, the number, and the n behind it."""
    if side is None:
        return Text("not run", style="dim")
    finding = side.finding
    text = Text(finding.verdict, style=COLOURS.get(finding.verdict, ""))
    return text if finding.value is None else text.append(f" {finding.value:.2g} ({finding.n:,})", style="default")


def _against(own: Sequence[Chapter], width: int) -> Iterator[Text]:
    """How many findings there are of each verdict, and the first of those that fail."""
    everything = [finding for each in own for finding in each.findings]
    if not everything:
        return
    verdicts = tallied(finding.verdict for finding in everything)
    total = f"{len(everything)} finding{'s' if len(everything) > 1 else ''} here: {verdicts}."
    failing = [finding for finding in everything if finding.verdict is Verdict.FAILS]
    about = [finding for finding in failing if any(each.about([finding]) for each in PREDICTIONS.values())]
    failing = [*about, *(finding for finding in failing if finding not in about)]
    yield Text(total + (" These fail:" if len(failing) > 1 else " This fails:" if failing else ""))
    for finding in failing[:NAMED]:
        claim = textwrap.shorten(plain(finding.claim), width - 2, placeholder=" ...")
        yield Text("- ", style=COLOURS[Verdict.FAILS]).append(claim, style="default")
    if len(failing) > NAMED:
        yield Text(f"- and {len(failing) - NAMED} more")


def _beyond(own: Sequence[Chapter], other: Sequence[Chapter]) -> Iterator[Text]:
    """What the scale of these runs cannot show, what the other runs say about it, and the command that shows it."""
    if not any(each.name in {card.experiment for card in PREDICTIONS.values()} for each in own):
        return  # experiments of the user's own
    for missing in limits(own, other):
        limit, finding = missing.limit, missing.finding
        text = Text(f"Only paper scale shows {limit.what}")
        if finding is not None and missing.chapter:
            text.append(f"; the repository's runs: {finding.verdict}, {plain(finding.number)} (n = {finding.n})")
        yield text.append(f". Your own: {limit.command}, {limit.cost}.")
