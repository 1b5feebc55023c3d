"""The report: figures, findings and one page, pulled from stored runs. Nothing is computed again."""

import base64
import html
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from igr.lab import figures as drawing
from igr.lab.experiments import REGISTRY, load
from igr.lab.files import write_atomically
from igr.lab.findings import Finding, as_markdown
from igr.lab.store import Store, Table


@dataclass
class Chapter:
    """What the store has of one experiment."""

    name: str
    claim: str
    scale: str
    runs: int
    missing: list[str]
    figures: list[Path] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "experiment": self.name,
            "claim": self.claim,
            "scale": self.scale,
            "runs": self.runs,
            "missing": self.missing,
            "figures": [str(path) for path in self.figures],
            "findings": [finding.to_dict() for finding in self.findings],
            "record": self.record,
        }


def chapter(store: Store, name: str, draw: bool = True) -> Chapter:
    """The findings of one experiment and, with `draw`, its figures as files under DIR/figures."""
    module = load(name)
    runs, missing = store.runs(name)
    index = store.read_index(name) or {}
    found = Chapter(name, module.CLAIM, index.get("scale", ""), len(runs), missing, record=_record(runs))
    if not runs:
        return found
    found.findings = module.findings(runs)
    if draw:
        with drawing.style():
            for stem, figure in module.figures(runs).items():
                found.figures += drawing.save(figure, store.root / "figures" / stem)
    return found


def build(store: Store) -> list[Chapter]:
    """Redraw every figure of the store, and write findings.json, findings.md and index.html beside them."""
    chapters = [chapter(store, name) for name in REGISTRY if name in store.experiments()]
    write_atomically(store.root / "findings.json", _json(chapters))
    write_atomically(store.root / "findings.md", _markdown(chapters).encode())
    write_atomically(store.root / "index.html", _page(chapters).encode())
    return chapters


def _record(runs: Table) -> dict[str, Any]:
    """Where the runs were made: each value that occurs, so that a mixture shows."""
    names = ("device", "precision", "commit", "versions")
    seen = {
        name: list(dict.fromkeys(json.dumps(run.record.get(name), sort_keys=True) for run in runs)) for name in names
    }
    seconds = sum(float(run.record.get("seconds") or 0) for run in runs)
    return {
        **{name: [json.loads(value) for value in values] for name, values in seen.items()},
        "seconds": round(seconds, 3),
    }


def _json(chapters: Iterable[Chapter]) -> bytes:
    return (json.dumps([each.to_dict() for each in chapters], indent=1, default=str) + "\n").encode()


def _markdown(chapters: Iterable[Chapter]) -> str:
    parts = ["# Findings\n"]
    for each in chapters:
        parts.append(f"## {each.name}\n\n{each.claim}\n\n{_about(each)}\n\n{as_markdown(each.findings)}")
        parts += [f"- {problem}\n" for problem in each.missing]
    return "\n".join(parts)


def _about(each: Chapter) -> str:
    record = each.record
    where = ", ".join(str(value) for name in ("device", "precision") for value in record.get(name, []))
    missing = f", {len(each.missing)} missing or damaged" if each.missing else ""
    return (
        f"Scale {each.scale}; {each.runs} stored runs{missing}; {record.get('seconds', 0)} s of computing on {where}."
    )


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
img { max-width: 100%; height: auto } figure { margin: 1.5rem 0 } figcaption { color: #555; font-size: .9rem }
table { border-collapse: collapse; font-size: .85rem; width: 100% } th, td { border-bottom: 1px solid #ddd;
padding: .35rem .5rem; text-align: left; vertical-align: top } .holds { color: #00664b } .fails { color: #b34700 }
"""


def _page(chapters: Iterable[Chapter]) -> str:
    """One HTML file that needs no other: figures inside, no script, no network."""
    body = ["<h1>igr: what the stored runs say</h1>"]
    for each in chapters:
        body.append(
            f"<h2>{html.escape(each.name)}</h2><p>{html.escape(each.claim)}</p><p>{html.escape(_about(each))}</p>"
        )
        body += [f"<p><strong>{html.escape(problem)}</strong></p>" for problem in each.missing]
        heads = "".join(f"<th>{head}</th>" for head in ("claim", "paper", "number", "n", "verdict", "note"))
        body.append(f"<table><tr>{heads}</tr>{''.join(_row(finding) for finding in each.findings)}</table>")
        for path in each.figures:
            if path.suffix == ".png":
                data = base64.b64encode(path.read_bytes()).decode()
                name = html.escape(path.stem)
                image = f'<img alt="{name}" src="data:image/png;base64,{data}">'
                body.append(f"<figure>{image}<figcaption>{name}</figcaption></figure>")
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += f"<title>igr</title><style>{STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _row(finding: Finding) -> str:
    number = f"{finding.quantity} = {finding.value:.4g}" if finding.value is not None else finding.quantity
    if finding.interval:
        number += f" [{finding.interval[0]:.3g}, {finding.interval[1]:.3g}]"
    cells = [finding.claim, finding.paper, number, str(finding.n), finding.verdict.value, finding.note]
    inside = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
    return f'<tr class="{finding.verdict.value.replace(" ", "-")}">{inside}</tr>'
