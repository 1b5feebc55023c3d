"""The report: figures, findings and one page, pulled from stored runs. Nothing is computed again.

OUT/index.html      the page: everything in one file but the measurements
OUT/findings.*      the predictions and their verdicts, for people (md) and machines (json, csv)
OUT/figures/        the figures as PNG and PDF; those of the runs shown beside them in a folder of their own
OUT/data/           the measurements of each run as CSV, to which the page links
"""

import json
from collections.abc import Iterable
from pathlib import Path

from igr.lab.chapter import OWN, SHIPPED
from igr.lab.chapter import Chapter as Chapter
from igr.lab.chapter import chapter as chapter
from igr.lab.experiments import REGISTRY
from igr.lab.files import write_atomically
from igr.lab.findings import as_csv, as_markdown
from igr.lab.page import page
from igr.lab.store import Store
from igr.lab.store import shipped as shipped


def build(store: Store, beside: Store | None = None, again: bool = True) -> list[Chapter]:
    """Redraw every figure of the store, and write its findings and one page, with another store's runs beside.

    Without `again`, only the figures whose runs or code have changed are redrawn.
    """
    own = _chapters(store, store.root, OWN, again)
    other = _chapters(beside, store.root, SHIPPED, again) if beside else []
    write_atomically(store.root / "findings.json", _json(own))
    write_atomically(store.root / "findings.md", _markdown(own).encode())
    table = as_csv((each.name, each.source, each.scale, finding) for each in own + other for finding in each.findings)
    write_atomically(store.root / "findings.csv", table.encode())
    write_atomically(store.root / "index.html", page(own, other, table).encode())
    return own


def _chapters(store: Store, into: Path, source: str, again: bool) -> list[Chapter]:
    stored = store.experiments()
    return [chapter(store, name, into=into, source=source, again=again) for name in REGISTRY if name in stored]


def _json(chapters: Iterable[Chapter]) -> bytes:
    return (json.dumps([each.to_dict() for each in chapters], indent=1, default=str) + "\n").encode()


def _markdown(chapters: Iterable[Chapter]) -> str:
    parts = ["# Findings\n"]
    for each in chapters:
        parts.append(f"## {each.name}\n\n{each.claim}\n\n{each.about()}\n\n{as_markdown(each.findings)}")
        parts += [f"- {problem}\n" for problem in each.missing]
    return "\n".join(parts)
