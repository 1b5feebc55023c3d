"""Findings: a claim of the paper, the number measured for it, and a verdict that may be negative."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from igr.lab.analysis.cells import harmless
from igr.lab.store.config import ConfigError

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)*")


class Verdict(StrEnum):
    """What the numbers say about a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    MIXED = "mixed"
    UNTESTABLE = "not testable"


def tallied(verdicts: Iterable[Verdict]) -> str:
    """How many there are of each verdict, in words.

    >>> tallied([Verdict.HOLDS, Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.UNTESTABLE])
    '2 hold, 1 fails, 1 is mixed, 1 is not testable'
    """
    verbs = {
        Verdict.HOLDS: ("holds", "hold"),
        Verdict.FAILS: ("fails", "fail"),
        Verdict.MIXED: ("is mixed", "are mixed"),
        Verdict.UNTESTABLE: ("is not testable", "are not testable"),
    }
    counts = Counter(verdicts)
    return ", ".join(f"{counts[v]} {verbs[v][counts[v] > 1]}" for v in Verdict if counts[v])


@dataclass(frozen=True)
class Finding:
    """One claim with one measured number.

    >>> finding = Finding("R_IG/E falls as h grows", "Figure 1b", "Spearman", -1.0, 30, Verdict.HOLDS)
    >>> finding.id
    'r-ig-e-falls-as-h-grows'
    >>> print(as_markdown([finding]).splitlines()[-1])
    | R_IG/E falls as h grows | Figure 1b | Spearman = -1 | 30 |  | **holds** |  |
    """

    claim: str
    paper: str  # where the paper says it
    quantity: str  # what the number is
    value: float | None
    n: int  # the number of runs or points behind the value
    verdict: Verdict
    interval: tuple[float, float] | None = None  # 95 %, where chance is involved
    note: str = ""
    id: str = field(default="", kw_only=True)
    """The name of the claim, the same at every scale: words of lower-case letters and digits joined by hyphens, in
    groups separated by dots. Without one, it is made from the claim; give one where the claim contains numbers that
    differ between scales."""
    p: float | None = field(default=None, kw_only=True)
    """The two-sided p value of the claim that there is no effect, where one was computed. Verdicts depend on the
    interval; `corrected` says which of them survive a correction for the number of claims."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.id or "-".join(re.findall(r"[a-z0-9]+", self.claim.lower())))
        if not _ID.fullmatch(self.id):
            raise ConfigError(
                f"The finding id {self.id!r} is not valid: use lower-case words joined by hyphens, in groups separated "
                "by dots, such as 'mlp.r-ig-falls-with-lambda'."
            )

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON values."""
        return {"id": self.id, **asdict(self), "verdict": self.verdict.value}

    @property
    def number(self) -> str:
        """The quantity and its value as text."""
        return f"{self.quantity} = {self.value:.4g}" if self.value is not None else self.quantity

    @property
    def range(self) -> str:
        """The interval in brackets, or an empty string."""
        return f"[{self.interval[0]:.3g}, {self.interval[1]:.3g}]" if self.interval else ""

    def is_part_of(self, name: str) -> bool:
        """Whether `name` is this finding's id or the leading groups of it.

        >>> finding = Finding("", "", "", 0.0, 1, Verdict.HOLDS, id="resnet.penalty-helps.h-0.01")
        >>> finding.is_part_of("resnet.penalty-helps"), finding.is_part_of("resnet.penalty")
        (True, False)
        """
        return self.id == name or self.id.startswith(f"{name}.")


def corrected(found: Iterable["Finding"]) -> dict[str, float]:
    """The p values by id after Holm's correction for the number of claims in `found` that have one.

    >>> a = Finding("", "", "", 0.5, 9, Verdict.HOLDS, id="a", p=0.01)
    >>> b = Finding("", "", "", 0.5, 9, Verdict.HOLDS, id="b", p=0.04)
    >>> corrected([a, b])
    {'a': 0.02, 'b': 0.04}
    """
    from igr.lab.analysis.statistics import holm  # here, since it imports SciPy

    tested = [each for each in found if each.p is not None]
    adjusted = holm([each.p for each in tested])
    return {each.id: float(p) for each, p in zip(tested, adjusted, strict=True)}


def judged(condition: bool) -> Verdict:
    """`holds` or `fails`."""
    return Verdict.HOLDS if condition else Verdict.FAILS


def pending(id: str, claim: str, paper: str, units: int, command: str) -> Finding:
    """The finding for a claim whose runs are planned and not yet computed: no number, and the command that gives one.

    `units` is how many runs are missing.

    >>> pending("demo.large", "It holds for large networks", "section 6", 3, "igr run demo").number
    'not yet computed'
    """
    note = f"{units} runs are missing: {command}"
    return Finding(claim, paper, "not yet computed", None, 0, Verdict.UNTESTABLE, note=note, id=id)


def with_unique_ids(found: Iterable[Finding], experiment: str) -> list[Finding]:
    """The findings as a list; raise `ConfigError` where two of them have one id."""
    found = list(found)
    repeated = [id for id, count in Counter(each.id for each in found).items() if count > 1]
    if repeated:
        raise ConfigError(f"Two findings of {experiment} have the id {repeated[0]!r}: give each finding its own id.")
    return found


def as_markdown(findings: Iterable[Finding]) -> str:
    """A table with one line for each finding."""
    lines = ["| claim | paper | number | n | 95 % | verdict | note |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for each in findings:
        cells = [each.claim, each.paper, each.number, str(each.n), each.range, f"**{each.verdict}**", each.note]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def as_csv(found: Iterable[tuple[str, str, str, Finding]]) -> str:
    """A line for each (experiment, source, scale, finding), with all digits of the numbers."""
    buffer = io.StringIO()
    names = ("id", "claim", "paper", "quantity", "value", "n", "low", "high", "verdict", "note", "p")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("experiment", "source", "scale", *names))
    for experiment, source, scale, each in found:
        low, high = each.interval or ("", "")
        row = {**each.to_dict(), "low": low, "high": high, "value": "" if each.value is None else each.value}
        row["p"] = "" if each.p is None else each.p
        writer.writerow(map(harmless, (experiment, source, scale, *(row[name] for name in names))))
    return buffer.getvalue()
