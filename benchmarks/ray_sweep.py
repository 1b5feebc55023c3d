"""How much faster a sweep is on two Ray workers than on one, and what a unit costs beside its own time.

    python benchmarks/ray_sweep.py                 50 units of 1 s; needs the extra ray

Units sleep, so that what is measured is what `igr` and Ray add, also where the cores have other work. They report
progress, send measurements and keep checkpoints as trainings do. The workers are warm: starting a cluster and its
processes, which import JAX, is a time of its own. The overhead of a unit is the time that a worker had for it, less the
time that it took in the worker.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from timing import hardware, markdown

from igr.lab.runs.local import run_units
from igr.lab.runs.ray import RayExecutor
from igr.lab.runs.unit import Session, Trial
from igr.lab.store.store import Store

PARTS = 20  # reports of a unit


@dataclass(frozen=True)
class Sleep(Trial):
    """Sleeps, and says so."""

    seed: int = 0
    seconds: float = 1.0

    def compute(self, session: Session):
        """The time that it slept."""
        begun = time.monotonic()
        for part in range(PARTS):
            time.sleep(max(0.0, begun + self.seconds * (part + 1) / PARTS - time.monotonic()))
            session.emit(part, {"part": part})
            session.save(lambda: {"part": np.zeros(1000)})
            session.progress((part + 1) / PARTS, f"{part}")
        return {"slept": np.array(time.monotonic() - begun)}


def run(units: list[Sleep], executor: RayExecutor) -> tuple[float, float]:
    """The time of all of them, and what they took in the workers together."""
    with tempfile.TemporaryDirectory() as folder:
        store, begun = Store(folder), time.monotonic()
        summary = run_units(store, "bench", units, executor=executor)
        seconds = time.monotonic() - begun
        assert len(summary.computed) == len(units), summary
        return seconds, sum(float(store.folder("bench", unit).read().metrics["slept"]) for unit in units)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a unit")
    parser.add_argument("--json", metavar="FILE", help="add the rows to those there")
    options = parser.parse_args()
    import ray

    begun = time.monotonic()
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=2, _system_config={"worker_niceness": 0}, **quiet)
    starting = time.monotonic() - begun
    units, rows = [Sleep(seed, options.seconds) for seed in range(options.units)], []
    for workers in (1, 2):
        executor = RayExecutor(cpus_per_unit=2 / workers)
        warm, _ = run([Sleep(-1 - seed, 0.5) for seed in range(2)], executor)
        seconds, slept = run(units, executor)
        over = (seconds * workers - slept) / len(units)
        rows.append({"workers": workers, "seconds": seconds, "overhead_ms": 1e3 * over, "warm": warm})
    ray.shutdown()
    print(f"{hardware()}; {len(units)} units of {options.seconds:g} s; the cluster started in {starting:.1f} s\n")
    first = rows[0]["seconds"]
    cells = [
        [str(r["workers"]), *(f"{x:.3g}" for x in (r["seconds"], first / r["seconds"], r["overhead_ms"], r["warm"]))]
        for r in rows
    ]
    print(markdown(["workers", "seconds", "speed-up", "overhead per unit, ms", "first two units, s"], cells))
    if options.json:
        about = {"hardware": hardware(), "ray": ray.__version__, "load": os.getloadavg()[0], "cores": os.cpu_count()}
        file = Path(options.json)
        runs = json.loads(file.read_text()) if file.exists() else []
        runs.append(about | {"units": len(units), "seconds": options.seconds, "rows": rows})
        file.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
