"""One compiled program that advances a stack of replicas by k steps of stochastic gradient descent.

A stack is many networks of one shape that differ in learning rate, explicit rate and seed. Every array of it has a
leading replica axis. Replicas are trained side by side (vmapped) or in turn, whichever is faster for the model; the
steps run inside a scan, the parameters are donated, and batches are gathered on the device from a permutation for each
epoch and seed: nothing returns to the host. With several devices the replica axis is split over them; replicas never
talk, so neither do the devices.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, UInt8

import igr
from igr.lab.augment import augment
from igr.lab.gradients import batch_loss, value_and_grad
from igr.lab.models import Model

PRECISIONS = ("default", "highest", "bfloat16")
FULL_BATCH_CHUNK = 10_000  # images at a time in a full-batch gradient: bounds memory, fills the device
REPLICAS, EVERYWHERE = PartitionSpec("replica"), PartitionSpec()


class Stack(NamedTuple):
    """Replicas side by side: parameters, model state, and the step at which a loss stopped being finite (or -1)."""

    params: Any
    state: Any
    diverged: Int[Array, " replicas"]


class Rates(NamedTuple):
    """What may differ between the replicas of a stack besides their seeds."""

    learning_rate: Float[Array, " replicas"]
    mu: Float[Array, " replicas"]


class Images(NamedTuple):
    """A data set on the device, as bytes: a quarter of the memory and of the gather's traffic."""

    x: UInt8[Array, "n h w c"]
    y: Int[Array, " n"]
    scale: float

    def put(self, where: Any) -> "Images":
        """The same on a device, or on several."""
        return Images(jax.device_put(self.x, where), jax.device_put(self.y, where), self.scale)

    def pick(self, index: Int[Array, " b"]) -> tuple[Array, Array]:
        """The images of these indices as float32 in [0, 1], and their labels."""
        # `clip` and not the default `fill`, which would mask every pixel for indices that cannot be out of range.
        return unit_range(self.x.at[index].get(mode="clip"), self.scale), self.y.at[index].get(mode="clip")


def unit_range(x: Array, scale: float) -> Array:
    """Bytes as float32 in [0, 1]."""
    return x.astype(jnp.float32) * np.float32(1 / scale)


def check_images(model: Model, data: Images) -> None:
    """Raise `ValueError`, one sentence, where the model cannot take the images or has no output for a label."""
    params, state = jax.eval_shape(model.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((2, *data.x.shape[1:]), jnp.float32)
    try:
        logits, _ = jax.eval_shape(lambda params, state, x: model.apply(params, state, x, True), params, state, x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the model cannot take images of shape {data.x.shape[1:]}.") from error
    if len(data.x) != len(data.y):
        raise ValueError(f"there must be a label for each image, but {len(data.x)} images have {len(data.y)} labels.")
    low, high = (int(f(np.asarray(data.y), initial=0)) for f in (np.min, np.max))
    if low < 0 or high >= logits.shape[-1]:
        raise ValueError(f"labels must lie in 0 ... {logits.shape[-1] - 1}, but they reach from {low} to {high}.")


def matmul_precision(name: str) -> contextlib.AbstractContextManager:
    """The context in which to trace at a precision: "highest" is float32 throughout, "default" the device's choice."""
    return jax.default_matmul_precision("highest") if name == "highest" else contextlib.nullcontext()


class Engine:
    """Trains stacks of one model on one data set.

    `batch_size` 0 means the full batch. `method` is None for plain gradient descent (mu must then be zero), a method
    of `igr.value_and_grad` for the gradient of E + mu |grad E|^2, or "sam" with mu as its radius. `precision` is that
    of the training's matrix products; measurements have their own. `unroll` is the scan's: steps compiled as one loop
    body. `augment` shifts and mirrors the images of each batch at random. `in_turn` trains the replicas of a device one
    after the other instead of side by side; by default the model says so. `radius` is that of the finite differences
    of `igr.value_and_grad`, 0 their default.

    With `every` = k and `warm_up` = w the penalty acts at some steps only, where it is as much stronger,

        mu_t = k mu  where t >= w and k divides t, else 0,

    so that after the warm-up its mean is mu. In turn, a step without penalty costs no more than a plain one.
    """

    def __init__(
        self,
        model: Model,
        data: Images,
        batch_size: int,
        method: str | None = None,
        precision: str = "default",
        devices: Sequence[Any] | None = None,
        replicas: int = 1,
        unroll: int = 1,
        augment: bool = False,
        every: int = 1,
        warm_up: int = 0,
        in_turn: bool | None = None,
        radius: float = 0.0,
    ):
        if precision not in PRECISIONS:
            raise ValueError(f"unknown precision {precision!r}: choose one of {', '.join(PRECISIONS)}.")
        if not 0 <= batch_size <= len(data.y):
            raise ValueError(f"batch_size must lie in 0 (full) ... {len(data.y)}, but it is {batch_size}.")
        if augment and not batch_size:
            raise ValueError("a full batch in pieces is not augmented: use a batch size.")
        check_images(model, data)
        self.model, self.batch_size, self.method, self.precision = model, batch_size, method, precision
        self.size, self.unroll, self.augment, self.every, self.warm_up = len(data.y), unroll, augment, every, warm_up
        self.radius = radius or None
        self.in_turn = model.in_turn if in_turn is None else in_turn
        self.steps_per_epoch = self.size // batch_size if batch_size else 1
        devices = list(devices or jax.devices())
        count = max(k for k in range(1, len(devices) + 1) if replicas % k == 0)  # as many as divide the stack evenly
        self.mesh = Mesh(np.array(devices[:count]), ("replica",))
        self.data = data.put(NamedSharding(self.mesh, EVERYWHERE))
        self._programs: dict[int, Any] = {}
        self._start = self.sharded(self.spread(self._init, 1), (REPLICAS,))
        self._permute = self.sharded(self.spread(self._permutation, 1), (REPLICAS, EVERYWHERE))

    def sharded(self, function: Callable, specs: tuple, out: Any = REPLICAS, **jit: Any) -> Any:
        """A compiled program over the replica axis, each device running its own part."""
        split = jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False)
        return jax.jit(split, **jit)

    def spread(self, function: Callable, own: int) -> Callable:
        """A function of one replica as one of the stack: its first `own` arguments have a replica axis, no others."""

        @functools.wraps(function)  # the program's name in profiles
        def stacked(*arguments: Any) -> Any:
            mine, shared = arguments[:own], arguments[own:]

            def one(mine: Any) -> Any:
                return function(*mine, *shared)

            if not self.in_turn:
                return jax.vmap(one)(mine)
            if len(jax.tree.leaves(mine)[0]) > 1:
                return jax.lax.map(one, mine)
            return jax.tree.map(lambda leaf: leaf[None], one(jax.tree.map(lambda leaf: leaf[0], mine)))

        return stacked

    def place(self, tree: Any) -> Any:
        """Arrays with a leading replica axis, split over the devices."""
        return jax.device_put(tree, NamedSharding(self.mesh, REPLICAS))

    def init(self, seeds: Sequence[int]) -> Stack:
        """A new stack: one replica for each seed; equal seeds start equal and see the same batches."""
        return self._start(self.place(np.asarray(seeds, np.uint32)))

    def _init(self, seed: Array) -> Stack:
        params, state = self.model.init(jax.random.fold_in(jax.random.key(seed), 0))
        return Stack(params, state, jnp.full((), -1, jnp.int32))

    def rates(self, learning_rates: Sequence[float], mus: Sequence[float]) -> Rates:
        """The rates of a stack on the devices."""
        if self.method is None and any(mus):
            raise ValueError("a stack with mu > 0 needs a method: exact, forward, central or sam.")
        return Rates(*(self.place(np.asarray(values, np.float32)) for values in (learning_rates, mus)))

    def _permutation(self, seed: Array, epoch: Array) -> Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
        return jax.random.permutation(key, jnp.arange(self.size, dtype=jnp.int32))

    def advance(self, stack: Stack, rates: Rates, seeds: Sequence[int], start: int, stop: int) -> Stack:
        """Take the steps `start` ... `stop - 1`. The given stack is donated: use the returned one only.

        The batch of a step depends on the seed and the step alone, so it does not matter how a training is cut up.
        """
        seeds32 = self.place(np.asarray(seeds, np.uint32))
        order: Any = None
        while start < stop:
            epoch, offset = divmod(start, self.steps_per_epoch)
            left = min(stop - start, self.steps_per_epoch - offset if self.batch_size else stop - start)
            count = self._length(left)
            if self.batch_size and (order is None or offset == 0):
                order = self._permute(seeds32, np.int32(epoch))
            stack = self._program(count)(
                stack, rates, seeds32, order, self.data.x, self.data.y, np.int32(offset), np.int32(start)
            )
            start += count
        return stack

    def _length(self, left: int) -> int:
        """The longest program not longer than `left`: few lengths, so that few programs are compiled.

        Models trained in turn take milliseconds a step, in which the next step is dispatched: one length is enough.
        """
        longest = self.steps_per_epoch if self.batch_size else 16
        return longest if longest <= left and not self.in_turn else 1

    def _program(self, count: int) -> Any:
        if count not in self._programs:
            specs = (*[REPLICAS] * 4, *[EVERYWHERE] * 4)

            def steps(*arguments: Any) -> Stack:
                return self._steps(count, *arguments)

            self._programs[count] = self.sharded(self.spread(steps, 4), specs, donate_argnums=(0,))
        return self._programs[count]

    def _steps(
        self,
        count: int,
        replica: Stack,
        rate: Rates,
        seed: Array,
        order: Any,
        x: Array,
        y: Array,
        offset: Any,
        start: Any,
    ) -> Stack:
        """The steps `start` ... `start + count - 1` of one replica; `offset` is that of the first in its epoch."""
        data, gradient = Images(x, y, self.data.scale), self._gradient()
        if self.batch_size:
            order = jax.lax.dynamic_slice(order, (offset * jnp.int32(self.batch_size),), (count * self.batch_size,))
            order = order.reshape(count, self.batch_size)

        def step(carry: tuple[Stack, Array], index: Array) -> tuple[tuple[Stack, Array], None]:
            replica, number = carry
            x, y = data.pick(index) if self.batch_size else (data.x, data.y)
            if self.augment:
                x = augment(jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 2), number), x)
            loss, state, grads = gradient(replica.params, replica.state, self._mu(rate.mu, number), x, y)
            params = jax.tree.map(lambda p, g: p - rate.learning_rate * g, replica.params, grads)
            new = (replica.diverged < 0) & ~jnp.isfinite(loss)
            stack = Stack(params, state, jnp.where(new, number, replica.diverged))
            return (stack, number + jnp.int32(1)), None

        with matmul_precision(self.precision):
            (replica, _), _ = jax.lax.scan(step, (replica, start), order, count, unroll=min(self.unroll, count))
        return replica

    def _mu(self, mu: Array, number: Array) -> Array:
        """The explicit rate at a step."""
        if (self.every, self.warm_up) == (1, 0):
            return mu
        acts = (number % jnp.int32(self.every) == 0) & (number >= self.warm_up)
        return jnp.where(acts, np.float32(self.every) * mu, jnp.zeros_like(mu))

    def _gradient(self) -> Callable[..., tuple[Array, Any, Any]]:
        """`gradient(params, state, mu, x, y) -> (E, new state, gradient)`, of a batch or of the whole data set."""
        loss = batch_loss(self.model)

        def batch(params: Any, state: Any, mu: Array, x: Array, y: Array) -> tuple[Array, Any, Any]:
            (value, new), grads = value_and_grad(loss, self.method, mu, has_aux=True, radius=self.radius)(
                params, state, x, y
            )
            return value, new, grads

        def whole(params: Any, state: Any, mu: Array, x: Array, y: Array) -> tuple[Array, Any, Any]:
            if jax.tree.leaves(state):
                raise ValueError("a full batch in pieces has no batch statistics: use a batch size with this model.")

            def chunk_loss(params: Any, x: Array, y: Array) -> Array:
                return loss(params, state, unit_range(x, self.data.scale), y)[0]

            mean = igr.full_batch(chunk_loss, FULL_BATCH_CHUNK)
            value, grads = value_and_grad(mean, self.method, mu, radius=self.radius)(params, x, y)
            return value, state, grads

        return batch if self.batch_size else whole
