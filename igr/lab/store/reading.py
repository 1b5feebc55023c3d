"""A stored run and its reading: nothing is taken for data that is not what was written, by this unit."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from igr.lab.store import schema
from igr.lab.store.files import Damaged, Metrics, npz_arrays, read_bytes, reason

RECORD_BYTES = 64 << 20  # the most a record, a list of sums or an index may have


@dataclass(frozen=True)
class Run:
    """A stored unit: its configuration, its measurements and the record of where it ran."""

    config: Any  # a Config; figures read the fields of their own kind
    metrics: Metrics
    record: Mapping[str, Any]


def read_record(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """The sums of a finished unit and its record, which is checked against them."""
    expected = schema.sums(read_bytes(folder / "SHA256SUMS", RECORD_BYTES), folder / "SHA256SUMS")
    path = folder / "config.json"
    record = schema.record(_summed(path, expected, RECORD_BYTES), path)
    schema.bound(record, folder)
    return expected, record


def _summed(path: Path, expected: Mapping[str, str], *most: int) -> bytes:
    try:
        content = read_bytes(path, *most)
    except FileNotFoundError as error:
        raise Damaged(f"{path} cannot be read ({reason(error)}).") from error
    if hashlib.sha256(content).hexdigest() != expected[path.name]:
        raise Damaged(f"{path} is damaged: its SHA-256 is not the one in SHA256SUMS.")
    return content


def read_run(folder: Path) -> Run:
    """The unit stored in a folder, all of it checked.

    `FileNotFoundError`: not finished; `Damaged`: finished, and not what was written; `Unreadable`: the system failed;
    `ConfigError`: of another version of igr.
    """
    expected, record = read_record(folder)
    content = _summed(folder / "metrics.npz", expected)
    return Run(schema.config_of(record, folder), npz_arrays(content, str(folder / "metrics.npz")), record)
