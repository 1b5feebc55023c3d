"""Arithmetic on lists of parameters and gradients: fused, without waiting for the device, shard by shard."""

# pyright: reportMissingImports=false, reportPrivateImportUsage=false
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Gradients = list[Tensor | None]
# One times a number of these is the number, bit for bit.
MULTIPLIED_EXACTLY = {torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32}


def modules(model: nn.Module) -> list[nn.Module]:
    """All modules, each once, in the order of `model.modules()`, which takes ten times as long.

    A step of a GPU that waits for its launches waits for this, too.
    """
    found, waiting = {}, [model]
    while waiting:
        module = waiting.pop()
        if id(module) in found:
            continue
        found[id(module)] = module
        if module._modules:
            waiting += [child for child in reversed(module._modules.values()) if child is not None]
    return list(found.values())


def trainable(model: nn.Module) -> list[Tensor]:
    """The parameters that take a gradient, each once."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}.")
    named = {id(p): p for m in modules(model) if m._parameters for p in m._parameters.values() if p is not None}
    params: list[Tensor] = [p for p in named.values() if p.requires_grad]
    if not params:
        raise ValueError("model has no parameter with requires_grad=True: there is nothing to differentiate.")
    if any(p.dtype.is_complex for p in params):
        raise TypeError("model has complex parameters, but the penalty needs real ones.")
    if any(p.is_meta for p in params):
        raise ValueError(
            "model has parameters on the meta device, which have no values: call model.to_empty(device=...) and "
            "initialize them first."
        )
    return params


def present(*gradients: Gradients) -> tuple[list[Tensor], ...]:
    """The entries that are tensors in all of the lists."""
    if not any(any_missing(each) for each in gradients):
        return tuple([list(each) for each in gradients])  # pyright: ignore[reportReturnType]
    rows = [row for row in zip(*gradients, strict=True) if all(g is not None for g in row)]
    return tuple([g for row in rows if (g := row[i]) is not None] for i in range(len(gradients)))


def any_present(gradients: Gradients) -> bool:
    """Whether any parameter has a gradient."""
    return any(g is not None for g in gradients)


def any_missing(gradients: Gradients) -> bool:
    """Whether any parameter has none."""
    return any(g is None for g in gradients)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that is on this device: all of it, or the shard of a DTensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # pyright: ignore[reportAttributeAccessIssue]


def gradients(model: nn.Module, params: Sequence[Tensor]) -> Gradients:
    """What is in `.grad`."""
    found: Gradients = [p.grad for p in params]
    if any(g is not None and g.layout is not torch.strided for g in found):
        names = {id(p): name for name, p in model.named_parameters()}
        sparse = next(names[id(p)] for p in params if p.grad is not None and p.grad.layout != torch.strided)
        raise TypeError(
            f"the gradient of {sparse} is sparse, but differences of gradients need dense ones: use sparse=False."
        )
    return found


def take_gradients(model: nn.Module, params: Sequence[Tensor]) -> Gradients:
    """Move the gradients out of `.grad`, which is None afterwards."""
    taken = gradients(model, params)
    if not any_present(taken):
        return taken
    for p in params:
        p.grad = None
    # The reducer of DistributedDataParallel may keep gradients as views of its buckets, which the next pass overwrites.
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        (found,) = present(taken)
        if not any(hasattr(g, "placements") for g in found):  # shards have no buckets
            kept = iter(copies(found))
            return [None if g is None else next(kept) for g in taken]
    return taken


def put_gradients(params: Sequence[Tensor], gradients: Gradients) -> None:
    """Set `.grad`."""
    for p, g in zip(params, gradients, strict=True):
        p.grad = g


def weighted_sum(*terms: tuple[Any, Gradients]) -> Gradients:
    """The sum of factor times gradients; None counts as zero. What is summed is overwritten."""
    total: Gradients | None = None
    with torch.no_grad():
        for factor, gradients in terms:
            if not (isinstance(factor, int) and factor == 1):
                scale_(present(gradients)[0], factor)
            if total is None:
                total = gradients
                continue
            ours, theirs = present(total, gradients)
            Kinds(ours).apply(torch._foreach_add_, ours, theirs)
            total = [b if a is None else a for a, b in zip(total, gradients, strict=True)]
    return total or []


@torch.no_grad()
def add_difference(gradients: Gradients, factor: Any, there: Gradients, here: Gradients) -> Gradients:
    """Gradients + factor (there - here); None counts as zero. The gradients and those there are overwritten."""
    if any(map(any_missing, (gradients, there, here))):  # something is not used, or not in every pass
        rows = [_zero_for_none(*row) for row in zip(gradients, there, here, strict=True)]
        gradients, there, here = ([*each] for each in zip(*rows, strict=True))
    ours, theirs, others = present(gradients, there, here)

    def add(ours: list[Tensor], theirs: list[Tensor], others: list[Tensor]) -> None:
        torch._foreach_sub_(theirs, others)
        torch._foreach_mul_(theirs, on(factor, theirs[0].device))
        torch._foreach_add_(ours, theirs)

    Kinds(ours).apply(add, ours, theirs, others)
    return gradients


def _zero_for_none(*row: Tensor | None) -> tuple[Tensor | None, ...]:
    """Zeros in place of None, unless all are None."""
    like = next((t for t in row if t is not None), None)
    return row if like is None else tuple(torch.zeros_like(like) if t is None else t for t in row)


def average(gradients: Gradients, params: Sequence[Tensor], group: Any) -> Gradients:
    """The mean of the gradients over the processes of a group; a parameter unused here counts as zero."""
    full = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, params, strict=True)]
    for (members,) in Kinds(full).split(full):
        flat = torch.cat([t.reshape(-1) for t in members])
        torch.distributed.all_reduce(flat, group=group)
        flat /= torch.distributed.get_world_size(group)
        parts = flat.split([t.numel() for t in members])
        copy_(members, [part.view_as(t) for t, part in zip(members, parts, strict=True)])
    return [*full]


@torch.no_grad()
def squared_norm(tensors: Iterable[Tensor], *, kinds: "Kinds | None" = None) -> Tensor:
    """The sum of squares over all tensors, in float32 or better; of a sharded tensor over all its shards."""
    tensors = list(tensors)
    kinds, dtype, parts = kinds or Kinds(tensors), wide(tensors), []
    for (members,), first in zip(kinds.split(tensors), kinds.firsts, strict=True):
        norms = list(torch._foreach_norm(members, 2, dtype=dtype))
        part = (torch.stack(norms) if len(norms) > 1 else norms[0]).square().sum()
        for group in shard_groups(first):
            torch.distributed.all_reduce(part, group=group)
        parts.append(part)
    return parts[0] if len(parts) == 1 else torch.stack([part.to(parts[0].device) for part in parts]).sum()


def wide(tensors: Sequence[Tensor]) -> torch.dtype:
    """The dtype of sums: float32, or float64 where a tensor has it."""
    return torch.float64 if any(t.dtype is torch.float64 for t in tensors) else torch.float32


def copies(tensors: Sequence[Tensor], kinds: "Kinds | None" = None) -> list[Tensor]:
    """The values of the tensors (of their shards) in memory of their own."""
    kinds = kinds or Kinds(tensors)
    return kinds.joined([_cloned(members) for (members,) in kinds.split(tensors)])


def _cloned(tensors: list[Tensor]) -> list[Tensor]:
    if hasattr(torch, "_foreach_clone"):  # PyTorch 2.12 and later
        return list(torch._foreach_clone(tensors))
    if tensors[0].dtype in MULTIPLIED_EXACTLY:
        return list(torch._foreach_mul(tensors, 1))
    return [t.clone() for t in tensors]


def copy_(targets: Sequence[Tensor], sources: Sequence[Tensor], kinds: "Kinds | None" = None) -> None:
    """Targets = sources."""
    (kinds or Kinds(targets)).apply(torch._foreach_copy_, targets, sources)


def scale_(tensors: Sequence[Tensor], factor: Any) -> None:
    """Tensors = factor tensors, with a factor that may be on the device."""
    Kinds(tensors).apply(lambda ours: torch._foreach_mul_(ours, on(factor, ours[0].device)), tensors)


def add_scaled_(ours: list[Tensor], factor: Any, theirs: list[Tensor]) -> None:
    """Ours = ours + factor theirs, of one kind."""
    torch._foreach_add_(ours, torch._foreach_mul(theirs, on(factor, ours[0].device)))


class Kinds:
    """Tensors sorted by device, dtype and sharding, so that one fused operation takes all of one kind.

    Sorted once, for all lists with tensors of the same kinds at the same places.
    """

    def __init__(self, tensors: Sequence[Tensor]):
        self.firsts, self.places = list(tensors[:1]), None
        if not tensors:
            return
        device, dtype = tensors[0].device, tensors[0].dtype
        # The usual case needs no table, whose keys take a tenth of a millisecond to hash: as long as twenty launches.
        if all(type(t) in (Tensor, nn.Parameter) and t.dtype is dtype and t.device == device for t in tensors):
            return
        table: dict[Any, list[int]] = {}
        for i, t in enumerate(tensors):
            table.setdefault((t.device, t.dtype, _sharding(t)), []).append(i)
        self.places = list(table.values())
        self.firsts = [tensors[places[0]] for places in self.places]

    def split(self, *lists: Sequence[Tensor]) -> Iterable[tuple[list[Tensor], ...]]:
        """For each kind its members of each list, of sharded tensors the parts that are here."""
        if not self.firsts:
            return []
        if self.places is None:
            return [tuple([*each] for each in lists)]
        return [tuple([local(each[i]) for i in places] for each in lists) for places in self.places]

    def joined(self, parts: Sequence[list[Tensor]]) -> list[Tensor]:
        """One list in the order of the tensors, from a list for each kind."""
        if self.places is None:
            return parts[0] if parts else []
        placed = [
            pair for places, part in zip(self.places, parts, strict=True) for pair in zip(places, part, strict=True)
        ]
        return [tensor for _, tensor in sorted(placed, key=lambda pair: pair[0])]

    def apply(self, operation: Callable[..., Any], *lists: Sequence[Tensor]) -> None:
        """The operation on the members of each kind."""
        for members in self.split(*lists):
            operation(*members)


def on(factor: Any, device: torch.device) -> Any:
    """A factor on a device, if it is a tensor."""
    return factor.to(device) if isinstance(factor, Tensor) else factor


def _sharding(tensor: Any) -> Any:
    return (tensor.device_mesh, tensor.placements) if hasattr(tensor, "placements") else None


def shard_groups(tensor: Any) -> list[Any]:
    """The process groups over which a tensor is split."""
    if not hasattr(tensor, "placements"):
        return []
    mesh = tensor.device_mesh
    return [mesh.get_group(i) for i, placement in enumerate(tensor.placements) if placement.is_shard()]
