"""The store: one folder for each unit of work, complete or not there, and never read when damaged.

    DIR/EXPERIMENT/<digest of the configuration>/
        config.json      the configuration and where it ran: seed, versions, device, precision, git commit, time
        metrics.npz      the measurements; the same bytes for the same run, however often it was cut and resumed
        checkpoint.bin   where a long unit was last; removed when it is finished
        SHA256SUMS       written last: its presence says `finished`, its sums say `undamaged`
    DIR/EXPERIMENT/index.json   which units the last `igr run` asked for

Every file is written beside its place, flushed to disk and moved over: a process killed at any moment leaves the old
file or the new one. A lock that dies with its process keeps two processes off one unit. Nothing is pickled.
"""

import contextlib
import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from igr.lab.config import Config, ConfigError
from igr.lab.files import Metrics, StoreError, npz_arrays, npz_bytes, reason, write_atomically
from igr.lab.provenance import surroundings

try:
    import fcntl
except ImportError:  # Windows has no flock: there, one process at a time per output folder is the user's care
    fcntl = None

FORMAT = 1


class Damaged(RuntimeError):
    """A stored file is not what was written; the message names it."""


class DamageWarning(UserWarning):
    """A damaged file was found; it is not read as data."""


@dataclass(frozen=True)
class Run:
    """A stored unit: its configuration, its measurements and the record of where it ran."""

    config: Any  # a Config; figures read the fields of their own kind
    metrics: Metrics
    record: Mapping[str, Any]


Table = list[Run]


class Store:
    """The units of work under one output folder.

    >>> import tempfile, numpy as np
    >>> @dataclass(frozen=True)
    ... class Demo(Config):
    ...     learning_rate: float
    >>> with tempfile.TemporaryDirectory() as root:
    ...     unit = Store(root).folder("demo", Demo(0.5))
    ...     before = unit.status()
    ...     unit.write({"loss": np.array([1.0, 0.5])}, seed=0)
    ...     before, unit.status(), unit.read().metrics["loss"][-1].item()
    ('absent', 'finished', 0.5)
    """

    def __init__(self, root: str | Path):
        self.root = Path(root)

    def require_writable(self) -> None:
        """Raise `StoreError` now, and not after an hour of computing, where nothing can be written."""
        write_atomically(self.root / ".writable", b"")
        with contextlib.suppress(OSError):
            (self.root / ".writable").unlink()

    def folder(self, experiment: str, config: Config) -> "Folder":
        """The folder of this configuration, which need not exist yet."""
        return Folder(self.root / experiment / config.digest()[:16], experiment, config)

    def write_index(self, experiment: str, configs: list[Config], **about: Any) -> None:
        """Say which units the report is about: those of the last run, in its order."""
        index = {"format": FORMAT, "units": [config.digest()[:16] for config in configs], **about}
        write_atomically(self.root / experiment / "index.json", _json(index))

    def read_index(self, experiment: str) -> dict[str, Any] | None:
        """What `write_index` wrote, or None where the experiment was never run here."""
        try:
            return json.loads((self.root / experiment / "index.json").read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StoreError(f"Could not read {self.root / experiment / 'index.json'}: {reason(error)}.") from error

    def runs(self, experiment: str) -> tuple[Table, list[str]]:
        """The finished units of the last run, a sentence for each that is damaged, and one for all not finished."""
        index = self.read_index(experiment)
        table, problems, unfinished = [], [], 0
        names = index["units"] if index else []
        for name in names:
            folder = self.root / experiment / name
            try:
                table.append(read_run(folder))
            except Damaged as error:
                problems.append(str(error))
            except FileNotFoundError:
                unfinished += 1
            except ConfigError as error:
                problems.append(f"{folder} was stored by another version of igr: {error}")
        if unfinished:
            which = f"{unfinished} of the {len(names)} units in {self.root / experiment} are not finished"
            problems.append(f"{which}: the same command goes on with them.")
        return table, problems

    def experiments(self) -> list[str]:
        """Names of the experiments that have an index here."""
        return sorted(path.parent.name for path in self.root.glob("*/index.json"))


def shipped() -> Store | None:
    """The paper-scale runs of the repository, where the package runs from a checkout."""
    root = Path(__file__).parents[2] / "results"
    return Store(root) if Store(root).experiments() else None


class Folder:
    """The folder of one unit of work."""

    def __init__(self, path: Path, experiment: str, config: Config):
        self.path, self.experiment, self.config = path, experiment, config

    def status(self) -> str:
        """`finished`, `damaged`, `cut` (begun, not finished) or `absent`."""
        try:
            read_run(self.path)
        except (Damaged, ConfigError):
            return "damaged"
        except FileNotFoundError:
            return "cut" if self.path.is_dir() and any(self.path.iterdir()) else "absent"
        return "finished"

    def read(self) -> Run:
        """The stored run; raises `Damaged` or `FileNotFoundError`, and never returns what was not written."""
        return read_run(self.path)

    def finished(self) -> bool:
        """True where the unit need not be computed. A damaged one is named in a warning and cleared away."""
        try:
            read_run(self.path)
        except FileNotFoundError:
            return False
        except (Damaged, ConfigError) as error:  # or written by a version whose configurations were others
            warnings.warn(DamageWarning(f"{self.path} cannot be used and is computed again: {error}"), stacklevel=2)
            self.clear()
            return False
        with contextlib.suppress(OSError):  # left where a process died between its last two operations
            (self.path / "checkpoint.bin").unlink()
        return True

    def write(self, metrics: Mapping[str, Any], seed: int | None = None, **about: Any) -> None:
        """Store the measurements: data first, checksums last, then the checkpoint goes."""
        record = {
            "format": FORMAT,
            "experiment": self.experiment,
            "kind": self.config.kind(),
            "config": self.config.to_dict(),
            "digest": self.config.digest(),
            "seed": seed,
            **surroundings(),
            **about,
        }
        files = {"config.json": _json(record), "metrics.npz": npz_bytes(metrics)}
        for name, data in files.items():
            write_atomically(self.path / name, data)
        sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
        write_atomically(self.path / "SHA256SUMS", sums.encode())
        with contextlib.suppress(FileNotFoundError):
            (self.path / "checkpoint.bin").unlink()

    def save_checkpoint(self, arrays: Mapping[str, Any]) -> None:
        """Keep what a restart needs. The file carries its own checksum, so that one move replaces both."""
        data = npz_bytes(arrays, compress=False)  # parameters hardly compress, and a stack of them is large
        write_atomically(self.path / "checkpoint.bin", hashlib.sha256(data).hexdigest().encode() + b"\n" + data)

    def load_checkpoint(self) -> Metrics | None:
        """The last checkpoint, or None; a damaged one is named in a warning and the unit starts anew."""
        path = self.path / "checkpoint.bin"
        try:
            checksum, _, data = path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"Could not read {path}: {reason(error)}.") from error
        if hashlib.sha256(data).hexdigest().encode() != checksum:
            warnings.warn(DamageWarning(f"{path} is damaged. The unit starts from its beginning."), stacklevel=2)
            path.unlink(missing_ok=True)
            return None
        return npz_arrays(data)

    def clear(self) -> None:
        """Remove the unit's files, the completeness mark first."""
        for name in ("SHA256SUMS", "metrics.npz", "config.json", "checkpoint.bin"):
            (self.path / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self, wait: bool = False) -> Iterator[bool]:
        """Yield True where this process may work on the unit, False where another one does (never with `wait`).

        The lock is the operating system's, on a file outside the unit's folder: it ends with the process that holds it,
        also when that is killed, so there is no stale lock to judge.
        """
        folder = self.path.parent.parent / ".locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".gitignore").write_text("*\n")
            file = open(folder / f"{self.experiment}-{self.path.name}", "ab")  # noqa: SIM115 (closed below)
        except OSError as error:
            raise StoreError(f"Could not write in {folder}: {reason(error)}.") from error
        with file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield False
                    return
            for left in self.path.glob(".tmp-*"):  # of a killed process; ours alone now
                left.unlink(missing_ok=True)
            yield True


def read_run(folder: Path) -> Run:
    """The unit stored in a folder. `FileNotFoundError`: not finished; `Damaged`: finished, and not what was written."""
    try:
        sums = (folder / "SHA256SUMS").read_text()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise Damaged(f"{folder / 'SHA256SUMS'} cannot be read ({reason(error)}).") from error
    expected = {name: checksum for checksum, _, name in (line.partition("  ") for line in sums.splitlines())}
    content = {}
    for name in ("config.json", "metrics.npz"):
        if name not in expected:
            raise Damaged(f"{folder / 'SHA256SUMS'} is damaged: it has no sum for {name}.")
        try:
            content[name] = (folder / name).read_bytes()
        except OSError as error:
            raise Damaged(f"{folder / name} cannot be read ({reason(error)}).") from error
        if hashlib.sha256(content[name]).hexdigest() != expected[name]:
            raise Damaged(f"{folder / name} is damaged: its SHA-256 is not the one in SHA256SUMS.")
    record = json.loads(content["config.json"])
    config = Config.from_json(json.dumps({"kind": record["kind"], **record["config"]}))
    return Run(config, npz_arrays(content["metrics.npz"]), record)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
