"""Configurations of trainings: when they measure, and one sentence for each invalid value."""

import pytest

from igr.lab.store.config import ConfigError
from igr.lab.training.config import Measure, Noise, Schedule, Shape
from igr.lab.training.optimizers import Optimizer
from igr.lab.training.stack import Network, StackRun

SHAPE = Shape(width=6, depth=1)


@pytest.mark.parametrize(
    ("steps", "epoch", "schedule", "points", "full"),
    [
        (6, 1, Schedule(early=0), [0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]),
        (30, 10, Schedule(early=1, every=5), [0, 1, 10, 20, 30], [0, 1, 30]),
        (100, 10, Schedule(early=0, stretch=2.0, watch=5), [0, 10, 20, 40, 50, 80, 100], [0, 10, 20, 40, 80, 100]),
    ],
)
def test_schedules(steps, epoch, schedule, points, full):
    found, complete = schedule.points(steps, epoch)
    assert found.tolist() == points
    assert found[complete].tolist() == full


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shape(data="fashion"), "data must be one of digits, mnist, cifar10"),
        (lambda: Shape(activation="swish"), "activation must be one of relu"),
        (lambda: Shape(steps=0), "width and steps must be positive"),
        (lambda: Network(SHAPE, -0.1), "a learning rate must be positive"),
        (lambda: Network(SHAPE, 0.1, mu=0.1), "mu > 0 needs a method"),
        (lambda: Network(SHAPE.replace(method="sam"), 0.1, mu=0.1), "the radius of sam is rho"),
        (lambda: Network(SHAPE.replace(method="forward"), 0.1, rho=0.1), "rho > 0 needs the method sam"),
        (lambda: StackRun(SHAPE.replace(method="sam"), rhos=(0.1, 0.2)), "as many rhos as seeds"),
        (lambda: Shape(optimizer=Optimizer("adamwise")), "optimizer must be one of sgd, momentum"),
        (lambda: Optimizer("adam", (("beta", 0.9),)), "adam has no argument 'beta'; it has b1, b2"),
        (lambda: Optimizer.parse("adam,b2"), "an optimizer is written like"),
        (lambda: Measure(metrics=("beauty",)), "metrics must be among confidence, sharpness"),
        (lambda: StackRun(SHAPE, (0.1,), (0.0,), (0, 1)), "as many learning rates"),
        (lambda: StackRun(SHAPE, (0.1,), (0.0,), (-1,)), "a seed must lie in"),
        (lambda: Schedule(stretch=0.5), "must be at least 1"),
        (lambda: Noise((-1.0,)), "sigmas must not be negative"),
        (lambda: Measure(statistics="all"), "statistics must be one of batch, running"),
        (lambda: Measure(average="norm"), "average must be one of gradient, square"),
        (lambda: Measure(batch=0), "batch must be at least 1"),
        (lambda: Shape(method="forward", every=0), "every must be at least 1"),
        (lambda: Shape(every=2), "need a penalty"),
        (lambda: Shape(method="sam", warm_up=2), "need a penalty"),
        (lambda: Shape(augment=True, batch_size=0), "random shifts need a batch size"),
        (lambda: Shape(model="resnet18", batch_size=0), "batch statistics need a batch size"),
        (lambda: StackRun(SHAPE, (1e300,), (0.0,), (0,)), "finite in float32"),
        (lambda: Network(SHAPE.replace(method="forward"), mu=1e39), "finite in float32"),
    ],
)
def test_a_bad_config_is_one_sentence(make, message):
    with pytest.raises(ConfigError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
