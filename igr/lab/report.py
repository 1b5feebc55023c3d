"""The report: figures, findings and one page, pulled from stored runs. Nothing is computed again.

OUT/index.html      the page: everything in one file but the measurements
OUT/findings.*      the predictions and their verdicts, for people (md) and machines (json, csv)
OUT/figures/        the figures as PNG and PDF; those of the runs shown beside them in a folder of their own
OUT/data/           the measurements of each run as CSV, to which the page links
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator

from igr.lab.chapter import OWN, SHIPPED
from igr.lab.chapter import Chapter as Chapter
from igr.lab.chapter import chapter as chapter
from igr.lab.experiments import REGISTRY, load
from igr.lab.files import write_atomically
from igr.lab.findings import as_csv, as_markdown
from igr.lab.page import page
from igr.lab.store import Store
from igr.lab.store import shipped as shipped


def build(
    store: Store,
    beside: Store | None = None,
    again: bool = True,
    watch: Callable[[str, float], None] = lambda what, share: None,
) -> list[Chapter]:
    """Redraw every figure of the store, and write its findings and one page, with another store's runs beside.

    Without `again`, only the figures whose runs or code have changed are redrawn. `watch(what, share)` is told of each
    figure that is about to be drawn, with the share of the figures there may be that come before it.
    """
    sources = [(store, OWN), *([(beside, SHIPPED)] if beside else [])]
    parts = [(each, source, name) for each, source in sources for name in REGISTRY if name in each.experiments()]
    sizes = [len(getattr(load(name), "CAPTIONS", {})) for *_, name in parts]
    chapters = []
    for k, (each, source, name) in enumerate(parts):
        count = itertools.count(sum(sizes[:k]))

        def tell(stem: str, count: Iterator[int] = count) -> None:
            watch(f"drawing {stem}", min(1.0, next(count) / max(1, sum(sizes))))

        chapters.append(chapter(each, name, True, store.root, source, again, tell))
    own, other = ([each for each in chapters if each.source == source] for source in (OWN, SHIPPED))
    write_atomically(store.root / "findings.json", _json(own))
    write_atomically(store.root / "findings.md", _markdown(own).encode())
    table = as_csv((each.name, each.source, each.scale, finding) for each in own + other for finding in each.findings)
    write_atomically(store.root / "findings.csv", table.encode())
    write_atomically(store.root / "index.html", page(own, other, table).encode())
    return own


def _json(chapters: Iterable[Chapter]) -> bytes:
    return (json.dumps([each.to_dict() for each in chapters], indent=1, default=str) + "\n").encode()


def _markdown(chapters: Iterable[Chapter]) -> str:
    parts = ["# Findings\n"]
    for each in chapters:
        parts.append(f"## {each.name}\n\n{each.claim}\n\n{each.about()}\n\n{as_markdown(each.findings)}")
        parts += [f"- {problem}\n" for problem in each.missing]
    return "\n".join(parts)
