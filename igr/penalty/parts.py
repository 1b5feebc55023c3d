"""One step in parts: micro-batches, and devices inside `shard_map`, whose gradients are averaged."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from igr._checks import check_dense
from igr._jax import keeps_account, mesh_axes, varies_over, varying
from igr._typing import RealScalarLike, Scalar
from igr.batches import compensated_sum, split
from igr.calculus import squared_norm
from igr.penalty.program import Point

Axis = str | Sequence[str] | None


class Devices:
    """The mesh axes over which a step is shared, and what that makes of values, gradients and norms.

    Where `shard_map` keeps account of what differs between devices (`check_vma=True`) it also says which parameters
    are sharded. Elsewhere (`check_vma=False`, `jax.vmap`, `jax.pmap`) they are taken to be the same on all devices.
    """

    def __init__(self, axis: Axis, point: Point) -> None:
        self.named = axis is not None
        self.axes = () if axis is None else (axis,) if isinstance(axis, str) else tuple(axis)
        self.known = frozenset(a for a in self.axes if keeps_account(a))
        self.sharded = [varies_over(x) & self.known for x in point]

    def reduced(self, at: Callable[[Point], PyTree]) -> Callable[[Point], PyTree]:
        """`at` of each device's own share, made that of the mean over devices."""
        return (lambda point: self.mean(*at(self.own(point)))) if self.axes else at

    def own(self, point: Point) -> Point:
        """The point such that a gradient there is this device's own."""
        return [varying(x, self.known) for x in point]

    def mean(self, rest: PyTree, gradient: Point, *scalars: Array) -> PyTree:
        """The mean over devices of what each has for itself."""
        energy, aux = rest
        counts = varies_over(energy)  # a loss that is the same everywhere was reduced by its owner
        for a in self.axes:
            size = jax.lax.axis_size(a) if a in counts or a not in self.known else 1
            gradient = [
                g / jnp.asarray(size, g.dtype) if a in fixed else jax.lax.psum(g, a) / jnp.asarray(size, g.dtype)
                for g, fixed in zip(gradient, self.sharded, strict=True)
            ]
            energy = jax.lax.pmean(energy, a) if size > 1 or a in counts else energy
            scalars = tuple(jax.lax.pmean(s, a) if a in varies_over(s) or a not in self.known else s for s in scalars)
        return ((energy, aux), gradient, *scalars)

    def norm2(self, tree: Point) -> Scalar:
        """The squared norm over all devices' shares."""
        groups: dict[frozenset, list] = {}
        for x, fixed in zip(tree, self.sharded, strict=True):
            groups.setdefault(fixed, []).append(x)
        sums = [_summed(squared_norm(group), fixed) for fixed, group in groups.items()]
        return sum(sums[1:], start=sums[0])

    def count(self, tree: Point) -> int:
        """The number of parameters on all devices."""
        total = 0
        for x, fixed in zip(tree, self.sharded, strict=True):
            copies = 1
            for a in fixed:
                copies *= jax.lax.axis_size(a)
            total += jnp.size(x) * copies
        return total

    def check(self, gradient: Point, energy: RealScalarLike) -> None:
        """Refuse, inside `shard_map`, a gradient that differs between devices along an axis that was not named.

        Its norm would be the shard's. Along such an axis devices may have networks of their own, and then their losses
        differ too; `axis=()` says so of all axes.
        """
        if self.named and not self.axes:
            return
        for a in sorted(mesh_axes() - set(self.axes)):
            if not keeps_account(a):
                if self.named:
                    continue
                raise ValueError(
                    f"inside shard_map with check_vma=False it is not known what is shared along {a!r}: pass "
                    f"axis={a!r} if the loss is this device's own mean, or axis=() if each device has its own network."
                )
            if any(a in varies_over(g) for g in gradient) and not (self.named and a in varies_over(energy)):
                names = (*self.axes, a) if self.named else a
                raise ValueError(
                    f"inside shard_map the gradient differs along the mesh axis {a!r}, and so would its norm: pass "
                    f"axis={names!r} if the devices share one network, or axis=() if each has its own."
                )

    def check_each(self, energy: RealScalarLike) -> None:
        """Refuse a penalty on each device's gradient where a device has none of its own."""
        for a in self.known:
            if any(a in fixed for fixed in self.sharded):
                raise ValueError(
                    f'penalize="each" needs parameters that are the same on every device along {a!r}, but some are '
                    'sharded over it: use penalize="mean".'
                )
            if a not in varies_over(energy):
                raise ValueError(
                    f'penalize="each" needs a loss that is each device\'s own mean along {a!r}, but it is already '
                    "the same everywhere: leave its pmean out."
                )


def _summed(value: Array, axes: frozenset) -> Array:
    return jax.lax.psum(value, tuple(sorted(axes))) if axes else value


def check_split(data: tuple, count: int) -> int:
    """The size of a micro-batch; refuse data that do not split into `count` equal ones."""
    check_dense("microbatches", data)
    lengths = {jnp.shape(x)[0] for x in jax.tree.leaves(data) if jnp.ndim(x)}
    if not lengths:
        raise ValueError(
            "microbatches splits arrays given by position, and there are none: pass the batch by position."
        )
    if len(lengths) != 1:
        raise ValueError(
            "microbatches needs positional arguments whose arrays all have the same leading axis (the examples), "
            f"but their leading axes are {sorted(lengths)}: pass what is no data by name."
        )
    (length,) = lengths
    if not length or length % count:
        raise ValueError(f"microbatches = {count} does not divide the batch of {length} examples.")
    return length // count


def over_microbatches(function: Callable, data: tuple, count: int) -> tuple[PyTree, PyTree]:
    """For `function(*batch) -> (a, aux)`: (the mean of a over micro-batches, aux of each along a new leading axis)."""
    size = check_split(data, count)
    leaves, structure = jax.tree.flatten(data)
    _, parts = split([x for x in leaves if jnp.ndim(x)], count, size)

    def of(batch: list) -> PyTree:
        given = iter(batch)
        return function(*structure.unflatten([next(given) if jnp.ndim(x) else x for x in leaves]))

    (total, shapes), aux = compensated_sum(of, parts)
    return jax.tree.map(lambda t, s: (t / count).astype(s.dtype), total, shapes), aux
