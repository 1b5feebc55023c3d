"""An experiment in a file of its own, as a user has it: three short trainings whose bits are known."""

from typing import Any

from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.store.config import Scale
from igr.lab.training.config import Schedule, Shape
from igr.lab.training.stack import StackRun

CLAIM = "Trainings that are cut at any moment end with the same bytes."
SHAPE = Shape(width=8, depth=1, steps=6000, train_images=96, schedule=Schedule(early=2, every=20, watch=20))


def trials(scale: Scale) -> list[StackRun]:
    """The same at every scale."""
    return [StackRun(SHAPE, (0.05,), (0.0,), (seed,)) for seed in range(3)]


def figures(runs: list[Any]) -> dict[str, Any]:
    """A figure, so that a signal may come while it is drawn."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5, 1))
    axes = figure.subplots()
    for run in runs:
        axes.plot(run.metrics["step"], run.metrics["test_accuracy"])
    return {"accuracy": figure}


def findings(runs: list[Any]) -> list[Finding]:
    """The best last accuracy."""
    best = max(float(run.metrics["test_accuracy"][-1].max()) for run in runs)
    return [Finding(CLAIM, "", "accuracy", best, len(runs), Verdict.UNTESTABLE)]
