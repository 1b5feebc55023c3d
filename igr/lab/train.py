"""One compiled program that advances a stack of replicas by k steps of stochastic gradient descent.

A stack is many networks of one shape that differ in learning rate, explicit rate and seed. Every array of it has a
leading replica axis. The step is vmapped over that axis, the steps run inside a scan, the parameters are donated, and
batches are gathered on the device from a permutation for each epoch and seed: nothing returns to the host.
With several devices the replica axis is split over them; replicas never talk, so neither do the devices.
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


def cross_entropy(logits: Float[Array, "b k"], labels: Int[Array, " b"]) -> Float[Array, " b"]:
    """The negative log probability of each label; a mask instead of a gather, whose transpose would be a scatter.

    >>> cross_entropy(jnp.zeros((1, 10)), jnp.array([3]))[0].round(4).item()  # log 10
    2.3026
    """
    hit = labels[:, None] == jnp.arange(logits.shape[-1], dtype=labels.dtype)[None, :]
    return -jnp.where(hit, jax.nn.log_softmax(logits), jnp.zeros((), logits.dtype)).sum(axis=-1)


def batch_loss(model: Model) -> Callable[..., tuple[Array, Any]]:
    """The mean cross entropy of a batch: `loss(params, state, x, y) -> (E, new state)`, in training mode."""

    def loss(params: Any, state: Any, x: Array, y: Array) -> tuple[Array, Any]:
        logits, new = model.apply(params, state, x, True)
        return cross_entropy(logits, y).mean(), new

    return loss


def matmul_precision(name: str) -> contextlib.AbstractContextManager:
    """The context in which to trace at a precision: "highest" is float32 throughout, "default" the device's choice."""
    return jax.default_matmul_precision("highest") if name == "highest" else contextlib.nullcontext()


class Engine:
    """Trains stacks of one model on one data set.

    `batch_size` 0 means the full batch. `method` is None for plain gradient descent (mu must then be zero), or a method
    of `igr.value_and_grad` for the gradient of E + mu |grad E|^2. `precision` is that of the training's matrix
    products; measurements have their own. `unroll` is the scan's: steps compiled as one loop body.
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
    ):
        if precision not in PRECISIONS:
            raise ValueError(f"unknown precision {precision!r}: choose one of {', '.join(PRECISIONS)}.")
        if not 0 <= batch_size <= len(data.y):
            raise ValueError(f"batch_size must lie in 0 (full) ... {len(data.y)}, but it is {batch_size}.")
        self.model, self.batch_size, self.method, self.precision = model, batch_size, method, precision
        self.size, self.unroll = len(data.y), unroll
        self.steps_per_epoch = self.size // batch_size if batch_size else 1
        devices = list(devices or jax.devices())
        count = max(k for k in range(1, len(devices) + 1) if replicas % k == 0)  # as many as divide the stack evenly
        self.mesh = Mesh(np.array(devices[:count]), ("replica",))
        self.data = data.put(NamedSharding(self.mesh, EVERYWHERE))
        self._programs: dict[int, Any] = {}
        self._permute = self.sharded(self._permutations, (REPLICAS, EVERYWHERE))

    def sharded(self, function: Callable, specs: tuple, out: Any = REPLICAS, **jit: Any) -> Any:
        """A compiled program over the replica axis, each device running its own part."""
        split = jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False)
        return jax.jit(split, **jit)

    def place(self, tree: Any) -> Any:
        """Arrays with a leading replica axis, split over the devices."""
        return jax.device_put(tree, NamedSharding(self.mesh, REPLICAS))

    def init(self, seeds: Sequence[int]) -> Stack:
        """A new stack: one replica for each seed; equal seeds start equal and see the same batches."""
        seeds32 = self.place(np.asarray(seeds, np.uint32))

        def start(seed: Array) -> Stack:
            params, state = self.model.init(jax.random.fold_in(jax.random.key(seed), 0))
            return Stack(params, state, jnp.full((), -1, jnp.int32))

        return self.sharded(jax.vmap(start), (REPLICAS,))(seeds32)

    def rates(self, learning_rates: Sequence[float], mus: Sequence[float]) -> Rates:
        """The rates of a stack on the devices."""
        if self.method is None and any(mus):
            raise ValueError("a stack with mu > 0 needs a method: exact, forward or central.")
        return Rates(*(self.place(np.asarray(values, np.float32)) for values in (learning_rates, mus)))

    def _permutations(self, seeds: Array, epoch: Array) -> Array:
        def one(seed: Array) -> Array:
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
            return jax.random.permutation(key, jnp.arange(self.size, dtype=jnp.int32))

        return jax.vmap(one)(seeds)

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
            elif not self.batch_size:
                order = seeds32  # a full batch has no order; something must fill the place
            stack = self._program(count)(
                stack, rates, order, self.data.x, self.data.y, np.int32(offset), np.int32(start)
            )
            start += count
        return stack

    def _length(self, left: int) -> int:
        """The longest program not longer than `left`: few lengths, so that few programs are compiled."""
        lengths = (self.steps_per_epoch, 1) if self.batch_size else (16, 1)
        return next(n for n in lengths if n <= left)

    def _program(self, count: int) -> Any:
        if count not in self._programs:
            specs = (REPLICAS, REPLICAS, REPLICAS, EVERYWHERE, EVERYWHERE, EVERYWHERE, EVERYWHERE)
            program = functools.partial(self._steps, count)
            self._programs[count] = self.sharded(program, specs, donate_argnums=(0,))
        return self._programs[count]

    def _steps(self, count: int, stack: Stack, rates: Rates, order: Array, x: Array, y: Array, offset: Any, start: Any):
        data, gradient = Images(x, y, self.data.scale), self._gradient()
        if self.batch_size:
            begin = (jnp.zeros((), jnp.int32), offset * jnp.int32(self.batch_size))
            order = jax.lax.dynamic_slice(order, begin, (order.shape[0], count * self.batch_size))
            order = order.reshape(-1, count, self.batch_size).swapaxes(0, 1)
        else:
            order = jnp.zeros((count, order.shape[0]), jnp.int32)

        def step(replica: Stack, rate: Rates, index: Array, number: Array) -> Stack:
            x, y = data.pick(index) if self.batch_size else (data.x, data.y)
            loss, state, grads = gradient(replica.params, replica.state, rate.mu, x, y)
            params = jax.tree.map(lambda p, g: p - rate.learning_rate * g, replica.params, grads)
            new = (replica.diverged < 0) & ~jnp.isfinite(loss)
            return Stack(params, state, jnp.where(new, number, replica.diverged))

        def body(carry: tuple[Stack, Array], index: Array) -> tuple[tuple[Stack, Array], None]:
            stack, number = carry
            return (jax.vmap(step, in_axes=(0, 0, 0, None))(stack, rates, index, number), number + jnp.int32(1)), None

        with matmul_precision(self.precision):
            (stack, _), _ = jax.lax.scan(body, (stack, start), order, unroll=min(self.unroll, count))
        return stack

    def _gradient(self) -> Callable[..., tuple[Array, Any, Any]]:
        """`gradient(params, state, mu, x, y) -> (E, new state, gradient)`, of a batch or of the whole data set."""
        loss = batch_loss(self.model)
        if self.batch_size:

            def plain(params: Any, state: Any, mu: Array, x: Array, y: Array) -> tuple[Array, Any, Any]:
                if self.method is None:
                    (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params, state, x, y)
                else:
                    penalized = igr.value_and_grad(loss, mu, self.method, has_aux=True)  # pyright: ignore
                    (value, new), grads = penalized(params, state, x, y)
                return value, new, grads

            return plain

        def whole(params: Any, state: Any, mu: Array, x: Array, y: Array) -> tuple[Array, Any, Any]:
            if jax.tree.leaves(state):
                raise ValueError("a full batch in pieces has no batch statistics: use a batch size with this model.")

            def chunk_loss(params: Any, x: Array, y: Array) -> Array:
                return loss(params, state, unit_range(x, self.data.scale), y)[0]

            mean = igr.full_batch(chunk_loss, FULL_BATCH_CHUNK)
            both = jax.value_and_grad(mean) if self.method is None else igr.value_and_grad(mean, mu, self.method)  # pyright: ignore
            value, grads = both(params, x, y)
            return value, state, grads

        return whole
