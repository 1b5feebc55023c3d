"""The report: figures, findings and one page, made from stored runs. Nothing is computed again.

OUT/index.html      the page: one file with everything except the measurements
OUT/findings.*      the claims and their verdicts, for people (md) and for programs (json, csv)
OUT/claims.md       every claim of the paper, with the finding that judges it
OUT/figures/        the figures as PNG and PDF; `beside` has those of the runs shown for comparison
OUT/data/           the measurements of each run as CSV, to which the page links
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator

from igr.lab.analysis.findings import as_csv, as_markdown
from igr.lab.experiments import load, stored
from igr.lab.report.chapter import OWN, SHIPPED
from igr.lab.report.chapter import Chapter as Chapter
from igr.lab.report.chapter import chapter as chapter
from igr.lab.report.claims import page as page_of_claims
from igr.lab.store.files import write_atomically
from igr.lab.store.store import Store
from igr.lab.store.store import shipped as shipped


def build(
    store: Store,
    beside: Store | None = None,
    again: bool = True,
    watch: Callable[[str, float], None] = lambda what, share: None,
) -> list[Chapter]:
    """Draw every figure of `store`, and write its findings and the page, with the runs of `beside` for comparison.

    Without `again`, only figures whose runs or code have changed are drawn, and so it is with those of `beside`, which
    are seldom what is being worked on. `watch(what, share)` is called before each
    figure is drawn, with the share of all figures that come before it. Returns the chapters of both.
    """
    from igr.lab.report.html import page  # here, so that `igr run` needs no Jinja2

    sources = [(store, OWN), *([(beside, SHIPPED)] if beside else [])]
    parts = [(each, source, name) for each, source in sources for name in stored(each)]
    sizes = [len(getattr(load(name), "CAPTIONS", {})) for *_, name in parts]
    chapters = []
    for k, (each, source, name) in enumerate(parts):
        count = itertools.count(sum(sizes[:k]))

        def tell(stem: str, count: Iterator[int] = count) -> None:
            watch(f"drawing {stem}", min(1.0, next(count) / max(1, sum(sizes))))

        chapters.append(chapter(each, name, True, store.root, source, again and source == OWN, tell))
    own, other = ([each for each in chapters if each.source == source] for source in (OWN, SHIPPED))
    write_atomically(store.root / "findings.json", _json(own))
    write_atomically(store.root / "findings.md", _markdown(own).encode())
    write_atomically(store.root / "claims.md", page_of_claims({each.name: each.findings for each in own}).encode())
    table = as_csv((each.name, each.source, each.scale, finding) for each in own + other for finding in each.findings)
    write_atomically(store.root / "findings.csv", table.encode())
    write_atomically(store.root / "index.html", page(own, other, table).encode())
    return chapters


def _json(chapters: Iterable[Chapter]) -> bytes:
    return (json.dumps([each.to_dict() for each in chapters], indent=1, default=str) + "\n").encode()


def _markdown(chapters: Iterable[Chapter]) -> str:
    parts = ["# Findings\n"]
    for each in chapters:
        parts.append(f"## {each.name}\n\n{each.claim}\n\n{each.about()}\n\n{as_markdown(each.findings)}")
        parts += [f"- {problem}\n" for problem in each.missing]
    return "\n".join(parts)
