"""Penalty, R_IG, regime and monitor on many devices: in processes of their own, which have eight devices or share them.

Each check and what it compares with is in sharded.py.
"""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

SCRIPT = str(Path(__file__).with_name("sharded.py"))


def run(*arguments, **variables):
    words, environment = [sys.executable, SCRIPT, *arguments], os.environ | variables
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ended(process):
    out, err = process.communicate()
    assert process.returncode == 0, err[-3000:]
    assert out.splitlines()[-1].endswith("done")
    return re.findall(r"(?:Auto|Explicit) .*", out)  # beside them stands what the library for collectives says


def test_eight_devices_find_what_one_does_and_say_no_more_to_each_other():
    """Data, parameters or both sharded, on `Auto` and `Explicit` axes, and with `shard_map` outside or in the loss."""
    lines = ended(run())
    assert len(lines) == 6
    assert "all-gather" not in lines[0], "replicated parameters are gathered by nobody"


def test_two_processes_find_what_one_does():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # Programs as users have them are looked at above; here compiling them would be most of the time.
    both = [run(str(process), port, JAX_DISABLE_MOST_OPTIMIZATIONS="1") for process in range(2)]
    try:
        first, second = map(ended, both)
        assert len(first) == 3
        assert first == second
    finally:
        for process in both:
            process.kill()
