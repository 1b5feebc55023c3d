"""Where a number was made: versions, device, precision, git commit, time."""

import contextlib
import datetime
import functools
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np


def surroundings() -> dict[str, Any]:
    """What is stored beside each measurement, so that a number can be traced and made again."""
    versions = {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__}
    for name in ("igr", "jaxlib", "diffrax", "optax"):
        with contextlib.suppress(PackageNotFoundError):  # run from a checkout, igr itself has no version to ask for
            versions[name] = version(name)
    device = jax.devices()[0]
    return {
        "versions": versions,
        "device": f"{jax.device_count()} x {device.device_kind} ({device.platform}), {os.cpu_count()} cores",
        "precision": "float64" if jax.config.read("jax_enable_x64") else "float32",
        "commit": _commit(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@functools.cache
def _commit() -> str | None:
    """The git commit of the running code, with `+` where the working tree differs from it; None outside a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
