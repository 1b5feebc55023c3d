"""`igr verify` and `igr gc`: checking a store to its last byte, and removing what is left over in it."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from igr.lab.experiments import REGISTRY, load, stored
from igr.lab.store.care import leftovers, remove, size, verify
from igr.lab.store.files import StoreError
from igr.lab.store.store import Store
from igr.lab.store.text import plain

FOLDER = Annotated[str, typer.Option("--out", help="folder of stored runs and figures")]


def check(out: FOLDER = "out", as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Check every byte of the stored runs; exit 1 on damage."""
    root = _there(out)
    for name in dict.fromkeys([*REGISTRY, *stored(Store(root))]):
        try:
            load(name)  # defines the classes that are stored
        except Exception as error:  # the file or the package of somebody's own experiment
            _say(f"{name} cannot be loaded, so its units are unknown here: {type(error).__name__}: {error}")
    found = list(verify(root))
    counts = Counter(each.status for each in found)
    aged, silent = (sum(each.older is value for each in found if each.status == "sound") for value in (True, None))
    if as_json:
        bad = [{"path": str(each.path), "status": each.status, "words": each.words} for each in found if each.words]
        print(
            json.dumps({"counts": counts, "older code": aged, "code not recorded": silent, "problems": bad}, indent=1)
        )
    else:
        for each in found:
            if each.words:
                _say(each.words)
        _say(", ".join(f"{count} {status}" for status, count in sorted(counts.items())) + "." if found else "Nothing.")
        if aged or silent:
            _say(f"{aged} computed by an older version of the code, {silent} by one that did not record itself.")
    if counts["damaged"]:
        if not as_json:
            _say("`igr run` with the same options sets damaged units aside and computes them again.")
        raise typer.Exit(1)
    if counts["unreadable"]:
        raise typer.Exit(1)


def collect(
    out: FOLDER = "out",
    yes: Annotated[bool, typer.Option("--yes", help="remove without asking")] = False,
) -> None:
    """Remove what killed runs and damage have left."""
    root = _there(out)
    found = leftovers(root)
    for path in found:
        _say(f"{size(path):>12,} bytes  {path}")
    if not found:
        _say("There is nothing to remove.")
        return
    if not yes and not sys.stdin.isatty():
        raise StoreError(f"Nothing was removed: `igr gc --out {out} --yes` removes these {len(found)}.")
    if not yes and not typer.confirm(f"Remove these {len(found)}?", err=True):
        _say("Nothing was removed.")
        return
    used = [path for path in found if not remove(root, path)]
    _say(f"{len(found) - len(used)} removed" + (f", {len(used)} in use." if used else "."))


def _there(out: str) -> Path:
    if not out or not Path(out).is_dir():
        raise StoreError(f"There is no folder {out!r} of stored runs.")
    return Path(out)


def _say(words: str) -> None:
    Console().print(plain(words), markup=False, highlight=False, soft_wrap=True)
