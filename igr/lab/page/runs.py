"""What is behind the numbers: what was left out, what speaks against the paper, and every run's configuration."""

import json
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from igr.lab.findings import Verdict
from igr.lab.page.predictions import verdict

if TYPE_CHECKING:
    from igr.lab.chapter import Chapter


def left_out(both: "Iterable[Chapter]") -> str:
    """Runs and networks that no number counts, each with its reason."""
    parts = []
    for each in both:
        sentences = [*each.missing, *each.excluded] or ["Nothing: every stored run is counted."]
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        parts.append(f"<h3>{escape(each.name)}, {escape(each.source)}</h3><ul>{items}</ul>")
    return _section("left-out", "Left out, and why", "".join(parts))


def negative(both: "Iterable[Chapter]") -> str:
    """The findings that fail or do not decide, with what was seen instead."""
    parts = []
    for each in both:
        against = [finding for finding in each.findings if finding.verdict in (Verdict.FAILS, Verdict.MIXED)]
        lines = "".join(
            f"<li>{verdict(finding)} {escape(finding.claim)} ({escape(finding.paper)}): {escape(finding.number)}"
            f"{escape(f' {finding.range}' if finding.range else '')}, n = {finding.n:,}"
            f"{escape(f'; {finding.note}' if finding.note else '')}.</li>"
            for finding in sorted(against, key=lambda finding: finding.verdict is Verdict.MIXED)
        )
        parts.append(f"<h3>{escape(each.name)}, {escape(each.source)}</h3><ul>{lines or '<li>None.</li>'}</ul>")
    words = "<p>What fails, and what the runs do not decide, as carefully kept as what holds.</p>"
    return _section("negative", "Negative results", words + "".join(parts))


def configurations(both: "Iterable[Chapter]") -> str:
    """Every run in a fold-out: its configuration, where it ran, and its measurements as CSV."""
    parts = []
    for each in both:
        units = "".join(_unit(unit) for unit in each.units)
        title = f"{escape(each.name)}, {escape(each.source)}: {len(each.units)} runs"
        parts.append(f'<details class="long"><summary>{title}</summary>{units}</details>')
    words = "<p>A run is decided by its configuration alone; its name is the configuration's SHA-256.</p>"
    return _section("runs", "Configurations and data", words + "".join(parts))


def _unit(unit: dict[str, Any]) -> str:
    record = {key: value for key, value in unit["record"].items() if value is not None}
    text = escape(json.dumps({"config": unit["config"], **record}, indent=1, sort_keys=True, default=str))
    link = f'<a href="{escape(unit["csv"])}">measurements as CSV<span hidden> of {escape(unit["label"])}</span></a>'
    return f"<details><summary>{escape(unit['label'])}</summary><p>{link}</p><pre>{text}</pre></details>"


def _section(anchor: str, title: str, inside: str) -> str:
    return f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{title}</h2>{inside}</section>'
