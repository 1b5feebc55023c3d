"""The units of the predictions: momentum's rate, Adam's sign, epochs of batches, and the refusals."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import igr
from igr.calculus import gradient
from igr.lab.experiments.optimizers.constructors import REFUSED
from igr.lab.experiments.optimizers.problems import START, network, on_digits, plane
from igr.lab.experiments.optimizers.race import flow, length, one_norm
from igr.lab.experiments.optimizers.trials import InDouble
from igr.lab.runs.unit import Session
from igr.lab.store.config import option
from igr.optimizers import batch_modified_loss, modified_field, settle, step


@dataclass(frozen=True)
class MomentumRate(InDouble):
    """How far momentum and gradient descent of the same effective rate leave the gradient flow, in one direction."""

    activation: str = option("tanh, gelu or relu", "tanh")
    rates: tuple[float, ...] = option("effective learning rates h/(1 - b)", (1e-2, 1e-3, 1e-4))
    decays: tuple[float, ...] = option("decay rates b of momentum", (0.5, 0.8, 0.9, 0.95))
    steps: int = option("steps that are compared", 100)
    examples: int = option("digits in the full batch", 300)

    @property
    def label(self) -> str:
        """What is compared."""
        return f"momentum beside descent, {self.activation}"

    def measure(self, session: Session) -> Mapping[str, Any]:
        """The displacement of momentum over that of descent, by rate and decay; no formula of a modified flow."""
        params, args = on_digits(self.activation, self.examples, session.data_dir)
        bound = lambda p: network(p, *args)  # noqa: E731

        @jax.jit
        def times_as_strong(s: Any, b: Any) -> Any:
            plain = lambda p: jax.tree.map(lambda g: -s * g, gradient(bound)(p))  # noqa: E731
            momentum, descent = (optax.sgd(h, momentum=m) for h, m in ((s * (1 - b), b), (s, None)))
            state = settle(step(momentum, bound), (params, momentum.init(params)), 600, plain)
            other = (state[0], descent.init(state[0]))
            flowed = flow(plain, state[0], 1 / 4, 4 * self.steps)  # short steps: kinks of ReLU
            ends = (settle(step(tx, bound), x, self.steps)[0] for tx, x in ((momentum, state), (descent, other)))
            off, unit = (jax.tree.map(jnp.subtract, end, flowed) for end in ends)
            both = sum(jnp.sum(x * y) for x, y in zip(*map(jax.tree.leaves, (off, unit)), strict=True))
            return both / igr.squared_norm(unit), both / (length(off) * length(unit))

        found = np.asarray([[times_as_strong(s, b) for b in self.decays] for s in self.rates])
        return {"rates": self.rates, "decays": self.decays, "times": found[..., 0], "cosine": found[..., 1]}


@dataclass(frozen=True)
class AdamMap(InDouble):
    """The size and sign of Adam's correction over (b1, b2) on the two-parameter model, and what Adam itself does."""

    learning_rate: float = option("step size h", 1e-4)
    points: int = option("values of each decay rate", 12)
    steps: int = option("steps after which the gradients are compared", 500)

    @property
    def label(self) -> str:
        """What is drawn."""
        return "the map of Adam"

    def measure(self, session: Session) -> Mapping[str, Any]:
        """The signed correction, positive for a penalty on |grad E|_1, and the one-norm at Adam less at its plain flow.

        Of the norm at the plain flow; negative where Adam arrives at smaller gradients in the same time.
        """
        rates, history = jnp.asarray(1 - np.geomspace(0.5, 0.01, self.points)), 2400
        start = jnp.asarray([START])
        size = partial(one_norm, plane)

        @jax.jit
        @partial(jax.vmap, in_axes=(None, 0))
        @partial(jax.vmap, in_axes=(0, None))
        def at(b1: Any, b2: Any) -> Any:
            tx = optax.adam(self.learning_rate, b1, b2, eps=1e-8)
            terms = modified_field(tx, plane, history=history).terms(start)
            down = -jnp.sum((terms.memory + terms.discretization) * jax.grad(size)(start))
            plain = modified_field(tx, plane, order=0, history=1)  # the bias correction makes any length do
            begun = settle(step(tx, plane), (start, tx.init(start)), history, plain)
            end = settle(step(tx, plane), begun, self.steps)[0]
            flowed = size(flow(plain, begun[0], self.steps / 10, 10))
            return jnp.sign(down) * terms.ratio, (size(end) - flowed) / flowed

        signed, gained = at(rates, rates)
        return {"rates": rates, "signed": signed, "one_norm_gained": gained}


@dataclass(frozen=True)
class Batches(InDouble):
    """Reversed pairs of epochs of SGD on a network, against the flows of three losses."""

    activation: str = option("tanh, gelu or relu", "tanh")
    batches: int = option("batches in an epoch", 4)
    pairs: tuple[int, ...] = option("how many pairs of epochs the time is divided into, each a run", (8, 16, 32))
    time: float = option("flow time", 4.0)
    examples: int = option("digits in the epoch", 300)

    @property
    def label(self) -> str:
        """What is compared."""
        return f"SGD, {self.batches} batches, {self.activation}"

    def measure(self, session: Session) -> Mapping[str, Any]:
        """Distances to the flows of C, of C with descent's penalty, and of C with that of all batch gradients."""
        params, (*data, activation) = on_digits(self.activation, self.examples, session.data_dir)
        energy = lambda p, x, y: network(p, x, y, activation)  # noqa: E731
        split = [x.reshape(self.batches, -1, x.shape[1]) for x in data]
        both_ways = jax.tree.map(lambda x: jnp.concatenate([x, x[::-1]]), split)

        @jax.jit
        def train(h: Any, pairs: Any) -> Any:
            def pair(_: Any, p: Any) -> Any:
                return jax.lax.scan(lambda p, b: (igr.gradient_step(energy, h)(p, *b), None), p, both_ways)[0]

            return jax.lax.fori_loop(0, pairs, pair, params)

        @jax.jit
        def distances(h: Any, end: Any) -> Any:
            losses = [batch_modified_loss(energy, s, replacement=r) for s, r in ((0 * h, False), (h, True), (h, False))]
            fields = [lambda p, e=each: jax.tree.map(jnp.negative, jax.grad(e)(p, *split)) for each in losses]
            ends = [flow(field, params, self.time / 32, 32) for field in fields]
            return jnp.stack([length(jax.tree.map(jnp.subtract, each, end)) for each in ends])

        hs = [self.time / (2 * self.batches * n) for n in self.pairs]
        rows = [distances(h, train(h, n)) for h, n in zip(hs, self.pairs, strict=True)]
        return {"learning_rate": hs, "distance": np.asarray(rows)}


@dataclass(frozen=True)
class Refusals(InDouble):
    """Whether the transformations without a modified field are refused, in the order of the list, and why."""

    learning_rate: float = option("step size h", 1e-3)

    @property
    def label(self) -> str:
        """What is asked."""
        return "refusals"

    def measure(self, session: Session) -> Mapping[str, Any]:
        """The sentence for each transformation, empty for one that was taken."""
        reasons = []
        for name, make in REFUSED.items():
            try:
                modified_field(make(self.learning_rate), plane).history_length(jnp.asarray([START]))
                reasons.append("")
            except ValueError as refused:
                reasons.append(str(refused))
            session.progress(len(reasons) / len(REFUSED), name)
        return {"names": list(REFUSED), "reasons": reasons}
