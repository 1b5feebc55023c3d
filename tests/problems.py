"""Losses and fields with known answers, shared by the tests. All float64."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np


def generic(p):
    """The two-parameter loss of the reference values: no symmetry, not a quadratic, not a sum."""
    a, b = p
    return 0.5 * (a * b - 0.6) ** 2 + 0.1 * jnp.cos(a + 2 * b) + a**3 / 20


GENERIC_START = jnp.array([1.3, -0.7])
GENERIC_TERMS = np.array(  # f_0 ... f_4 of explicit Euler at that start
    [
        [-1.32048334, 1.94303332],
        [-3.05972129, 2.98437139],
        [-8.25757616, 9.23901331],
        [-29.14281486, 31.80491579],
        [-109.43994242, 120.33913721],
    ]
)


def polynomial(p):
    """A loss on a dictionary of five parameters whose third and fourth derivatives do not vanish."""
    u, v = p["u"], p["v"]
    return (
        0.3 * (u[0] * u[1] - v[0]) ** 2 + 0.2 * jnp.sin(u[1] * v[1]) + 0.1 * (u[2] - v[0] * v[1]) ** 2 + u[0] ** 4 / 12
    )


POLYNOMIAL_START = {"u": jnp.array([0.9, -0.6, 0.4]), "v": jnp.array([0.5, 1.1])}

_X = np.array([[0.3, -1.2], [1.1, 0.4], [-0.7, 0.8], [0.2, 1.5], [-1.3, -0.5]])
_Y = np.array([0.5, -0.9, 1.2, 0.1, -0.4])


def network(p):
    """Least squares of a tanh network with two inputs, three hidden units and thirteen parameters."""
    hidden = jnp.tanh(_X @ p["in"] + p["bias"][None, :])
    return jnp.mean((hidden @ p["out"] + p["shift"] - _Y) ** 2)


NETWORK_START = {
    "in": jnp.array([[0.8, -0.5, 0.3], [0.2, 0.9, -1.1]]),
    "bias": jnp.array([0.1, -0.2, 0.4]),
    "out": jnp.array([1.2, -0.7, 0.9]),
    "shift": jnp.array(0.15),
}

# (name, loss, start): nonlinear, more than two dimensions
LOSSES = [("polynomial", polynomial, POLYNOMIAL_START), ("network", network, NETWORK_START)]

_Q, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 5)))
MATRIX = _Q @ np.diag([2.0, 1.5, 0.9, 0.4, 0.1]) @ _Q.T
QUADRATIC_START = jnp.array([0.7, -1.0, 0.3, 1.4, -0.2])


def quadratic(x):
    """x'Ax/2 with eigenvalues 2, 1.5, 0.9, 0.4, 0.1: the modified field is log(I - hA)/h x."""
    return 0.5 * x @ jnp.asarray(MATRIX) @ x


def lotka_volterra(x):
    """A field that is no gradient."""
    p, q = x
    return jnp.stack([p * (2 - q), q * (p - 1)])


def two_parameter(p):
    """The paper's model on one data point, E = (y - abx)^2 / 2 with x = 1 and y = 0.6."""
    return 0.5 * (0.6 - p[0] * p[1]) ** 2


def mlp_loss(key, sizes=(8, 32, 32, 4), batch=16, activation=jnp.tanh, dtype=jnp.float32):
    """(loss, params, args): cross entropy of a multilayer perceptron on random data."""
    keys = iter(jax.random.split(key, 2 * len(sizes)))
    params = [
        {
            "w": jax.random.normal(next(keys), (a, b), dtype) / np.asarray(a**0.5, dtype),
            "b": 0.1 * jax.random.normal(next(keys), (b,), dtype),
        }
        for a, b in pairwise(sizes)
    ]
    x = jax.random.normal(next(keys), (batch, sizes[0]), dtype)
    labels = jax.nn.one_hot(jnp.arange(batch) % sizes[-1], sizes[-1], dtype=dtype)

    def loss(params, x, labels):
        for layer in params[:-1]:
            x = activation(x @ layer["w"] + layer["b"][None, :])
        logits = x @ params[-1]["w"] + params[-1]["b"][None, :]
        return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits), axis=1))

    return loss, params, (x, labels)


def conv_loss(key, batch=8, side=8, channels=6, dtype=jnp.float32):
    """(loss with aux, params, args): a small convolutional net with batch norm, whose aux is the batch statistics."""
    keys = jax.random.split(key, 5)
    params = {
        "conv1": jax.random.normal(keys[0], (3, 3, 3, channels), dtype) / 5,
        "scale": jnp.ones(channels, dtype),
        "offset": jnp.zeros(channels, dtype),
        "conv2": jax.random.normal(keys[1], (3, 3, channels, channels), dtype) / 7,
        "head": jax.random.normal(keys[2], (channels, 4), dtype) / 2,
    }
    x = jax.random.normal(keys[3], (batch, side, side, 3), dtype)
    labels = jax.nn.one_hot(jnp.arange(batch) % 4, 4, dtype=dtype)

    def loss(params, x, labels):
        def conv(x, w):
            return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

        x = conv(x, params["conv1"])
        mean, var = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
        shape = (1, 1, 1, -1)
        x = (x - mean.reshape(shape)) * jax.lax.rsqrt(var + 1e-5).reshape(shape)
        x = jax.nn.silu(x * params["scale"].reshape(shape) + params["offset"].reshape(shape))
        x = jnp.mean(conv(x, params["conv2"]), (1, 2))
        logits = x @ params["head"]
        value = -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits), axis=1))
        return value, {"mean": mean, "var": var}

    return loss, params, (x, labels)
