"""Units on a Ray cluster: who runs where is Ray's business, and what is stored, resumed and given up is ours.

    run_units(store, "mlp", units, executor=RayExecutor(gpus_per_unit=0.25))

Each attempt at a unit is one task of Ray Core. The driver holds the claims of the units in the store. A worker that
sees the store (a shared folder) writes there, with the token of its attempt. One that does not sends its checkpoints
and its results to the driver. When a worker is lost, the driver takes its token away and starts another attempt from
the last checkpoint.
"""

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from igr.lab.runs.executor import Job
from igr.lab.runs.unit import Unit
from igr.lab.store.config import ConfigError

GPU_SHARE = 0.9  # of the memory of a GPU, for the units on it together
T = TypeVar("T")
LOOK = 120.0  # seconds to wait for a worker before a run
_own: list[bool] = []  # of the connection that is open: whether its cluster was started here
_holding: list[contextlib.ExitStack] = []  # of commands that keep the connection that is made within
THREADS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # the first is XLA's


@dataclass(frozen=True)
class RayExecutor:
    """Have units computed by the workers of a Ray cluster.

    `address` is that of a cluster, such as `ray://HOST:10001`; without one it is the running cluster, or one on this
    machine that is started and ended with the run. Each unit gets `cpus_per_unit` threads and `gpus_per_unit` of a GPU;
    below 1, several units share one, and each may take its part of 90 % of the memory. A unit whose worker is lost is
    tried again up to `retries` times. `runtime_env` is handed to Ray, for packages that the workers lack.
    """

    address: str = ""
    cpus_per_unit: float = 1.0
    gpus_per_unit: float = 0.0
    retries: int = 3
    runtime_env: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if not (math.isfinite(self.cpus_per_unit) and self.cpus_per_unit > 0):
            raise ConfigError(f"cpus_per_unit must be positive, and it is {self.cpus_per_unit:g}.")
        gpus = self.gpus_per_unit
        if not (math.isfinite(gpus) and gpus >= 0) or (gpus > 1 and gpus != int(gpus)):
            raise ConfigError(f"gpus_per_unit must be a part of 1 or a whole number, and it is {gpus:g}.")
        if self.retries < 0:
            raise ConfigError(f"retries must be at least 0, and it is {self.retries}.")

    def run(self, job: Job, units: list[Unit]) -> None:
        """Have the units computed that are not stored yet."""
        with self.connected() as own:
            from ray.exceptions import RayError

            from igr.lab.runs.dispatch import Dispatch

            try:
                Dispatch(self, job, own).run(units)
            except (RayError, ConnectionError) as error:
                why = f"The Ray cluster was lost ({type(error).__name__}: {_first(error)})."
                raise ConfigError(f"{why} Finished units are kept; run the same command to resume.") from None

    def environment(self) -> dict[str, str]:
        """Variables of the workers: how many threads a unit may use, and how much of a GPU."""
        threads = str(max(1, math.ceil(self.cpus_per_unit)))
        found: dict[str, str] = dict.fromkeys(THREADS, threads)
        if self.gpus_per_unit == 0:
            found["JAX_PLATFORMS"] = "cpu"  # Ray hides no GPU from who asked for none
        elif self.gpus_per_unit < 1:
            found["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{GPU_SHARE * self.gpus_per_unit:.3f}"
        return found

    def options(self) -> dict[str, Any]:
        """Of a task, for `ray.remote`. A process that used a GPU computes one unit and ends, so that memory is free."""
        given = dict(self.runtime_env)
        given["env_vars"] = self.environment() | dict(given.get("env_vars", {}))
        return {
            "num_cpus": self.cpus_per_unit,
            "num_gpus": self.gpus_per_unit,
            "max_calls": 1 if self.gpus_per_unit else 0,
            "max_retries": 0,
            "runtime_env": given,
        }

    def slots(self) -> int:
        """How many units the cluster computes at the same time, as it is now. Call it while connected."""
        import ray

        return sum(self._on(node["Resources"]) for node in ray.nodes() if node["Alive"])

    def look(self, function: Callable[[], T], patience: float = LOOK) -> tuple[int, T | None]:
        """How many units run at full speed at the same time, and what a function returns on a worker.

        Units that share a GPU share its speed, so they count as one. None where no worker was free in so many seconds.
        """
        import ray

        with self.connected():
            from ray.exceptions import GetTimeoutError, RayError

            from igr.lab.runs.faults import unfit

            share = self.gpus_per_unit if 0 < self.gpus_per_unit < 1 else 1.0
            workers = max(1, math.floor(self.slots() * share + 1e-9))
            task = ray.remote(**self.options())(function).remote()
            try:
                return workers, ray.get(task, timeout=patience)
            except GetTimeoutError:
                ray.cancel(task)
                return workers, None
            except RayError as error:
                raise ConfigError(unfit(error) or f"The Ray cluster cannot be used: {_first(error)}") from None

    def _on(self, resources: Mapping[str, float]) -> int:
        found = resources.get("CPU", 0.0) / self.cpus_per_unit
        if self.gpus_per_unit:
            found = min(found, resources.get("GPU", 0.0) / self.gpus_per_unit)
        return math.floor(found + 1e-9)

    @contextlib.contextmanager
    def connected(self) -> Iterator[bool]:
        """Connect to the cluster, or start one; True where it was started here. What was started is ended."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise ConfigError("Ray is not installed: `pip install 'igr[ray]'` adds it.") from None
        if ray.is_initialized():
            yield bool(_own and _own[-1])
        elif _holding:
            yield _holding[-1].enter_context(self._opened(ray))
        else:
            with self._opened(ray) as own:
                yield own

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the connection open that is made within, if one is: nothing is started where nothing is left to do."""
        with contextlib.ExitStack() as stack:
            _holding.append(stack)
            try:
                yield
            finally:
                _holding.remove(stack)

    @contextlib.contextmanager
    def _opened(self, ray: Any) -> Iterator[bool]:
        with _quiet():
            with _kept_signals():
                _own.append(self._connect(ray))
            try:
                yield _own[-1]
            finally:
                _own.pop()
                with _kept_signals():
                    ray.shutdown()

    def _connect(self, ray: Any) -> bool:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            ray.init(address=self.address or "auto", **quiet)
            return False
        except ConnectionError as error:
            if self.address or os.environ.get("RAY_ADDRESS"):
                where = self.address or os.environ["RAY_ADDRESS"]
                raise ConfigError(f"No Ray cluster answers at {where}: {_first(error)}") from None
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"The Ray cluster cannot be used: {_first(error)}") from None
        from igr.lab.store.provenance import usable_cores

        local = {"_node_ip_address": "127.0.0.1", "include_dashboard": False, "num_cpus": usable_cores()}
        ray.init(address="local", **local, **quiet)
        return True


def _first(error: Exception) -> str:
    """The first sentences of an error of Ray's, in one line."""
    text = " ".join(str(error).split())
    return text if len(text) < 300 else f"{text[:297]}..."


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray's reports of lost workers off the standard output: the watcher is told, and JSON may go there."""
    from ray._private import worker

    said = getattr(worker, "print_to_stdstream", None)
    if said is None:  # another version of Ray
        yield
        return
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = said


@contextlib.contextmanager
def _kept_signals() -> Iterator[None]:
    """Keep our handlers: Ray sets its own when it connects."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
