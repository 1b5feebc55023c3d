"""A training script in the shape of Flax's MNIST example: `test_adapters.py` changes two lines of it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

LEARNING_RATE = 0.03
TRAIN_STEPS = 9
EVAL_EVERY = 3


class CNN(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 2, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm1 = nnx.BatchNorm(2, rngs=rngs)
        self.dropout1 = nnx.Dropout(rate=0.25)
        self.linear1 = nnx.Linear(18, 8, rngs=rngs)
        self.dropout2 = nnx.Dropout(rate=0.25)
        self.linear2 = nnx.Linear(8, 3, rngs=rngs)
        self.avg_pool = partial(nnx.avg_pool, window_shape=(2, 2), strides=(2, 2))

    def __call__(self, x, rngs: nnx.Rngs | None = None):
        x = self.avg_pool(nnx.relu(self.batch_norm1(self.dropout1(self.conv1(x), rngs=rngs))))
        x = x.reshape(x.shape[0], -1)
        x = nnx.relu(self.dropout2(self.linear1(x), rngs=rngs))
        return self.linear2(x)


def loss_fn(model: CNN, rngs: nnx.Rngs | None, batch):
    logits = model(batch["image"], rngs)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits=logits, labels=batch["label"]).mean()
    return loss, logits


@nnx.jit
def train_step(model: CNN, optimizer: nnx.Optimizer, metrics: nnx.MultiMetric, rngs: nnx.Rngs, batch):
    grad_fn = nnx.value_and_grad(loss_fn, has_aux=True)
    (loss, logits), grads = grad_fn(model, rngs, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])
    optimizer.update(model, grads)


@nnx.jit
def eval_step(model: CNN, metrics: nnx.MultiMetric, batch):
    loss, logits = loss_fn(model, None, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])


def batches():
    rng = np.random.default_rng(0)
    while True:
        label = rng.integers(0, 3, 8)
        image = rng.normal(label[:, None, None, None], 1.0, (8, 6, 6, 1)).astype(np.float32)
        yield {"image": jnp.asarray(image), "label": jnp.asarray(label, jnp.int32)}


def main():
    model = CNN(rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(LEARNING_RATE), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    rngs = nnx.Rngs(1)
    history = []
    for step, batch in zip(range(TRAIN_STEPS), batches(), strict=False):
        model.train()
        train_step(model, optimizer, metrics, rngs, batch)
        if step % EVAL_EVERY == EVAL_EVERY - 1:
            history.append(metrics.compute())
            metrics.reset()
            model.eval()
            eval_step(model, metrics, batch)
            history.append(metrics.compute())
            metrics.reset()
    return jax.tree.leaves((nnx.state(model), nnx.state(optimizer), nnx.state(rngs))), history
