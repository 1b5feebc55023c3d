"""The losses of the explorer, as the library takes them: functions of two parameters.

The page has the same formulas in JavaScript, with their derivatives written out; `tests/lab/explorer` compares the two.
"""

import jax.numpy as jnp

from igr._typing import Scalar

POINTS = ((-2.0, -1.2), (-1.0, -1.0), (0.5, 0.7), (1.0, 1.0), (2.0, 0.9))  # what the network is to fit: (x, y)


def product(p: Scalar) -> Scalar:
    r"""The paper's two-parameter model, $E(a, b) = (0.6 - a b)^2 / 2$: its minima are a line.

    >>> round(float(product(jnp.array([2.0, 3.0]))), 4)
    14.58
    """
    return (0.6 - p[0] * p[1]) ** 2 / 2


def two_valleys(p: Scalar) -> Scalar:
    r"""A sharp minimum at (-1, 0) and a flat one at (1, 0), $E(a, b) = (a^2 - 1)^2 / 4 + 2 e^{-0.7 a} b^2$.

    Its Hessian there is diagonal, with entries 2 and $4 e^{-0.7 a}$: 8.06 in the sharp valley, 1.99 in the flat one.

    >>> float(two_valleys(jnp.array([0.0, 1.0])))
    2.25
    """
    return (p[0] ** 2 - 1) ** 2 / 4 + 2 * jnp.exp(-0.7 * p[0]) * p[1] ** 2


def curved_valley(p: Scalar) -> Scalar:
    r"""A valley like Rosenbrock's, steep across, slow along its floor: $E(a, b) = (1 - a)^2 / 2 + 5 (b - a^2)^2 / 2$.

    >>> float(curved_valley(jnp.array([0.0, 1.0])))
    3.0
    """
    return (1 - p[0]) ** 2 / 2 + 5 * (p[1] - p[0] ** 2) ** 2 / 2


def network(p: Scalar) -> Scalar:
    r"""Half the mean squared error of $f(x) = 2 \tanh(a x) - \tanh(b x)$ on the five `POINTS`.

    >>> round(float(network(jnp.array([0.0, 0.0]))), 3)
    0.474
    """
    x, y = jnp.array(POINTS).T
    return jnp.mean((2 * jnp.tanh(p[0] * x) - jnp.tanh(p[1] * x) - y) ** 2) / 2
