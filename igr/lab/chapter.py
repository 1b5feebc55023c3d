"""A chapter: what one store has of one experiment, with its figures and measurements as files."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from igr.lab import figures as drawing
from igr.lab.captions import Caption, caption_of
from igr.lab.columns import csv_name, write_csv
from igr.lab.config import Config
from igr.lab.excluded import excluded, label_of
from igr.lab.experiments import load
from igr.lab.findings import Finding
from igr.lab.stamp import recall, remember, stamp_of
from igr.lab.store import Store, Table

OWN, SHIPPED = "these runs", "the repository's runs"


@dataclass
class Chapter:
    """What a store has of one experiment."""

    name: str
    claim: str
    scale: str
    runs: int
    missing: list[str]
    asked: int = 0  # runs, stored or not
    figures: list[Path] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    source: str = OWN
    command: str = ""
    captions: dict[str, Caption] = field(default_factory=dict)
    excluded: list[str] = field(default_factory=list)
    units: list[dict[str, Any]] = field(default_factory=list)  # label, config, record and CSV of each stored run

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "experiment": self.name,
            "claim": self.claim,
            "scale": self.scale,
            "command": self.command,
            "runs": self.runs,
            "missing": self.missing,
            "excluded": self.excluded,
            "figures": [str(path) for path in self.figures],
            "findings": [finding.to_dict() for finding in self.findings],
            "record": self.record,
        }

    def about(self) -> str:
        """Scale, n, cost and hardware in a sentence."""
        where = ", ".join(str(value) for name in ("device", "precision") for value in self.record.get(name, []))
        stored = f"{self.runs} of {self.asked} runs stored" if self.asked > self.runs else f"{self.runs} stored runs"
        cost = f"{self.record.get('seconds', 0):,.4g} s of computing on {where}"
        return f"Scale {self.scale}; {stored}; {cost}."


def chapter(
    store: Store,
    name: str,
    draw: bool = True,
    into: Path | None = None,
    source: str = OWN,
    again: bool = True,
    drawing_now: Callable[[str], None] = lambda stem: None,
) -> Chapter:
    """The findings of one experiment and, with `draw`, its figures and measurements as files under `into`.

    Without `again`, files that were made from these very runs by this very code stay as they are. `drawing_now` is
    told the name of each figure that is about to be drawn.
    """
    module, into = load(name), into or store.root
    runs, missing = store.runs(name)
    index = store.read_index(name) or {}
    scale, asked = index.get("scale", ""), len(index.get("units", []))
    found = Chapter(name, module.CLAIM, scale, len(runs), missing, asked, record=_record(runs), source=source)
    found.command = _command(name, index, getattr(module, "Options", None))
    if not runs:
        return found
    found.findings, found.excluded = module.findings(runs), excluded(runs)
    if draw:
        _draw(found, module, runs, into, "" if source == OWN else "beside", again, drawing_now)
    return found


def _draw(
    found: Chapter,
    module: ModuleType,
    runs: Table,
    into: Path,
    aside: str,
    again: bool,
    drawing_now: Callable[[str], None],
) -> None:
    """Write the figures and the measurements, or find them as they were written before."""
    mark, stamp = into / "figures" / aside / f".{found.name}.json", stamp_of(runs)
    kept = None if again else recall(mark, stamp)
    if kept is None:
        with drawing.style():
            for stem, figure in module.figures(runs).items():
                drawing_now(stem)
                found.figures += drawing.save(figure, into / "figures" / aside / stem)
        for run in runs:
            write_csv(run, into / "data" / aside)
        remember(mark, stamp, found.figures)
    else:
        found.figures = kept
    found.captions = {path.stem: caption_of(module, path.stem) for path in found.figures}
    for run in runs:
        record = {key: value for key, value in run.record.items() if key != "config"}
        link = (Path("data") / aside / csv_name(run)).as_posix()
        found.units.append({"label": label_of(run), "csv": link, "config": run.config.to_dict(), "record": record})


def _command(name: str, index: dict[str, Any], options: type[Config] | None) -> str:
    """The command that makes these runs, with the options that are not the default."""
    given = index.get("options", {})
    usual = options().to_dict() if options else {}
    flags = [f"--{key.replace('_', '-')} {value}" for key, value in given.items() if value != usual.get(key)]
    return " ".join(["igr run", name, f"--scale {index.get('scale', 'quick')}", *flags])


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
