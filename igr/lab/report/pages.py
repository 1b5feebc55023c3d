r"""Markdown pages whose numbers come from stored runs.

A page is written by hand, and its numbers are marked by comments, which readers do not see. `filled` puts today's
numbers in place of what stands there, with as many decimals, and is the identity where nothing has changed:

    ... by 12.10<!--resnet.boost-of-12-points--> points [11.36, 12.84]<!--resnet.boost-of-12-points interval--> (n = ...

The word after the id is a part of the finding: `value` (where there is none), `percent`, `n`, `low`, `high`,
`interval`, `p`, `holm`, `verdict` or `note`. A table of findings stands between

    <!-- table: mlp
    mlp.networks-fit | networks that fit their training set
    mlp.equal-loss.slope-falls-with-h.common-range
    -->
    <!-- end -->

or, with their notes in place of intervals, after `<!-- notes: mlp`. Anything else that an experiment makes of its runs
stands, by name, between `<!-- view: resnet.by-rate -->` and `<!-- end -->`. `unmarked` lists the decimals and shares of
a page that no mark accounts for. Numbers that are not results, such as settings, stand in formulas, in code, in a block
between `<!-- settings -->` and `<!-- end -->`, or before `<!-- setting -->`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from igr.lab.analysis.findings import Finding, Verdict, corrected, tallied
from igr.lab.store.config import ConfigError

MARK = re.compile(r"(\*\*[^*\n]+\*\*|\[[^\]\n]*\]|[^\s|(\[*>]+)<!--([a-z0-9/._-]+?)(?: (\w+))?-->")
BLOCK = re.compile(r"<!-- (table|notes|view): ([^\n]*?)(?:\n(.*?))?-->\n(.*?)<!-- end -->", re.DOTALL)
HIDDEN = re.compile(
    r"```.*?```|^ {4}.*?$|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|<!-- (?:settings|table|notes|view)\b.*?<!-- end -->"
    r"|[^\s|]+(?: [\w%]+)?<!-- setting -->|(?i:theorem|version) [\d.]+|<!--.*?-->|\]\([^)]*\)|\]\[[^\]]*\]",
    re.DOTALL | re.MULTILINE,
)
RESULT = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?\b|\b\d+ %|\b\d+ of \d+\b|\b\d+ points")
HEAD = "| claim | paper | number | n | 95 % | p | Holm | verdict |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
NOTES = "| claim | paper | number | n | verdict | note |\n| --- | --- | --- | --- | --- | --- |"
LEVEL = 0.05  # of p values, as of the intervals


@dataclass(frozen=True)
class Results:
    """What the stored runs say: findings by id, p values after Holm's correction, and views by name."""

    findings: Mapping[str, Finding]
    holm: Mapping[str, float]
    views: Mapping[str, str]

    @classmethod
    def of(cls, experiments: Mapping[str, Iterable[Finding]], views: Mapping[str, str]) -> "Results":
        """From the findings of each experiment, whose claims are one family of Holm's correction.

        The key of an experiment may begin with the name of its store and a slash, which then begins the ids too.
        """
        findings, holm, made = {}, {}, dict(views)
        for key, some in experiments.items():
            some, store = list(some), key.rpartition("/")[0]
            begin = f"{store}/" if store else ""
            findings |= {begin + each.id: each for each in some}
            holm |= {begin + id: p for id, p in corrected(some).items()}
            made[f"{key}.count"] = count(some)
        return cls(findings, holm, made)

    def find(self, id: str) -> Finding:
        """The finding of this id."""
        if id not in self.findings:
            raise ConfigError(f"A page names the finding {id!r}, which the stored runs do not have.")
        return self.findings[id]


def filled(text: str, results: Results) -> str:
    """The page with the numbers of `results`.

    >>> found = Finding("It falls", "", "Spearman", -0.657, 82, Verdict.HOLDS, (-0.8, -0.4), id="mlp.falls")
    >>> results = Results.of({"mlp": [found]}, {})
    >>> filled("It is 0.5<!--mlp.falls--> (n = 3<!--mlp.falls n-->, [0.0, 1.0]<!--mlp.falls interval-->).", results)
    'It is -0.7<!--mlp.falls--> (n = 82<!--mlp.falls n-->, [-0.8, -0.4]<!--mlp.falls interval-->).'
    """

    def block(found: re.Match[str]) -> str:
        kind, name, rows = found.group(1), found.group(2).strip(), found.group(3)
        head = found.group(0)[: found.start(4) - found.start(0)]
        made = _view(name, results) if kind == "view" else _table(rows or "", results, kind == "notes")
        return f"{head}\n{made}\n<!-- end -->"

    def mark(found: re.Match[str]) -> str:
        old, id, part = found.groups()
        whole = found.group(0)
        return _text(results, id, part or "value", old) + whole[len(old) :]

    return MARK.sub(mark, BLOCK.sub(block, text))


def unmarked(text: str) -> list[str]:
    """The decimals, percentages, shares and points of a page that are neither marked nor settings.

    >>> unmarked("It is 0.5, `0.1`, $h = 0.2$ and 0.3<!--mlp.falls-->: 3 of 4")
    ['0.5', '3 of 4']
    """
    return RESULT.findall(HIDDEN.sub(" ", MARK.sub(" ", text)))


def count(found: Iterable[Finding]) -> str:
    """How many claims there are, how they were judged, and how many survive Holm's correction, in a sentence."""
    found = list(found)
    known = corrected(found)
    decided = [each for each in found if each.id in known and each.verdict in (Verdict.HOLDS, Verdict.FAILS)]
    kept = sum(known[each.id] < LEVEL for each in decided)
    judged = f"These runs judge {len(found)} claims: {tallied(each.verdict for each in found)}."
    if not known:
        return f"{judged} None has a p value to correct for their number."
    return (
        f"{judged} {len(known)} have a p value. Of the {len(decided)} of these that hold or fail, {kept} keep one "
        f"below {LEVEL:g} after Holm's correction for all {len(known)}."
    )


def number(value: float | None) -> str:
    """A number with about three digits.

    >>> number(-0.7456), number(12.097), number(82.0), number(None), number(3e-7), number(float("nan"))
    ('-0.75', '12.1', '82', '–', '3e-07', 'nan')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return f"{value}"
    if value == int(value) and abs(value) >= 2:
        return f"{int(value)}"
    if 0 < abs(value) < 0.005:
        return f"{value:.1g}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def verdict_words(each: Finding, holm: float | None) -> str:
    """The verdict; a word more where the p value after Holm's correction does not support it."""
    weak = holm is not None and holm >= LEVEL and each.verdict in (Verdict.HOLDS, Verdict.FAILS)
    return f"**{each.verdict}**{', not after Holm' if weak else ''}"


def row(id: str, label: str, results: Results, notes: bool = False) -> str:
    """A line of a table."""
    each, holm = results.find(id), results.holm.get(id)
    if notes:
        cells = [label or each.claim, each.paper, f"{number(each.value)} ({each.quantity})", str(each.n)]
        cells += [verdict_words(each, holm), each.note]
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    interval = f"[{number(each.interval[0])}, {number(each.interval[1])}]" if each.interval else ""
    ps = [f"{p:.2g}" if p is not None else "" for p in (each.p, holm)]
    cells = [label or each.claim, each.paper, number(each.value), str(each.n), interval, *ps]
    return "| " + " | ".join([*(cell.replace("|", "\\|") for cell in cells), verdict_words(each, holm)]) + " |"


def _table(rows: str, results: Results, notes: bool) -> str:
    lines = [line.partition("|") for line in rows.strip().splitlines()]
    parts = (row(id.strip(), label.strip(), results, notes) for id, _, label in lines)
    return "\n".join([NOTES if notes else HEAD, *parts])


def _view(name: str, results: Results) -> str:
    if name not in results.views:
        raise ConfigError(f"A page names the view {name!r}, and there are {', '.join(results.views) or 'none'}.")
    return results.views[name].strip()


def _text(results: Results, id: str, part: str, old: str) -> str:
    each = results.find(id)
    low, high = each.interval or (None, None)
    holm = results.holm.get(id)
    share = None if each.value is None else 100 * each.value
    numbers = {"value": each.value, "percent": share, "low": low, "high": high, "p": each.p, "holm": holm}
    if part in numbers:
        return like(old, numbers[part])
    if part == "n":
        return str(each.n)
    if part == "interval":
        pieces = old.strip("[]").split(", ")
        return f"[{', '.join(like(a, b) for a, b in zip(pieces, (low, high), strict=True))}]"
    if part == "verdict":
        return f"**{each.verdict}**" if old.startswith("**") else str(each.verdict)
    raise ConfigError(f"A page asks for {part!r} of {id!r}: choose one of {', '.join(numbers)}, n, interval, verdict.")


def like(old: str, value: float | None) -> str:
    """A number with as many decimals as the text that it replaces has.

    >>> like("0.50", -0.657), like("3", 11.6), like("2e-9", 3.14e-10), like("0.5", None)
    ('-0.66', '12', '3e-10', '–')
    """
    if value is None:
        return "–"
    mantissa, exponent, _ = old.partition("e")
    decimals = len(mantissa.partition(".")[2])
    if not exponent:
        return f"{value:.{decimals}f}"
    digits, power = f"{value:.{decimals}e}".split("e")
    return f"{digits}e{int(power)}"
