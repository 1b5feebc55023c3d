"""The store: an output folder with the units of each experiment, and an index of those that the last run asked for.

    DIR/EXPERIMENT/<digest>/    one unit of work: see `igr.lab.store.folder`
    DIR/EXPERIMENT/index.json   which units the last `igr run` asked for, with a checksum
    DIR/.locks/                 a file for each unit that is being computed

Every file is written beside its place, flushed to disk and moved over: a process killed at any moment leaves the old
file or the new one. Nothing is written through a link or outside DIR, since a store may come from somebody else.
"""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import igr
from igr.lab.store import schema
from igr.lab.store.config import Config, ConfigError
from igr.lab.store.files import Damaged as Damaged
from igr.lab.store.files import DamageWarning as DamageWarning
from igr.lab.store.files import Unreadable, confined, excess, read_bytes, write_atomically
from igr.lab.store.folder import Folder as Folder
from igr.lab.store.parallel import each
from igr.lab.store.reading import RECORD_BYTES, read_run
from igr.lab.store.reading import Run as Run

Table = list[Run]
SPARE = 2 << 30  # bytes that the units of a report may unpack to beyond what archives of their size usually hold


class Store:
    """The units of work under one output folder.

    >>> import tempfile, numpy as np
    >>> from dataclasses import dataclass
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
        if not str(root):
            raise ConfigError("The output folder needs a name: `--out .` is the current one.")
        self.root = Path(root)
        self.harm: list[str] = []  # what was found damaged while reading
        self._own: dict[str, dict[str, Any]] = {}  # indices as this process wrote them, whatever others write

    def require_writable(self) -> None:
        """Raise `StoreError` now, and not after an hour of computing, where nothing can be written."""
        write_atomically(self.root / ".writable", b"")
        with contextlib.suppress(OSError):
            (self.root / ".writable").unlink()

    def folder(self, experiment: str, config: Config) -> Folder:
        """The folder of this configuration, which need not exist yet."""
        return Folder(self.root / experiment / config.digest()[:16], experiment, config)

    def write_index(self, experiment: str, configs: list[Config], **about: Any) -> None:
        """Say which units the report is about: those of the last run, in its order."""
        units = list(dict.fromkeys(config.digest()[:16] for config in configs))
        path = self.root / experiment / "index.json"
        write_atomically(confined(self.root, path), schema.index_bytes(units, about))
        self._own[experiment] = {"units": units, **about}

    def read_index(self, experiment: str) -> dict[str, Any] | None:
        """What `write_index` wrote, or None where the experiment was never run here or its index cannot be used.

        A store that wrote an index answers with that one: two runs at once each report on their own units.
        """
        if experiment in self._own:
            return self._own[experiment]
        path = self.root / experiment / "index.json"
        try:
            return schema.index(read_bytes(path, RECORD_BYTES), path)
        except FileNotFoundError:
            if path.is_symlink():
                self._note(f"{path} is a link to nothing: remove it.")
        except Unreadable as error:
            self._note(str(error))
        except (Damaged, ConfigError) as error:
            self._note(f"{error} `igr run {experiment}` writes it anew, and computes nothing that is stored.")
        return None

    def runs(self, experiment: str) -> tuple[Table, list[str]]:
        """The finished units of the last run, a sentence for each that is damaged, and one for all not finished.

        The experiment's classes must have been imported: `igr.lab.experiments.load(experiment)` does it.
        """
        table, problems, before = [], [], len(self.harm)
        index = self.read_index(experiment)
        problems += self.harm[before:]
        names = index["units"] if index else []
        there = set(names)
        with contextlib.suppress(OSError):  # an index may name a million that are not there
            there = set(os.listdir(self.root / experiment))
        folders = [self.root / experiment / name for name in names if name in there]
        unfinished = len(names) - len(folders)
        for found in each(_Reader(), folders):
            if isinstance(found, Run):
                table.append(found)
            elif isinstance(found, Damaged | Unreadable):
                problems.append(str(found))
                self._note(str(found))
            elif isinstance(found, FileNotFoundError):
                unfinished += 1
            else:
                problems.append(str(found))
        if unfinished:
            which = f"{unfinished} of the {len(names)} units in {self.root / experiment} are not finished"
            problems.append(f"{which}: the command that computed the others goes on with them.")
        return table, problems

    def experiments(self) -> list[str]:
        """Names of the experiments that have an index here, or a folder that the system does not let us look into."""
        try:
            return sorted(name for name in os.listdir(self.root) if _may_be(self.root / name / "index.json"))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _note(self, sentence: str) -> None:
        if sentence not in self.harm:
            self.harm.append(sentence)


def _may_be(path: Path) -> bool:
    """Whether there is a file, or something else than its absence keeps us from it: then its reader says what."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return path.parent.name != "lost+found"  # the file system's own, where the output folder is the top of a disk
    return True


class _Reader:
    """Reads units that are kept in memory together: each may unpack to more than usual, and all of them only so far."""

    def __init__(self) -> None:
        self.spare, self.lock = SPARE, threading.Lock()

    def __call__(self, folder: Path) -> Run | Exception:
        """The unit in a folder, or why it cannot be read."""
        try:
            run = read_run(folder)
            packed = os.stat(folder / "metrics.npz").st_size
        except (Damaged, Unreadable, FileNotFoundError, ConfigError) as error:
            return error
        with self.lock:
            self.spare -= excess(sum(array.nbytes for array in run.metrics.values()), packed)
            if self.spare < 0:
                return Unreadable(f"{folder} was not read: it and others unpack to far more than they hold.")
        return run


def shipped() -> Store | None:
    """The paper-scale runs of the repository, where the package runs from a checkout."""
    root = Path(igr.__file__).parents[1] / "results"
    return Store(root) if Store(root).experiments() else None
