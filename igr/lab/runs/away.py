"""An attempt at a unit on a Ray worker, with or without sight of the store.

A parcel is what the driver sends, plain data:

    order       what `execute` takes, with the token of the driver's claim
    probe       a file of the store: where it can be read, the worker writes to the store itself
    saved       the checkpoint, for workers that do not see the store; None where it was not sent
    has_saved   whether there is one
    setting     of JAX, as in the driver
    code        the digest of the driver's code
    beside      modules of the user's own that those and the classes below import: name, path and text
    sources     modules of the user's own that cannot be imported here: name, path and text
    pickled     classes of a notebook or script, from cloudpickle
"""

import contextlib
import functools
import os
import pickle
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from igr.lab.runs.execute import Order, execute
from igr.lab.runs.unit import Cancelled
from igr.lab.store.claim import Permit
from igr.lab.store.config import Config
from igr.lab.store.files import DamageWarning, StoreError, Unreadable
from igr.lab.store.folder import Folder
from igr.lab.store.modules import from_text, offer
from igr.lab.store.provenance import code

PERIOD = 0.25  # seconds between two messages of a unit


class Away(Folder):
    """The folder of a unit, for a worker that does not see it: checkpoints and results go to the driver as bytes."""

    def __init__(self, path: Path, experiment: str, config: Config, token: str, saved: bytes | None, send: Any):
        super().__init__(path, experiment, config, token)
        self.saved, self.send = saved, send
        self.result: dict[str, bytes] = {}

    @contextlib.contextmanager
    def lock(self, wait: bool = False) -> Iterator[bool]:
        """The driver holds the claim, and takes nothing from an attempt that it has given up."""
        yield True

    def finished(self, quick: bool = False) -> bool:
        """It is not, or the driver would not have sent it."""
        return False

    def status(self, quick: bool = False) -> str:
        """`cut` where there is a checkpoint, or `absent`."""
        return "cut" if self.saved else "absent"

    def read_checkpoint(self) -> bytes:
        """What the driver sent, or the last one of this attempt."""
        if self.saved is None:
            raise FileNotFoundError
        return self.saved

    def write_checkpoint(self, data: bytes) -> None:
        """Send it to the driver."""
        self.saved = data
        self.send(data)

    def drop_checkpoint(self, why: str) -> None:
        """Forget it; the driver keeps its copy until there is a new one."""
        self.saved = None
        warnings.warn(DamageWarning(f"{why} The unit starts from its beginning."), stacklevel=3)

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Keep them for the answer."""
        self.result = dict(files)


class Told(Folder):
    """The folder of a unit in the store, for a worker: what was measured before a checkpoint is said before it."""

    say: Callable[[], None] = staticmethod(lambda: None)

    def write_checkpoint(self, data: bytes) -> None:
        """Say it, and keep the checkpoint: who resumes from it does not measure again."""
        self.say()
        super().write_checkpoint(data)


def fetched(ref: Any, timeout: float | None = None) -> Any:
    """What `ray.get` returns, waited for in another thread.

    Ray takes the CPUs of a task whose main thread waits in `ray.get`, and starts the next task on them: more units
    would run at the same time than were asked for, and most of them in new processes, which import JAX first.
    """
    import ray

    with ThreadPoolExecutor(1, "igr-fetch") as other:
        return other.submit(ray.get, ref, timeout=timeout).result()


class Reporter:
    """Sends what a unit says to the mailbox, and hears there that it should stop."""

    def __init__(self, post: Any, token: str):
        import ray

        self._ray, self._post, self._lock, self._sending = ray, post, threading.Lock(), threading.Lock()
        node = ray.get_runtime_context().get_node_id()[:6]
        self._about = {"token": token, "node": f"{socket.gethostname()} {node}", "pid": os.getpid()}
        self._new: dict[str, Any] = {"begun": True, "events": []}
        self.stop, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="igr-reporter", daemon=True)
        self._thread.start()

    def progress(self, fraction: float, text: str) -> None:
        """The unit came further."""
        with self._lock:
            self._new.update(fraction=fraction, text=text)

    def emit(self, step: int, numbers: Mapping[str, Any]) -> None:
        """The unit measured something."""
        with self._lock:
            self._new["events"].append((step, {name: np.asarray(value) for name, value in numbers.items()}))

    def checkpoint(self, data: bytes) -> None:
        """The unit kept a checkpoint."""
        with self._lock:
            self._new["checkpoint"] = data

    def close(self) -> None:
        """Send what is left, and wait until it has arrived."""
        self._end.set()
        self._thread.join()
        self.send()

    def _run(self) -> None:
        while True:
            self.send()
            if self._end.wait(PERIOD):
                return

    def send(self) -> None:
        """Send what is new; returns when it has arrived. One thread at a time, so that it arrives in its order."""
        with self._sending:
            with self._lock:
                new, self._new = self._new, {"events": []}
            try:
                if fetched(self._post.tell.remote({**self._about, **new}), timeout=60):
                    self.stop.set()
            except self._ray.exceptions.RayError:  # the mailbox is being moved: next time
                with self._lock:
                    self._new = {**new, **self._new, "events": new["events"] + self._new["events"]}


def attempt(parcel: dict[str, Any], post: Any) -> dict[str, Any]:
    """What became of the unit: `how`, and `why`, `files`, `warnings`."""
    begun = time.monotonic()
    if code() != parcel["code"]:
        why = "The workers have other code of igr than this process: install the same version there."
        return {"how": "mismatch", "why": why}
    for name, value in parcel["setting"].items():
        jax.config.update(name, value)
    order = Order(**parcel["order"])
    sees = Permit(Path(parcel["probe"][0]), parcel["probe"][1]).valid
    if not sees and parcel["has_saved"] and parcel["saved"] is None:
        return {"how": "send"}
    saved: Any = None
    if not sees and parcel["saved"] is not None:
        saved = fetched(parcel["saved"][0])
    reporter, made = Reporter(post, order.token), list[Away]()

    def place(path: Path, experiment: str, config: Config, token: str) -> Folder:
        if sees:
            folder = Told(path, experiment, config, token)
            folder.say = reporter.send
            return folder
        made.append(Away(path, experiment, config, token, saved, reporter.checkpoint))
        return made[-1]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamageWarning)
        found = _execute(parcel, order, reporter, place)
        reporter.close()
    found["warnings"] = [str(each.message) for each in caught if issubclass(each.category, DamageWarning)]
    if made and found["how"] == "computed":
        found["files"] = made[-1].result
    return found | {"seconds": time.monotonic() - begun}


def _execute(parcel: dict[str, Any], order: Order, reporter: Reporter, place: Any) -> dict[str, Any]:
    try:
        offer(parcel["beside"], [name for name, _, _ in parcel["sources"]])
        for each in parcel["sources"]:
            from_text(*each)
        for each in parcel["pickled"]:
            _unpickled(each)
        return {"how": execute(order, reporter.progress, reporter.stop, emit=reporter.emit, place=place)}
    except Cancelled:
        return {"how": "cancelled"}
    except StoreError as error:
        return {"how": "failed" if isinstance(error, Unreadable) else "store", "why": str(error)}
    except Exception as error:  # it may hold what cannot travel
        return {"how": "failed", "why": f"{type(error).__name__}: {error}"}


@functools.cache
def _unpickled(data: bytes) -> Any:
    """A class of the user's, made once in a process: made again, a data class would lose its fields."""
    return pickle.loads(data)
