"""Files that are whole or absent: atomic writes, and `.npz` bytes that depend on the arrays alone. No pickle."""

import contextlib
import errno
import io
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Metrics = dict[str, np.ndarray]


class StoreError(RuntimeError):
    """The store cannot be used (full disk, no permission), in one sentence."""


def npz_bytes(arrays: Mapping[str, Any], compress: bool = True) -> bytes:
    """Arrays as the bytes of an `.npz` file: sorted names, no clock and no system in it, so equal arrays, equal bytes.

    >>> npz_bytes({"a": np.arange(3), "b": 1.0}) == npz_bytes({"b": 1.0, "a": np.arange(3)})
    True
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(arrays):
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(arrays[name]), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            info.create_system, info.external_attr = 3, 0o600 << 16
            archive.writestr(info, member.getvalue())
    return buffer.getvalue()


def npz_arrays(data: bytes) -> Metrics:
    """The inverse of `npz_bytes`; refuses pickled objects."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def write_atomically(path: Path, data: bytes) -> None:
    """Write so that `path` has either its old content or all of the new one, whenever the process stops."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise StoreError(f"Could not write {path}: {reason(error)}.") from error


def reason(error: Exception) -> str:
    """Why a file could not be read or written, in words."""
    if isinstance(error, OSError) and error.errno is not None:
        return {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}.get(
            error.errno, os.strerror(error.errno)
        )
    return str(error)


def _sync_folder(folder: Path) -> None:
    """Make the move itself durable, where the system allows it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
