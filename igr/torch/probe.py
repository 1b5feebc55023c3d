"""What a program computes, seen while it runs: the rounding of its products, and whether its gradient has kinks."""

# pyright: reportMissingImports=false
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "linear", "convolution")
_PRODUCT_PARTS = ("conv", "scaled_dot_product", "attention", "rnn", "lstm", "gru")
# TensorFloat-32 has ten bits of mantissa.
_TF32 = 2.0**-10

# Operations whose derivative jumps where what they are applied to varies continuously.
_KINKS = {
    *("relu", "relu_", "relu6", "prelu", "_prelu_kernel", "leaky_relu", "leaky_relu_", "rrelu_with_noise"),
    *("hardtanh", "hardtanh_", "hardsigmoid", "hardsigmoid_", "hardswish", "hardswish_", "threshold", "threshold_"),
    *("abs", "abs_", "clamp", "clamp_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_", "hardshrink"),
    *("softshrink", "max", "min", "amax", "amin", "maximum", "minimum", "fmax", "fmin", "aminmax", "median", "cummax"),
    *("sort", "topk", "argmax", "argmin", "argsort", "kthvalue", "sign", "sgn", "floor", "ceil", "round", "trunc"),
    *("gt", "ge", "lt", "le", "fmod", "remainder", "bucketize", "searchsorted", "heaviside", "_cdist_forward"),
}
_KINK_PARTS = ("max_pool", "glu_jvp", "margin_loss")
# As in JAX: a positive bound up to this one, of what is not negative, guards against a division by zero.
_TINY = 1e-4
_GUARDS = ("clamp", "clamp_", "clamp_min", "clamp_min_", "gt", "ge", "lt", "le")


class Probe(TorchDispatchMode):
    """Records the coarsest rounding unit of the products, and operations whose derivative jumps.

    Only operations on tensors that depend on the parameters count: ReLU of the data has no kink in the parameters. A
    mask or an index counts where it meets such a tensor again: an accuracy computed beside the loss has none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unit = 0.0
        self.kinks: set[str] = set()
        self._steps: dict[int, Tensor] = {}  # masks, indices and what is made of them, by their memory

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[-1]
        inputs = [t for t in _tensors((args, kwargs)) if t.is_floating_point()]
        if any(t.requires_grad for t in inputs):
            if name in _PRODUCTS or any(part in name for part in _PRODUCT_PARTS):
                self.unit = max(self.unit, *(_unit(t, name) for t in inputs))
            if (name in _KINKS or _has_kinks(name, args)) and not _is_guard(name, args, kwargs):
                return self._jump(name, func(*args, **kwargs))
        if self._steps and any(_memory(t) in self._steps for t in _tensors((args, kwargs))):
            if any(t.requires_grad for t in inputs):
                self.kinks.add(name)
            else:
                return self._follow(func(*args, **kwargs))
        return func(*args, **kwargs)

    def _jump(self, name: str, found: Any) -> Any:
        outputs = [*_tensors(found)]
        values = any(t.is_floating_point() for t in outputs)
        if values or not all(map(_memory, outputs)) or torch._C._current_graph_task_id() != -1:  # in a backward pass
            self.kinks.add(name)
            return found
        return self._follow(found)

    def _follow(self, found: Any) -> Any:
        self._steps |= {_memory(t): t for t in _tensors(found)}
        return found


@contextmanager
def recording() -> Iterator[Probe]:
    """Record what is computed; compiled functions run eagerly meanwhile, or nothing of them would be seen."""
    probe = Probe()
    with torch.compiler.set_stance("force_eager"), probe:
        yield probe


def _has_kinks(name: str, args: Any) -> bool:
    """Whether an operation with arguments like these has kinks."""
    if "reduce" in name:  # of scattered values: by their maximum, say
        return any(isinstance(a, str) and a in ("amax", "amin", "max", "min") for a in args)
    return any(part in name for part in _KINK_PARTS) or _meets_at_a_corner(name, args)


def _meets_at_a_corner(name: str, args: Any) -> bool:
    """Whether `elu(x, alpha, scale, input_scale)` has two different derivatives at zero, as SELU does."""
    if name not in ("elu", "elu_"):
        return False
    alpha, _, input_scale = [*args[1:], 1, 1, 1][:3] if len(args) < 4 else args[1:4]
    return alpha * input_scale != 1


def _is_guard(name: str, args: Any, kwargs: Any) -> bool:
    """Whether a bound is there against a division by zero only, as that of `normalize` and its derivative."""
    if name not in _GUARDS:
        return False
    tensor, least, most = [*args, None, None][:3]
    least, most = kwargs.get("min", least), kwargs.get("max", most)
    least = float(least) if isinstance(least, Tensor) and least.numel() == 1 and not least.requires_grad else least
    return isinstance(least, int | float) and 0 < least <= _TINY and most is None and bool((tensor.detach() >= 0).all())


def _memory(tensor: Tensor) -> int:
    """Where a tensor and its views have their numbers; 0 where that is not known."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0


def _unit(tensor: Tensor, name: str) -> float:
    unit = float(torch.finfo(tensor.dtype).eps)
    if tensor.dtype == torch.float32 and tensor.device.type == "cuda" and _rounds_to_tf32("conv" in name):
        return max(unit, _TF32)
    return unit


def _rounds_to_tf32(convolution: bool) -> bool:
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(cuda, "fp32_precision"):  # PyTorch 2.9 and later
        return (cudnn.conv.fp32_precision if convolution else cuda.fp32_precision) == "tf32"
    return bool(cudnn.allow_tf32 if convolution else cuda.allow_tf32)


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
    elif isinstance(tree, list | tuple):
        for leaf in tree:
            yield from _tensors(leaf)
