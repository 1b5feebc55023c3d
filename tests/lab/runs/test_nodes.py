"""Several machines without Ray, as docs/scale.md describes it, and what that page says of costs."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_units import EXPERIMENT

import igr
from igr.lab.cli.estimate import makespan
from igr.lab.store.store import shipped

PAGE = (Path(igr.__file__).parent.parent / "docs/scale.md").read_text()
NO_LOCKS = """
import fcntl, os, socket
fcntl.flock = lambda *_: None  # each lock is granted to everybody: nobody is told of other machines
socket.gethostname = lambda: os.environ["NODE"]
"""


def test_processes_of_srun_share_a_sweep_where_locks_do_not_reach_the_other_machines(tmp_path):
    (tmp_path / "my_experiment.py").write_text(EXPERIMENT.replace("range(4)", "range(8)"))
    (tmp_path / "sitecustomize.py").write_text(NO_LOCKS)
    (line,) = re.findall(r"^srun igr (.*)$", PAGE, re.MULTILINE)
    words = [word.replace("/shared", str(tmp_path)) for word in shlex.split(line)]
    (tmp_path / "data").mkdir()
    paths = [str(tmp_path), str(Path(igr.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "igr.lab.cli", *words, "--json"]
    tasks = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NODE": f"node{number}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    computed = []
    for task in tasks:
        out, err = task.communicate()
        assert task.returncode == 0, err[-3000:]
        json.loads(out)
        done = json.loads(err.splitlines()[-1])
        assert not done["failed"]
        assert done["computed"] + done["skipped"] == 8
        computed.append(done["computed"])
    assert sum(computed) == 8, "each unit is computed once"
    assert sum(count > 0 for count in computed) > 1, computed


def test_the_manifest_has_the_fields_of_a_ray_job():
    """As far as that can be said without Kubernetes: required fields of `ray.io/v1`, volumes that are mounted."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    job = pytest.importorskip("yaml", reason="PyYAML is not installed").safe_load(text)
    assert (job["apiVersion"], job["kind"], set(job["metadata"])) == ("ray.io/v1", "RayJob", {"name"})
    assert set(job["spec"]) == {"entrypoint", "shutdownAfterJobFinishes", "rayClusterSpec"}
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) == {"headGroupSpec", "workerGroupSpecs"}
    assert set(cluster["headGroupSpec"]) == {"rayStartParams", "template"}
    (group,) = cluster["workerGroupSpecs"]
    assert set(group) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
    for each in (cluster["headGroupSpec"], group):
        assert all(isinstance(value, str) for value in each["rayStartParams"].values())
        pod = each["template"]["spec"]
        assert set(pod) == {"containers", "volumes"}
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:3] == ["igr", "run", "resnet"]
    assert "--on" in words


def test_the_costs_on_the_page_are_those_of_the_stored_runs():
    store = shipped()
    assert store is not None
    records = [json.loads(path.read_text()) for path in store.root.glob("*/*/config.json")]
    seconds = [record["seconds"] for record in records if "H200" in record["device"]]
    rows = re.findall(r"^\| [^|]* \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 4, 8, 16]
    for workers, hours, together in rows:
        exact = makespan(seconds, int(workers)) / 3600
        assert float(hours) == round(exact, 2)
        assert float(together) == round(exact * int(workers), 2)
