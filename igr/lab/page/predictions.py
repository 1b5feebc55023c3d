"""The table of predictions: a row for each claim, the numbers of both sources side by side, sortable."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from igr.lab.findings import Finding, Verdict

if TYPE_CHECKING:
    from igr.lab.chapter import Chapter

ORDER = {verdict: place for place, verdict in enumerate(Verdict)}  # by which the column of verdicts sorts
Pair = tuple[Finding | None, Finding | None]


def pairs(own: Sequence[Finding], other: Sequence[Finding]) -> list[Pair]:
    """Each claim once, with what both sources say of it; claims that differ only in their counts are the same.

    >>> a, b = (Finding(f"after {n} steps", "", "Spearman", 0.0, n, Verdict.MIXED) for n in (10, 2000))
    >>> [(x and x.n, y and y.n) for x, y in pairs([a], [b])], len(pairs([a], []))
    ([(10, 2000)], 1)
    """
    left: list[Finding | None] = list(other)
    found: dict[int, Finding] = {}
    for same in (lambda each: (each.claim, each.quantity), lambda each: each.key):  # to the letter before by its sense
        for index, mine in enumerate(own):
            match = next((k for k, theirs in enumerate(left) if theirs and same(theirs) == same(mine)), None)
            if index not in found and match is not None:
                found[index], left[match] = left[match], None  # pyright: ignore[reportArgumentType]
    rows: list[Pair] = [(mine, found.get(index)) for index, mine in enumerate(own)]
    return rows + [(None, each) for each in left if each]


def verdict(finding: Finding) -> str:
    """A verdict with its colour and shape, and its word for everyone."""
    return f'<span class="verdict {finding.verdict.value.replace(" ", "-")}">{escape(finding.verdict.value)}</span>'


def predictions(own: "Sequence[Chapter]", other: "Sequence[Chapter]", csv: str) -> str:
    """The section: a tally, the table, and the table as CSV."""
    groups = [group for group in (own, other) if group]
    heads = [("claim", "claim"), ("in the paper", "place in the paper")]
    heads += [(name, f"{name}, {group[0].source}") for group in groups for name in ("number", "n", "95 %", "verdict")]
    buttons = "".join(
        f'<th scope="col" aria-sort="none" data-name="{escape(full)}" data-short="{escape(short)}">'
        f'<button type="button" aria-label="Sort by {escape(full)}">{escape(short)}</button></th>'
        for short, full in heads
    )
    sources = "".join(f'<th scope="colgroup" colspan="4">{escape(group[0].source)}</th>' for group in groups)
    above = f'<tr role="row"><td colspan="2"></td>{sources}</tr>' if len(groups) > 1 else ""
    options = "".join(f'<option value="{k}">{escape(full)}</option>' for k, (_, full) in enumerate(heads))
    rows = "".join(_rows(own, other))
    return (
        '<section aria-labelledby="predictions"><h2 id="predictions">Predictions and verdicts</h2>'
        "<p>A verdict says what the numbers say of the claim. Where chance is involved, <em>holds</em> means that the "
        "95 % interval lies on the predicted side, <em>fails</em> that it lies on the other, <em>mixed</em> that it "
        "does not decide; <em>not testable</em> that there are too few runs.</p>"
        f"{''.join(_tally(group) for group in groups)}"
        f'<p><a href="{csv}" download="findings.csv">This table as CSV</a></p>'
        '<p class="sortby"><label for="sort-by">Sort by</label> <select id="sort-by" data-sorts="table">'
        f'<option value="">the order of the paper</option>'
        f'{options}</select></p><p id="table-sorted" role="status" class="soft"></p>'
        '<table id="table" class="sortable stacked" role="table"><caption>A click on a head sorts; a third one '
        f'restores the order of the paper.</caption><thead>{above}<tr role="row">{buttons}</tr></thead>'
        f"<tbody>{rows}</tbody></table></section>"
    )


def _tally(group: "Sequence[Chapter]") -> str:
    counts = Counter(finding.verdict for each in group for finding in each.findings)
    words = "".join(
        f'<li><span class="verdict {v.value.replace(" ", "-")}">{counts[v]} {escape(v.value)}</span></li>'
        for v in Verdict
    )
    source = escape(group[0].source)
    return f'<ul class="tally" aria-label="Verdicts of {source}"><li>{source}:</li>{words}</ul>'


def _rows(own: "Sequence[Chapter]", other: "Sequence[Chapter]") -> list[str]:
    sources = [group[0].source for group in (own, other) if group]
    findings = [{each.name: each.findings for each in group} for group in (own, other)]
    place, rows = 0, []
    for name in dict.fromkeys([*findings[0], *findings[1]]):
        for pair in pairs(findings[0].get(name, []), findings[1].get(name, [])):
            place += 1
            shown = [each for each, group in zip(pair, (own, other), strict=True) if group]
            cells = "".join(_cells(each, source) for each, source in zip(shown, sources, strict=True))
            rows.append(f'<tr role="row">{_claim(pair, name, place)}{cells}</tr>')
    return rows


def _claim(pair: Pair, name: str, place: int) -> str:
    first = pair[0] or pair[1]
    assert first is not None
    notes = dict.fromkeys(each.note for each in pair if each and each.note)
    fold = "".join(f"<small>{escape(note)}</small>" for note in notes)
    fold = (
        f'<details><summary aria-label="Note on: {escape(first.claim)}">note</summary>{fold}</details>' if fold else ""
    )
    claims = dict.fromkeys(each.claim for each in pair if each)
    return (
        f'<td role="cell" class="claim" data-label="claim">{"<br>".join(map(escape, claims))}'
        f"<br><small>{escape(first.quantity)}</small>{fold}</td>"
        f'<td role="cell" class="place" data-sort="{place}">{escape(first.paper)}<br><small>{escape(name)}</small></td>'
    )


def _cells(finding: Finding | None, source: str) -> str:
    """Number, n, interval and verdict; `data-sort` is what the script compares, empty where there is nothing."""
    if finding is None:
        return (
            '<td role="cell" class="empty first" data-sort=""></td>'
            + '<td role="cell" class="empty" data-sort=""></td>' * 3
        )
    value = "" if finding.value is None else f"{finding.value:.4g}"
    low = finding.interval[0] if finding.interval else ""
    cells = [
        ("number first", "", "" if finding.value is None else finding.value, value.replace("-", "−")),
        ("number", "n", finding.n, f"{finding.n:,}"),
        ("number" if finding.interval else "number empty", "95 %", low, finding.range.replace("-", "−")),
        ("verdict-cell", "", ORDER[finding.verdict], verdict(finding)),
    ]
    return " ".join(  # the spaces are where a narrow page may break
        f'<td role="cell" class="{kind}" data-label="{label}" data-source="{escape(source)}" data-sort="{sort}">'
        f"{text}</td>"
        for kind, label, sort, text in cells
    )
