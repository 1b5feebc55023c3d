"""Scans of the two-parameter model over the learning rate and over the amount of explicit regularization."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import igr
from igr.lab.experiments.two_parameter.model import (
    EXPLODED,
    TABLE,
    TwoParameter,
    advance,
    flow_path,
    loss,
    outcome_of,
    sharpness,
)
from igr.lab.runs.unit import Session
from igr.lab.store.config import ConfigError, option

HORIZON = 60.0  # by then the flow's E is far below any bound: it falls at least like exp(-4 y t / |x|)


@dataclass(frozen=True)
class RateScan(TwoParameter):
    """Gradient descent from one start over a range of learning rates, and the ends that the modified flow predicts."""

    lowest: float = option("smallest learning rate", 1e-4)
    highest: float = option("largest learning rate", 0.4)
    count: int = option("number of learning rates", 240)
    max_steps: int = option("give up after this many steps", 5_000_000)

    def check(self) -> None:
        """Validate the range."""
        super().check()
        if not 0 < self.lowest < self.highest or self.count < 4:
            raise ConfigError("A scan needs 0 < lowest < highest and at least 4 learning rates.")

    @property
    def label(self) -> str:
        """The description of the run in the progress display."""
        return f"{self.start_name}, {self.count} learning rates"

    def rates(self) -> np.ndarray:
        """The learning rates: a quarter geometric below a tenth of the range, the others evenly spaced above."""
        few, knee = self.count // 4, max(self.highest / 10, self.lowest * 1.0001)
        small = np.geomspace(self.lowest, knee, few, endpoint=False)
        return np.concatenate([small, np.linspace(knee, self.highest, self.count - few)])

    def compute(self, session: Session) -> Mapping[str, Any]:
        """For each rate: the end, the steps, how many cross the line of minima, and h lambda_max on the path."""
        names = ("params", "step", "crossings", "h_sharpness_start", "h_sharpness_max", "modified_flow_end")
        rates = self.rates()
        columns = {name: list(value) for name, value in (session.load() or dict.fromkeys(names, ())).items()}
        with jax.enable_x64(True):
            times = np.array([0.0, HORIZON])
            for index in range(len(columns["step"]), len(rates)):
                h = float(rates[index])
                (a, b), steps, crossings, largest = _scan_one(
                    self.start, h, self.x, self.y, self.stop_loss, self.max_steps
                )
                end = flow_path(self.start, times, h / 2, self.x, self.y, 1e-11, 1e-13)
                values = (
                    np.array([float(a), float(b)]),
                    int(steps),
                    int(crossings),
                    h * float(sharpness(self.start, self.x, self.y)),
                    float(largest),
                    np.array([float(end[0][-1]), float(end[1][-1])]),
                )
                for name, value in zip(names, values, strict=True):
                    columns[name].append(value)
                session.save(lambda: {name: np.array(column) for name, column in columns.items()})
                session.progress((index + 1) / len(rates), f"h = {h:.4f}")
            still = flow_path(self.start, times, 0.0, self.x, self.y, 1e-11, 1e-13)
        arrays = {name: np.array(column) for name, column in columns.items()}
        with np.errstate(over="ignore", invalid="ignore"):
            a, b = arrays["params"].T
            value, h_sharpness_end = loss((a, b), self.x, self.y), rates * sharpness((a, b), self.x, self.y)
        return {
            **arrays,
            "learning_rate": rates,
            "loss": value,
            "outcome": np.array([outcome_of(each, self.stop_loss) for each in value]),
            "h_sharpness_end": h_sharpness_end,
            "gradient_flow_end": np.array([float(still[0][-1]), float(still[1][-1])]),
        }


@dataclass(frozen=True)
class PenaltyScan(TwoParameter):
    """The flow of E + mu R_IG for many mu: by the Euler method to its end, and accurately at fixed times too."""

    learning_rate: float = option("step size of the Euler method", TABLE[0].euler)
    highest: float = option("largest mu", 2.0)
    count: int = option("number of mu, zero included", 41)
    times: tuple[float, ...] = option("earlier times at which the flow is kept too", (0.02, 0.05, 0.1, 0.2, 0.5, 1.0))
    max_steps: int = option("give up after this many Euler steps", 5_000_000)

    def check(self) -> None:
        """Validate the range."""
        super().check()
        if self.highest <= 0 or self.count < 3 or self.learning_rate <= 0:
            raise ConfigError("A scan needs positive learning_rate and highest, and at least 3 amounts.")
        if list(self.times) != sorted(set(self.times)) or not self.times or min(self.times) <= 0:
            raise ConfigError("times must be positive and grow.")

    @property
    def label(self) -> str:
        """The description of the run in the progress display."""
        return f"{self.start_name}, {self.count} amounts of explicit regularization"

    def compute(self, session: Session) -> Mapping[str, Any]:
        """For each mu: the end of the Euler method, the end of the flow, and the flow at the fixed times."""
        amounts = self.highest * np.linspace(0, 1, self.count) ** 2  # denser near zero, where the result changes most
        saved = session.load() or {"euler": np.zeros((0, 3)), "flow": np.zeros((0, len(self.times) + 1, 2))}
        euler, flows = list(saved["euler"]), list(saved["flow"])
        with jax.enable_x64(True):
            times = np.array([0.0, *self.times, HORIZON + self.times[-1]])
            for index in range(len(euler), len(amounts)):
                mu = float(amounts[index])
                settings = (self.learning_rate, mu, self.x, self.y, self.stop_loss)
                (a, b), steps = advance(self.start, 0, self.max_steps, *settings)
                euler.append(np.array([float(a), float(b), float(steps)]))
                path = flow_path(self.start, times, mu, self.x, self.y, 1e-11, 1e-13)
                flows.append(np.stack([np.asarray(path[0]), np.asarray(path[1])], axis=1)[1:])
                session.save(lambda: {"euler": np.array(euler), "flow": np.array(flows)})
                session.progress((index + 1) / len(amounts), f"mu = {mu:.3f}")
        ends = np.array(euler)
        with np.errstate(over="ignore", invalid="ignore"):
            value = loss((ends[:, 0], ends[:, 1]), self.x, self.y)
        return {
            "mu": amounts,
            "params": ends[:, :2],
            "step": ends[:, 2].astype(np.int64),
            "outcome": np.array([outcome_of(each, self.stop_loss) for each in value]),
            "flow_params": np.array(flows),
            "flow_times": times[1:],
        }


@jax.jit
def _scan_one(start, h, x, y, stop, max_steps):
    """Gradient descent to its end: the end, the steps, the number of crossings, the largest h lambda_max."""
    step = igr.gradient_step(loss, h)

    def live(carry):
        value = loss(carry[0], x, y)
        return (carry[1] < max_steps) & (value >= stop) & (value < EXPLODED)

    def body(carry):
        here, n, crossings, largest = carry
        there = step(here, x, y)
        crossings = jnp.where(crosses(here, there, x, y), crossings + 1, crossings)
        return there, n + 1, crossings, jnp.maximum(largest, h * sharpness(here, x, y))

    zero = jnp.zeros((), int)
    params = jax.tree.map(lambda value: jnp.asarray(value, float), tuple(start))
    return jax.lax.while_loop(live, body, (params, zero, zero, jnp.zeros(())))


def crosses(here: Any, there: Any, x: Any = 1.0, y: Any = 0.6) -> Any:
    """Whether the straight step from `here` to `there` crosses the line of minima a b x = y, once or twice.

    Along the step a b x - y is a quadratic c0 + c1 s + c2 s^2 in s: a change of sign between the ends, or a turning
    point inside on the other side. No flow crosses its own fixed points, so such a step belongs to no flow.

    >>> [bool(crosses((2.0, 2.0), end)) for end in ((1.0, 1.0), (0.1, 0.1), (-2.0, -2.0))]
    [False, True, True]
    """
    (a, b), (c, d) = here, there
    c0, c1, c2 = a * b * x - y, (a * (d - b) + b * (c - a)) * x, (c - a) * (d - b) * x
    last = c * d * x - y
    where = np.where if isinstance(c2, np.ndarray) else jnp.where  # stored paths are NumPy arrays
    turn = -c1 / where(c2 == 0, 1.0, 2 * c2)
    middle = c0 + turn * (c1 + turn * c2)
    twice = (c2 != 0) & (turn > 0) & (turn < 1) & (c0 * middle < 0)
    return (c0 * last < 0) | twice
