"""The penalty in the style of `torch.func`: functions of a tree of parameters, as `igr.value_and_grad` in JAX."""

# pyright: reportMissingImports=false
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import grad_and_value, vjp
from torch.utils import _pytree as pytree

from igr.torch.checks import Method, check_choice, check_number, check_radius, is_zero
from igr.torch.exact import Corrected
from igr.torch.passes import plain
from igr.torch.probe import recording
from igr.torch.radius import default_radius, side
from igr.torch.state import Randomness
from igr.torch.tensors import wide

Value = Literal["loss", "penalized"]


def value_and_grad(
    loss: Callable[..., Any],
    mu: Any,
    method: Method = "exact",
    has_aux: bool = False,
    *,
    value: Value = "loss",
    with_norm: bool = False,
    radius: Any = None,
) -> Callable[..., tuple[Any, Any]]:
    r"""The value of a loss and the gradient of its penalized form, the twin of `igr.value_and_grad`.

    $$\nabla\big(E + \mu |\nabla E|^2\big) = g + 2\mu H g, \qquad g = \nabla E,\ H = \nabla^2 E$$

    `loss(params, *args)` returns one real number, or a pair of it and something else with `has_aux`; `params` is a
    tensor or a tree of tensors, such as the dictionary for `torch.func.functional_call`. Returns what the twin does:
    `(E, gradient)`, or `((E, aux), gradient)`; `value="penalized"` gives $E + \mu|g|^2$, and `with_norm=True` puts
    $|g|^2$ beside aux. The methods and the default `radius` are those of the twin. Every pass draws the same random
    numbers, and aux comes from the unperturbed one.

    >>> import torch
    >>> E = lambda x: x**2 / 2
    >>> value, grads = value_and_grad(E, mu=0.25)(torch.tensor(2.0))  # E = 2, gradient (1 + 2 mu) x
    >>> float(value), float(grads)
    (2.0, 3.0)
    """
    check_choice("method", method, Method)
    check_choice("value", value, Value)
    check_number("mu", mu)
    check_radius(radius)
    strength, seen = plain(mu), []

    def gradient(params: Any, *args: object, **kwargs: object) -> tuple[Any, Any]:
        return grad_and_value(loss, has_aux=has_aux)(params, *args, **kwargs)

    def evaluate(params: Any, *args: object, **kwargs: object) -> tuple[Any, Any]:
        leaves, spec = _checked(params)
        random = Randomness(leaves)

        def at(p: list[Tensor]) -> list[Tensor]:
            random.restore()
            return pytree.tree_leaves(gradient(pytree.tree_unflatten(p, spec), *args, **kwargs)[0])

        if method == "exact" and not is_zero(strength):
            with Corrected():
                grads, product, out = vjp(  # pyright: ignore[reportAssignmentType] (three with has_aux)
                    lambda p: gradient(p, *args, **kwargs), params, has_aux=True
                )
            (hg,) = product(grads)
        else:
            grads, out = gradient(params, *args, **kwargs)
            hg = None
        end, g = Randomness(leaves), pytree.tree_leaves(grads)
        norm2 = _norm2(g)
        if is_zero(strength):
            penalized = g
        elif hg is not None:
            penalized = [a + 2 * strength * b for a, b in zip(g, pytree.tree_leaves(hg), strict=True)]
        else:
            if radius is None and not seen:
                random.restore()
                seen.append(_probed(loss, params, args, kwargs))
            length = default_radius(leaves, _norm2(leaves), seen[0], method) if radius is None else plain(radius)
            if radius is None and method == "forward":
                length = length * side(norm2)
            eps = length / torch.where(norm2 > 0, norm2.sqrt(), 1.0)
            moved = {sign: at([p + sign * eps * v for p, v in zip(leaves, g, strict=True)]) for sign in _signs(method)}
            if method == "forward":
                c = 2 * strength / eps
                penalized = [a + c * (b - a) for a, b in zip(g, moved[1], strict=True)]
            else:
                c = strength / eps
                penalized = [a + c * (b - d) for a, b, d in zip(g, moved[1], moved[-1], strict=True)]
        end.restore()
        energy, aux = out if has_aux else (out, None)
        if value == "penalized":
            energy = energy + strength * norm2
        extras = ([aux] if has_aux else []) + ([norm2] if with_norm else [])
        first = energy if not extras else (energy, extras[0] if len(extras) == 1 else tuple(extras))
        return first, pytree.tree_unflatten([x.to(p.dtype) for x, p in zip(penalized, leaves, strict=True)], spec)

    return evaluate


def _norm2(tensors: list[Tensor]) -> Tensor:
    """The sum of squares in float32 or better, by operations that `torch.vmap` knows, as it knows no fused ones."""
    dtype = wide(tensors)
    return torch.stack([t.to(dtype).square().sum() for t in tensors]).sum()


def _signs(method: str) -> tuple[int, ...]:
    return (1,) if method == "forward" else (1, -1)


def _checked(params: Any) -> tuple[list[Tensor], Any]:
    leaves, spec = pytree.tree_flatten(params)
    if not leaves:
        raise ValueError("params has no tensors: there is nothing to differentiate.")
    for leaf in leaves:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            raise TypeError(
                f"params has {leaf.dtype if isinstance(leaf, Tensor) else type(leaf).__name__} in it, but the gradient "
                "needs real floating-point tensors: cast it, or keep it out of params."
            )
    return leaves, spec


def _probed(loss: Callable[..., Any], params: Any, args: Any, kwargs: Any) -> Any:
    """What the loss computes: run once more, outside of the transformations of `torch.func`."""
    try:
        ours = pytree.tree_map(lambda p: p.detach().requires_grad_(), params)
    except RuntimeError as error:
        raise ValueError("inside of torch.vmap and its like there is no default radius: pass radius=...") from error
    with torch.enable_grad(), recording() as probe:
        loss(ours, *args, **kwargs)
    return probe
