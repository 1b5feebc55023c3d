"""How long `igr run` takes to see that all units are finished, also where each file operation takes 5 ms more.

    python benchmarks/finished.py                  1,000 units, n = 3

The command is timed from its start to its end, with the imports of Python. The slow folder is this disk with a pause
before each operation on a file of the store, as a network folder has it; threads wait side by side.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import hardware, markdown

EXPERIMENT = """
from dataclasses import dataclass
import numpy as np
from igr.lab.runs.unit import Trial

@dataclass(frozen=True)
class Square(Trial):
    number: int = 0

    def compute(self, session):
        return {"squares": np.arange(1000.0) ** 2 + self.number}

def trials(scale):
    return [Square(number) for number in range(COUNT)]
"""
SLOW = """
import builtins, io, os, time

def slow(function):
    def slower(path, *args, **kwargs):
        if isinstance(path, (str, os.PathLike)) and "finished-units" in str(path):
            time.sleep(0.005)
        return function(path, *args, **kwargs)
    return slower

for name in ("stat", "lstat", "open", "scandir", "listdir", "rename", "replace", "unlink", "mkdir", "link", "utime"):
    setattr(os, name, slow(getattr(os, name)))
builtins.open = io.open = slow(io.open)
"""


def used() -> float:
    """Seconds of processor time of the commands so far."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def run(folder: Path, slow: bool) -> tuple[float, float]:
    """Seconds of the command, and those of them on a processor."""
    command = [sys.executable, "-m", "igr.lab.cli", "run", "squares.py", "--out", "finished-units"]
    paths = [*([str(folder / "slow")] if slow else []), os.getcwd(), os.environ.get("PYTHONPATH", "")]
    begun, before = time.monotonic(), used()
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return time.monotonic() - begun, used() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="igr-finished-"))
    (folder / "slow").mkdir()
    (folder / "slow" / "sitecustomize.py").write_text(SLOW)
    (folder / "squares.py").write_text(EXPERIMENT.replace("COUNT", str(options.units)))
    computing, _ = run(folder, False)
    rows = []
    for name, slow in (("this disk", False), ("5 ms more for each operation", True)):
        seconds, processor = zip(*(run(folder, slow) for _ in range(options.rounds)), strict=True)
        rows.append({"folder": name, "seconds": seconds, "processor": processor})
    shutil.rmtree(folder)
    about = {"hardware": hardware(), "load": os.getloadavg()[0], "cores": os.cpu_count(), "units": options.units}
    print(f"{about['hardware']}; load {about['load']:.0f}; {options.units} units, computed in {computing:.1f} s\n")
    median = statistics.median
    cells = [[r["folder"], f"{median(r['seconds']):.2f}", f"{median(r['processor']):.2f}"] for r in rows]
    print(markdown(["folder", "seconds", "of them on a processor"], cells))
    if options.json:
        Path(options.json).write_text(json.dumps(about | {"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
