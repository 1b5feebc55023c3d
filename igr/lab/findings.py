"""Findings: what a claim of the paper comes to in numbers, with a verdict that may be negative."""

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


def judged(condition: bool) -> Verdict:
    """`holds` or `fails`."""
    return Verdict.HOLDS if condition else Verdict.FAILS


def as_markdown(findings: Iterable[Finding]) -> str:
    """A table with one line for each finding."""
    lines = ["| claim | paper | number | n | 95 % | verdict | note |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for each in findings:
        number = f"{each.quantity} = {each.value:.4g}" if each.value is not None else each.quantity
        interval = f"[{each.interval[0]:.3g}, {each.interval[1]:.3g}]" if each.interval else ""
        cells = [each.claim, each.paper, number, str(each.n), interval, f"**{each.verdict}**", each.note]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
