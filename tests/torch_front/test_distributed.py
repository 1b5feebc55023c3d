"""Two processes: replicas by DistributedDataParallel, shards by fully_shard, penalized per device or globally."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

HERE = Path(__file__).parent


def test_two_processes_agree_with_one(tmp_path):
    path = os.pathsep.join([str(HERE.parent), str(HERE.parent.parent)])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, str(HERE / "worker.py")]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")], env=environment, stdout=-1, stderr=-1, text=True
        )
        for rank in range(2)
    ]
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.strip() == "agrees"
