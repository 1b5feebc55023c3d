"""Checkpoints: arrays with a checksum before them and the digest of their unit among them. One move replaces all.

The file is the SHA-256 of the rest, a line break, and an `.npz` that is not compressed: parameters hardly compress, and
a stack of them is large.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from igr.lab.store.files import Damaged, Metrics, npz_arrays, npz_bytes

UNIT = "unit/digest"


def pack(arrays: Mapping[str, Any], digest: str) -> bytes:
    """The file that keeps these arrays for the unit of this digest."""
    data = npz_bytes({**arrays, UNIT: np.array(digest)}, compress=False)
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def unpack(file: bytes, digest: str, path: Path) -> Metrics:
    """The arrays of a checkpoint; `Damaged` where it is not what was written, or not for the unit of this digest."""
    checksum, _, data = file.partition(b"\n")
    if hashlib.sha256(data).hexdigest().encode() != checksum:
        raise Damaged(f"{path} is damaged.")
    arrays = npz_arrays(data, str(path))
    unit = arrays.pop(UNIT, None)
    if unit is None:
        raise Damaged(f"{path} does not say which unit it belongs to: an older version of igr wrote it.")
    if unit.shape != () or str(unit) != digest:
        raise Damaged(f"{path} is of another unit.")
    return arrays
