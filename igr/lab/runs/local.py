"""Compute units on this machine: finished ones are skipped, interrupted ones resumed, and processes share the work."""

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from igr.lab.runs.execute import execute
from igr.lab.runs.executor import PATIENCE, Executor, Job
from igr.lab.runs.executor import Summary as Summary
from igr.lab.runs.executor import Watcher as Watcher
from igr.lab.runs.unit import Cancelled, Unit
from igr.lab.sinks.sink import Sink, Sinks
from igr.lab.store.files import StoreError, Unreadable
from igr.lab.store.parallel import each
from igr.lab.store.store import Store


def run_units(
    store: Store,
    experiment: str,
    units: Iterable[Unit],
    jobs: int = 1,
    watcher: Watcher | None = None,
    save_every: float = 2.0,
    data_dir: str | None = None,
    stop: threading.Event | None = None,
    sinks: Sequence[Sink] = (),
    executor: Executor | None = None,
) -> Summary:
    """Compute those of the `units` of an `experiment` that are not in the `store`, and store each when it is done.

    `executor` says where: the default is `jobs` threads of this process, and `igr.lab.runs.ray.RayExecutor` uses a
    cluster. A unit that another process computes is left to it, and waited for at the end. A unit that fails does not
    stop the others; a store that cannot be written does, with `StoreError`. `watcher` is told the progress, and the
    `sinks` receive what is measured. Checkpoints are `save_every` seconds apart, and data sets are read from
    `data_dir`. When `stop` is set, or on Ctrl-C, the units keep a checkpoint at their next report of progress, and
    `KeyboardInterrupt` is raised.
    """
    store.require_writable()
    listening = Sinks(sinks)
    job = Job(
        store, experiment, watcher or Watcher(), listening, stop or threading.Event(), Summary(), save_every, data_dir
    )
    left, units = [], list(units)
    for unit, done in zip(units, each(lambda unit: _done(job, unit), units), strict=True):
        if done:  # most often all of them are stored: no lock and no executor for these
            job.ended(unit, "skipped")
        else:
            left.append(unit)
    try:
        if left:
            (executor or LocalExecutor(jobs)).run(job, left)
    except BaseException:
        job.stop.set()
        raise
    finally:
        listening.close()
    if job.stop.is_set():
        raise KeyboardInterrupt
    return job.outcome


def _done(job: Job, unit: Unit) -> bool:
    folder = job.folder(unit)
    try:
        if folder.status(quick=True) != "finished":
            return False
        folder.tidy()
    except Unreadable:  # the executor fails this unit alone, and says why
        return False
    return True


@dataclass(frozen=True)
class LocalExecutor:
    """Computes units in this process, `jobs` at a time.

    Jobs are threads: compiled programs run outside Python's lock, and threads share them.
    """

    jobs: int = 1

    def run(self, job: Job, units: list[Unit]) -> None:
        """Compute the `units` of `job`. Those that other processes compute are waited for at the end."""
        left = units
        with ThreadPoolExecutor(max_workers=self.jobs, thread_name_prefix="igr") as pool:
            try:
                for patient in (False, True):
                    futures = [pool.submit(attempt, job, unit, patient) for unit in left]
                    left = [unit for future in futures if (unit := future.result()) is not None]
            except BaseException:
                job.stop.set()
                pool.shutdown(cancel_futures=True)
                raise


def attempt(job: Job, unit: Unit, patient: bool = True) -> Unit | None:
    """Compute a `unit` in this process and tell the `job` how it ended: all that an executor needs to do for a unit.

    Progress goes to the watcher and measurements to the sinks. A unit that fails is recorded and stops no other; when
    the job is to stop, the unit keeps a checkpoint. Where another process computes the unit, this waits for it; without
    `patient` the unit is returned instead.
    """
    begun, said, why = time.monotonic(), PATIENCE, ""
    try:
        while (how := _once(job, unit)) == "elsewhere":
            if not patient:
                return unit
            if time.monotonic() - begun > said:
                job.watcher.waiting(unit, job.folder(unit).holder())
                said *= 10
            if job.stop.wait(0.2):
                raise Cancelled
    except Cancelled:
        how = "cancelled"
    except StoreError as error:
        if not isinstance(error, Unreadable):  # that is of one unit alone, and what it has is left as it is
            job.stop.set()
            raise
        how, why = "failed", str(error)
    except Exception as error:
        how, why = "failed", f"{type(error).__name__}: {error}"
    job.ended(unit, how, why)
    return None


def _once(job: Job, unit: Unit) -> str:
    return execute(
        job.order(unit),
        lambda fraction, text: job.watcher.progressed(unit, fraction, text),
        job.stop,
        lambda: job.watcher.started(unit),
        job.emit(unit),
    )
