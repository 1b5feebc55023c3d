"""The `igr` command itself: signals while it starts, compiles, trains and draws, and stores that are made to harm."""

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torture.kit import Line
from units import handles_signals

from igr.lab.cli import app, signals
from igr.lab.experiments import load, name_of
from igr.lab.store import schema
from igr.lab.store.care import remove
from igr.lab.store.files import npz_arrays, npz_bytes

FILE = Path(__file__).with_name("experiment.py")
PROMISED = 5.0  # seconds
WORDS = {"run": ["run", str(FILE)], "report": ["report", "--alone"], "reproduce": ["reproduce", "--scale", "smoke"]}
LAST = {"run": "draws the figures.", "report": "index.html"}  # words of each command
ESCAPE = "\x1b]0;title\x07\n"


def results(out: Path) -> dict[str, bytes]:
    """The measurements of the finished units, by the names of their folders."""
    return {path.parent.name: (path.parent / "metrics.npz").read_bytes() for path in out.glob("*/*/SHA256SUMS")}


def begun(out: Path, command: str) -> subprocess.Popen:
    """The command, when its handlers of signals are there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "igr.lab.cli", *WORDS[command], "--out", str(out)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    handles_signals(process)
    return process


def signalled(root: Path, draw: random.Random) -> Iterator[Line]:
    """Both signals at any moment of a run, a report and the first seconds of a reproduction, one and two of them.

    Then the runs go on to their end.
    """
    lasts = {"reproduce": 20.0}
    for command in ("run", "report"):
        start = time.monotonic()
        begun(root / "whole", command).communicate()
        lasts[command] = time.monotonic() - start
    good = results(root / "whole")
    tally, slowest = Tally({"lost or changed": len(good) != 3}), 0.0
    for attempt in range(40):
        command = "report" if attempt % 4 == 3 else "reproduce" if attempt % 8 == 5 else "run"
        out = root / {"report": "whole", "run": f"signalled{attempt // 8}", "reproduce": "reproduced"}[command]
        process = begun(out, command)
        time.sleep(draw.uniform(0, 0.8 if attempt % 2 else 0.2) * lasts[command])
        number, twice = draw.choice(signals.SIGNALS), attempt % 8 == 0
        at = time.monotonic()
        for _ in range(1 + twice):
            if process.poll() is None:
                process.send_signal(number)
                time.sleep(0.4 * twice)
        said, errors = process.communicate()
        slowest = max(slowest, took := time.monotonic() - at)
        tally["attempts"] += 1
        ended = process.returncode == 128 + number and errors.count(signals.SENTENCE) == 1
        whole = said.rstrip().endswith(LAST.get(command, "no end")) and took < 0.2 * lasts[command]
        finished = whole and process.returncode in (0, -number)  # Python itself was about to end
        if not (ended or finished) or "Traceback" in errors or took > PROMISED:
            tally["errors not ours"] += 1
            print(command, signal.Signals(number).name, process.returncode, f"{took:.1f} s", errors, file=sys.stderr)
        if command != "reproduce":
            tally["lost or changed"] += any(good.get(name) != data for name, data in results(out).items())
    for out in sorted(root.glob("signalled*")):
        begun(out, "run").communicate()
        tally["lost or changed"] += results(out) != good
    yield f"`igr run`, `report` and `reproduce` signalled at any moment ({slowest:.1f} s to the end at most)", tally


Harm = Callable[[Path, Path], Any]  # of a store and one of its units


def sealed(unit: Path, record: Any = None, data: bytes | None = None) -> None:
    """A unit's files, with other content and right sums."""
    data = (unit / "metrics.npz").read_bytes() if data is None else data
    text = (unit / "config.json").read_bytes() if record is None else json.dumps(record).encode()
    files = {"config.json": text, "metrics.npz": data}
    for name, content in files.items():
        (unit / name).write_bytes(content)
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()]
    (unit / "SHA256SUMS").write_text("".join(lines))


def harms(victim: Path, draw: random.Random) -> Iterator[Harm]:
    """What somebody may have done to the store of `experiment` before handing it over."""
    values = (3, [], {"a": [1]}, ESCAPE, "[/red]", "../../x", "/" + "a" * 5000, "\0", 10**300, [None, {}])
    for field in ("scale", "options", "flags", "source", "new"):
        for value in draw.sample(values, 5):
            yield lambda root, unit, about={field: value}: index(root, about)
    for field in ("device", "precision", "commit", "versions", "created", "seconds", "conditions", "resumed", "code"):
        for value in draw.sample(values, 3):
            yield lambda root, unit, about={field: value}: sealed(
                unit, json.loads((unit / "config.json").read_text()) | about
            )
    like = np.ones((2, 3))
    for array in (like, like.astype("M8[s]"), like.astype(complex), np.zeros(0), np.array(ESCAPE), np.full(9, np.nan)):
        yield lambda root, unit, array=array: sealed(unit, data=npz_bytes({"step": array, "test_accuracy": array}))
    for name, array in (("num_params", None), ("seed", np.array(["/../../../../../evil"])), ("loss", np.ones(3)),
                        ("wide", np.zeros((2, 1_000_000), np.int8))):  # fmt: skip
        yield lambda root, unit, name=name, array=array: changed(unit, name, array)
    yield lambda root, unit: [changed(each, "step", None) for each in sorted(unit.parent.glob("[0-9a-f]*"))[:2]]
    yield lambda root, unit: index(root, {}, times=2)
    for place in ("figures", "data", "export", "experiment/.damaged-x-1"):
        yield lambda root, unit, place=place: deep(root / place)
    for place in ("figures/accuracy.png", "data/experiment.csv", "export/experiment.csv"):
        yield lambda root, unit, place=place: replaced(root / place, "pipe", victim)
    for place in ("experiment", "experiment/index.json", "index.html", "figures", "data", ".locks", "unit/.",
                  "unit/config.json", "unit/metrics.npz", "unit/checkpoint.bin", "findings.json"):  # fmt: skip
        for what in draw.sample(("pipe", "socket", "itself", "nothing", "folder", "file"), 3):
            yield lambda root, unit, place=place, what=what: replaced(
                unit / place.removeprefix("unit/") if place.startswith("unit/") else root / place, what, victim
            )
    for name in ("a" * 250, ESCAPE.strip(), "--help", "evil.py", "EXPERIMENT", "x\udcff"):
        yield lambda root, unit, name=name: index(root, {}, name)


def changed(unit: Path, name: str, array: Any) -> None:
    """A unit with one array in the place of another, or without it, and right sums."""
    arrays = npz_arrays((unit / "metrics.npz").read_bytes()) | {name: array}
    sealed(unit, data=npz_bytes({key: value for key, value in arrays.items() if value is not None}))


def deep(folder: Path) -> None:
    """Folders in each other, deeper than Python's calls and than a path may be long."""
    folder.mkdir(parents=True, exist_ok=True)
    place = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("a", dir_fd=place)
        inner = os.open("a", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)


def index(root: Path, about: dict[str, Any], name: str = "experiment", times: int = 1) -> None:
    """An index with a right sum, which names each unit so many times."""
    path = root / name / "index.json"
    path.parent.mkdir(exist_ok=True)
    content = json.loads(path.read_text()) if path.exists() else {"units": []}
    about = {key: value for key, value in content.items() if key not in ("format", "sha256", "units")} | about
    path.write_bytes(schema.index_bytes(times * content["units"], about))


def replaced(path: Path, what: str, victim: Path) -> None:
    """Something else in the place of a file or a folder."""
    path.parent.mkdir(exist_ok=True)
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    targets = {"itself": path, "nothing": victim / "nothing", "folder": victim, "file": victim / "precious"}
    if what in targets:
        path.symlink_to(targets[what])
    else:
        os.mknod(path, stat.S_IFIFO | 0o600 if what == "pipe" else stat.S_IFSOCK | 0o600)


def removed(case: Path) -> None:
    """Remove a store, however deep."""
    if case.exists():
        remove(case.parent, case)


def strange_stores(root: Path, draw: random.Random) -> Iterator[Line]:
    """Each command on each store: exit code 0, 1 or 2, no traceback, nothing beside it, no steering of the terminal."""
    name_of(str(FILE))
    base, victim, case, tally = root / "base", root / "victim", root / "case", Tally()
    begun(base, "run").communicate()
    load("experiment")
    victim.mkdir()
    (victim / "precious").write_text("precious")
    for harm in harms(victim, draw):
        removed(case)
        shutil.copytree(base, case)
        harm(case, sorted((case / "experiment").glob("[0-9a-f]*"))[0])
        beside = sorted(os.listdir(root))
        for command in (["verify"], ["report", "--alone"], ["export"], ["gc", "--yes"], ["run", str(FILE)]):
            tally["attempts"] += 1
            code, said = called([*command, "--out", str(case)])
            if code not in (0, 1, 2):
                tally["errors not ours"] += 1
                print(command, repr(code), file=sys.stderr)
            tally["read as data"] += "\x1b" in said or "\x07" in said
            kept = sorted(os.listdir(victim)) == ["precious"] and (victim / "precious").read_text() == "precious"
            tally["lost or changed"] += not kept or sorted(os.listdir(root)) != beside
    removed(case)
    yield "a store made to harm, with right sums, given to five commands", tally


def called(words: list[str]) -> tuple[Any, str]:
    """The exit code of `igr` with these words, in this process, and what it said; the error where it was one."""

    def hangs(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(120)
    arguments, sys.argv = sys.argv, ["igr", *words]
    with tempfile.TemporaryFile("w+") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            app.main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            code = error
        finally:
            sys.argv = arguments
            signal.alarm(0)
        with contextlib.suppress(io.UnsupportedOperation, ValueError):
            file.seek(0)
            return code, file.read()
    return code, ""
