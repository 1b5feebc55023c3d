"""What stored runs say, gathered for pages: the findings and views of every experiment of some stores, and benchmarks.

The ratios of a benchmark are findings too, with ids such as `benchmarks/penalty.resnet-18-width-64.igr-forward.ratio`:
the file, then the words of the row that say what was measured.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.experiments import load, stored
from igr.lab.report.claims import headlines, table, tally
from igr.lab.report.pages import Results
from igr.lab.store.store import Store

FOLDER = "benchmarks"


def gather(stores: Mapping[str, Store]) -> Results:
    """The results of `stores`, whose names begin the ids of their findings; the name of the first one is empty.

    An experiment may have `views(runs)`, which makes Markdown of its runs by name.
    """
    findings, views, measured = {}, {}, {}
    for key, store in stores.items():
        begin = f"{key}/" if key else ""
        for name in stored(store):
            module = load(name)
            runs, _ = store.runs(name)
            findings[begin + name] = module.findings(runs)
            views |= {begin + view: text for view, text in getattr(module, "views", lambda _: {})(runs).items()}
        for path in sorted((store.root / FOLDER).glob("*.json")):
            measured |= {f"{begin}{FOLDER}/{each.id}": each for each in ratios(path)}
    results = Results.of(findings, views)
    results = Results({**results.findings, **measured}, results.holm, results.views)
    made = {"claims.table": table(results), "claims.tally": tally(results), "claims.headlines": headlines(results)}
    return Results(results.findings, results.holm, {**results.views, **made})


def ratios(path: Path) -> Iterator[Finding]:
    """The ratios of a benchmark's file, one finding for each row that has one."""
    stored = json.loads(path.read_text())
    for row in stored.get("rows", []) if isinstance(stored, dict) else []:
        words = ".".join(re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
                         for value in row.values() if isinstance(value, str))  # fmt: skip
        for name, value in row.items():
            if name in ("ratio", "memory ratio"):
                id = f"{path.stem.replace('_', '-')}.{words}.{name.replace(' ', '-')}"
                yield Finding(id, "not in the paper", name, float(value), 1, Verdict.UNTESTABLE, id=id)
