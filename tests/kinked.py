"""Functions with kinks and functions that only look as if they had, for tests of what finds and holds them."""

import equinox as eqx
import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.experimental import sparse
from jax.sharding import Mesh, PartitionSpec

X = jnp.linspace(-1, 1, 8, dtype=jnp.float32)
ONES = jnp.ones(8, jnp.float32)
KEY = jax.random.key(0)
MATRIX = 3 * jnp.eye(8, dtype=jnp.float32)
SPARSE = sparse.BCOO.fromdense(MATRIX)
IMAGE = (1, 2, 2, 2)


def kept(key, x):
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)


def repeated(body, start=X):
    """Three steps of a scan whose body closes over the parameters."""
    return lambda x: lax.scan(lambda carry, _: (body(carry, x), None), start, None, length=3)[0]


def with_keys(x):
    """Dropout with a key for each step, and a carry that is a key beside one that depends on the parameters."""

    def step(carry, key):
        x, other = carry
        return (kept(other, jnp.tanh(kept(key, x))), jax.random.split(other)[0]), None

    return lax.scan(step, (x, KEY), jax.random.split(KEY, 3))[0][0]


def rounded(x):
    """The straight-through estimator: a smooth derivative, taken at a rounded value."""
    return x + lax.stop_gradient(jnp.round(x) - x)


def pooled(x):
    return lax.reduce_window(x, -np.inf, lax.max, (2,), (2,), "VALID")


def guarded(x):
    """One over the norms of the columns, and zero where they vanish."""
    norms = jnp.squeeze(jnp.linalg.norm(x.reshape(2, 4), axis=0, keepdims=True).T).reshape(2, 2)
    return jnp.where(norms > 0, 1 / norms, 0)


def entropy(p):
    return jnp.where(p > 0, p * jnp.log(p), 0)


def on_mesh(f):
    mesh = Mesh(np.array(jax.devices()[:1]), ("i",))
    return jax.shard_map(f, mesh=mesh, in_specs=PartitionSpec("i"), out_specs=PartitionSpec("i"))


def cosine(x):
    y = jnp.tanh(x)
    return jnp.sum(x * y) / jnp.maximum(jnp.linalg.norm(x) * jnp.linalg.norm(y), 1e-8)


def softmax(x):
    """Written by hand, without stopping the gradient of the maximum."""
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def log_softmax(x):
    shifted = x - x.max()
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted)))


def layer_norm(x):
    mean = x.mean()
    return (x - mean) / jnp.sqrt(jnp.maximum(jnp.mean((x - mean) ** 2), 1e-5))


def from_elsewhere(x):
    """A kernel of which nothing is known, with a smooth rule of its own."""
    return jax.pure_callback(np.tanh, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@jax.custom_vjp
def foreign(x):
    return from_elsewhere(x)


foreign.defvjp(lambda x: (from_elsewhere(x), x), lambda x, g: (g * from_elsewhere(x),))


@jax.custom_vjp
def own_rule(x):
    return jnp.abs(x)


own_rule.defvjp(lambda x: (jnp.abs(x), x), lambda x, g: (g * jnp.tanh(x),))


KINKED = {
    "which entries are zero": lambda x: sparse.BCOO.fromdense(x, nse=8).data ** 2,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "leaky_relu": jax.nn.leaky_relu,
    "hard_tanh": jax.nn.hard_tanh,
    "abs": jnp.abs,
    "maximum": lambda x: jnp.maximum(x, 0.5),
    "minimum of two that vary": lambda x: jnp.minimum(x, x[::-1]),
    "clip": lambda x: jnp.clip(x, -0.5, 0.5),
    "clamp": lambda x: lax.clamp(jnp.float32(-0.5), x, jnp.float32(0.5)),
    "where": lambda x: jnp.where(x > 0, x, 0),
    "max": jnp.max,
    "max of what is positive": lambda x: jnp.max(jnp.exp(x)),
    "max of two squares": lambda x: jnp.maximum(x**2, x[::-1] ** 2),
    "a positive value against a constant": lambda x: jnp.where(jnp.exp(x) > 1, x, 0),
    "a positive value less a constant": lambda x: jax.nn.relu(jnp.exp(x) - 1),
    "two positive values": lambda x: jnp.where(jnp.exp(x) > x**2, x, 0),
    "sort": lambda x: jnp.sort(x)[:2],
    "top_k": lambda x: lax.top_k(x, 2)[0],
    "the largest by its index": lambda x: x[jnp.argmax(x)],
    "a rounded value": lambda x: rounded(x) ** 2,
    "sign": lambda x: x * jnp.sign(x),
    "floor": lambda x: x * jnp.floor(x),
    "ceil": lambda x: x * jnp.ceil(x),
    "remainder": lambda x: lax.rem(x, ONES) ** 2,
    "max-pooling": pooled,
    "flax max_pool": lambda x: flax.linen.max_pool(x.reshape(IMAGE), (2, 2)),
    "equinox MaxPool2d": lambda x: eqx.nn.MaxPool2d(2)(x.reshape(2, 2, 2)),
    "huber_loss": lambda x: optax.huber_loss(x, ONES),
    "hinge_loss": lambda x: optax.hinge_loss(x, ONES),
    "jit": jax.jit(jax.nn.relu),
    "remat": jax.checkpoint(lambda x: jax.nn.relu(jnp.sin(x))),
    "scan": repeated(lambda carry, x: jax.nn.relu(carry * x)),
    "scan, from the second step on": repeated(lambda carry, x: jnp.abs(carry) * x),
    "cond": lambda x: lax.cond(jnp.sum(x) > 0, jnp.sin, jnp.cos, x),
    "a branch of cond": lambda x: lax.cond(ONES[0] > 0, jax.nn.relu, jnp.sin, x),
    "while, by its end": lambda x: x * lax.while_loop(lambda s: s > 0, lambda s: s - 1, lax.stop_gradient(x[0] ** 2)),
    "vmap": jax.vmap(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)),
    "shard_map": on_mesh(jax.nn.relu),
    "an exponential shifted and not normalized": lambda x: jnp.exp(x - x.max()),
    "a maximum used beside the shift": lambda x: softmax(x) * x.max(),
    "a positive value clipped in its middle": lambda x: jnp.maximum(jnp.exp(x), 0.5),
    "an operation that is not JAX's own": foreign,
    "elu of a rounded value": lambda x: jax.nn.elu(rounded(x)),
    "elu with another slope": lambda x: jax.nn.elu(x, 0.5),
    "elu with a slope that is a parameter": lambda x: jax.nn.elu(x, x[0]),
    "selu": jax.nn.selu,
}

SMOOTH = {
    "a sparse matrix": lambda x: jnp.tanh(SPARSE @ x),
    "its entries": lambda x: sparse.BCOO((x, SPARSE.indices), shape=(8, 8)) @ jnp.sin(x),
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "exact gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
    "celu": jax.nn.celu,
    "elu with the slope 1 by name": lambda x: jax.nn.elu(x, 1.0),
    "celu with another length": lambda x: jax.nn.celu(x, 0.5),
    "sparse_plus": jax.nn.sparse_plus,
    "sinc": jnp.sinc,
    "log_softmax": lambda x: jax.nn.log_softmax(x) * X,
    "softmax": lambda x: jax.nn.softmax(x) ** 2,
    "logsumexp": jax.nn.logsumexp,
    "logaddexp": lambda x: jnp.logaddexp(x, x[::-1]),
    "norm": jnp.linalg.norm,
    "std": jnp.std,
    "power": lambda x: (x**2 + 1) ** 1.5,
    "a guard against zero": lambda x: x / jnp.where(jnp.sum(x) == 0, 1, jnp.sum(x)),
    "norms guarded against zero": guarded,
    "entropy": lambda x: entropy(jax.nn.sigmoid(x)) + entropy(jax.nn.softmax(x)),
    "masks of data": lambda x: jnp.where(ONES > 0, x, 0) ** 2,
    "indices out of bounds": lambda x: x[jnp.array([1, 99])] ** 2,
    "embedding": lambda x: jnp.take(x, jnp.arange(3)) ** 2,
    "dropout": lambda x: eqx.nn.Dropout(0.5)(x, key=KEY) ** 2,
    "dropout in jit": lambda x: jax.jit(kept)(KEY, x) ** 2,
    "dropout in scan": with_keys,
    "rejection sampling": lambda x: (x + jax.random.gamma(KEY, 2.0, x.shape, jnp.float32)) ** 3,
    "argmax that is not used": lambda x: (x**3, jnp.argmax(x), jax.nn.relu(x))[0],
    "LayerNorm of equinox": lambda x: eqx.nn.LayerNorm(8, dtype=jnp.float32)(x) ** 3,
    "standardize": lambda x: jax.nn.standardize(x) ** 3,
    "attention": lambda x: jax.nn.dot_product_attention(*[x.reshape(IMAGE)] * 3, is_causal=True) ** 2,
    "solve": lambda x: jnp.linalg.solve(MATRIX + jnp.outer(x, x), x) ** 2,
    "slogdet": lambda x: jnp.linalg.slogdet(MATRIX + jnp.outer(x, x))[1],
    "average-pooling": lambda x: flax.linen.avg_pool(x.reshape(IMAGE), (2, 2)) ** 2,
    "a rule of its own": own_rule,
    "jit": jax.jit(jnp.tanh),
    "remat": jax.checkpoint(jnp.tanh),
    "scan": repeated(lambda carry, x: jnp.tanh(carry * x)),
    "cond by data": lambda x: lax.cond(ONES[0] > 0, jnp.sin, jnp.cos, x),
    "shard_map": on_mesh(jnp.tanh),
    "cosine_distance": lambda x: optax.cosine_distance(x, ONES),
    "softmax_cross_entropy": lambda x: optax.softmax_cross_entropy(x, ONES),
    "with integer labels": lambda x: optax.softmax_cross_entropy_with_integer_labels(x, jnp.int32(2)),
    "sigmoid_binary_cross_entropy": lambda x: optax.sigmoid_binary_cross_entropy(x, ONES),
    "sigmoid_focal_loss": lambda x: optax.sigmoid_focal_loss(x, ONES),
    "l2_loss": lambda x: optax.l2_loss(x, ONES),
    "cosine distance by hand": cosine,
    "cosine_distance with a guard": lambda x: optax.cosine_distance(x, jnp.tanh(x), epsilon=1e-6),
    "softmax by hand": lambda x: softmax(x.reshape(2, 4)) ** 2,
    "log_softmax by hand": lambda x: log_softmax(x) * X,
    "LayerNorm by hand": lambda x: layer_norm(x) ** 3,
    "log_cosh": lambda x: optax.log_cosh(x, ONES),
}
