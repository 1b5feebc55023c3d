"""One optimizer beside its flows: on the two-parameter model, on a network, and on a network at rates of practice."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from igr.lab.experiments.optimizers.constructors import HISTORY, IN_PRACTICE, SMOOTH
from igr.lab.experiments.optimizers.problems import ACTIVATIONS, PAPER_START, START, network, on_digits, plane
from igr.lab.experiments.optimizers.race import on_one_path, race
from igr.lab.runs.unit import Session, Trial
from igr.lab.store.config import ConfigError, option
from igr.optimizers import modified_field, settle, step

RUN_IN = 400  # steps at least before a network is compared
PARTS = 16  # of a path: distances are taken at the end of each


def _check(optimizer: str, known: Mapping[str, Any], activation: str = "tanh") -> None:
    if optimizer not in known:
        raise ConfigError(f"optimizer must be one of {', '.join(known)}, and it is {optimizer!r}.")
    if activation not in ACTIVATIONS:
        raise ConfigError(f"activation must be one of {', '.join(ACTIVATIONS)}, and it is {activation!r}.")


def _check_steps(steps: tuple[int, ...]) -> None:
    if len(steps) < 2:
        raise ConfigError("steps must be two numbers at least: an order is read off two.")
    if any(n < 1 or n % PARTS for n in steps):
        raise ConfigError(f"steps must be multiples of {PARTS}: distances are taken at {PARTS} places of the path.")


@dataclass(frozen=True)
class InDouble(Trial):
    """A trial in float64: orders are read off small distances."""

    @property
    def precision(self) -> str | None:
        """Always float64, whatever the session has."""
        return "float64"

    def compute(self, session: Session) -> Mapping[str, Any]:
        """The measurements of `measure`, in float64."""
        with jax.enable_x64(True):
            found = self.measure(session)
        session.progress(1.0, "done")
        return {name: np.asarray(value) for name, value in found.items()}

    def measure(self, session: Session) -> Mapping[str, Any]:
        """The measurements, as arrays by name."""
        raise NotImplementedError


@dataclass(frozen=True)
class OnPlane(InDouble):
    """An optimizer and four flows on the two-parameter model, over one path at several step sizes."""

    optimizer: str = option("a name from the list of constructors", "momentum")
    steps: tuple[int, ...] = option("how many steps the path is divided into, each a run", (128, 256, 512))
    length: float = option("length of the path at its initial speed", 0.5)

    def check(self) -> None:
        """A known name, and two step sizes at least."""
        _check(self.optimizer, SMOOTH)
        _check_steps(self.steps)

    @property
    def label(self) -> str:
        """The name of the optimizer."""
        return f"{self.optimizer}, two parameters"

    def measure(self, session: Session) -> Mapping[str, Any]:
        """Distances from the optimizer to each flow along the path, by step size."""
        start = jnp.asarray([START])
        return on_one_path(SMOOTH[self.optimizer], plane, start, (), HISTORY, self.steps, self.length, PARTS)


@dataclass(frozen=True)
class Path(InDouble):
    """An optimizer and its two flows on the way to the line of minima, at a moderate learning rate, as figure 1a."""

    optimizer: str = option("a name from the list of constructors", "momentum")
    learning_rate: float = option("step size h", 4e-3)
    run_in: int = option("steps from the start of the paper before the flows begin", 6)
    steps: int = option("steps that are drawn", 30)

    def check(self) -> None:
        """A known name."""
        _check(self.optimizer, SMOOTH)

    @property
    def label(self) -> str:
        """The name of the optimizer."""
        return f"{self.optimizer}, path"

    def measure(self, session: Session) -> Mapping[str, Any]:
        """The places of optimizer, plain and modified flow after each step, and the distances from all flows."""
        make, start = SMOOTH[self.optimizer], jnp.asarray([PAPER_START])
        tx = make(self.learning_rate)
        state = settle(step(tx, plane), (start, tx.init(start)), self.run_in)
        raced = race(make, plane, HISTORY, self.steps)((self.learning_rate,), state, 1)
        begun = jnp.broadcast_to(state[0][0], (1, 3, 2))
        return {"paths": jnp.concatenate([begun, raced.path[:, :, 0]]), "distance": raced.distance}


@dataclass(frozen=True)
class OnNetwork(InDouble):
    """An optimizer and four flows on a small network, full batch, over one path at several step sizes."""

    optimizer: str = option("a name from the list of constructors", "momentum")
    activation: str = option("tanh, gelu or relu", "tanh")
    steps: tuple[int, ...] = option("how many steps the path is divided into, each a run", (64, 128, 256))
    length: float = option("length of the path at its initial speed", 0.2)
    examples: int = option("digits in the full batch", 300)

    def check(self) -> None:
        """Known names, and two step sizes at least."""
        _check(self.optimizer, SMOOTH, self.activation)
        _check_steps(self.steps)

    @property
    def label(self) -> str:
        """What is compared."""
        return f"{self.optimizer}, {self.activation} network"

    def measure(self, session: Session) -> Mapping[str, Any]:
        """Distances from the optimizer to each flow along the path, by step size."""
        params, args = on_digits(self.activation, self.examples, session.data_dir)
        make = SMOOTH[self.optimizer]
        return on_one_path(make, network, params, args, HISTORY, self.steps, self.length, PARTS)


@dataclass(frozen=True)
class InPractice(InDouble):
    """An optimizer with the decay rates of practice beside its flows, on a small network after a run-in."""

    optimizer: str = option("a name from the list of those in practice", "momentum")
    activation: str = option("tanh, gelu or relu", "tanh")
    b2: float = option("decay rate of the second moment; of Lion's memory; none in momentum", 0.95)
    eps: float = option("what is added to the root; nothing for momentum, Muon and Lion", 1e-3)
    learning_rates: tuple[float, ...] = option("step sizes h, each a run", (1e-4, 3e-5, 1e-5, 3e-6))
    steps: int = option("steps that are compared, a multiple of 25", 100)
    examples: int = option("digits in the full batch", 300)
    substeps: int = option("Runge-Kutta steps of the flows in each 25th of the path", 1, later=True)

    def check(self) -> None:
        """Known names and steps that can be divided."""
        _check(self.optimizer, IN_PRACTICE, self.activation)
        if self.substeps < 1:
            raise ConfigError(f"substeps must be at least 1, and it is {self.substeps}.")
        if self.steps < 25 or self.steps % 25:
            raise ConfigError(f"steps must be a multiple of 25, and it is {self.steps}.")

    @property
    def name(self) -> str:
        """The optimizer with the numbers that it depends on."""
        return IN_PRACTICE[self.optimizer].describe(self.b2, self.eps)

    @property
    def label(self) -> str:
        """What is compared."""
        return f"{self.name}, {self.activation}"

    def measure(self, session: Session) -> Mapping[str, Any]:
        """For each h: distances to the flows along the way, and the sizes of correction and remainder at its start."""
        params, args = on_digits(self.activation, self.examples, session.data_dir)
        kind = IN_PRACTICE[self.optimizer]
        history, parts = kind.history(self.b2), 25
        run_in, sizes = _programs(kind.make, history)
        run = race(kind.make, network, history, parts, self.substeps)
        before = max(2 * history, RUN_IN)
        rows: list[dict[str, Any]] = []
        for i, h in enumerate(self.learning_rates):
            hyper = (h, self.b2, self.eps)
            state = run_in(hyper, before, params, *args)
            raced = run(hyper, state, self.steps // parts, *args)
            rows.append({"distance": raced.distance, "one_norm": raced.one_norm, **sizes(hyper, state[0], *args)})
            jax.block_until_ready(rows[-1])
            session.progress((i + 1) / len(self.learning_rates), f"h = {h:g}")
        found = {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
        return {"learning_rate": np.asarray(self.learning_rates), **found}


@cache
def _programs(make: Callable, history: int) -> tuple[Callable, Callable]:
    """`(hyper, steps, params, *args)` -> the state after so many steps; the sizes of the terms at a place."""

    @jax.jit
    def run_in(hyper: Any, steps: Any, params: Any, *args: Any) -> Any:
        tx = make(*hyper)
        advance = step(tx, network)
        return jax.lax.fori_loop(0, steps, lambda _, s: advance(s, *args), (params, tx.init(params)))

    @jax.jit
    def sizes(hyper: Any, params: Any, *args: Any) -> dict[str, Any]:
        field = modified_field(make(*hyper), network, history=history)
        terms = field.terms(params, *args)
        return {"ratio": terms.ratio, "remainder": field.remainder(params, *args), "loss": network(params, *args)}

    return run_in, sizes
