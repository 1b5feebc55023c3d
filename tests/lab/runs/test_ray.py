"""A sweep on a Ray cluster of three nodes: what is lost, retried, stored and said; one of the nodes sees no store."""

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import types
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'igr[ray]'")
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}  # its workers are nice to other tests

import ray
from cluster_units import EXPERIMENT, Dies, Raises, Steps, Surroundings
from ray.cluster_utils import Cluster

import igr
from igr.lab.runs import dispatch, luggage
from igr.lab.runs.executor import Watcher
from igr.lab.runs.local import run_units
from igr.lab.runs.ray import RayExecutor
from igr.lab.store import schema
from igr.lab.store.config import ConfigError
from igr.lab.store.store import Store

pytestmark = [
    pytest.mark.xdist_group("ray"),  # one cluster for all of it
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
PORT = 20_000 + os.getpid() % 10_000  # of the server for clients
SYSTEM = {"prestart_worker_first_driver": False, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
ENVIRONMENT["PYTHONPATH"] = os.pathsep.join([str(Path(igr.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])


def blind(cluster, folder):
    """Start a node that sees a folder empty; None where the system allows no namespaces."""
    mount = f"mount -t tmpfs none {shlex.quote(str(folder))}"
    ours = ["unshare", "--mount", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*ours, mount], capture_output=True, check=False).returncode:
        return None
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--address={cluster.address}"]
    start += ["--num-cpus=1", f"--object-store-memory={NODE['object_store_memory']}"]
    return subprocess.Popen([*ours, f"{mount} && exec {shlex.join(start)}"], stdout=subprocess.DEVNULL, stderr=-3)


def alive():
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


class Log(Watcher):
    """What was told of a run, and something to do at a unit's steps; a sink as well."""

    def __init__(self, at=lambda unit, step, pid: None):
        self.steps, self.nodes, self.lost = defaultdict(list), defaultdict(list), []
        self.at, self.units = at, {}

    def placed(self, unit, node):
        self.units[unit.config.digest()[:16]] = unit
        self.nodes[unit].append(node)

    def retried(self, unit, why):
        self.lost.append((unit, why))

    def event(self, event):
        unit = self.units[event.unit]
        self.steps[unit].append((event.step, int(event.numbers.get("pid", 0))))
        self.at(unit, *self.steps[unit][-1])

    def close(self):
        pass


def run(store, units, log=None, **options):
    log = log or Log()
    executor = RayExecutor(**options)
    return run_units(store, "test", units, watcher=log, sinks=[log], save_every=0.0, executor=executor)


def comparable(root: Path):
    """The files of a store by name, without what says when and by whom a unit was computed."""
    found = {}
    for path in sorted((root / "test").rglob("*")):
        if path.name == "config.json":
            record = schema.parse(path.read_bytes(), path)
            own = {name: value for name, value in record.items() if name not in ("created", "seconds")}
            found[path.relative_to(root)] = own
        elif path.is_file() and path.name != "SHA256SUMS":  # the sum of config.json is in it
            found[path.relative_to(root)] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """A folder that only some nodes see."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def nodes(hidden):
    """The cluster, the node that may be killed, and the id of the one that does not see the folder, if there is one."""
    head = {**NODE, "num_gpus": 1, "_system_config": SYSTEM, "ray_client_server_port": PORT}
    cluster, blinded = Cluster(True, head_node_args=head), None
    try:
        victim = cluster.add_node(**NODE)
        blinded = blind(cluster, hidden)
        if blinded is None:
            cluster.add_node(**NODE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_ADDRESS", cluster.address)
            with RayExecutor().connected():
                while len(alive()) < 3:
                    time.sleep(0.1)
                (other,) = alive() - {victim.node_id, cluster.head_node.node_id}
                yield cluster, victim, other[:6] if blinded else ""
    finally:
        if blinded:
            blinded.kill()
            blinded.wait()
        cluster.shutdown()


def test_a_node_and_a_worker_killed_in_the_middle_change_nothing(nodes, hidden, tmp_path, monkeypatch):
    """What they computed goes on from its checkpoint, on a node that sees the store or on one that does not."""
    cluster, victim, away = nodes
    units, killed = [Steps(seed, pause=0.2) for seed in range(6)], {}

    def kill(unit, step, pid):
        node = log.nodes[unit][-1].split()[-1]
        if step >= 3 and node == victim.node_id[:6] and node not in killed:
            killed[node] = unit
            cluster.remove_node(victim, allow_graceful=False)
        elif step >= 3 and node == away and node not in killed:
            killed[node] = unit
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    log = Log(kill)
    summary = run(Store(hidden / "out"), units, log)
    assert len(summary.computed) == 6, summary
    assert killed.keys() == ({victim.node_id[:6], away} if away else {victim.node_id[:6]})
    for unit in units:
        steps = [step for step, _ in log.steps[unit]]
        lost = summary.retries.get(unit.label, 0)
        assert lost == (unit in killed.values())
        assert set(steps) == set(range(1, 13))
        assert len(steps) <= 12 + lost, "a unit that is resumed repeats the step that it died in, at most"
        assert len({pid for _, pid in log.steps[unit]}) == 1 + lost
    monkeypatch.setenv("NPROC", "1")  # the same conditions
    run_units(Store(tmp_path), "test", units, save_every=0.0)
    assert comparable(hidden / "out") == comparable(tmp_path)


def test_a_worker_that_waits_keeps_its_processor_and_computes_the_next_unit(nodes, tmp_path):
    """Ray takes the processors of a task that waits in its main thread, and would start a process for the next one."""
    log, units = Log(), [Steps(seed, pause=0.06) for seed in range(12)]  # longer than a worker is lent to a task queue
    assert len(run(Store(tmp_path), units, log).computed) == 12
    assert len({pid for steps in log.steps.values() for _, pid in steps}) <= len(alive())


def test_what_a_slow_mailbox_says_late_is_heard(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "ANSWER", 0.0)
    log, units = Log(), [Steps(seed) for seed in range(3)]
    assert len(run(Store(tmp_path), units, log).computed) == 3
    for unit in units:
        assert len(log.nodes[unit]) == 1
        assert log.steps[unit], "its last words are not always waited for"


def test_an_experiment_file_travels_from_a_client_to_a_node_that_has_neither_file_nor_store(nodes, hidden):
    """`igr run my_experiment.py --on ray://HOST:PORT`, with lines for machines; what it imports lies beside it."""
    (hidden / "my_sweep.py").write_text(
        "from my_start import nothing\n" + EXPERIMENT.replace("np.zeros(1)", "nothing()")
    )
    (hidden / "my_start.py").write_text("from my_numbers import nothing\n")
    (hidden / "my_numbers").mkdir()
    (hidden / "my_numbers" / "__init__.py").write_text("from .none import nothing\n")
    (hidden / "my_numbers" / "none.py").write_text("import numpy\ndef nothing():\n    return numpy.zeros(1)\n")
    command = [sys.executable, "-m", "igr.lab.cli", "run", "my_sweep.py", "--on", f"ray://127.0.0.1:{PORT}", "--json"]
    done = subprocess.run(command, cwd=hidden, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    json.loads(done.stdout)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines[-1]["computed"] == 4
    placed = {line["node"].split()[-1] for line in lines if line.get("event") == "placed"}
    assert not nodes[2] or nodes[2] in placed
    assert {"label", "state", "node", "fraction", "step", "steps_per_second", "seconds_left"} <= lines[0].keys()
    folder = hidden / "out" / "my-sweep"
    assert len(list(folder.glob("*/SHA256SUMS"))) == 4


def test_errors_of_units_are_reported_once_and_lost_workers_are_replaced_so_often(nodes, tmp_path):
    log, units = Log(), [Raises(), Dies(), Steps(9, pause=0.0)]
    summary = run(Store(tmp_path), units, log, retries=1)
    assert summary.computed == ["Steps 9"]
    assert summary.failed["Raises 0"] == "FloatingPointError: no"
    assert len(log.nodes[units[0]]) == 1
    assert summary.failed["Dies 0"].startswith("Its worker was lost 2 times, and no retry is left: WorkerCrashedError")
    assert len(log.nodes[units[1]]) == 2
    assert summary.retries == {"Dies 0": 1}


def test_classes_of_a_script_or_notebook_travel(nodes, tmp_path):
    """Several units of one class are computed by one worker, which has never seen its module."""
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(EXPERIMENT, script)
    units = [script["Sum"](seed, length=2, pause=0.0) for seed in range(6)]
    assert len(run(Store(tmp_path), units, Log()).computed) == 6


def test_a_worker_has_the_threads_and_the_part_of_a_gpu_that_were_asked_for(nodes, tmp_path):
    units = [Surroundings(seed, pause=0.5) for seed in range(2)]
    run(Store(tmp_path), units, cpus_per_unit=0.5, gpus_per_unit=0.25)
    found = [Store(tmp_path).folder("test", unit).read().metrics for unit in units]
    assert len({int(each["pid"]) for each in found}) == 2
    for each in found:
        assert {"NPROC=1", "OMP_NUM_THREADS=1", "XLA_PYTHON_CLIENT_MEM_FRACTION=0.225"} <= set(each["born"])
        assert "CUDA_VISIBLE_DEVICES=0" in each["now"]
        assert not any(line.startswith("JAX_PLATFORMS=") for line in each["now"])


def test_workers_with_other_versions_are_a_sentence(nodes, tmp_path, monkeypatch):
    found = luggage.versions()
    monkeypatch.setattr(luggage, "versions", lambda: found | {"jaxlib": "0.1"})
    with pytest.raises(ConfigError, match=r"^The workers have jaxlib .*, and this process has 0\.1: install the same"):
        run(Store(tmp_path), [Steps()])
    module = types.ModuleType("only_here")
    exec("def strange(): return 1", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(ConfigError, match=r"^The workers have no igr that fits, or lack a package: .*'only_here'$"):
        RayExecutor().look(module.strange)
    assert RayExecutor(cpus_per_unit=3.0).look(socket.getfqdn, patience=0.1) == (1, None)
    assert not any(Store(tmp_path).folder("test", Steps()).path.glob("*"))
