"""The regime of a learning rate or of an optimizer at a point: every diagnostic in one call."""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from igr._checks import check_finite, check_params, check_same_tree, is_zero
from igr._typing import Field, Loss, Params, RealScalarLike, Scalar, Whole
from igr.calculus import add_scaled, gradient, hvp
from igr.compilation import eagerly_compiled
from igr.modified.euler import modified_coefficients
from igr.regimes.lanczos import dot, lanczos, like, norm, random_like, ratio, ritz
from igr.regimes.response import alternating_response
from igr.regimes.sharpness import Sharpness, check_products, top
from igr.regimes.truncation import expected_errors, mode_error, spectral_rates
from igr.regimes.verdicts import Judgement, verdict
from igr.regularization import num_params

ORDERS = 3  # errors of the gradient flow, of the modified loss, and of the flow with the second correction


class Regime(NamedTuple):
    r"""What `regime` returns: arrays, and the verdict of `igr.regimes.verdicts.verdict` as a property.

    `q2` is $h|Hg|/|g|$, `q3` $h|H^2g|/|Hg|$, `cosine` that of two consecutive updates, `h_star` the learning rate where
    the second correction equals the first, `h_lambda` $h\lambda_{\max}$ in units in which 2 is the stability limit,
    `errors` the expected relative errors of one step by order, `sharpness` $\lambda_{\max}$ with a bound on its error.
    """

    q2: Scalar
    q3: Scalar
    cosine: Scalar
    h_star: Scalar
    h_lambda: Scalar
    errors: Float[Array, " orders"]
    sharpness: Sharpness

    @property
    def verdict(self) -> Judgement:
        """The verdict in words, computed on the host."""
        return verdict(self)


def regime(
    loss: Loss,
    h: Any,  # a number, or an optimizer with init and update
    *,
    mu: RealScalarLike = 0.0,
    products: Whole = 16,
    start: Params | None = None,
    state: PyTree = None,
    burn_in: int = 64,
    memory: int = 128,
) -> PyTree:
    r"""Is this learning rate inside the theory? The size of the corrections, the curvature, and a verdict.

    $$q_2 = \frac{h|Hg|}{|g|}, \quad q_3 = \frac{h|H^2g|}{|Hg|}, \quad h_* = \frac{|f_1|}{|f_2|}, \quad
    h\lambda_{\max}, \quad e_n = \frac{|\theta_1 - \tilde\phi^{(n)}_h(\theta_0)|}{|\theta_1 - \theta_0|}$$

    Called as `regime(loss, h)(params, *args)`, it returns a `Regime`, whose `verdict` is a word and a sentence. The
    function can be jitted; the verdict is computed on the host. `h` is the learning rate of gradient descent, with the
    penalty `mu` $|\nabla E|^2$ if there is one. The errors $e_n$ are exact on quadratics (up to `products` modes; the
    spectrum that the gradient sees comes from the Lanczos method) and scaled by the true size of $f_2$ where it is that
    of order one. `products` is the number of Hessian-vector products for each of two Lanczos runs; `start` warms the
    second, as in `sharpness`.

    `h` may be an optax optimizer instead. Then everything comes from its own iterates after `burn_in` steps from a
    fresh state (none if you pass its live `state`): $q_2 = |\Delta^2\theta|/|\Delta\theta|$,
    $q_3 = |\Delta^3\theta|/|\Delta^2\theta|$, `h_star` as a multiple of the learning rate, and `h_lambda` from the
    optimizer's response to an alternating gradient (`igr.regimes.response`), which covers momentum, Nesterov and
    Adam; `memory` is how many updates back it looks. The loss must be that of the full batch: under gradient noise q2
    and the cosine mean nothing (`monitor` has versions that survive it).

    >>> import jax.numpy as jnp
    >>> E = lambda x: 0.5 * jnp.sum(jnp.array([2.0, 1.0]) * x**2)
    >>> r = regime(E, 0.1)(jnp.array([0.0, 1.0]))
    >>> round(float(r.q2), 6), round(float(r.h_lambda), 6), round(float(r.h_star), 6), r.verdict.word
    (0.1, 0.2, 1.5, 'inside')
    """
    products = check_products(products)
    if hasattr(h, "update") and hasattr(h, "init"):
        if not is_zero(mu):
            raise ValueError("mu goes with a learning rate: for an optimizer pass the penalized loss itself.")
        return _of_optimizer(loss, h, products, start, state, burn_in, memory)
    check_finite("h", h)
    check_finite("mu", mu)
    if state is not None:
        raise ValueError("state goes with an optimizer: a learning rate has none.")
    return _of_descent(loss, h, mu, products, start)


def descent_field(loss: Loss, mu: RealScalarLike = 0.0) -> Field:
    r"""The field of penalized descent, $-(g + 2\mu Hg)$."""
    ascent, product = gradient(loss), hvp(loss)

    def field(params: Params, *args: object, **kwargs: object) -> Params:
        g = ascent(params, *args, **kwargs)
        if not is_zero(mu):
            g = add_scaled(g, 2 * mu, product(params, g, *args, **kwargs))
        return jax.tree.map(jnp.negative, g)

    return field


def _of_descent(loss: Loss, h: RealScalarLike, mu: RealScalarLike, products: int, start: Params | None) -> PyTree:
    field, product = descent_field(loss, mu), hvp(loss)
    ascent, coefficients = gradient(loss), modified_coefficients(field, 2)

    @eagerly_compiled
    def measure(start: Params | None, /, params: Params, *args: object, **kwargs: object) -> Regime:
        params = _checked(params, start)
        steps = min(products, num_params(params))
        f0, f1, f2 = coefficients(params, *args, **kwargs)
        g = ascent(params, *args, **kwargs)

        def apply(v: Params) -> Params:
            return product(params, like(v, params), *args, **kwargs)

        spectrum = ritz(lanczos(apply, g, steps))
        found = top(apply, random_like(params) if start is None else start, steps)
        better = found.value >= spectrum.values[-1]  # both are lower bounds: the larger is the better
        value = jnp.where(better, found.value, spectrum.values[-1])
        sharpness = Sharpness(value, jnp.where(better, found.error, spectrum.residuals[-1]), found.vector)

        rates, weights = spectral_rates(spectrum, h, mu)
        second, third = (jnp.sqrt(jnp.sum(weights * rates**k)) for k in (2, 4))
        after = field(add_scaled(params, h, f0), *args, **kwargs)
        length = norm(f0)
        # The quadratic part of h^2 |f_2| / |f_0| is third / 3: T[g, g] makes the rest.
        rate, penalty = (jnp.asarray(c).astype(value.dtype) for c in (h, mu))
        beyond = ratio(3 * rate**2 * norm(f2), third * length)
        scale = jnp.stack([jnp.ones_like(beyond), beyond, beyond])
        return Regime(
            q2=second,
            q3=ratio(third, second),
            cosine=ratio(dot(f0, after), length * norm(after)),
            h_star=norm(f1) / norm(f2),
            h_lambda=rate * value * (1 + 2 * penalty * jnp.maximum(value, 0)),
            errors=expected_errors(rates, weights, ORDERS) * scale,
            sharpness=sharpness,
        )

    return partial(measure, start)


def _checked(params: Params, start: Params | None) -> Params:
    check_params(params)
    if start is not None:
        check_same_tree("start", start, params)
    return jax.tree.map(jnp.asarray, params)


def _of_optimizer(
    loss: Loss, tx: Any, products: int, start: PyTree, state: PyTree, burn_in: int, memory: int
) -> PyTree:
    ascent, product = gradient(loss), hvp(loss)

    @eagerly_compiled
    def measure(start: Params | None, state: PyTree, /, params: Params, *args: object, **kwargs: object) -> Regime:
        params = _checked(params, start)

        def step(carry: PyTree) -> tuple[PyTree, Params]:
            params, memory = carry
            updates, memory = tx.update(ascent(params, *args, **kwargs), memory, params)
            return (add_scaled(params, 1.0, updates), memory), updates

        carry = (params, tx.init(params) if state is None else state)
        _check_plain(step, carry)
        if state is None:
            carry = jax.lax.fori_loop(0, burn_in, lambda _, c: step(c)[0], carry)
        _, updates = jax.lax.scan(lambda c, _: step(c), carry, length=ORDERS + 1)
        sizes, cosine = _differences(updates)

        here, live = carry
        size = alternating_response(tx, live, ascent(here, *args, **kwargs), here, memory)
        root = jax.tree.map(jnp.sqrt, size)

        def preconditioned(v: Params) -> Params:
            w = product(here, like(jax.tree.map(jnp.multiply, root, v), here), *args, **kwargs)
            return jax.tree.map(lambda r, x: r * x.astype(r.dtype), root, w)

        sharpness = top(preconditioned, random_like(here) if start is None else start, min(products, num_params(here)))
        # Differences of updates carry the rounding of the first: a floor keeps it out of the later ratios.
        ratios = ratio(sizes[1:], jnp.maximum(sizes[:-1], jnp.finfo(sizes.dtype).eps ** 0.5 * sizes[0]))
        means = jnp.exp(jnp.cumsum(jnp.log(ratios)) / (1 + jnp.arange(ORDERS, dtype=sizes.dtype)))
        return Regime(
            q2=ratios[0],
            q3=ratios[1],
            cosine=cosine,
            h_star=1.5 / ratios[1],
            h_lambda=sharpness.value,
            errors=jnp.stack([mode_error(means[n], n) for n in range(ORDERS)]),
            sharpness=sharpness,
        )

    return partial(measure, start, state)


def _check_plain(step: Any, carry: PyTree) -> None:
    """Refuse an optimizer that needs more than gradients, such as a line search."""
    try:
        jax.eval_shape(step, carry)
    except TypeError as error:
        if "required keyword-only argument" not in str(error):
            raise
        raise TypeError(
            "regime calls tx.update(grads, state, params), but this optimizer needs more, as line searches do: "
            "pass the learning rate that it found."
        ) from error


def _differences(updates: Params) -> tuple[Array, Scalar]:
    """The norms of the first to fourth differences of the parameters, and the cosine of the first two updates."""
    steps = [jax.tree.map(lambda u, k=k: u[k], updates) for k in range(ORDERS + 1)]
    cosine = ratio(dot(steps[0], steps[1]), norm(steps[0]) * norm(steps[1]))
    sizes = [norm(steps[0])]
    for _ in range(ORDERS):
        steps = [jax.tree.map(jnp.subtract, b, a) for a, b in pairwise(steps)]
        sizes.append(norm(steps[0]))
    return jnp.stack(sizes), cosine
