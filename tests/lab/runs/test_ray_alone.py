"""`igr run --on ray` where no cluster runs: it starts one on this machine, and Ctrl-C leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'igr[ray]'")

from cluster_units import EXPERIMENT, members

import igr

pytestmark = pytest.mark.xdist_group("ray")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find processes")
def test_ctrl_c_keeps_checkpoints_and_leaves_no_process(tmp_path):
    (tmp_path / "my_sweep.py").write_text(EXPERIMENT.replace("length: int = 10", "length: int = 1000"))
    paths = [str(Path(igr.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "RAY_worker_niceness": "0"}
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | own
    command = [sys.executable, "-m", "igr.lab.cli", "run", "my_sweep.py", "--on", "ray", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        assert driver.stderr is not None
        for line in driver.stderr:
            if line.startswith("{") and (json.loads(line).get("step") or 0) >= 5:
                break
        assert any("raylet" in command for command in members(driver.pid).values())
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does
        said = driver.stderr.read()
        assert driver.wait() == 130, said
    assert said.splitlines()[-1].startswith("Interrupted."), said
    deadline = time.monotonic() + 10
    while (left := members(driver.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    assert list((tmp_path / "out").glob("my-sweep/*/checkpoint.bin"))
