"""Bad input gets one clear sentence, from every function of the first floor."""

import jax.numpy as jnp
import pytest

import igr

OF_A_LOSS = {
    "regularizer": igr.regularizer,
    "slope": igr.slope,
    "angle": igr.angle,
    "cos_angle": igr.cos_angle,
    "normal": igr.normal,
    "metric_determinant": igr.metric_determinant,
    "gradient_field": igr.gradient_field,
    "gradient_step": lambda loss: igr.gradient_step(loss, 0.1),
    "modified_loss": lambda loss: igr.modified_loss(loss, 0.1),
    "norm_bound": lambda loss: igr.norm_bound(loss, 0.1),
    "value_and_grad": lambda loss: igr.value_and_grad(loss, 0.1),
    "full_batch": lambda loss: igr.full_batch(lambda p, _: loss(p), 1),
    "hvp": lambda loss: lambda p: igr.hvp(loss)(p, p),
}


@pytest.mark.parametrize("name", OF_A_LOSS)
def test_one_sentence_from_every_function_of_a_loss(name):
    def call(loss, params):
        function = OF_A_LOSS[name](loss)
        return function(params, jnp.zeros(1)) if name == "full_batch" else function(params)

    with pytest.raises(
        TypeError, match=r"the loss returned shape \(2,\) and dtype float64, but it must return one real"
    ):
        call(lambda x: x, jnp.ones(2))
    with pytest.raises(TypeError, match=r"params\['n'\] is int64, but the gradient needs real floating-point arrays"):
        call(lambda p: jnp.sum(p["x"]), {"x": jnp.ones(2), "n": jnp.arange(3)})
    with pytest.raises(TypeError, match="is complex128"):
        call(lambda p: jnp.sum(jnp.abs(p)), jnp.ones(2, complex))
    with pytest.raises(ValueError, match="params is an empty pytree"):
        call(lambda p: jnp.array(0.0), {})
    with pytest.raises(TypeError, match="is str"):
        call(lambda p: jnp.array(0.0), {"name": "relu"})


@pytest.mark.parametrize("h", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_step_sizes(h):
    def loss(x):
        return x @ x

    for make in (
        lambda: igr.modified_loss(loss, h),
        lambda: igr.norm_bound(loss, h),
        lambda: igr.implicit_rate(h, 3),
        lambda: igr.gradient_step(loss, h),
        lambda: igr.modified_field(igr.gradient_field(loss), h, 1),
    ):
        with pytest.raises(ValueError, match="h must be finite"):
            make()


def test_other_sentences():
    with pytest.raises(TypeError, match="did not return a pair"):
        igr.regularizer(lambda x: x @ x, has_aux=True)(jnp.ones(2))
    with pytest.raises(TypeError, match="h must be a real number, not str"):
        igr.modified_loss(lambda x: x @ x, "0.1")
    with pytest.raises(ValueError, match="the number of parameters must be positive"):
        igr.implicit_rate(0.1, 0)
    with pytest.raises(ValueError, match="params is an empty pytree"):
        igr.num_params({})


def test_messages_are_one_line():
    for bad in (lambda: igr.regularizer(lambda x: x)(jnp.ones(2)), lambda: igr.num_params({})):
        with pytest.raises((TypeError, ValueError)) as caught:
            bad()
        assert "\n" not in str(caught.value)
