"""Four networks of the usual shapes in PyTorch, and the same losses in JAX on the same weights."""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

# These nets are so small that a second thread only waits for the first, and ten times as long on a busy machine.
torch.set_num_threads(1)


class Mlp(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.hidden, self.middle, self.out = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = self.dropout(torch.tanh(self.hidden(x)))
        return self.out(self.dropout(torch.tanh(self.middle(x))))


class Cnn(nn.Module):
    """Batch norm in the middle, so that there are buffers; SiLU, so that it is smooth."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.last, self.out = nn.Conv2d(6, 6, 3, stride=2), nn.Linear(6, 4)

    def forward(self, x):
        x = F.silu(self.norm(self.conv(x)))
        return self.out(self.last(x).mean((2, 3)))


class Transformer(nn.Module):
    """One block of two heads, causal, with tied embeddings."""

    def __init__(self, tokens=7, width=8):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        n, t, d = x.shape
        q, k, v = self.qkv(self.before(x)).view(n, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).reshape(n, t, d))
        x = x + self.down(F.gelu(self.up(self.after(x))))
        return self.head(x).flatten(0, 1)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def problem(name, dtype=torch.float64, seed=0, batch=8):
    """(model, x, y) with fixed weights and data."""
    torch.manual_seed(seed)
    model = {"mlp": Mlp, "cnn": Cnn, "transformer": Transformer, "lstm": Lstm}[name]().to(dtype)
    if name == "transformer":
        tokens = torch.randint(7, (batch, 6))
        return model, tokens[:, :-1], tokens[:, 1:].reshape(-1)
    shape = {"mlp": (6,), "cnn": (3, 6, 6), "lstm": (5, 3)}[name]
    return model, torch.randn(batch, *shape, dtype=dtype), torch.arange(batch) % 4


def closure(model, x, y):
    return lambda: F.cross_entropy(model(x), y)


def gradients(model):
    """Copies of `.grad`, by the parameter's name, as float64."""
    return {n: p.grad.detach().double().numpy().copy() for n, p in model.named_parameters() if p.grad is not None}


def double_backward(model, loss, mu):
    """The textbook way: the gradient of E + mu |grad E|^2 as it stands, by `create_graph=True`."""
    params = [p for p in model.parameters() if p.requires_grad]
    g = torch.autograd.grad(loss, params, create_graph=True)
    total = loss + mu * sum((x**2).sum() for x in g)
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    return {n: x.detach().double().numpy() for n, x in zip(names, torch.autograd.grad(total, params), strict=True)}


def weights(model):
    """The parameters as JAX arrays, by name."""
    return {name: jnp.asarray(p.detach().numpy()) for name, p in model.named_parameters()}


def jax_loss(name):
    """The loss of `problem(name)`, a function of (weights, x, y)."""
    network = {"mlp": _mlp, "cnn": _cnn, "transformer": _transformer, "lstm": _lstm}[name]

    def loss(w, x, y):
        logits = network(w, x)
        return -jnp.mean(jax.nn.log_softmax(logits)[np.arange(len(y)), y])

    return loss


def _affine(w, name, x):
    bias = w[f"{name}.bias"]
    return x @ w[f"{name}.weight"].T + bias.reshape((1,) * (x.ndim - 1) + (-1,))


def _mlp(w, x):
    return _affine(w, "out", jnp.tanh(_affine(w, "middle", jnp.tanh(_affine(w, "hidden", x)))))


def _conv(x, kernel, stride, padding):
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), [(padding, padding)] * 2)


def _cnn(w, x):
    def per_channel(v):
        return v.reshape(1, -1, 1, 1)

    x = _conv(x, w["conv.weight"], 1, 1)
    x = (x - x.mean((0, 2, 3), keepdims=True)) / jnp.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
    x = jax.nn.silu(x * per_channel(w["norm.weight"]) + per_channel(w["norm.bias"]))
    x = _conv(x, w["last.weight"], 2, 0) + per_channel(w["last.bias"])
    return _affine(w, "out", x.mean((2, 3)))


def _normalized(w, name, x):
    x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * w[f"{name}.weight"].reshape(1, 1, -1) + w[f"{name}.bias"].reshape(1, 1, -1)


def _transformer(w, tokens):
    x = w["embed.weight"][tokens]
    n, t, d = x.shape
    q, k, v = _affine(w, "qkv", _normalized(w, "before", x)).reshape(n, t, 3, 2, d // 2).transpose(2, 0, 3, 1, 4)
    scores = jnp.einsum("nhid,nhjd->nhij", q, k) / np.sqrt(d // 2)
    scores = jnp.where(np.tril(np.ones((t, t), bool))[None, None], scores, -jnp.inf)
    mixed = jnp.einsum("nhij,nhjd->nihd", jax.nn.softmax(scores), v).reshape(n, t, d)
    x = x + _affine(w, "mix", mixed)
    x = x + _affine(w, "down", jax.nn.gelu(_affine(w, "up", _normalized(w, "after", x)), approximate=False))
    return (x @ w["embed.weight"].T).reshape(n * t, -1)


def _lstm(w, x):
    h = c = jnp.zeros((x.shape[0], 5))
    for t in range(x.shape[1]):
        gates = x[:, t] @ w["lstm.weight_ih_l0"].T + h @ w["lstm.weight_hh_l0"].T
        gates = gates + (w["lstm.bias_ih_l0"] + w["lstm.bias_hh_l0"])[None]
        i, f, g, o = jnp.split(gates, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return _affine(w, "out", h)
