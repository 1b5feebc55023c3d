"""R_IG, its rate lambda, and the modified loss that gradient descent follows."""

import jax
import jax.numpy as jnp
import numpy as np

from igr._checks import check_finite, check_params
from igr._typing import Loss, LossValue, Params, RealScalarLike
from igr.calculus import squared_norm, value_and_gradient


def num_params(params: Params) -> int:
    """The number m of parameters in `params`, counted over all leaves.

    >>> import jax.numpy as jnp
    >>> num_params({"w": jnp.zeros((3, 4)), "b": jnp.zeros(4)})
    16
    """
    check_params(params)
    return sum(jnp.size(leaf) for leaf in jax.tree.leaves(params))


def implicit_rate(h: RealScalarLike, params: Params | int) -> RealScalarLike:
    r"""The implicit regularization rate for a learning rate `h` and `params`, or their number m instead of them.

    $$\lambda = \frac{h m}{4}$$

    It multiplies $R_{IG}$, which is divided by m, so the product $\lambda R_{IG} = \frac h4 |\nabla E|^2$ does not
    depend on m. The number m must be an integer: 200.0 could be a parameter, and is refused.
    Barrett & Dherin (2021), Equation 3.

    >>> implicit_rate(0.1, 200)
    5.0
    """
    check_finite("h", h)
    if isinstance(params, float | np.floating):
        raise TypeError(f"the number of parameters must be a whole number, not {type(params).__name__}.")
    m = int(params) if isinstance(params, int | np.integer) and not isinstance(params, bool) else num_params(params)
    if m < 1:
        raise ValueError(f"the number of parameters must be positive, but it is {m}.")
    return h * m / 4


def squared_gradient(loss: Loss, has_aux: bool = False) -> Loss:
    r"""The squared norm of the gradient of `loss`, $|\nabla E(\theta)|^2$; with `has_aux` a pair (norm, aux)."""
    both = value_and_gradient(loss, has_aux)

    def value(params: Params, *args: object, **kwargs: object) -> LossValue:
        out, grads = both(params, *args, **kwargs)
        return (squared_norm(grads), out[1]) if has_aux else squared_norm(grads)

    return value


def regularizer(loss: Loss, has_aux: bool = False) -> Loss:
    r"""The implicit gradient regularizer: the mean square of the gradient's entries.

    $$R_{IG}(\theta) = \frac1m \sum_{i=1}^m (\nabla_{\theta_i} E(\theta))^2 = \frac{|\nabla E(\theta)|^2}{m}$$

    Over a data set use `regularizer(full_batch(loss, size))`: the gradient is averaged first, then squared. With
    `has_aux` the result is a pair `(R, aux)`. Barrett & Dherin (2021), Equation 4.

    >>> import jax.numpy as jnp
    >>> E = lambda p: 0.5 * (0.6 - p[0] * p[1]) ** 2
    >>> p = jnp.array([2.0, 0.5])
    >>> R, closed_form = regularizer(E)(p), (2.0**2 + 0.5**2) * E(p)
    >>> bool(jnp.allclose(R, closed_form))
    True
    """
    square = squared_gradient(loss, has_aux)

    def value(params: Params, *args: object, **kwargs: object) -> LossValue:
        m = num_params(params)
        if has_aux:
            norm2, aux = square(params, *args, **kwargs)
            return norm2 / m, aux
        return square(params, *args, **kwargs) / m

    return value


def modified_loss(loss: Loss, h: RealScalarLike, has_aux: bool = False) -> Loss:
    r"""The loss whose gradient flow gradient descent follows, up to a local error of order $h^3$.

    $$\tilde E(\theta) = E(\theta) + \lambda R_{IG}(\theta) = E(\theta) + \frac h4 |\nabla E(\theta)|^2$$

    Explicit regularization $E + \mu |\nabla E|^2$ has the same form with $\mu = h/4$. With `has_aux` the result is a
    pair (modified loss, aux). Barrett & Dherin (2021), Equation 2 and Theorem 3.1.

    >>> import jax.numpy as jnp
    >>> float(modified_loss(lambda x: x**2, h=0.5)(jnp.array(1.0)))  # 1 + 0.5 / 4 * 2**2
    1.5
    """
    check_finite("h", h)
    both = value_and_gradient(loss, has_aux)

    def value(params: Params, *args: object, **kwargs: object) -> LossValue:
        out, grads = both(params, *args, **kwargs)
        energy = out[0] if has_aux else out
        norm2 = squared_norm(grads)
        modified = energy + (jnp.asarray(h).astype(norm2.dtype) / 4 * norm2).astype(energy.dtype)
        return (modified, out[1]) if has_aux else modified

    return value
