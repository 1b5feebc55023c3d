"""One network: descent and three flows from one start, over a ladder of learning rates, in float64.

The flows are those of the modified field truncated at order 0 (gradient flow), 1 (the modified loss) and 2. They are
solved by the classical Runge-Kutta method with a fixed number of substeps in each step of descent, also where the
loss has kinks, at which a solver with adaptive steps would stall. The difference to half as many substeps is stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import igr
from igr.lab.data.registry import DATASETS, load
from igr.lab.experiments.theorem.networks import KINDS, SMOOTH, cross_entropy, forward, initial
from igr.lab.models.mlp import ACTIVATIONS
from igr.lab.runs.unit import Session, Trial
from igr.lab.store.config import ConfigError, option
from igr.regimes.truncation import displacement

ORDERS = 3
FLOWS = ("gradient flow", "modified flow", "modified flow of order 2")


@dataclass(frozen=True)
class Paths(Trial):
    """A network, its data, and the learning rates at which descent is compared with the flows."""

    network: str = option("mlp or cnn", "mlp")
    activation: str = option("relu, gelu or tanh", "tanh")
    width: int = option("units of a hidden layer, or channels of the first convolution", 16)
    depth: int = option("hidden layers of an MLP", 2)
    data: str = option("data set", "digits")
    examples: int = option("images, all of which are in every step", 200)
    seed: int = option("initialization", 0)
    rates: tuple[float, ...] = option("learning rates, each half of the one before", (0.5, 0.25, 0.125, 0.0625))
    time: float = option("physical time T = nh at which all paths end", 16.0)
    samples: int = option("times at which paths are compared, evenly spaced up to T", 32)
    substeps: int = option("Runge-Kutta steps in a step of descent, at least; an even number", 4)
    finest: int = option("Runge-Kutta steps in a unit of time, at least: for rates near the limit of stability", 32)

    def check(self) -> None:
        """Validate names and counts, and that every rate reaches every time in whole steps."""
        if self.network not in KINDS or self.activation not in ACTIVATIONS or self.data not in DATASETS:
            raise ConfigError(f"No network {self.network!r}, activation {self.activation!r} or data set {self.data!r}.")
        if min(self.width, self.depth, self.examples, self.samples, self.finest) < 1:
            raise ConfigError("width, depth, examples, samples and finest must be positive.")
        if self.substeps < 2 or self.substeps % 2:
            raise ConfigError(f"substeps must be positive and even, and it is {self.substeps}.")
        if len(self.rates) < 2 or min(self.rates) <= 0 or self.time <= 0:
            raise ConfigError("An order needs at least two positive rates, and a positive time.")
        each = np.array([self.time / self.samples / h for h in self.rates])
        if np.any(each.round() < 1) or np.any(np.abs(each - each.round()) > 1e-9):
            raise ConfigError("time / samples must be a multiple of every learning rate.")

    @property
    def label(self) -> str:
        """The network and its seed."""
        return f"{self.data}, {self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """The network in a few words.

        >>> Paths(activation="gelu").name
        'gelu MLP 2 x 16'
        """
        return f"{self.activation} CNN {self.width}" if self.network == "cnn" else (
            f"{self.activation} MLP {self.depth} x {self.width}"
        )  # fmt: skip

    @property
    def smooth(self) -> bool:
        """Whether the loss is smooth, as the theorem asks."""
        return self.activation in SMOOTH

    @property
    def precision(self) -> str:
        """All of it."""
        return "float64"

    def compute(self, session: Session) -> Mapping[str, Any]:
        """For each rate: distances to the flows at the sampled times, the error of a step, loss, h lambda, kinks."""
        data = load(self.data, session.data_dir)
        with jax.enable_x64(True):
            x = jnp.asarray(data.train.x[: self.examples], float) / data.scale
            y = jnp.asarray(data.train.y[: self.examples])
            entry = DATASETS[self.data]
            params = initial(self.network, self.width, self.depth, entry.shape, entry.classes, self.seed)
            columns = {name: list(values) for name, values in (session.load() or {}).items()}
            for i in range(len(columns.get("distance", ())), len(self.rates)):
                row = self._at(i, params, (x, y), session)
                for name, value in row.items():
                    columns.setdefault(name, []).append(np.asarray(value))
                session.save(lambda: {name: np.stack(values) for name, values in columns.items()})
        times = np.linspace(0, self.time, self.samples + 1)
        return {"learning_rate": np.array(self.rates), "time": times} | {n: np.stack(v) for n, v in columns.items()}

    def _at(self, i: int, params: Any, images: tuple, session: Session) -> dict[str, Any]:
        """The measurements at the learning rate number `i`."""
        h, spacing = self.rates[i], self.time / self.samples
        steps = round(spacing / h)
        fine = max(self.substeps, 2 * -(-int(self.finest * h) // 2))
        descend, flows, measure = programs(self.activation)
        path, crossings = [params], [0]
        sides, crossed = None, 0
        for _ in range(self.samples):
            here, sides, crossed = descend(path[-1], h, steps, sides, crossed, *images)
            path.append(here)
            crossings.append(int(crossed))
        distances, errors, first = [], [], []
        for order, carry in enumerate(flows):

            def solve(substeps: int, carry: Any = carry) -> Any:
                found = [params]
                for _ in range(self.samples):
                    found.append(carry(found[-1], h, spacing, substeps, *images))
                return stacked(found)

            flow, coarse = solve(steps * fine), solve(steps * fine // 2)
            distances.append(igr.distance(stacked(path), flow))
            errors.append(igr.distance(flow, coarse))
            once = (descend(params, h, 1, None, 0, *images)[0], carry(params, h, h, 32, *images))
            first.append(igr.distance(*(stacked([each]) for each in once))[0])
            session.progress((i * ORDERS + order + 1) / len(self.rates) / ORDERS, f"h = {h:g}")
        values, curvatures = zip(*(measure(p, *images) for p in path), strict=True)
        return {
            "distance": np.stack(distances),
            "solver_error": np.stack(errors),
            "step_error": np.stack(first),
            "travelled": igr.distance(stacked(path), stacked([params] * len(path))),
            "crossings": np.array(crossings),
            "loss": np.stack(values),
            "h_lambda": h * np.stack(curvatures),
        }


def stacked(states: list) -> Any:
    """Parameters at several times as one pytree with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@cache
def programs(activation: str) -> tuple[Callable, list[Callable], Callable]:
    """(descend, flows by order, measure), compiled once for all rates and seeds of a network."""
    loss = cross_entropy(activation)

    @jax.jit
    def sides_of(params: Any, x: Any) -> Any:
        """Which side of its kink each unit is on for each image; nothing for smooth networks."""
        return [] if activation in SMOOTH else [before > 0 for before in forward(params, x, activation)[1]]

    @jax.jit
    def walk(params: Any, h: Any, steps: Any, sides: Any, crossed: Any, x: Any, y: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            here, before, crossed = state
            there = igr.gradient_step(loss, h)(here, x, y)
            after = sides_of(there, x)
            moved = sum((jnp.sum(a != b) for a, b in zip(after, before, strict=True)), start=jnp.zeros((), int))
            return there, after, crossed + moved

        return jax.lax.fori_loop(0, steps, step, (params, sides, crossed))

    def descend(params: Any, h: Any, steps: Any, sides: Any, crossed: Any, x: Any, y: Any) -> Any:
        """Some steps on: the parameters, the sides, and how often a unit has changed sides for an image so far."""
        return walk(params, h, steps, sides_of(params, x) if sides is None else sides, crossed, x, y)

    def truncated(order: int) -> Callable:
        @jax.jit
        def carry(params: Any, h: Any, time: Any, substeps: Any, x: Any, y: Any) -> Any:
            field = igr.modified_field(igr.gradient_field(loss), h, order)
            moved = displacement(lambda p: field(p, x, y), params, time, substeps)
            return jax.tree.map(jnp.add, params, moved)

        return carry

    @jax.jit
    def measure(params: Any, x: Any, y: Any) -> Any:
        return loss(params, x, y), igr.sharpness(loss, products=16)(params, x, y).value

    return descend, [truncated(order) for order in range(ORDERS)], measure
