"""Further metrics against dense oracles, and their way from a name in the configuration to a stored column."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from replicas import MODEL, engine_of, images, train

from igr.lab.runs.unit import Session
from igr.lab.training import metrics
from igr.lab.training.config import Measure, Schedule, Shape
from igr.lab.training.meter import Meter
from igr.lab.training.metrics import METRICS
from igr.lab.training.stack import StackRun


def view(params, data):
    x = data.x.astype(jnp.float32) * np.float32(1 / 255)
    return metrics.View(params, x, data.y, lambda p, x: MODEL.apply(p, (), x, True)[0])


def test_sharpness_and_confidence_are_those_of_the_dense_hessian_and_of_the_softmax(monkeypatch):
    data, stack = images(), train([0.3, 0.1])
    engine = engine_of(MODEL, 8, 2, 10_000)
    monkeypatch.setitem(METRICS, "batches", metrics.batch_r_ig(8))
    names = ("sharpness", "confidence", "trace", "batches")
    measured = Meter(engine, data, metrics=names).full(stack.params, stack.state)
    for i in range(2):
        params = jax.tree.map(lambda leaf, i=i: leaf[i], stack.params)
        flat, back = ravel_pytree(params)
        hessian = np.asarray(jax.jit(jax.hessian(lambda v, back=back: view(back(v), data).loss(back(v))))(flat))
        eigenvalues = np.linalg.eigvalsh(np.asarray(hessian, float))
        top = eigenvalues[np.abs(eigenvalues).argmax()]
        np.testing.assert_allclose(measured["sharpness"][i], top, rtol=0.01)
        assert abs(eigenvalues[-2] / top - 1) > 0.02, "the second eigenvalue is told apart"
        estimate, exact = float(measured["trace"][i]), eigenvalues.sum()
        deviation = np.sqrt(2 * ((hessian**2).sum() - (np.diag(hessian) ** 2).sum()) / 8)  # of eight random probes
        assert abs(estimate - exact) < 3 * deviation < 3 * abs(exact), "the trace is told from zero"
        shown = view(params, data)
        parts = [
            ravel_pytree(
                jax.grad(lambda p, s=s, shown=shown: shown._replace(x=shown.x[s], y=shown.y[s]).loss(p))(params)
            )[0]
            for s in (slice(k, k + 8) for k in range(0, len(data.y) - 7, 8))
        ]
        np.testing.assert_allclose(measured["batches"][i], np.mean([g @ g for g in parts]) / flat.size, rtol=1e-4)
        whole = np.mean(np.stack(parts), axis=0)
        assert np.mean([g @ g for g in parts]) > 1.5 * (whole @ whole), "it is not the square of the mean gradient"
        confidence = jax.nn.softmax(view(params, data).logits(params)).max(axis=1).mean()
        np.testing.assert_allclose(measured["confidence"][i], confidence, rtol=1e-5)


def test_a_new_metric_is_one_line_and_becomes_a_column(monkeypatch):
    monkeypatch.setitem(METRICS, "images", lambda view: jnp.asarray(len(view.y), jnp.float32))
    shape = Shape(width=4, depth=1, steps=4, train_images=64, schedule=Schedule(early=0, every=2))
    plain = StackRun(shape).compute(Session())
    shape = shape.replace(measure=Measure(metrics=("images",), batch=50))
    found = StackRun(shape).compute(Session())
    assert set(found) - set(plain) == {"images", "best_images"}
    full = found["full"]
    assert found["images"][full].ravel().tolist() == [50.0] * full.sum()
    assert np.isnan(found["images"][~full]).all()
    np.testing.assert_allclose(found["loss"], plain["loss"], rtol=1e-5)
