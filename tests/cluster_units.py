"""For the tests of clusters: slow units, ones that fail, one that says where it is; and the processes of a test."""

import contextlib
import dataclasses
import os
import signal
import time
from pathlib import Path

import numpy as np

from igr.lab.runs.unit import Session, Trial


@dataclasses.dataclass(frozen=True)
class Steps(Trial):
    """Adds numbers, one every `pause` seconds, says each (also in a file), and keeps a checkpoint after each."""

    seed: int = 0
    length: int = 12
    pause: float = 0.05
    log: str = ""

    @property
    def label(self) -> str:
        return f"{type(self).__name__} {self.seed}"

    def compute(self, session: Session):
        saved = session.load() or {"sums": np.zeros(1)}
        sums = list(saved["sums"])
        for number in range(len(sums), self.length + 1):
            time.sleep(self.pause)
            sums.append(sums[-1] + (1 + self.seed) * number)
            if self.log:
                with open(self.log, "a") as file:
                    file.write(f"{self.seed} {number}\n")
            session.emit(number, {"pid": os.getpid()})
            session.save(lambda: {"sums": np.array(sums)})
            session.progress(number / self.length, f"{number}")
        return {"sums": np.array(sums)}


class Raises(Steps):
    """Has an error of its own."""

    def compute(self, session: Session):
        session.emit(1, {"pid": os.getpid()})
        raise FloatingPointError("no")


class Dies(Steps):
    """Kills the process that computes it, as the system does when memory is out."""

    def compute(self, session: Session):
        session.emit(1, {"pid": os.getpid()})
        session.save(lambda: {"sums": np.zeros(1)})  # returns when it is known that it began
        os.kill(os.getpid(), signal.SIGKILL)
        return {}


class Surroundings(Steps):
    """The environment of its process, as it was when the process began, and as it is."""

    def compute(self, session: Session):
        with open("/proc/self/environ") as file:
            born = file.read().split("\0")
        time.sleep(self.pause)
        now = [f"{name}={value}" for name, value in sorted(os.environ.items())]
        return {"born": np.array(born), "now": np.array(now), "pid": os.getpid()}


EXPERIMENT = """
from dataclasses import dataclass
import time
import numpy as np
from igr.lab.runs.unit import Session, Trial

CLAIM = "Sums grow."

@dataclass(frozen=True)
class Sum(Trial):
    seed: int = 0
    length: int = 10
    pause: float = 0.1

    @property
    def label(self) -> str:
        return f"sum {self.seed}"

    def compute(self, session: Session) -> dict:
        saved = session.load() or {"sums": np.zeros(1)}
        sums = list(saved["sums"])
        for number in range(len(sums), self.length + 1):
            time.sleep(self.pause)
            sums.append(sums[-1] + (1 + self.seed) * number)
            session.emit(number, {"sum": sums[-1]})
            session.save(lambda: {"sums": np.array(sums)})
            session.progress(number / self.length, f"{number}")
        return {"sums": np.array(sums)}

def trials(scale):
    return [Sum(seed) for seed in range(4)]

def figures(runs):
    return {}

def findings(runs):
    return []
"""


def members(session):
    """The processes of a session of the system, and their commands. Ray's workers write over their environment."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, its = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its) == session and state != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found
