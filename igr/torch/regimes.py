"""Is this learning rate inside the theory? The sizes of the corrections at a model's parameters, and a verdict."""

# pyright: reportMissingImports=false
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from igr.torch.checks import check_number
from igr.torch.curvature import Sharpness, Vector, add, check_products, dense, dot, lanczos, norm, random_like
from igr.torch.quantities import Closure, Point, num_params

ORDERS = 3  # errors of the gradient flow, of the modified loss, and of the flow with the second correction


class Regime(NamedTuple):
    r"""What `regime` returns, as `igr.regime` does: numbers, and the verdict as a property.

    `q2` is $h|Hg|/|g|$, `q3` $h|H^2g|/|Hg|$, `cosine` that of two consecutive updates, `h_star` the learning rate where
    the second correction equals the first, `h_lambda` $h\lambda_{\max}$, `errors` the expected relative errors of one
    step by order, `sharpness` $\lambda_{\max}$ with a bound on its error.
    """

    q2: float
    q3: float
    cosine: float
    h_star: float
    h_lambda: float
    errors: tuple[float, ...]
    sharpness: Sharpness

    @property
    def verdict(self) -> Any:
        """The verdict in words, as of `igr.verdict`."""
        from igr.regimes.verdicts import verdict  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

        return verdict(self)


def regime(
    model: nn.Module,
    closure: Closure,
    h: float,
    *,
    products: int = 16,
    start: Vector | None = None,
    microbatches: Iterable[Any] | None = None,
) -> Regime:
    r"""Is this learning rate inside the theory? The size of the corrections, the curvature, and a verdict.

    $$q_2 = \frac{h|Hg|}{|g|}, \quad q_3 = \frac{h|H^2g|}{|Hg|}, \quad h_* = \frac{|f_1|}{|f_2|}, \quad
    h\lambda_{\max}, \qquad f_1 = -\tfrac12 Hg,\ f_2 = -\tfrac13 H^2g - \tfrac1{12}T[g, g]$$

    `h` is the learning rate of plain gradient descent; the other arguments are those of `igr.torch.sharpness`. The
    expected errors are those on a quadratic with the spectrum that the gradient sees, scaled by the true size of $f_2$
    where it is that of order one. $T[g, g]$ is a central difference of two products: trust `h_star` in float32 to a
    few percent. The loss must be that of the full batch, or of one large batch: under gradient noise q2 and the cosine
    mean nothing (`igr.torch.Monitor` has versions that survive it).

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> _ = model.weight.data.copy_(torch.tensor([[0.0, 1.0]]))
    >>> r = regime(model, lambda: (torch.tensor([2.0, 1.0]) * model.weight**2).sum() / 2, 0.1)
    >>> round(r.q2, 6), round(r.h_lambda, 6), round(r.h_star, 6)
    (0.1, 0.2, 1.5)
    """
    check_number("h", h)
    check_products(products)
    point, steps = Point(model, closure, microbatches), min(products, num_params(model))
    params, h = point.params, float(h)
    g = dense(point.gradient, params)
    hg = dense(point.product(point.gradient), params)
    hhg = dense(point.product([v.to(p.dtype) for v, p in zip(hg, params, strict=True)]), params)
    with torch.no_grad():
        third = _third_derivative(point, g)
        f1, f2 = norm(hg) / 2, norm(add([x / 3 for x in hhg], 1 / 12, third))
        after = dense(point.gradient_at(-h, point.gradient), params)
        length, cosine = float(norm(g)), float(dot(g, after) / (norm(g) * norm(after)))
        second, q3 = h * float(norm(hg)) / length, h * float(norm(hhg) / norm(hg))
    seen = lanczos(point, g, steps)
    found = lanczos(point, start or random_like(params), steps)
    best = max(found, seen, key=lambda ritz: float(ritz.values[-1]))  # both are lower bounds
    value = float(best.values[-1])
    beyond = 3 * h**2 * float(f2) / (second * q3 * length) if second * q3 else 0.0
    errors = expected_errors(h * seen.values.numpy(), seen.weights.numpy()) * np.array([1, beyond, beyond])
    sharp = Sharpness(value, float(best.residuals[-1]), found.vector)
    return Regime(second, q3, cosine, float(f1 / f2), h * value, tuple(errors.tolist()), sharp)


def _third_derivative(point: Point, g: Vector) -> Vector:
    """The third derivative of the loss along g twice, by a central difference of products with the Hessian."""
    size = float(norm(dense([p.detach() for p in point.params], point.params)))
    unit = float(torch.finfo(g[0].dtype).eps)
    step = unit ** (1 / 3) * max(min(1.0, size), size / num_params(point.model) ** 0.5) / float(norm(g))
    ahead, behind = (dense(point.product_at(sign * step), point.params) for sign in (1, -1))
    return [(a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)]


def mode_error(x: np.ndarray, order: int) -> np.ndarray:
    r"""The relative error of one step of the truncated modified flow on a quadratic mode with $x = h\lambda$.

    $$e_n(x) = \Big|1 - \frac{1 - e^{-s_n(x)}}{x}\Big|, \qquad s_n(x) = \sum_{k=1}^{n+1} \frac{x^k}{k}$$

    >>> [round(float(mode_error(np.array(0.5), n)), 3) for n in range(4)]
    [0.213, 0.071, 0.027, 0.011]
    """
    safe = np.where(x == 0, 1.0, x)
    kept = sum(x**k / k for k in range(1, order + 2))
    direct = 1 + np.expm1(-np.maximum(kept, -80)) / safe
    # For small x the difference of the two would be rounding: 1 - x = exp(-s_infinity) leaves the tail of the series.
    near = np.clip(x, -0.5, 0.5)
    tail = sum(near**k / k for k in range(order + 2, order + 42))
    return np.abs(np.where(np.abs(x) <= 0.5, (1 - near) * np.expm1(tail) / safe, direct))


def expected_errors(rates: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The relative one-step errors on the quadratic model, by order, from the spectrum the gradient sees."""
    return np.array([np.sqrt(np.sum(weights * mode_error(rates, n) ** 2)) for n in range(ORDERS)])
