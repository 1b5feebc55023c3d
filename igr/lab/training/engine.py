"""One compiled program that advances a stack of replicas by k steps of an optimizer.

A stack is many networks of one shape that differ in learning rate, explicit rate and seed. Each of its arrays has a
leading replica axis. Replicas are trained side by side (vmapped) or in turn, whichever is faster for the model. The
steps run inside a scan, the parameters are donated, and batches are gathered on the device from a permutation for each
epoch and seed: nothing returns to the host. Several devices share the replica axis. Replicas do not communicate, and so
the devices do not either.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

import igr
from igr.lab.models.model import Model
from igr.lab.training.augment import augment
from igr.lab.training.gradients import batch_loss, value_and_grad
from igr.lab.training.images import Images as Images
from igr.lab.training.images import check_images, unit_range
from igr.lab.training.optimizers import Transformation
from igr.lab.training.precision import PRECISIONS, matmul_precision, usual_promotion

FULL_BATCH_CHUNK = 10_000  # images at a time in a full-batch gradient: bounds memory, fills the device
REPLICAS, EVERYWHERE = PartitionSpec("replica"), PartitionSpec()


class Stack(NamedTuple):
    """Replicas side by side: parameters, model state, the step at which a loss stopped being finite (or -1), and the
    state of the optimizer, which plain gradient descent does without. Inside `vmap` it is one replica.
    """

    params: Any
    state: Any
    diverged: Int[Array, "*replicas"]
    optimizer: Any = ()


class Rates(NamedTuple):
    """What may differ between the replicas of a stack besides their seeds.

    `strength` is the explicit rate mu of a penalty, and the radius rho of sharpness-aware minimization.
    """

    learning_rate: Float[Array, "*replicas"]
    strength: Float[Array, "*replicas"]


class Engine:
    """Trains stacks of one model on one data set.

    `batch_size` 0 means the full batch. `method` is None for the gradient of the loss E, a method of
    `igr.value_and_grad` for that of E + mu |grad E|^2, or "sam" for sharpness-aware minimization with radius rho.
    `optimizer` maps a learning rate to an optax transformation, which gets this gradient; None is plain gradient
    descent. `precision` is that of the training's matrix products; measurements have their own. `unroll` is the scan's:
    steps compiled as one loop body. `devices` share the stack of `replicas` networks; by default all devices do.
    `augment` shifts and mirrors the images of each batch at random. `in_turn` trains the replicas of a device one after
    the other instead of side by side; by default the model says so. `radius` is that of the finite differences of
    `igr.value_and_grad`; 0 means that of `igr.lab.training.gradients.stored_radius`.

    With `every` = k and `warm_up` = w the penalty acts at every k-th step after the first w, scaled by k,

        mu_t = k mu  where t >= w and k divides t, else 0,

    so that its mean after the warm-up is mu. For replicas trained in turn, a step without penalty costs as much as a
    plain step.
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
        optimizer: Transformation | None = None,
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
        self.radius, self.optimizer = radius or None, optimizer
        self.in_turn = model.in_turn if in_turn is None else in_turn
        self.steps_per_epoch = self.size // batch_size if batch_size else 1
        devices = list(devices or jax.devices())
        count = max(k for k in range(1, len(devices) + 1) if replicas % k == 0)  # as many as divide the stack evenly
        self.mesh = Mesh(np.array(devices[:count]), ("replica",))
        self.data = data.put(NamedSharding(self.mesh, EVERYWHERE))
        self._programs: dict[int, Any] = {}
        self._start = self.sharded(self.spread(self._init, 1), (REPLICAS,))
        self._begin = self.sharded(self.spread(self._init_optimizer, 2), (REPLICAS, REPLICAS))
        self._permute = self.sharded(self.spread(self._permutation, 1), (REPLICAS, EVERYWHERE))

    def sharded(self, function: Callable, specs: tuple, out: Any = REPLICAS, **jit: Any) -> Any:
        """`function` as a compiled program in which each device runs its part of the replica axis.

        `specs` and `out` are the partitions of its arguments and results; further options are those of `jax.jit`.
        """
        split = jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False)
        return jax.jit(split, **jit)

    def spread(self, function: Callable, own: int) -> Callable:
        """A `function` of one replica as one of the stack. Only its first `own` arguments have a replica axis."""

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
        """The arrays of `tree`, which have a leading replica axis, split over the devices."""
        return jax.device_put(tree, NamedSharding(self.mesh, REPLICAS))

    def init(self, seeds: Sequence[int], rates: Rates | None = None) -> Stack:
        """A new stack with one replica for each of the `seeds`; equal seeds start equal and see the same batches.

        With an optimizer it needs the `rates`, since the optimizer's state may depend on the learning rate.
        """
        stack = self._start(self.place(np.asarray(seeds, np.uint32)))
        if self.optimizer is None:
            return stack
        if rates is None:
            raise ValueError("a stack with an optimizer begins with its rates: init(seeds, rates).")
        state = self._begin(stack.params, rates.learning_rate)
        return stack._replace(optimizer=jax.tree.map(jnp.copy, state))  # it may hold the parameters, which are donated

    def _init_optimizer(self, params: Any, learning_rate: Array) -> Any:
        assert self.optimizer is not None
        with usual_promotion():
            return self.optimizer(learning_rate).init(params)

    def _init(self, seed: Array) -> Stack:
        params, state = self.model.init(jax.random.fold_in(jax.random.key(seed), 0))
        return Stack(params, state, jnp.full((), -1, jnp.int32))

    def rates(self, learning_rates: Sequence[float], mus: Sequence[float] = (), rhos: Sequence[float] = ()) -> Rates:
        """The rates of a stack on the devices: `learning_rates`, and explicit rates `mus` or, for SAM, radii `rhos`."""
        if self.method in (None, "sam") and any(mus):
            raise ValueError("a stack with mu > 0 needs a method with a penalty: exact, forward or central.")
        if self.method != "sam" and any(rhos):
            raise ValueError("a stack with rho > 0 needs the method sam.")
        strengths = (rhos if self.method == "sam" else mus) or [0.0] * len(learning_rates)
        return Rates(*(self.place(np.asarray(values, np.float32)) for values in (learning_rates, strengths)))

    def _permutation(self, seed: Array, epoch: Array) -> Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
        return jax.random.permutation(key, jnp.arange(self.size, dtype=jnp.int32))

    def advance(self, stack: Stack, rates: Rates, seeds: Sequence[int], start: int, stop: int) -> Stack:
        """The stack after the steps `start` ... `stop - 1`. The given one is donated: use the returned one only.

        `rates` and `seeds` are those with which the stack was made. The batch of a step depends on the seed and the
        step alone, so a training may be cut anywhere.
        """
        seeds32 = self.place(np.asarray(seeds, np.uint32))
        order: Any = None
        while start < stop:
            epoch, offset = divmod(start, self.steps_per_epoch)
            count = self._length(start, stop)
            if self.batch_size and (order is None or offset == 0):
                order = self._permute(seeds32, np.int32(epoch))
            stack = self._program(count)(
                stack, rates, seeds32, order, self.data.x, self.data.y, np.int32(offset), np.int32(start)
            )
            start += count
        return stack

    def after(self, programs: int, start: int, stop: int) -> int:
        """The step at which the next `programs` programs from `start`, up to `stop`, have ended.

        A training that is cut there compiles the same programs, and has the same bits.
        """
        while programs and start < stop:
            start, programs = start + self._length(start, stop), programs - 1
        return start

    def _length(self, start: int, stop: int) -> int:
        """The number of steps of the next program from `start`, up to `stop`. Two lengths suffice, so that few are
        compiled.

        A step of models trained in turn takes milliseconds, in which the next one is dispatched: one length suffices.
        """
        left = min(stop - start, self.steps_per_epoch - start % self.steps_per_epoch if self.batch_size else stop)
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
            loss, state, grads = gradient(replica.params, replica.state, self._strength(rate.strength, number), x, y)
            params, optimizer = self._update(rate, loss, grads, replica)
            new = (replica.diverged < 0) & ~jnp.isfinite(loss)
            stack = Stack(params, state, jnp.where(new, number, replica.diverged), optimizer)
            return (stack, number + jnp.int32(1)), None

        with matmul_precision(self.precision):
            (replica, _), _ = jax.lax.scan(step, (replica, start), order, count, unroll=min(self.unroll, count))
        return replica

    def _update(self, rate: Rates, loss: Array, grads: Any, replica: Stack) -> tuple[Any, Any]:
        """The parameters after a step, and the optimizer's state."""
        if self.optimizer is None:
            return jax.tree.map(lambda p, g: p - rate.learning_rate * g, replica.params, grads), ()
        with usual_promotion():
            transformation = optax.with_extra_args_support(self.optimizer(rate.learning_rate))
            updates, state = transformation.update(grads, replica.optimizer, replica.params, value=loss, grad=grads)
            return optax.apply_updates(replica.params, updates), state

    def _strength(self, strength: Array, number: Array) -> Array:
        """The explicit rate, or the radius, at a step."""
        if (self.every, self.warm_up) == (1, 0):
            return strength
        acts = (number % jnp.int32(self.every) == 0) & (number >= self.warm_up)
        return jnp.where(acts, np.float32(self.every) * strength, jnp.zeros_like(strength))

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
