"""Curvature of a model's loss: the largest eigenvalue of its Hessian by the Lanczos method."""

# pyright: reportMissingImports=false
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from igr.torch.checks import is_count
from igr.torch.quantities import Closure, Point, num_params
from igr.torch.tensors import Gradients, wide

Vector = list[Tensor]


class Sharpness(NamedTuple):
    """The largest eigenvalue of a Hessian: `value`, a bound on its `error`, its eigenvector for a warm start."""

    value: float
    error: float
    vector: Vector


class Ritz(NamedTuple):
    """Eigenvalues in ascending order, their shares of the squared start vector, residuals, and the top one's vector."""

    values: Tensor
    weights: Tensor
    residuals: Tensor
    vector: Vector


def check_products(products: Any) -> None:
    """Refuse a number of Hessian-vector products below one."""
    if not is_count(products, 1):
        raise ValueError(f"products must be a positive whole number of Hessian products, but it is {products!r}.")


def sharpness(
    model: nn.Module,
    closure: Closure,
    *,
    products: int = 24,
    start: Vector | None = None,
    microbatches: Iterable[Any] | None = None,
) -> Sharpness:
    r"""The sharpness of a loss, the largest eigenvalue of its Hessian, by the Lanczos method.

    $$\lambda_{\max}(\nabla^2 E(\theta)), \qquad |\lambda - \text{value}| \le \text{error for one eigenvalue } \lambda$$

    `closure` and `microbatches` as for `igr.torch.regularizer`, the rest as for `igr.sharpness`: `products` is the
    number of Hessian-vector products (about three gradients each, and one vector of memory each), `start` a vector to
    begin with: pass the last `vector` while training, and 3 or 4 products are enough. The loss is differentiated twice,
    without flash attention, cuDNN's RNNs and `torch.compile`.

    >>> import torch
    >>> model = torch.nn.Linear(3, 1, bias=False).double()
    >>> E = lambda: (torch.tensor([4.0, 1.0, -9.0]) * model.weight**2).sum() / 2
    >>> found = sharpness(model, E)
    >>> round(found.value, 6), found.error < 1e-6
    (4.0, True)
    """
    check_products(products)
    point = Point(model, closure, microbatches)
    found = lanczos(point, start or random_like(point.params), min(products, num_params(model)))
    return Sharpness(float(found.values[-1]), float(found.residuals[-1]), found.vector)


def dense(vector: Gradients, params: list[Tensor]) -> Vector:
    """The vector in float32 or better, with zeros in place of None."""
    dtype = wide(params)
    return [torch.zeros_like(p, dtype=dtype) if v is None else v.to(dtype) for v, p in zip(vector, params, strict=True)]


def random_like(params: list[Tensor], seed: int = 0) -> Vector:
    """A Gaussian vector, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    dtype = wide(params)
    return [torch.randn(p.shape, dtype=dtype, generator=generator).to(p.device) for p in params]


def dot(a: Vector, b: Vector) -> Tensor:
    """The inner product, on the device of the first tensors."""
    home = a[0].device
    return torch.stack([(x * y).sum().to(home) for x, y in zip(a, b, strict=True)]).sum()


def norm(a: Vector) -> Tensor:
    """The Euclidean norm."""
    return dot(a, a).sqrt()


def add(a: Vector, factor: Any, b: Vector) -> Vector:
    """A + factor b."""
    return [x + (factor.to(x.device) if isinstance(factor, Tensor) else factor) * y for x, y in zip(a, b, strict=True)]


@torch.no_grad()
def lanczos(point: Point, start: Vector, steps: int) -> Ritz:
    r"""Eigenvalues of the Hessian in the space of $v, Hv, \dots, H^{k-1}v$, with full reorthogonalization.

    $$H q_j = \beta_{j-1} q_{j-1} + \alpha_j q_j + \beta_j q_{j+1}$$

    Reference: Parlett, The Symmetric Eigenvalue Problem, chapter 13.
    """
    params, length = point.params, norm(start)
    basis, alphas, betas = [add(start, 1 / length - 1, start)], [], []
    largest = 0.0
    for _ in range(steps):
        q = basis[-1]
        product = point.product([x.to(p.dtype) for x, p in zip(q, params, strict=True)])
        w = dense(product, params)
        largest = max(largest, float(norm(w)))
        alphas.append(float(dot(q, w)))
        for _ in range(2):  # twice is enough, and once is not
            for other in basis:
                w = add(w, -dot(w, other), other)
        beta = float(norm(w))
        betas.append(beta)
        if beta <= 100 * torch.finfo(w[0].dtype).eps * largest:  # the space is exhausted
            betas[-1] = 0.0
            break
        basis.append(add(w, 1 / beta - 1, w))
    off = torch.tensor(betas[:-1], dtype=torch.float64)
    matrix = torch.diag(torch.tensor(alphas, dtype=torch.float64)) + torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(matrix)
    top = [torch.zeros_like(x) for x in start]
    for coefficient, q in zip(vectors[:, -1].tolist(), basis, strict=False):
        top = add(top, coefficient, q)
    return Ritz(values, vectors[0] ** 2, betas[-1] * vectors[-1].abs(), top)
