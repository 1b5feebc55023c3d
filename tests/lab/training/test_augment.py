import jax
import jax.numpy as jnp
import numpy as np
from replicas import MODEL, close, images, replica, same, train

from igr.lab.training.augment import PAD, augment
from igr.lab.training.engine import Engine
from igr.lab.training.gradients import batch_loss


def windows(image):
    """All places a crop can come from, in the padded image and in its mirror."""
    padded = np.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
    size = range(2 * PAD + 1)
    h, w = image.shape[:2]
    return [view[i : i + h, j : j + w] for view in (padded, padded[:, ::-1]) for i in size for j in size]


def test_each_image_becomes_a_window_of_itself_or_of_its_mirror(getkey):
    x = jax.random.uniform(getkey(), (200, 6, 5, 2), jnp.float32)
    y = np.asarray(jax.jit(augment)(getkey(), x))
    found = [[np.array_equal(y[i], window) for window in windows(np.asarray(x[i]))] for i in range(200)]
    assert all(sum(each) == 1 for each in found)
    places = np.array([each.index(True) for each in found])
    assert len(set(places.tolist())) > 90, "of 162; about 115 are expected of 200 draws"
    assert 70 < (places >= 81).sum() < 130, "half of them are mirrored"


def test_the_same_key_gives_the_same_images(getkey):
    x, key = jax.random.uniform(getkey(), (4, 6, 6, 1), jnp.float32), getkey()
    assert same(augment(key, x), augment(key, x))
    assert not same(augment(key, x), augment(getkey(), x))


def test_an_augmented_training_is_that_on_augmented_batches_however_it_is_cut_up():
    data = images()
    stack = train([0.1, 0.1], seeds=[0, 1], steps=9, augment=True, cuts=(2, 7))
    assert same(stack, train([0.1, 0.1], seeds=[0, 1], steps=9, augment=True))
    assert not same(stack, train([0.1, 0.1], seeds=[0, 1], steps=9))
    engine = Engine(MODEL, data, 8)
    params, _ = MODEL.init(jax.random.fold_in(jax.random.key(1), 0))
    for step in range(9):
        order = engine._permute(jnp.array([1], jnp.uint32), np.int32(step // 6))[0]
        x, y = data.pick(order[step % 6 * 8 : (step % 6 + 1) * 8])
        x = augment(jax.random.fold_in(jax.random.fold_in(jax.random.key(1), 2), step), x)
        grads = jax.grad(lambda p, x=x, y=y: batch_loss(MODEL)(p, (), x, y)[0])(params)
        params = jax.tree.map(lambda p, g: p - np.float32(0.1) * g, params, grads)
    close(replica(stack, 1).params, params)
