"""Findings: what a claim of the paper comes to in numbers, with a verdict that may be negative."""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What the numbers say about a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    MIXED = "mixed"
    UNTESTABLE = "not testable"


@dataclass(frozen=True)
class Finding:
    """One claim beside one measured number.

    >>> finding = Finding("R_IG/E falls as h grows", "Figure 1b", "Spearman", -1.0, 30, Verdict.HOLDS)
    >>> print(as_markdown([finding]).splitlines()[-1])
    | R_IG/E falls as h grows | Figure 1b | Spearman = -1 | 30 |  | **holds** |  |
    """

    claim: str
    paper: str  # where the paper says it
    quantity: str  # what the number is
    value: float | None
    n: int  # how many runs or points it rests on
    verdict: Verdict
    interval: tuple[float, float] | None = None  # 95 %, where there is something random to speak of
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**asdict(self), "verdict": self.verdict.value}

    @property
    def number(self) -> str:
        """What was measured and what came out, in words."""
        return f"{self.quantity} = {self.value:.4g}" if self.value is not None else self.quantity

    @property
    def range(self) -> str:
        """The interval in brackets, or nothing."""
        return f"[{self.interval[0]:.3g}, {self.interval[1]:.3g}]" if self.interval else ""

    @property
    def key(self) -> str:
        """The claim without its counts, by which the same claim is found at another scale."""
        return re.sub(r"\d[\d,.]*", "#", f"{self.claim}; {self.quantity}")


def judged(condition: bool) -> Verdict:
    """`holds` or `fails`."""
    return Verdict.HOLDS if condition else Verdict.FAILS


def as_markdown(findings: Iterable[Finding]) -> str:
    """A table with one line for each finding."""
    lines = ["| claim | paper | number | n | 95 % | verdict | note |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for each in findings:
        cells = [each.claim, each.paper, each.number, str(each.n), each.range, f"**{each.verdict}**", each.note]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def as_csv(found: Iterable[tuple[str, str, str, Finding]]) -> str:
    """The same for machines: a line for each (experiment, source, scale, finding), numbers in full."""
    buffer = io.StringIO()
    names = ("claim", "paper", "quantity", "value", "n", "low", "high", "verdict", "note")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("experiment", "source", "scale", *names))
    for experiment, source, scale, each in found:
        low, high = each.interval or ("", "")
        row = {**each.to_dict(), "low": low, "high": high, "value": "" if each.value is None else each.value}
        writer.writerow((experiment, source, scale, *(row[name] for name in names)))
    return buffer.getvalue()
