"""A chapter of the report: one experiment of one store, with its figures and measurements as files."""

import json
import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from igr.lab.analysis.exclusions import excluded
from igr.lab.analysis.findings import Finding, with_unique_ids
from igr.lab.experiments import load
from igr.lab.plots.captions import Caption, caption_of
from igr.lab.report.columns import csv_name, write_csv
from igr.lab.report.stamp import recall, remember, stamp_of
from igr.lab.store.config import Config
from igr.lab.store.files import StoreError
from igr.lab.store.provenance import older, reproducible
from igr.lab.store.store import Store, Table
from igr.lab.store.tolerant import alone, label_of, tried

OWN, SHIPPED = "these runs", "the repository's runs"
CARD = "card-"  # begins the names of small figures


@dataclass
class Chapter:
    """One experiment of one store."""

    name: str
    claim: str
    scale: str
    runs: int
    missing: list[str]
    asked: int = 0  # number of runs that `igr run` was asked for, stored or not
    figures: list[Path] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    source: str = OWN
    command: str = ""
    captions: dict[str, Caption] = field(default_factory=dict)
    cards: dict[str, Path] = field(default_factory=dict)  # the small figure of a prediction, by its key; SVG
    excluded: list[str] = field(default_factory=list)
    bits: list[str] = field(default_factory=list)  # what a new run may repeat of these, and what it may not
    units: list[dict[str, Any]] = field(default_factory=list)  # label, config, record and CSV of each stored run

    def to_dict(self) -> dict[str, Any]:
        """The chapter as plain JSON values; what is not finite, which JSON has no words for, is null."""
        found = {
            "experiment": self.name,
            "claim": self.claim,
            "scale": self.scale,
            "command": self.command,
            "runs": self.runs,
            "missing": self.missing,
            "excluded": self.excluded,
            "bits": self.bits,
            "figures": [str(path) for path in self.figures],
            "findings": [finding.to_dict() for finding in self.findings],
            "record": self.record,
        }
        return _finite(found)

    def about(self) -> str:
        """Scale, n, cost and hardware in a sentence."""
        stored = f"{self.runs} of {self.asked} runs stored" if self.asked > self.runs else f"{self.runs} stored runs"
        cost = f"{self.record.get('seconds', 0):,.4g} s of computing on {self.hardware()}"
        return f"Scale {self.scale}; {stored}; {cost}."

    def pictures(self) -> dict[str, Path]:
        """The SVG of each figure, by its name."""
        return {path.stem: path for path in self.figures if path.suffix == ".svg"}

    def hardware(self) -> str:
        """Device and precision, all that occur."""
        return ", ".join(_short(str(value)) for name in ("device", "precision") for value in self.record.get(name, []))

    def made_by(self) -> str:
        """The commits and versions that made the runs, in a sentence, or nothing where they are not known."""
        used = (each for each in self.record.get("versions", []) if each)
        versions = "; ".join(", ".join(f"{name} {number}" for name, number in each.items()) for each in used)
        commits = ", ".join(str(each)[:12] for each in self.record.get("commit", []) if each)
        return f"Commit {commits}; {versions}." if commits else f"{versions}." if versions else ""


def _short(device: str) -> str:
    """The name of a single device by itself.

    >>> _short("1 x cpu (cpu), 2 cores"), _short("1 x NVIDIA H200 (gpu), 16 cores"), _short("float32")
    ('CPU, 2 cores', 'NVIDIA H200, 16 cores', 'float32')
    """
    return re.sub(r"^1 x (.+?) \([cg]pu\)", lambda found: "CPU" if found[1] == "cpu" else found[1], device)


def chapter(
    store: Store,
    name: str,
    draw: bool = True,
    into: Path | None = None,
    source: str = OWN,
    again: bool = True,
    drawing_now: Callable[[str], None] = lambda stem: None,
) -> Chapter:
    """The findings of the experiment `name` and, with `draw`, its figures and measurements as files under `into`.

    `source` says whose runs these are. Without `again`, files that were made from the same runs by the same code stay
    as they are. `drawing_now` is called with the name of each figure before it is drawn.
    """
    module, into = load(name), into or store.root
    runs, missing = store.runs(name)
    index = store.read_index(name) or {}
    scale, asked = index.get("scale", ""), len(index.get("units", []))
    found = Chapter(name, module.CLAIM, scale, len(runs), missing, asked, record=_record(runs), source=source)
    found.command = _command(name, index, getattr(module, "Options", None))
    if not runs:
        return found
    analysed, runs, problems = tried(lambda some: (module.findings(some), excluded(some)), name, runs, "analysed")
    found.findings, found.excluded = (
        with_unique_ids(analysed[0], name) if analysed else [],
        analysed[1] if analysed else [],
    )
    found.bits = _bits(runs)
    if draw:
        problems += _draw(found, module, runs, into, "" if source == OWN else "beside", again, drawing_now)
    found.missing += problems
    store.harm += problems
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bits(runs: Table) -> list[str]:
    """What of these runs a new one repeats bit by bit, and how many other code has computed."""
    if not runs:
        return []
    known = [older(run.record, run.config) for run in runs]
    counts = ((True, "were computed by an older version of the code"), (None, "do not say by which code"))
    told = [f"{known.count(state)} of {len(runs)} runs {words}." for state, words in counts if state in known]
    return [reproducible([run.record for run in runs]), *told]


def _draw(
    found: Chapter,
    module: ModuleType,
    runs: Table,
    into: Path,
    aside: str,
    again: bool,
    drawing_now: Callable[[str], None],
) -> list[str]:
    """Write the figures and the measurements, unless they are there and up to date; a sentence for what cannot be."""
    from igr.lab.plots import style as drawing  # here, so that `igr run` needs no matplotlib

    mark, stamp = into / "figures" / aside / f".{found.name}.json", stamp_of(runs, module.__name__)
    kept, problems = None if again else recall(mark, stamp), []
    if kept is None:
        kept = []
        with drawing.style():
            figures, runs, problems = tried(module.figures, found.name, runs, "drawn")
            small, _, more = tried(getattr(module, "cards", lambda runs: {}), found.name, runs, "drawn on cards")
            cards = {f"{CARD}{key}": figure for key, figure in (small or {}).items()}
            for stem, figure in ((figures or {}) | cards).items():
                drawing_now(stem)
                try:
                    kept += drawing.save(figure, into / "figures" / aside / stem)
                except StoreError:
                    raise
                except Exception as error:  # such as logarithmic axes where nothing is finite
                    problems.append(f"The figure {stem} cannot be drawn: {type(error).__name__}: {error}.")
        runs, unwritten = alone(lambda run: write_csv(run, into / "data" / aside), found.name, runs, "written as CSV")
        problems += more + unwritten
        if not problems:
            remember(mark, stamp, kept)
    found.cards = {path.stem.removeprefix(CARD): path for path in kept if path.match(f"{CARD}*.svg")}
    found.figures = [path for path in kept if not path.name.startswith(CARD)]
    found.captions = {path.stem: caption_of(module, path.stem) for path in found.figures}
    for run in runs:
        record = {key: value for key, value in run.record.items() if key != "config"}
        link = (Path("data") / aside / csv_name(run)).as_posix()
        found.units.append({"label": label_of(run), "csv": link, "config": run.config.to_dict(), "record": record})
    return problems


def _command(name: str, index: dict[str, Any], options: type[Config] | None) -> str:
    """The command that makes these runs, with the options that are not the default."""
    usual = options().to_dict() if options else {}
    changed = {key: value for key, value in index.get("options", {}).items() if value != usual.get(key)}
    flags = [word for key, value in changed.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    words = index.get("flags", flags)  # igr 0.1 did not store them
    scale = ("--scale", index.get("scale", "quick"))
    return shlex.join(["igr", "run", index.get("source") or name, *scale, *words])


def _record(runs: Table) -> dict[str, Any]:
    """Where the runs were made: all values that occur, so that a mixture is visible."""
    names = ("device", "precision", "commit", "versions")
    seen = {
        name: list(dict.fromkeys(json.dumps(run.record.get(name), sort_keys=True) for run in runs)) for name in names
    }
    seconds = sum(float(run.record.get("seconds") or 0) for run in runs)
    return {
        **{name: [json.loads(value) for value in values] for name, values in seen.items()},
        "seconds": round(seconds, 3),
    }
