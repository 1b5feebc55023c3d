"""Stored histories with planted contents, as if networks had been trained."""

import numpy as np

from igr.lab.store.store import Run
from igr.lab.training.config import Shape
from igr.lab.training.stack import StackRun

nan = np.nan


def stored(**changes):
    """Two networks, five rows of which the fourth was only watched; the second network never fits and diverges."""
    metrics = {
        "step": np.array([0, 10, 20, 30, 40]),
        "full": np.array([True, True, True, False, True]),
        "learning_rate": np.array([0.5, 0.1]),
        "mu": np.zeros(2),
        "seed": np.array([0, 1]),
        "num_params": np.int64(80),
        "diverged": np.array([-1, 35]),
        "loss": np.array([[2.0, 2.0], [1.0, 1.5], [0.5, 1.2], [nan, nan], [0.1, nan]]),
        "train_accuracy": np.array([[0.1, 0.1], [0.9, 0.5], [1.0, 0.6], [nan, nan], [1.0, nan]]),
        "test_accuracy": np.array([[0.1, 0.1], [0.8, 0.5], [0.85, 0.55], [0.9, 0.6], [0.88, nan]]),
        "validation_accuracy": np.array([[0.1, 0.1], [0.7, 0.6], [0.7, 0.5], [0.9, 0.9], [0.6, nan]]),
        "best_step": np.array([30, 30]),
    }
    names = ("r_ig", "slope", "param_norm", "test_loss", "test_r_ig", "test_slope")
    metrics |= {name: 10 * i + np.arange(10.0).reshape(5, 2) for i, name in enumerate(names)}
    best = ("loss", "train_accuracy", "test_accuracy", *names)
    metrics |= {f"best_{name}": np.array([0.25, 0.5]) for name in best} | changes
    config = StackRun(Shape(width=3, steps=40), (0.5, 0.1), (0.0, 0.0), (0, 1))
    return Run(config, metrics, {})
