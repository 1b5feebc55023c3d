"""Files that are whole or absent: atomic writes, bounded reads, `.npz` bytes that depend on the arrays alone.

Nothing is pickled. Reading trusts nothing: what a file claims is checked against what it has before memory is taken.
"""

import contextlib
import errno
import io
import os
import secrets
import stat
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from igr.lab.store.config import shown

Metrics = dict[str, np.ndarray]
MOST_BYTES = 16 << 30  # of a file; nothing the laboratory writes comes near
INFLATION, SLACK = 32, 64 << 20  # arrays may be this many times larger than the archive that holds them, and more


class StoreError(RuntimeError):
    """The store cannot be used (full disk, no permission), in one sentence."""


class Unreadable(StoreError):
    """A file of one unit is there and cannot be used: nothing is known about it, and nothing is changed."""


class Damaged(RuntimeError):
    """A stored file is not what was written; the message names it."""


class DamageWarning(UserWarning):
    """A damaged file was found; it is not read as data."""


def npz_bytes(arrays: Mapping[str, Any], compress: bool = True) -> bytes:
    """Arrays as the bytes of an `.npz` file: sorted names, no clock and no system in it, so equal arrays, equal bytes.

    What would be compressed further than a reader accepts, such as a gigabyte of zeros, is not compressed.

    >>> npz_bytes({"a": np.arange(3), "b": 1.0}) == npz_bytes({"b": 1.0, "a": np.arange(3)})
    True
    """
    buffer, unpacked = io.BytesIO(), 0
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(arrays):
            member = io.BytesIO()
            array = np.asarray(arrays[name])
            if array.dtype.isbuiltin == 2:  # such as bfloat16, for which the format has no name: float32 holds them all
                array = array.astype(np.float32)
            np.lib.format.write_array(member, array, allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            info.create_system, info.external_attr = 3, 0o600 << 16
            archive.writestr(info, member.getvalue())
            unpacked += member.tell()
    data = buffer.getvalue()
    return npz_bytes(arrays, compress=False) if compress and excess(unpacked, len(data)) > SLACK else data


def excess(unpacked: int, packed: int) -> int:
    """By how many bytes arrays are larger than the usual archive of this size holds."""
    return max(0, unpacked - INFLATION * packed)


def npz_arrays(data: bytes, name: str = "an .npz file") -> Metrics:
    """The inverse of `npz_bytes`. Raises `Damaged` with `name` in it, whatever is wrong with the bytes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if excess(sum(member.file_size for member in members), len(data)) > SLACK:
                raise ValueError("it unpacks to far more than it holds")
            if len({member.filename for member in members}) < len(members):
                raise ValueError("two of its arrays have one name")
            return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds on hostile bytes
        words = " ".join(str(error).split())[:200] or type(error).__name__
        raise Damaged(f"{name} is no archive of arrays: {words}.") from error


_HEADERS = threading.RLock()  # NumPy reads them by `ast`, which CPython 3.11 breaks in several threads at once


def _array(data: bytes) -> np.ndarray:
    """One array from the bytes of an `.npy` file, whose size must be the one its header claims."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"an array has the unknown format {version}")
    with _HEADERS:
        shape, by_columns, dtype = read[version](file)
    count = 1
    for length in shape:
        count *= length
    if dtype.hasobject or (not dtype.itemsize and count) or any(length < 0 for length in shape):
        raise ValueError(f"an array of type {dtype} and shape {shape} is not of plain numbers")
    if len(data) - file.tell() != count * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} has {len(data) - file.tell():,} bytes")
    flat = np.frombuffer(data, dtype, count, file.tell()).copy()
    return flat.reshape(shape, order="F" if by_columns else "C")


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a plain file of at most `most` bytes.

    `FileNotFoundError` where there is none; `Damaged` where it is something else or larger; `Unreadable` where the
    system fails (no permission, an error of the disk), which says nothing about the file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe in its place does not wait
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > most:
                kind = f"{about.st_size:,} bytes long" if stat.S_ISREG(about.st_mode) else "no plain file"
                raise Damaged(f"{path} is damaged: it is {kind}.")
            return file.read(most)
    except FileNotFoundError:
        raise
    except IsADirectoryError:
        raise Damaged(f"{path} is damaged: it is a folder.") from None
    except NotADirectoryError:
        raise Damaged(f"{path.parent} is no folder.") from None
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket, a link to itself
            raise Damaged(f"{path} is damaged: it is no plain file.") from None
        raise Unreadable(f"Could not read {path}: {reason(error)}. Nothing was changed.") from error


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Write so that `path` has either its old content or all of the new one, whenever the process stops.

    The file is made anew and moved to its place: a link there is replaced and not followed. Its mode is the user's
    umask's. Without `durable` it may be lost, whole, with the machine's power.
    """
    temporary = path.parent / f".tmp-{secrets.token_hex(8)}"
    made = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            made = True
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        if made:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise StoreError(f"Could not write {path}: {reason(error)}.") from error


def confined(root: Path, path: Path) -> Path:
    """`path`, which lies below `root` and is reached without a link; `StoreError` where it is not.

    A store may come from somebody else: a link in it must not lead a write to where it does not belong. The root itself
    may be a link, since the user named it. Where `path` itself is the link, it is `Unreadable`: the others can be used.
    """
    parts = path.relative_to(root).parts
    if ".." in parts:
        raise StoreError(f"{path} leaves the output folder {root}.")
    place = root
    for part in parts:
        place /= part
        if place.is_symlink():
            kind = Unreadable if place == path else StoreError
            raise kind(f"{place} is a link, and igr writes only inside {root}: put what it leads to in its place.")
    return path


def refuse_links(folder: Path) -> None:
    """`StoreError` where the folder is a link, or has in it a link or anything else that is no file and no folder.

    Called before something is written there that does not go through `write_atomically`: a link leads elsewhere, and a
    pipe waits for ever.
    """
    if folder.is_symlink():
        raise StoreError(f"{folder} is a link, and igr writes only inside the output folder: remove it.")
    waiting = [str(folder)] if folder.is_dir() else []
    while waiting:  # not `os.walk`, which is recursive in Python 3.11
        top = waiting.pop()
        try:
            with os.scandir(top) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        raise StoreError(f"{entry.path} is a link, and igr writes to no links: remove it.")
                    if entry.is_dir():
                        waiting.append(entry.path)
                    elif not entry.is_file():
                        raise StoreError(f"{entry.path} is neither a file nor a folder: remove it.")
        except OSError as error:
            raise StoreError(f"{shown(top)} cannot be used: {reason(error)}.") from error


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
