import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from igr.lab.data.dataset import Dataset, Entry, split
from igr.lab.data.registry import DATASETS
from igr.lab.models.mlp import mlp
from igr.lab.models.model import ModelEntry, fan_in_normal
from igr.lab.models.registry import MODELS
from igr.lab.models.resnet18 import _convolve, resnet18
from igr.lab.store.config import ConfigError
from igr.lab.training.config import Shape
from igr.lab.training.stack import Network, StackRun, stacks


def count(tree):
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def shapes(model):
    return jax.eval_shape(model.init, jax.random.key(0))


@pytest.mark.parametrize(
    ("width", "m"),
    [(50, 49_960), (100, 119_910), (200, 319_810), (400, 959_610), (800, 3_199_210), (1600, 11_518_410)],
)
def test_mlp_has_the_paper_grid_of_parameters(width, m):
    params, state = shapes(mlp(width))
    assert count(params) == m
    assert jax.tree.leaves(state) == []


@pytest.mark.parametrize(("stem", "m"), [("3x3", 11_173_962), ("7x7", 11_173_962 + (49 - 9) * 3 * 64)])
def test_resnet18_parameter_count(stem, m):
    params, state = shapes(resnet18(stem))
    assert count(params) == m
    assert count(state) == 2 * 4800  # a mean and a variance for each of the 4,800 channels of its 20 batch norms


@pytest.mark.parametrize(("stem", "size", "compute"), [("3x3", 8, "bfloat16"), ("7x7", 16, "float32")])
def test_resnet18_shapes_dtypes_and_state(getkey, stem, size, compute):
    model = resnet18(stem, width=4, compute=compute)
    params, state = jax.jit(model.init)(getkey())
    x = jax.random.normal(getkey(), (6, size, size, 3), jnp.float32)
    apply = jax.jit(model.apply, static_argnums=3)
    logits, new = apply(params, state, x, True)
    assert logits.shape == (6, 10)
    assert logits.all()
    assert {leaf.dtype for leaf in jax.tree.leaves((logits, params, new))} == {jnp.dtype("float32")}
    assert jax.tree.structure(new) == jax.tree.structure(state)
    same = [bool((a == b).all()) for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(state), strict=True)]
    assert not any(same)  # every running statistic moved
    _, still = apply(params, new, x, False)
    assert all(bool((a == b).all()) for a, b in zip(jax.tree.leaves(still), jax.tree.leaves(new), strict=True))


def test_batch_norm_normalises_and_its_running_statistics_converge_to_those_of_the_batch(getkey):
    model = resnet18(width=4)
    params, state = model.init(getkey())
    x = 3 + 2 * jax.random.normal(getkey(), (16, 8, 8, 3), jnp.float32)
    y = jax.lax.conv_general_dilated(x, params["stem"]["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    apply = jax.jit(model.apply, static_argnums=3)
    _, once = apply(params, state, x, True)
    np.testing.assert_allclose(once["stem"]["mean"], 0.1 * y.mean(axis=(0, 1, 2)), rtol=1e-4)
    np.testing.assert_allclose(once["stem"]["var"], 0.9 + 0.1 * y.var(axis=(0, 1, 2)), rtol=1e-4)
    for _ in range(80):
        logits, state = apply(params, state, x, True)
    # with the running statistics equal to the batch's, both modes are the same function
    np.testing.assert_allclose(apply(params, state, x, False)[0], logits, rtol=0.0, atol=0.05)
    assert not np.allclose(apply(params, once, x, False)[0], logits, rtol=0.0, atol=0.5)


def test_training_mode_is_invariant_to_the_scale_of_a_normalised_kernel(getkey):
    model = resnet18(width=4)
    params, state = model.init(getkey())
    x = jax.random.normal(getkey(), (4, 8, 8, 3), jnp.float32)
    scaled = {**params, "stem": {**params["stem"], "w": 3 * params["stem"]["w"]}}
    a, b = model.apply(params, state, x, True)[0], model.apply(scaled, state, x, True)[0]
    np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)
    assert not np.allclose(a, model.apply(scaled, state, x, False)[0], rtol=1e-2)


def test_bfloat16_compute_agrees_with_float32_in_the_gradient(getkey):
    """To a cosine of 0.9: rounding flips the ReLU masks of values near zero, which no precision of sums can mend."""
    x = jax.random.uniform(getkey(), (64, 8, 8, 3), jnp.float32)
    y = jax.random.randint(getkey(), (64,), 0, 10)

    def gradient(compute, key):
        model = resnet18(width=8, compute=compute)
        params, state = model.init(key)

        def loss(p):
            return -jax.nn.log_softmax(model.apply(p, state, x, True)[0])[jnp.arange(64), y].mean()

        g = jnp.concatenate([g.ravel() for g in jax.tree.leaves(jax.jit(jax.grad(loss))(params))])
        return g / jnp.linalg.norm(g)

    key = getkey()
    exact = gradient("float32", key)
    assert jnp.dot(exact, gradient("bfloat16", key)) > 0.9
    assert jnp.dot(exact, gradient("float32", getkey())) < 0.9  # another net's gradient is told apart


@pytest.mark.parametrize(("size", "stride", "side"), [(3, 1, 6), (3, 2, 8), (3, 2, 5), (1, 2, 8), (7, 2, 9)])
def test_a_convolution_is_the_same_function_on_every_device(getkey, monkeypatch, size, stride, side):
    x, w = jax.random.normal(getkey(), (2, side, side + 1, 3)), jax.random.normal(getkey(), (size, size, 3, 4))

    def outcome():
        return jax.value_and_grad(lambda x, w: jnp.sin(_convolve(x, w, stride)).sum(), (0, 1))(x, w)

    def convolutions():
        return str(jax.make_jaxpr(lambda: _convolve(x, w, stride))()).count("conv_general_dilated")

    here = outcome()
    assert convolutions() == 0
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert convolutions() == 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), outcome(), here)


def test_initial_scales(getkey):
    w = fan_in_normal(getkey(), (400, 500))
    assert abs(float(w.std()) * 20 / 0.87962566 - 1) < 0.01  # the truncation's variance is not corrected for
    assert float(jnp.abs(w).max()) <= 2 / 20
    for init, factor in (("he", np.sqrt(2)), ("haiku", 0.87962566)):
        params, _ = resnet18(width=16, init=init).init(getkey())
        for kernel in (params["blocks"][-1]["conv2"]["w"], params["blocks"][6]["conv1"]["w"]):
            fan_in = np.prod(kernel.shape[:-1])
            assert abs(float(kernel.std()) * np.sqrt(fan_in) / factor - 1) < 0.02
        assert abs(np.corrcoef(kernel.ravel(), params["blocks"][6]["conv2"]["w"].ravel()[: kernel.size])[0, 1]) < 0.02
        assert params["head"]["w"].any() == (init == "he")


@pytest.mark.parametrize(("name", "function"), [("relu", jax.nn.relu), ("tanh", jnp.tanh), ("gelu", jax.nn.gelu)])
def test_mlp_is_what_it_says(getkey, name, function):
    params, state = mlp(7, depth=2, activation=name, inputs=12, classes=3).init(getkey())
    x = jax.random.normal(getkey(), (5, 3, 4), jnp.float32)
    hidden = x.reshape(5, 12)
    for layer in params[:2]:
        hidden = function(hidden @ layer["w"] + layer["b"][None, :])
    expected = hidden @ params[2]["w"] + params[2]["b"][None, :]
    logits, new = mlp(7, depth=2, activation=name, inputs=12, classes=3).apply(params, state, x, True)
    np.testing.assert_allclose(logits, expected, rtol=1e-6)
    assert new == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: mlp(activation="swish"),
        lambda: mlp(compute="float16"),
        lambda: mlp(0),
        lambda: resnet18("5x5"),
        lambda: resnet18(init="zeros"),
    ],
)
def test_bad_choices_are_refused_in_one_sentence(make):
    with pytest.raises(ValueError, match=r"unknown|needs positive"):
        make()


@pytest.mark.parametrize("shape", [(8, 8, 3), (2, 8, 8, 1)])
def test_resnet18_refuses_what_is_not_its_images(shape):
    params, state = shapes(resnet18(width=2))
    with pytest.raises(ValueError, match=r"takes images \(n, height, width, 3\), but x has shape"):
        resnet18(width=2).apply(params, state, jnp.zeros(shape, jnp.float32), True)


def two_classes(folder=None):
    images = split(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 1, 0]))
    return Dataset("two", images, images, 255.0, classes=2)


@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_outputs_and_the_channels_are_those_of_the_data_set(name, monkeypatch):
    monkeypatch.setitem(DATASETS, "two", Entry(two_classes, shape=(8, 8, 3), sizes=(4, 4), classes=2))
    model = Shape(data="two", model=name, width=2, depth=1).build()
    params, state = shapes(model)
    x = jax.ShapeDtypeStruct((3, 8, 8, 3), jnp.float32)
    logits, _ = jax.eval_shape(lambda p, s, x: model.apply(p, s, x, True), params, state, x)
    assert logits.shape == (3, 2)


def test_what_a_model_is_comes_from_its_entry(monkeypatch):
    """A model of a user's own is trained in turn, refused in pieces and counted as the registry says."""
    own = ModelEntry(
        lambda shape, images, classes, compute: mlp(3, 1, "relu", math.prod(images), classes)._replace(in_turn=True),
        in_turn=True, has_batch_statistics=True, choices={"activation": ("swish",)},
    )  # fmt: skip
    monkeypatch.setitem(MODELS, "own", own)
    shape = Shape(model="own", activation="swish", steps=1)
    assert [len(unit.seeds) for unit in stacks(Network(shape, 0.1, seed=s) for s in range(3))] == [1, 1, 1]
    assert StackRun(shape).label.endswith("h = 0.1, seed 0")
    for wrong, message in (
        ({"batch_size": 0}, "batch statistics need a batch size"),
        ({"activation": "relu"}, "activation must be one"),
    ):
        with pytest.raises(ConfigError, match=message):
            shape.replace(**wrong)
    assert own.cost(shape.build(), (8, 8, 1)) == pytest.approx(2 * (64 * 3 + 3 * 10), rel=0.2)
