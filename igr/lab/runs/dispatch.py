"""The driver of a run on Ray: claims units, sends them to workers, hears of them, and tries again what was lost."""

import contextlib
import dataclasses
import os
import secrets
import time
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from igr.lab.runs.executor import PATIENCE, Job
from igr.lab.runs.faults import FULL, FULL_WORDS, LOST, unfit, why_of
from igr.lab.runs.luggage import luggage
from igr.lab.runs.unit import Unit
from igr.lab.runs.worker import Post, work
from igr.lab.store.claim import Taken, claim
from igr.lab.store.config import ConfigError
from igr.lab.store.files import DamageWarning, StoreError, Unreadable
from igr.lab.store.folder import Folder

POLL, AGAIN, GRACE = 0.1, 0.3, 2.5  # seconds: between looks, between tries at units of others, to stop in
ANSWER = 10.0  # seconds to wait for the mailbox, before units that are back are looked at again
RECOUNT = 5.0  # seconds after which the nodes of the cluster are counted again


@dataclass
class Flight:
    """A unit that was sent to a worker: the claim is held until it is back."""

    unit: Unit
    folder: Folder
    held: contextlib.ExitStack
    ref: Any = None
    begun: bool = False
    lost: int = 0

    @property
    def token(self) -> str:
        """Of this attempt; what comes from another one is not heard."""
        return self.folder.permit.token if self.folder.permit else ""


@dataclass
class Dispatch:
    """One run on a cluster that this process is connected to; `own` says that it was started for the run."""

    executor: Any  # a `RayExecutor`
    job: Job
    own: bool
    waiting: deque[Unit] = field(default_factory=deque)
    elsewhere: list[Unit] = field(default_factory=list)  # other processes have their claims
    flights: list[Flight] = field(default_factory=list)
    apart: bool = False  # whether there are workers that do not see the store
    asked: dict[int, list[float]] = field(default_factory=dict)
    taking: Any = None  # what the mailbox was asked for and has not answered yet

    def run(self, units: list[Unit]) -> None:
        """Until all have ended, or the user wants to stop."""
        self.slots, counted = self.executor.slots(), time.monotonic()
        if not self.slots:
            self._nowhere()
        self.task = ray.remote(**self.executor.options())(work)
        self.post = _post()
        self.common = luggage(units)
        self.waiting.extend(units)
        looked = time.monotonic()
        with claim(self.job.store.root, f"probe-{secrets.token_hex(4)}", True) as probe:
            self.common["probe"] = (str(probe.path.resolve()), probe.token) if probe else ("", "")
            try:
                while (self.waiting or self.elsewhere or self.flights) and not self.job.stop.is_set():
                    if self.elsewhere and not self.waiting and time.monotonic() - looked > AGAIN:
                        looked = time.monotonic()
                        self.waiting.extend(self.elsewhere)
                        self.elsewhere.clear()
                    if time.monotonic() - counted > RECOUNT:
                        self.slots, counted = self.executor.slots(), time.monotonic()
                    self._launch()
                    self._hear(POLL)
            finally:
                self._stop()

    def _launch(self) -> None:
        """Send units until a few more are on their way than the cluster computes at once."""
        while self.waiting and len(self.flights) < 2 * max(self.slots, 1) + 2:
            unit, held = self.waiting.popleft(), contextlib.ExitStack()
            folder = self.job.folder(unit)
            flight = Flight(unit, folder, held)
            try:
                if not held.enter_context(folder.lock()):
                    self.elsewhere.append(unit)
                    self._ask(unit, folder)
                elif folder.finished(quick=True):
                    self.job.ended(unit, "skipped")
                else:
                    self.flights.append(flight)
                    with self._ours(flight):
                        self._send(flight)
                    continue
            except (Unreadable, ConfigError) as error:
                self.job.ended(unit, "failed", str(error))
            held.close()

    def _send(self, flight: Flight) -> None:
        """Start an attempt. The checkpoint travels only where there are workers that do not see the store."""
        order = self.job.order(flight.unit, token=flight.token)
        data = order.data_dir or os.environ.get("IGR_DATA_DIR")  # a worker has another folder and other variables
        root, data = str(self.job.store.root.resolve()), str(Path(data).resolve()) if data else None
        order = dataclasses.replace(order, store=root, data_dir=data)
        try:
            saved = flight.folder.read_checkpoint() if self.apart else None
        except FileNotFoundError:
            saved = None
        parcel = {
            **self.common,
            "order": dataclasses.asdict(order),
            "has_saved": (flight.folder.path / "checkpoint.bin").exists(),
            "saved": None if saved is None else [ray.put(saved)],
        }
        flight.begun, flight.ref = False, self.task.remote(parcel, self.post)

    def _hear(self, patience: float, stop: bool = False) -> None:
        """Wait for units that are back, at most so long, and take what all have said."""
        refs = [flight.ref for flight in self.flights]
        if refs and ray.wait(refs, timeout=patience)[0]:
            back = set(ray.wait(refs, num_returns=len(refs), timeout=0)[0])
        else:
            back = set()
            if not refs:
                self.job.stop.wait(patience)
        self._take(stop)
        for flight in [flight for flight in self.flights if flight.ref in back]:
            with self._ours(flight):
                self._back(flight)

    @contextlib.contextmanager
    def _ours(self, flight: Flight) -> Iterator[None]:
        """Leave a unit to the process that took it over meanwhile; one that cannot be sent has failed."""
        try:
            yield
        except FULL:
            self._leave(flight)
            self.job.ended(flight.unit, "failed", FULL_WORDS)
        except Taken:
            with contextlib.suppress(exceptions.RayError, ValueError):
                ray.cancel(flight.ref, force=True)
            self._leave(flight)
            self.elsewhere.append(flight.unit)

    def _take(self, stop: bool) -> None:
        try:
            if self.taking is None:
                self.taking = self.post.take.remote(stop)
            mail = ray.get(self.taking, timeout=ANSWER)
        except exceptions.GetTimeoutError:
            return  # a slow node: the answer may hold checkpoints, so it is waited for again
        except exceptions.RayActorError:
            self.taking = None  # its node was lost: Ray starts it again elsewhere
            return
        self.taking = None
        known = {flight.token: flight for flight in self.flights}
        for message in mail:
            if flight := known.get(message["token"]):
                with self._ours(flight):
                    self._told(flight, message)

    def _told(self, flight: Flight, message: dict[str, Any]) -> None:
        unit, watcher = flight.unit, self.job.watcher
        if message.get("begun"):
            flight.begun = True
            watcher.started(unit)
            watcher.placed(unit, message["node"])
        for step, numbers in message["events"]:
            self.job.emit(unit)(step, numbers)
        if "fraction" in message:
            watcher.progressed(unit, message["fraction"], message["text"])
        if "checkpoint" in message:
            self.apart = True
            flight.folder.write_checkpoint(message["checkpoint"])

    def _back(self, flight: Flight) -> None:
        found: dict[str, Any]
        try:
            found = dict(ray.get(flight.ref))
        except LOST as error:
            self._lost(flight, why_of(error))
            return
        except FULL:
            found = {"how": "failed", "why": FULL_WORDS}
        except exceptions.TaskCancelledError:
            found = {"how": "cancelled"}
        except (exceptions.RuntimeEnvSetupError, exceptions.RayTaskError) as error:
            if words := unfit(error):
                raise ConfigError(words) from None
            full = isinstance(getattr(error, "cause", None), FULL)
            found = {"how": "failed", "why": FULL_WORDS if full else why_of(error)}
        for sentence in found.get("warnings", ()):
            warnings.warn(DamageWarning(sentence), stacklevel=2)
        self._ended(flight, found["how"], found)

    def _ended(self, flight: Flight, how: str, found: dict[str, Any]) -> None:
        if how == "mismatch":
            raise ConfigError(found["why"])
        if how == "store":
            raise StoreError(found["why"])
        if how == "send":
            self.apart = True
            self._send(flight)
            return
        if "files" in found:
            flight.folder.write_files(found["files"])
        self._leave(flight)
        if how == "elsewhere":
            self.elsewhere.append(flight.unit)
        else:
            self.job.ended(flight.unit, how, found.get("why", ""))

    def _lost(self, flight: Flight, why: str) -> None:
        """Try again, under a new token: whatever the lost attempt may still write or say is of no use."""
        flight.lost += 1
        if flight.lost > self.executor.retries:
            times = "once" if flight.lost == 1 else f"{flight.lost} times"
            self._leave(flight)
            self.job.ended(flight.unit, "failed", f"Its worker was lost {times}, and no retry is left: {why}")
            return
        self.job.outcome.retries[flight.unit.label] = flight.lost
        self.job.watcher.retried(flight.unit, why)
        if flight.folder.permit:
            flight.folder.permit = flight.folder.permit.renew()
        self._send(flight)

    def _ask(self, unit: Unit, folder: Folder) -> None:
        """Name who is waited for, when it takes long and nothing else is left to do."""
        since = self.asked.setdefault(id(unit), [time.monotonic(), PATIENCE])
        if not self.flights and time.monotonic() - since[0] > since[1]:
            self.job.watcher.waiting(unit, folder.holder())
            since[1] *= 10

    def _leave(self, flight: Flight) -> None:
        flight.held.close()
        self.flights.remove(flight)

    def _nowhere(self) -> None:
        e = self.executor
        words = f"No node has {e.cpus_per_unit:g} CPUs" + (f" and {e.gpus_per_unit:g} GPUs" if e.gpus_per_unit else "")
        if self.own:
            raise ConfigError(f"{words}: ask for less with --cpus-per-unit and --gpus-per-unit.")
        warnings.warn(f"{words} now: the units wait until one joins the cluster.", stacklevel=2)

    def _stop(self) -> None:
        """End what is under way: units that began may keep a checkpoint, and the others are taken back."""
        for flight in self.flights:
            if not flight.begun:
                ray.cancel(flight.ref)
        deadline = time.monotonic() + GRACE
        try:
            while self.flights and time.monotonic() < deadline:
                self._hear(POLL, stop=True)
        except (exceptions.RayError, StoreError, ConfigError):
            pass  # the reason to stop is said already
        finally:
            for flight in list(self.flights):
                with contextlib.suppress(exceptions.RayError, ValueError):
                    ray.cancel(flight.ref, force=True)
                self._leave(flight)
                self.job.watcher.ended(flight.unit, "cancelled")
            with contextlib.suppress(exceptions.RayError):
                ray.kill(self.post)


def _post() -> Any:
    """The mailbox, on the driver's node: with another node, what was said and not heard would be lost."""
    beside: Any = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=beside)(Post).remote()
