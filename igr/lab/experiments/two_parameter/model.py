"""The two-parameter model of section 5 and its runs.

    E(a, b) = (y - a b x)^2 / 2,   R_IG = |grad E|^2 / 2 = (a^2 + b^2) x^2 E,   m = 2,   lambda = h / 2

Its minima are the line a b = y / x, on which R_IG/E = x^2 (a^2 + b^2) equals both the squared norm (for x = 1) and the
largest eigenvalue of the Hessian; it is least at a = b = sqrt(y / x). All runs descend on E + mu R_IG. As in Table A.1
of the paper, `mu` multiplies R_IG, which is half the squared gradient norm: E + mu R_IG is
`igr.modified_loss(loss, 2 * mu)`.
Reference: Barrett & Dherin (2021), section 5 and appendix A.4. Float64 throughout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import igr
from igr.lab.runs.unit import Session, Trial
from igr.lab.store.config import ConfigError, option

CONVERGED, DIVERGED, UNFINISHED = 0, 1, 2
EXPLODED = 1e100  # a larger loss does not fall again: each step grows like the cube of the one before


@dataclass(frozen=True)
class Row:
    """A column of Table A.1: the start of a set of runs and their step sizes."""

    name: str
    start: tuple[float, float]
    small: float  # h_S
    moderate: float  # h_M
    large: float | None  # h_L
    mu: float
    euler: float  # h_Euler


TABLE = (
    Row("I", (2.8, 3.5), small=1e-3, moderate=2.5e-2, large=1.8e-1, mu=0.5, euler=1e-4),
    Row("II", (75.0, 74.925), small=1e-6, moderate=0.5e-4, large=None, mu=4.1e-2, euler=5e-7),
)


def loss(params: Any, x: Any = 1.0, y: Any = 0.6) -> Any:
    """E(a, b) = (y - a b x)^2 / 2 at `params` (a, b), for the training point (x, y).

    >>> loss((2.0, 3.0), 1.0, 0.6).__round__(4)
    14.58
    """
    a, b = params
    return (y - a * b * x) ** 2 / 2


def sharpness(params: Any, x: Any = 1.0, y: Any = 0.6) -> Any:
    """The largest eigenvalue of the Hessian of E, whose entries are b^2 x^2, a^2 x^2 and 2 a b x^2 - x y.

    >>> sharpness((2.8, 3.5)).__round__(2)
    29.17
    """
    a, b = params
    half, mixed = (a * a - b * b) * x * x / 2, 2 * a * b * x * x - x * y
    return (a * a + b * b) * x * x / 2 + (half * half + mixed * mixed) ** 0.5


def schedule(every: int, max_steps: int) -> np.ndarray:
    """The steps up to `max_steps` at which a path is kept: the first 64, then steps that grow by 2 %.

    The multiples of these steps by `every` are kept too. `every` is the number of steps in one step of the path that
    this one is compared with, so that paths with different step sizes have common times.
    """
    fine = np.unique(np.concatenate([np.arange(64), 64 * 1.02 ** np.arange(900)]).astype(np.int64))
    steps = np.unique(np.concatenate([fine, every * fine]))
    return np.append(steps[steps < max_steps], max_steps)


@dataclass(frozen=True)
class TwoParameter(Trial):
    """The options that all runs of the model share."""

    start: tuple[float, float] = option("where the path begins: a b", TABLE[0].start)
    x: float = option("input of the training point", 1.0)
    y: float = option("output of the training point", 0.6)
    stop_loss: float = option("a run ends where E falls below this", 1e-12)

    @property
    def precision(self) -> str:
        """Always float64, whatever the default of the session."""
        return "float64"

    def check(self) -> None:
        """Validate the training point and the loss at which runs end."""
        if self.x == 0 or self.y == 0:
            raise ConfigError(f"x and y must not be zero, and they are {self.x} and {self.y}.")
        if not 1e-28 <= self.stop_loss <= 1:
            raise ConfigError(f"stop_loss must lie between 1e-28 and 1, and it is {self.stop_loss}.")

    @property
    def start_name(self) -> str:
        """The paper's name of the start, or its coordinates."""
        return {row.start: f"start {row.name}" for row in TABLE}.get(self.start, f"start {self.start}")


@dataclass(frozen=True)
class Descent(TwoParameter):
    """Steps of size `learning_rate` on E + mu R_IG until E < `stop_loss`: gradient descent, or the Euler method."""

    learning_rate: float = option("step size h", TABLE[0].moderate)
    mu: float = option("amount of R_IG added to the loss", 0.0)
    every: int = option("keep multiples of this step too, to compare paths at equal times", 1)
    max_steps: int = option("give up after this many steps", 1_000_000_000)

    def check(self) -> None:
        """Validate the step size and the counts."""
        super().check()
        if self.learning_rate <= 0 or self.mu < 0 or self.every < 1 or self.max_steps < 1:
            raise ConfigError(
                "learning_rate, every and max_steps must be positive and mu not negative, and they are "
                f"{self.learning_rate}, {self.every}, {self.max_steps} and {self.mu}."
            )

    @property
    def label(self) -> str:
        """The description of the run in the progress display."""
        return f"{self.start_name}, steps of {self.learning_rate:g}, mu = {self.mu:g}"

    def compute(self, session: Session) -> Mapping[str, Any]:
        """The path at the steps of `schedule` and its last state. A checkpoint is saved at each of these steps."""
        with jax.enable_x64(True):
            steps = schedule(self.every, self.max_steps)
            settings = (self.learning_rate, self.mu, self.x, self.y, self.stop_loss)
            saved = session.load() or {"params": np.array([self.start]), "step": np.zeros(1, np.int64)}
            path, done = list(saved["params"]), [int(n) for n in saved["step"]]
            for target in steps[steps > done[-1]]:
                (a, b), reached = advance(tuple(path[-1]), done[-1], int(target), *settings)
                if int(reached) > done[-1]:
                    path.append(np.array([float(a), float(b)]))
                    done.append(int(reached))
                if int(reached) < target:
                    break  # converged or diverged on the way
                session.save(lambda: {"params": np.array(path), "step": np.array(done, np.int64)})
                session.progress(min(0.99, _closeness(path[-1], self)), f"step {done[-1]:,}")
        params = np.array(path)
        return {"params": params, "step": np.array(done, np.int64), **_losses(params, self)}


@dataclass(frozen=True)
class Flow(TwoParameter):
    """The flow of E + mu R_IG, solved to tight tolerances, sampled at `every` times in each step of `learning_rate`."""

    mu: float = option("amount of R_IG added to the loss", 0.0)
    learning_rate: float = option("step size of the path it is compared with", TABLE[0].moderate)
    every: int = option("samples in a step, as for the Euler method", 250)
    horizon: float = option("integrate at most until this time", 20.0)
    rtol: float = option("relative tolerance of the solver", 1e-11)
    atol: float = option("absolute tolerance of the solver", 1e-13)

    def check(self) -> None:
        """Validate times and tolerances."""
        super().check()
        if min(self.learning_rate, self.horizon, self.rtol, self.atol) <= 0 or self.mu < 0 or self.every < 1:
            raise ConfigError("learning_rate, every, horizon and tolerances must be positive and mu not negative.")

    @property
    def label(self) -> str:
        """The description of the run in the progress display."""
        return f"{self.start_name}, accurate flow, mu = {self.mu:g}"

    def compute(self, session: Session) -> Mapping[str, Any]:
        """The path at those times until E < `stop_loss`; `step` counts steps of the Euler method."""
        with jax.enable_x64(True):
            unit = self.learning_rate / self.every
            step = schedule(self.every, int(self.horizon / unit))
            a, b = flow_path(self.start, step * unit, self.mu, self.x, self.y, self.rtol, self.atol)
            params = np.stack([np.asarray(a), np.asarray(b)], axis=1)
        below = np.flatnonzero(_losses(params, self)["loss"] < self.stop_loss)
        end = below[0] + 1 if below.size else len(params)
        return {"params": params[:end], "step": step[:end], **_losses(params[:end], self)}


@jax.jit
def advance(params, n, target, h, mu, x, y, stop):
    """Take steps until `target` are done, E is below `stop`, or E exceeds `EXPLODED`.

    `params` are those after `n` steps of size `h` on E + mu R_IG. Returns the params and the number of steps.
    """
    step = igr.gradient_step(igr.modified_loss(loss, 2 * mu), h)

    def live(carry):
        value = loss(carry[0], x, y)
        return (carry[1] < target) & (value >= stop) & (value < EXPLODED)  # a NaN is not live either

    return jax.lax.while_loop(live, lambda carry: (step(carry[0], x, y), carry[1] + 1), (params, n))


@jax.jit
def flow_path(start, times, mu, x, y, rtol, atol):
    """The flow of E + mu R_IG from `start` at `times`, with tolerances `rtol` and `atol`."""
    field = igr.gradient_field(igr.modified_loss(loss, 2 * mu))
    params = jax.tree.map(lambda value: jnp.asarray(value, times.dtype), tuple(start))
    return igr.flow(lambda p: field(p, x, y), params, times, rtol=rtol, atol=atol)


def outcome_of(value: float, stop_loss: float) -> np.int64:
    """Whether a run whose last loss is `value` converged, diverged (also where it is NaN) or did not finish."""
    if value < stop_loss:
        return np.int64(CONVERGED)
    return np.int64(UNFINISHED if value < EXPLODED else DIVERGED)


def _losses(params: np.ndarray, config: TwoParameter) -> dict[str, Any]:
    with np.errstate(over="ignore", invalid="ignore"):  # a diverged run ends in infinities, which `outcome` reports
        values = loss((params[:, 0], params[:, 1]), config.x, config.y)
    return {"loss": values, "outcome": outcome_of(values[-1], config.stop_loss)}


def _closeness(params: np.ndarray, config: TwoParameter) -> float:
    """How far E has fallen towards `stop_loss` on a logarithmic scale: roughly the fraction of the work done."""
    with np.errstate(over="ignore", invalid="ignore"):
        first, now = loss(config.start, config.x, config.y), loss((params[0], params[1]), config.x, config.y)
    if not 0 < now < first:
        return 0.0
    return float(np.log(first / now) / np.log(first / config.stop_loss))
