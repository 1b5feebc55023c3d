"""The folder of one unit of work: complete or not there, never read when damaged, never deleted.

    DIR/EXPERIMENT/<digest of the configuration>/
        config.json      the configuration and where it ran: seed, versions, device, precision, git commit, time
        metrics.npz      the measurements; the same bytes for the same run, however often it was cut and resumed
        checkpoint.bin   where a long unit was last; removed when it is finished
        SHA256SUMS       written last: its presence says `finished`, its sums say `undamaged`

What becomes of a folder that cannot be read:

    damaged      a file is not what was written, or is of another unit: renamed to `.damaged-*`, computed again
    unknown      another version of igr wrote it: left alone and named
    unreadable   the system could not read it this time: left alone and named
"""

import contextlib
import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from igr.lab.store import checkpoint, schema
from igr.lab.store.claim import Permit, claim, place
from igr.lab.store.config import Config, ConfigError
from igr.lab.store.files import (
    Damaged,
    DamageWarning,
    Metrics,
    StoreError,
    Unreadable,
    confined,
    npz_bytes,
    read_bytes,
    reason,
    write_atomically,
)
from igr.lab.store.lock import holder, lock
from igr.lab.store.provenance import surroundings
from igr.lab.store.reading import Run, read_record, read_run


class Folder:
    """The folder of one unit of work."""

    def __init__(self, path: Path, experiment: str, config: Config, token: str = ""):
        self.path, self.experiment, self.config = path, experiment, config
        self.permit: Permit | None = None  # while this process has the unit
        self._token = token  # of a claim that another process holds, for which this one works

    @property
    def root(self) -> Path:
        """The output folder."""
        return self.path.parent.parent

    @property
    def lock_name(self) -> str:
        """The name of the unit's lock."""
        return f"{self.experiment}-{self.path.name}"

    def status(self, quick: bool = False) -> str:
        """`finished`, `damaged`, `unknown` (of another version), `unreadable`, `cut` (begun, not finished) or `absent`.

        `quick` believes in measurements of the right size without reading them: enough to decide what is left to do.
        """
        try:
            if quick and self._looks_finished():
                return "finished"
            read_run(self.path)
        except Damaged:
            return "damaged"
        except ConfigError:
            return "unknown"
        except Unreadable:
            return "unreadable"
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                return "cut" if any(self.path.iterdir()) else "absent"
            return "absent"
        return "finished"

    def read(self) -> Run:
        """The stored run; raises `Damaged`, `Unreadable`, `ConfigError` or `FileNotFoundError`."""
        return read_run(self.path)

    def record(self) -> dict[str, Any]:
        """The record of a finished unit, without its measurements; raises as `read` does."""
        return read_record(self.path)[1]

    def finished(self, quick: bool = False) -> bool:
        """True where the unit need not be computed; call it with the lock.

        A damaged one is moved aside, under a name that a warning tells. What this version cannot read (an unknown
        class, field or format) is left alone: that is a `ConfigError`, and never a reason to compute it again here. So
        is what the system cannot read, an `Unreadable`.
        """
        try:
            if not (quick and self._looks_finished()):
                read_run(self.path)
        except FileNotFoundError:
            self._make_way()
            return False
        except Damaged as error:
            aside = self.set_aside()
            message = f"{error} The unit is computed again, and what was found is kept in {aside}."
            warnings.warn(DamageWarning(message), stacklevel=2)
            return False
        self.tidy()
        return True

    def tidy(self) -> None:
        """Remove the checkpoint of a finished unit, left where a process died between its last two operations."""
        with contextlib.suppress(OSError):
            (confined(self.root, self.path) / "checkpoint.bin").unlink()

    def write(self, metrics: Mapping[str, Any], seed: int | None = None, **about: Any) -> None:
        """Store the measurements."""
        self.write_files(self.files(metrics, seed, **about))

    def files(self, metrics: Mapping[str, Any], seed: int | None = None, **about: Any) -> dict[str, bytes]:
        """The files of the finished unit by name, in the order in which they are written: data first, sums last."""
        data = npz_bytes(metrics)
        record = {
            "format": schema.FORMAT,
            "experiment": self.experiment,
            "kind": self.config.kind(),
            "config": self.config.to_dict(),
            "digest": self.config.digest(),
            "seed": seed,
            "bytes": {"metrics.npz": len(data)},
            **surroundings(type(self.config)),
            **about,
        }
        files = {"config.json": schema.encode(record), "metrics.npz": data}
        sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
        return files | {"SHA256SUMS": sums.encode()}

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Store what `files` made, here or elsewhere; then the checkpoint goes."""
        confined(self.root, self.path)
        for name in ("config.json", "metrics.npz", "SHA256SUMS"):
            self._check()
            write_atomically(self.path / name, files[name])
        with contextlib.suppress(FileNotFoundError):
            (self.path / "checkpoint.bin").unlink()

    def holds(self, metrics: Mapping[str, Any]) -> bool:
        """Whether these very measurements are stored, bit for bit."""
        return read_bytes(self.path / "metrics.npz") == npz_bytes(metrics)

    def save_checkpoint(self, arrays: Mapping[str, Any]) -> None:
        """Keep what a restart needs."""
        self.write_checkpoint(checkpoint.pack(arrays, self.config.digest()))

    def write_checkpoint(self, data: bytes) -> None:
        """Keep a checkpoint that is packed already."""
        self._check()
        write_atomically(confined(self.root, self.path) / "checkpoint.bin", data)

    def read_checkpoint(self) -> bytes:
        """The bytes of the last checkpoint; `FileNotFoundError` where there is none."""
        return read_bytes(self.path / "checkpoint.bin")

    def load_checkpoint(self) -> Metrics | None:
        """The last checkpoint, or None; one of no use is named in a warning, moved aside, and the unit starts anew."""
        try:
            return checkpoint.unpack(self.read_checkpoint(), self.config.digest(), self.path / "checkpoint.bin")
        except FileNotFoundError:
            return None
        except Damaged as error:
            self.drop_checkpoint(str(error))
            return None

    def drop_checkpoint(self, why: str) -> None:
        """Move the checkpoint aside and say why: the unit starts from its beginning."""
        aside = self._free(f"{self.path.name}-checkpoint")
        try:
            os.rename(self.path / "checkpoint.bin", aside)
        except OSError as error:
            raise StoreError(f"Could not rename {self.path / 'checkpoint.bin'}: {reason(error)}.") from error
        message = f"{why} The unit starts from its beginning, and what was found is kept in {aside}."
        warnings.warn(DamageWarning(message), stacklevel=3)

    def set_aside(self) -> Path:
        """Rename the unit's folder to the first free `.damaged-NAME-N` beside it, so that nothing is deleted."""
        aside = self._free(self.path.name)
        try:
            os.rename(self.path, aside)
        except OSError as error:
            raise StoreError(f"Could not rename {self.path}: {reason(error)}.") from error
        return aside

    def _make_way(self) -> None:
        """Move aside what no file can replace: a folder in the place of one that the unit is going to write."""
        for name in ("config.json", "metrics.npz"):
            if (self.path / name).is_dir() and not (self.path / name).is_symlink():
                aside = self._free(f"{self.path.name}-{name}")
                try:
                    os.rename(self.path / name, aside)
                except OSError as error:
                    raise StoreError(f"Could not rename {self.path / name}: {reason(error)}.") from error
                message = f"{self.path / name} is a folder: it is kept in {aside}."
                warnings.warn(DamageWarning(message), stacklevel=3)

    def _free(self, name: str) -> Path:
        paths = (self.path.with_name(f".damaged-{name}-{number}") for number in count(1))
        return next(path for path in paths if not os.path.lexists(path))

    @contextlib.contextmanager
    def lock(self, wait: bool = False) -> Iterator[bool]:
        """Yield True where this process may work on the unit, False where another one does (never with `wait`).

        Two things say so: the system's lock, which ends with its process, and a claim, which holds between machines
        (see `igr.lab.store.claim`). Where the file system has no locks, the claim is enough.
        """
        confined(self.root, self.path)
        with self._claimed(wait) as permit:
            if permit:
                for left in self.path.glob(".tmp-*"):  # of a killed process; ours alone now
                    with contextlib.suppress(OSError):
                        left.unlink()
            self.permit = permit
            try:
                yield permit is not None
            finally:
                self.permit = None

    @contextlib.contextmanager
    def _claimed(self, wait: bool) -> Iterator[Permit | None]:
        if self._token:
            permit = Permit(place(self.root, self.lock_name), self._token)
            yield permit if permit.valid else None
            return
        with lock(self.root, self.lock_name, wait) as mine:
            if mine is False:
                yield None
                return
            with claim(self.root, self.lock_name, mine is True) as permit:
                yield permit

    def _check(self) -> None:
        """Raise `Taken` where another attempt has taken the unit over."""
        if self.permit:
            self.permit.check()

    def holder(self) -> str:
        """Who works on the unit, in words."""
        return holder(self.root, self.lock_name)

    def _looks_finished(self) -> bool:
        """Whether the record is sound and this unit's, and the measurements have their size; they are not read."""
        try:
            expected, record = read_record(self.path)
            size = os.stat(self.path / "metrics.npz").st_size
        except OSError:
            return False  # the full check says what it is
        return (
            record["digest"] == self.config.digest()
            and record["kind"].rpartition(":")[2] == type(self.config).__name__
            and _agree(record["config"], self.config.to_dict())
            and size == record.get("bytes", {}).get("metrics.npz", size)
            and size > 0
            and len(expected["metrics.npz"]) == 64
        )


def _agree(stored: Any, own: Any) -> bool:
    """Whether a stored configuration has no other values than ours; it may lack fields that were added later."""
    if isinstance(stored, dict) and isinstance(own, dict):
        return all(name in own and _agree(value, own[name]) for name, value in stored.items())
    return stored == own
