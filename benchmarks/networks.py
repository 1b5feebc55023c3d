"""Small networks of the kinds people train, in plain JAX: `panel(full)` gives (name, params, loss, batches)."""

from itertools import pairwise

import jax
import jax.numpy as jnp

KEYS = iter(jax.random.split(jax.random.key(15), 10_000))


def weight(*shape, scale=None):
    fan_in = 1
    for n in shape[:-1]:
        fan_in *= n
    return jax.random.normal(next(KEYS), shape, jnp.float32) * (scale or fan_in**-0.5)


def cross_entropy(logits, labels):
    logits = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(logits, labels[..., None], -1))


def conv(x, w, stride=1):
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def normalized(x, p, axes):
    wide = x.astype(jnp.float32)
    mean, variance = jnp.mean(wide, axes, keepdims=True), jnp.var(wide, axes, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype) * p["scale"] + p["offset"]


def norm(n):
    return {"scale": jnp.ones(n), "offset": jnp.zeros(n)}


def mlp(activation, sizes):
    params = [{"w": weight(a, b, scale=(2 / a) ** 0.5), "b": jnp.zeros(b)} for a, b in pairwise(sizes)]

    def apply(p, x):
        x = x.reshape(x.shape[0], -1)
        for layer in p[:-1]:
            x = activation(x @ layer["w"] + layer["b"])
        return x @ p[-1]["w"] + p[-1]["b"]

    return params, apply


def cnn():
    """Equinox's MNIST example on 8x8 images: convolution, max-pooling, sigmoid and ReLU layers."""
    sizes = [(48, 512), (512, 64), (64, 10)]
    params = {
        "c": weight(4, 4, 1, 3),
        "cb": jnp.zeros(3),
        "d": [{"w": weight(*s), "b": jnp.zeros(s[1])} for s in sizes],
    }

    def apply(p, x):
        x = (
            jax.lax.conv_general_dilated(x, p["c"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            + p["cb"]
        )
        x = jax.nn.relu(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID"))
        x = x.reshape(x.shape[0], -1)
        for f, layer in zip((jax.nn.sigmoid, jax.nn.relu, lambda x: x), p["d"], strict=True):
            x = f(x @ layer["w"] + layer["b"])
        return x

    return params, apply


def resnet(activation, width):
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = [
        {"c1": weight(3, 3, a, b), "n1": norm(b), "c2": weight(3, 3, b, b), "n2": norm(b), "skip": weight(1, 1, a, b)}
        for a, b in pairwise(widths)
        for a in (a, b)  # two blocks a stage
    ]
    params = {"stem": weight(3, 3, 1, width), "blocks": blocks, "head": weight(8 * width, 10)}

    def apply(p, x):
        x = conv(x, p["stem"])
        for i, block in enumerate(p["blocks"]):
            stride = 2 if i in (2, 4) else 1
            y = activation(normalized(conv(x, block["c1"], stride), block["n1"], (0, 1, 2)))
            y = normalized(conv(y, block["c2"]), block["n2"], (0, 1, 2))
            x = activation(y + conv(x, block["skip"], stride))
        return jnp.mean(x, (1, 2)) @ p["head"]

    return params, apply


def transformer(layers, width, heads, implementation=None):
    """(params of the blocks, (params, x, causal) -> x): pre-norm, GELU, as GPT-2 and ViT have it."""

    def block():
        return {
            "n1": norm(width), "qkv": weight(width, 3 * width, scale=0.02), "out": weight(width, width, scale=0.02),
            "n2": norm(width), "up": weight(width, 4 * width, scale=0.02), "down": weight(4 * width, width, scale=0.02),
        }  # fmt: skip

    def apply(blocks, x, causal):
        for p in blocks:
            q, k, v = jnp.split(normalized(x, p["n1"], -1) @ p["qkv"], 3, axis=-1)
            q, k, v = (t.reshape(*t.shape[:2], heads, -1) for t in (q, k, v))
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=implementation)
            x = x + mixed.reshape(x.shape) @ p["out"]
            x = x + jax.nn.gelu(normalized(x, p["n2"], -1) @ p["up"]) @ p["down"]
        return x

    return [block() for _ in range(layers)], apply


def vit(layers, width, heads):
    blocks, through = transformer(layers, width, heads)
    params = {"in": weight(4, width), "place": weight(16, width, scale=0.02), "b": blocks, "n": norm(width)}
    params["head"] = weight(width, 10, scale=0.02)

    def apply(p, x):
        patches = x.reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4)
        x = through(p["b"], patches @ p["in"] + p["place"], False)
        return normalized(jnp.mean(x, 1), p["n"], -1) @ p["head"]

    return params, apply


def gpt(layers, width, heads, vocabulary, length, implementation=None):
    blocks, through = transformer(layers, width, heads, implementation)
    params = {"token": weight(vocabulary, width, scale=0.02), "place": weight(length, width, scale=0.01)}
    params |= {"b": blocks, "n": norm(width)}

    def apply(p, x):
        x = through(p["b"], p["token"][x] + p["place"], True)
        return normalized(x, p["n"], -1) @ p["token"].T

    return params, apply


def lstm(width):
    params = {"w": weight(8 + width, 4 * width), "b": jnp.zeros(4 * width), "head": weight(width, 10)}

    def apply(p, x):
        def step(carry, row):
            h, c = carry
            i, f, g, o = jnp.split(jnp.concatenate([row, h], -1) @ p["w"] + p["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((x.shape[0], p["head"].shape[0]), x.dtype)
        (h, _), _ = jax.lax.scan(step, (zeros, zeros), jnp.moveaxis(x[..., 0], 1, 0))
        return h @ p["head"]

    return params, apply


def text(key, count, length, vocabulary):
    """Tokens that can be learned: seven of ten follow from the one before."""
    keys = jax.random.split(key, 3)
    follows = jax.random.permutation(keys[0], vocabulary)
    fresh = jnp.floor(vocabulary * jax.random.uniform(keys[1], (length + 1, count)) ** 3).astype(jnp.int32)
    keep = jax.random.bernoulli(keys[2], 0.7, (length + 1, count))

    def step(token, given):
        token = jnp.where(given[1], follows[token], given[0])
        return token, token

    return jax.lax.scan(step, fresh[0], (fresh, keep))[1].T


def loss_of(apply, dtype):
    def loss(params, x, y):
        low = jax.tree.map(lambda p: p.astype(dtype), params)
        x = x if jnp.issubdtype(x.dtype, jnp.integer) else x.astype(dtype)
        return cross_entropy(apply(low, x), y)

    return loss


def digits_data():
    """(images of 8x8 between -1 and 1, labels): scikit-learn's digits."""
    from sklearn.datasets import load_digits  # not needed by benchmarks/transformer.py, nor there where that runs

    images, labels = load_digits(return_X_y=True)
    return jnp.asarray(images / 8 - 1, jnp.float32).reshape(-1, 8, 8, 1), jnp.asarray(labels)


def panel(full):
    """Name -> (params, apply, batch i -> (x, y)); `full` is for a GPU."""
    (images, labels), size = digits_data(), 128 if full else 32

    def digits(i):
        rows = (jnp.arange(size) + i * size) % 1437
        return images[rows], labels[rows]

    width, length, vocabulary = (256, 256, 4096) if full else (32, 32, 128)
    stream = text(jax.random.key(1), 4096 if full else 512, length, vocabulary)

    def tokens(i):
        rows = (jnp.arange(size // 4) + i * size // 4) % stream.shape[0]
        return stream[rows, :-1], stream[rows, 1:]

    wide, filters = (400, 32) if full else (64, 4)
    return {
        "tanh MLP": (*mlp(jnp.tanh, [64, wide, wide, wide, 10]), digits),
        "tanh MLP, 1024 wide": (*mlp(jnp.tanh, [64, 1024, 1024, 10]), digits),
        "ReLU MLP": (*mlp(jax.nn.relu, [64, wide, wide, wide, 10]), digits),
        "CNN, max-pooling": (*cnn(), digits),
        "ResNet, ReLU": (*resnet(jax.nn.relu, filters), digits),
        "ResNet, GELU": (*resnet(jax.nn.gelu, filters), digits),
        "ViT": (*vit(6 if full else 2, width, 4), digits),
        "GPT": (*gpt(6 if full else 2, width, 4, vocabulary, length), tokens),
        "LSTM": (*lstm(4 * wide // 4), digits),
    }
