"""Where a number was made: versions, device, precision, git commit, time; and what its bits depend on.

Two runs of one configuration have the same bits where their `conditions` are equal. Where `RANDOM` of these differ,
their random numbers do, and they agree as two seeds agree: statistically. Where only others differ, they round
differently.
"""

import contextlib
import datetime
import functools
import hashlib
import io
import os
import platform
import subprocess
import threading
import tokenize
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import igr
from igr.lab.store.config import Config
from igr.lab.store.modules import text_of

RANDOM = ("prng", "threefry_partitionable")
_ONCE = threading.Lock()
DECIDES = ("models", "data", "training", "experiments")  # rooms of the laboratory whose code decides a result


def surroundings(kind: type | None = None) -> dict[str, Any]:
    """What is stored beside each measurement of a unit of this class, so that it can be traced and made again."""
    import jax  # here and below: `igr list` reads no configuration of JAX, and importing it takes a second

    return {
        "versions": {"python": platform.python_version()}
        | _versions("igr", "jax", "jaxlib", "numpy", "diffrax", "optax"),
        "device": _device(),
        "precision": "float64" if jax.config.read("jax_enable_x64") else "float32",
        "conditions": conditions(),
        "commit": _commit(),
        "code": code(kind),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@functools.cache
def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):  # run from a checkout, igr itself has no version to ask for
            found[name] = version(name)
    return found


def _device() -> str:
    import jax

    device = jax.devices()[0]
    return f"{jax.device_count()} x {device.device_kind} ({device.platform}), {os.cpu_count()} cores"


def conditions() -> dict[str, Any]:
    """What the bits of a result depend on, beside its configuration and the code."""
    import jax

    names = ("jax_default_prng_impl", "jax_threefry_partitionable", "jax_default_matmul_precision")
    prng, partitionable, precision = (getattr(jax.config, name) for name in names)
    return {
        "prng": str(prng),
        "threefry_partitionable": bool(partitionable),
        "x64": bool(jax.config.read("jax_enable_x64")),
        "matmul_precision": str(precision),
        **_versions("jax", "jaxlib", "numpy", "diffrax", "optax"),
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "cpu": _cpu(),
        "xla_flags": " ".join(sorted(flag for flag in os.environ.get("XLA_FLAGS", "").split() if "dump" not in flag)),
        "usable_cores": usable_cores(),
        "machine": platform.machine(),
    }


@functools.cache
def _cpu() -> str:
    """The model of the processor, for which XLA compiles: one with wider vectors adds in another order."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def usable_cores() -> int:
    """The cores that this process may use: as many as the system allows, and as JAX is told by `NPROC`."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = os.environ.get("NPROC", "")
    return min(usable, max(1, int(told))) if told.isdigit() else usable


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names of the conditions that are not the same."""
    return sorted(name for name in {**before, **now} if before.get(name) != now.get(name))


def reproducible(records: list[Mapping[str, Any]]) -> str:
    """What can be said of the bits of some stored units, in a sentence."""
    told = [record.get("conditions") for record in records]
    if not records or any(not each for each in told) or any(record.get("resumed") for record in records):
        return "Some of these units do not say all that their bits depend on, or were resumed under other conditions."
    names = sorted({name for each in told for name in differing(told[0] or {}, each or {})})
    if not names:
        return "All units ran under the same conditions: where these hold, the same command gives the same bits."
    return f"Units ran under different {', '.join(names)}: they agree with a new run statistically, not in every bit."


def code(kind: type | None = None) -> str:
    """SHA-256 of the code that decides a result, without comments and docstrings.

    It is that of the first floor, of `DECIDES`, and of the files outside igr that define the unit's class and bases.
    """
    own = {each.__module__ for each in (kind.__mro__ if kind else ()) if issubclass(each, Config)} - {"__main__"}
    with _ONCE:  # jobs are threads, and the first units of a run end at about the same time
        texts = [_text(name) for name in sorted(own) if not name.startswith("igr.")]
        return hashlib.sha256("\n".join((_code(), *texts)).encode()).hexdigest()[:16] if any(texts) else _code()


def _text(module: str) -> str:
    """The source of a module of the user."""
    with contextlib.suppress(SyntaxError, tokenize.TokenError):
        return _bare(text_of(module))
    return ""


@functools.cache
def _code() -> str:
    here, told = Path(igr.__file__).parent, hashlib.sha256()
    for path in sorted(here.rglob("*.py")):
        parts = path.relative_to(here).parts
        if parts[0] != "lab" or (len(parts) > 2 and parts[1] in DECIDES):
            told.update(f"{'/'.join(parts)}\n{_bare(path.read_text('utf-8'))}\n".encode())
    return told.hexdigest()[:16]


@functools.lru_cache(maxsize=64)
def _bare(source: str) -> str:
    """Python source without what no result depends on: docstrings, comments, blank lines.

    >>> _bare("'Words.'" + chr(10) + "x = 1  # one")
    'x = 1'
    """
    lines, first = source.splitlines(), True
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, after in pairwise(tokens):  # not `ast.parse`, which CPython 3.11 breaks in several threads at once
        (top, left), (bottom, _) = token.start, token.end
        if token.type == tokenize.COMMENT:
            lines[top - 1] = lines[top - 1][:left]
        elif first and token.type == tokenize.STRING and after.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            lines[top - 1 : bottom] = [""] * (bottom - top + 1)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            first = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def older(record: Mapping[str, Any], config: Config | None = None) -> bool | None:
    """Whether other code computed a unit than that which runs; None where its record does not say."""
    return record["code"] != code(type(config) if config else None) if "code" in record else None


@functools.cache
def _commit() -> str | None:
    """The git commit of the running code, with `+` where the package differs from it; None outside its own checkout."""
    here = Path(igr.__file__).parent

    def git(*arguments: str) -> str:
        command, ours = ["git", "-C", str(here), *arguments], {k: v for k, v in os.environ.items() if k[:4] != "GIT_"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10, env=ours)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != here.parent.resolve():
            return None  # installed somewhere inside another project's checkout, whose commit says nothing of ours
        with open(here.parent / "pyproject.toml", "rb") as file:
            if tomllib.load(file).get("project", {}).get("name") != "igr":
                return None  # unpacked right at the top of another project
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
