"""The table of all claims of the paper, with the verdict and the number of stored runs on each."""

from collections.abc import Iterable, Mapping

from igr.lab.analysis.findings import Finding, tallied
from igr.lab.experiments.claims import CLAIMS, PaperClaim
from igr.lab.experiments.predictions import PREDICTIONS
from igr.lab.report.pages import Results, number, verdict_words
from igr.lab.store.config import Scale

HEAD = (
    "| where | the paper says | verdict | number | n | 95 % | tested by |\n| --- | --- | --- | --- | --- | --- | --- |"
)
NONE, BESIDE = "not in these runs", "also measured: "


def page(findings: Mapping[str, Iterable[Finding]]) -> str:
    """The headlines and all claims as a page of Markdown, from the findings of each experiment."""
    results = Results.of(findings, {})
    parts = ["# Every claim of the paper", tally(results), headlines(results), table(results)]
    return "\n\n".join(parts) + "\n"


def table(results: Results, claims: Iterable[PaperClaim] = CLAIMS) -> str:
    """A line for each claim: the verdict and the number of its first finding, and the verdicts of the others."""
    return "\n".join([HEAD, *(_row(claim, results) for claim in claims)])


def _row(claim: PaperClaim, results: Results) -> str:
    cells = [claim.where, claim.says]
    if claim.findings and claim.findings[0] not in results.findings:
        cells += [NONE, "", "", ""]
    elif claim.findings:
        first = results.find(claim.findings[0])
        interval = f"[{number(first.interval[0])}, {number(first.interval[1])}]" if first.interval else ""
        verdict = verdict_words(first, results.holm.get(claim.findings[0]))
        cells += [verdict, f"{number(first.value)} ({first.quantity})", str(first.n), interval]
    else:
        cells += [claim.verdict, "", "", ""]
    tested = [f"`{id}`" for id in claim.findings[:1]] + [f"`{test.rpartition('::')[2]}`" for test in claim.tests]
    others = [f"`{id}` ({results.find(id).verdict})" for id in claim.findings[1:] if id in results.findings]
    words = ", ".join(tested) + (f"; {BESIDE}{', '.join(others)}" if others else "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in [*cells, words]) + " |"


def headlines(results: Results) -> str:
    """The theorem and the four predictions, the finding that stands for each at paper scale, and why."""
    lines = ["| | headline | number | n | 95 % | verdict | why this one |", "| --- " * 7 + "|"]
    for each in PREDICTIONS.values():
        id = each.headline(Scale.PAPER)
        if id not in results.findings:
            lines.append(f"| {each.title} | {NONE} | | | | | {each.why} |")
            continue
        found = results.find(id)
        interval = f"[{number(found.interval[0])}, {number(found.interval[1])}]" if found.interval else ""
        words = [each.title, found.claim, number(found.value), str(found.n), interval]
        words += [verdict_words(found, results.holm.get(id)), each.why]
        lines.append("| " + " | ".join(word.replace("|", "\\|") for word in words) + " |")
    return "\n".join(lines)


def tally(results: Results, claims: Iterable[PaperClaim] = CLAIMS) -> str:
    """How many claims there are and how they fare, in a sentence."""
    claims = list(claims)
    judged = [results.findings[c.findings[0]].verdict for c in claims if set(c.findings[:1]) & set(results.findings)]
    return (
        f"{len(claims)} claims. Of the {len(judged)} that these runs judge: {tallied(judged)}. The other "
        f"{len(claims) - len(judged)} are mathematical statements with a test of the library, or are not tested."
    )
