"""A training script in the shape of Equinox's CNN example: `test_adapters.py` changes two lines of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH_SIZE = 8
LEARNING_RATE = 3e-2
STEPS = 12
SEED = 5678


class CNN(eqx.Module):
    layers: list

    def __init__(self, key):
        key1, key2, key3 = jax.random.split(key, 3)
        self.layers = [
            eqx.nn.Conv2d(1, 2, kernel_size=3, key=key1, dtype=jnp.float32),
            eqx.nn.MaxPool2d(kernel_size=2),
            jax.nn.relu,
            jnp.ravel,
            eqx.nn.Linear(18, 8, key=key2, dtype=jnp.float32),
            jax.nn.sigmoid,
            eqx.nn.Linear(8, 3, key=key3, dtype=jnp.float32),
            jax.nn.log_softmax,
        ]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@eqx.filter_jit
def loss(model, x, y):
    pred_y = jax.vmap(model)(x)
    return -jnp.mean(jnp.take_along_axis(pred_y, jnp.expand_dims(y, 1), axis=1))


@eqx.filter_jit
def compute_accuracy(model, x, y):
    return jnp.mean(y == jnp.argmax(jax.vmap(model)(x), axis=1))


def infinite_trainloader():
    rng = np.random.default_rng(SEED)
    while True:
        y = rng.integers(0, 3, BATCH_SIZE)
        yield rng.normal(y[:, None, None, None], 1.0, (BATCH_SIZE, 1, 6, 6)).astype(np.float32), y


def train(model, optim, steps):
    opt_state = optim.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def make_step(model, opt_state, x, y):
        loss_value, grads = eqx.filter_value_and_grad(loss)(model, x, y)
        updates, opt_state = optim.update(grads, opt_state, eqx.filter(model, eqx.is_array))
        model = eqx.apply_updates(model, updates)
        return model, opt_state, loss_value

    history = []
    for _, (x, y) in zip(range(steps), infinite_trainloader(), strict=False):
        model, opt_state, train_loss = make_step(model, opt_state, x, y)
        history += [train_loss, compute_accuracy(model, x, y)]
    return eqx.filter(model, eqx.is_array), opt_state, history


def main():
    return train(CNN(jax.random.key(SEED)), optax.adamw(LEARNING_RATE), STEPS)
