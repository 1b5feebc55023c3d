"""The part of `make torture` on a Ray cluster: random kills of workers, raylets and the driver; seed fixed.

    python tests/torture/cluster.py [KILLS]

Three nodes on this machine. A driver computes slow units with a checkpoint at each step, and is started again when it
was killed. Afterwards every unit must be stored with the bytes of a run in one piece, computed in as many steps as one
unit has and a few more for each kill, and no process may be left.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter as Tally
from pathlib import Path

from cluster_units import Steps, members

from igr.lab.runs.local import run_units
from igr.lab.runs.ray import RayExecutor
from igr.lab.store.store import Store

SEED, KILLS, PAUSE = 2009_11162, 20, (1.0, 6.0)  # seconds between two kills
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}


def units(root: Path) -> list[Steps]:
    """They write down each step in a file beside the stores."""
    return [Steps(seed, length=40, pause=0.1, log=str(root.parent / "steps")) for seed in range(6)]


def drive(address: str, root: Path) -> None:
    """The process of a user: it runs what is not stored yet."""
    summary = run_units(Store(root), "test", units(root), save_every=0.0, executor=RayExecutor(address, retries=KILLS))
    sys.exit(bool(summary.failed))


def started(address: str, root: Path) -> subprocess.Popen:
    command = [sys.executable, __file__, "drive", address, str(root)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(root / "said", "a"))


def workers() -> list[int]:
    """The processes that compute a unit at this moment."""
    return [pid for pid, command in members(os.getpid()).items() if command.startswith("ray::work")]


def stored(root: Path) -> dict[str, bytes]:
    """The measurements of all finished units, after a full check, by label."""
    folders = {unit.label: Store(root).folder("test", unit) for unit in units(root)}
    return {
        label: (folder.path / "metrics.npz").read_bytes()
        for label, folder in folders.items()
        if folder.status() == "finished"
    }


def kills(root: Path, count: int) -> Tally:
    """Kill until it is enough, then let it end."""
    from ray.cluster_utils import Cluster

    draw, tally = random.Random(SEED), Tally()
    cluster = Cluster(True, head_node_args=NODE)
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    round_, driver = root / "0", None

    def turn() -> Path:
        found = root / str(int(round_.name) + 1)
        found.mkdir()
        return found

    try:
        round_ = turn()
        driver = started(cluster.address, round_)
        while tally["attempts"] < count:
            time.sleep(draw.uniform(*PAUSE))
            if driver.poll() is not None:
                tally["errors not ours"] += driver.returncode not in (0, -signal.SIGKILL)
                if driver.returncode == 0:
                    tally["sweeps"] += 1
                    round_ = turn()
                driver = started(cluster.address, round_)
                continue
            victims = workers()
            if not victims:  # nothing has begun yet
                continue
            kind = draw.choice(("worker", "raylet", "driver"))
            tally["attempts"] += 1
            tally[kind] += 1
            if kind == "worker":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(victims), signal.SIGKILL)
            elif kind == "raylet":
                cluster.remove_node(nodes.pop(draw.randrange(2)), allow_graceful=False)
                nodes.append(cluster.add_node(**NODE))
            else:
                driver.kill()
                driver.wait()
            print(f"  {tally['attempts']}: {kind}", file=sys.stderr, flush=True)
        while driver.wait() != 0:
            tally["errors not ours"] += driver.returncode != -signal.SIGKILL
            driver = started(cluster.address, round_)
        tally["sweeps"] += 1
    finally:
        if driver and driver.poll() is None:
            driver.kill()
            driver.wait()
        cluster.shutdown()
    return tally


def main() -> int:
    """Kill, compare, and print the line of the table; 1 where a promise was broken."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    count, begun = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS, time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="igr-cluster-"))
    os.environ["NPROC"] = "1"  # as the workers have it
    run_units(Store(root / "good"), "test", units(root / "good"), jobs=6)
    good = stored(root / "good")
    tally = kills(root, count)
    rounds = [path for path in root.iterdir() if path.name.isdigit()]
    tally["lost or changed"] = sum(stored(path) != good for path in rounds)
    needed = sum(unit.length for unit in units(root / "good")) * len(rounds)
    steps = len((root / "steps").read_text().splitlines()) - needed // len(rounds)  # without those of the good run
    deadline = time.monotonic() + 20
    while (left := {pid: words for pid, words in members(os.getpid()).items() if pid != os.getpid()}) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.2)
    kinds = ", ".join(f"{tally[kind]} {kind}{'s' * (tally[kind] != 1)}" for kind in ("worker", "raylet", "driver"))
    print("| killed | sweeps | lost or changed | steps beyond those needed | errors not ours | processes left |")
    print("| --- | --: | --: | --: | --: | --: |")
    numbers = (tally["sweeps"], tally["lost or changed"], f"{steps - needed} of {needed}", tally["errors not ours"])
    print(f"| {kinds} | {' | '.join(map(str, numbers))} | {len(left)} |")
    print(f"\nSeed {SEED}, {time.monotonic() - begun:.0f} s.")
    for pid, words in left.items():
        print(f"left: {pid} {words[:100]}", file=sys.stderr)
    return int(bool(tally["lost or changed"] or tally["errors not ours"] or left or steps - needed > 4 * count))


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"]:
        drive(sys.argv[2], Path(sys.argv[3]))
    if os.getsid(0) != os.getpid():  # a session of its own, by which what is left is found
        sys.exit(subprocess.run([sys.executable, *sys.argv], start_new_session=True, check=False).returncode)
    sys.exit(main())
