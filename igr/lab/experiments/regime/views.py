"""The stored runs as one table: a row for each measurement, with the verdict computed from its numbers."""

from dataclasses import dataclass

import numpy as np

import igr
from igr.lab.experiments.regime.training import ORDERS, SUBSTEPS
from igr.lab.store.store import Table

WORDS = ("inside", "marginal", "outside", "edge of stability", "divergent")
NUMBERS = ("q2", "q3", "cosine", "h_lambda")
SOLVED = 2.0  # decay in one substep that the classical Runge-Kutta method follows; at 2.8 it is unstable
LOST = 0.9  # of its first loss: a network that diverged and ends above has not recovered


@dataclass(frozen=True)
class Points:
    """One entry for each measurement of a set of runs."""

    word: np.ndarray
    rate: np.ndarray
    step: np.ndarray
    run: np.ndarray  # the number of the run, for resampling whole runs
    expected: np.ndarray  # by order, in the last axis
    measured: np.ndarray
    h_lambda: np.ndarray
    rounding: np.ndarray  # relative error of a gradient by rounding; 0 where it is negligible
    solved: np.ndarray  # whether the flow of each order was solved, by order in the last axis
    weight: np.ndarray  # the share of its run's steps that a measurement stands for

    @property
    def trusted(self) -> np.ndarray:
        """Where the errors of the gradient flow and of the modified flow are known, and no rounding."""
        good = np.isfinite(self.measured[:, :2]).all(axis=1) & np.isfinite(self.expected[:, :2]).all(axis=1)
        told = self.measured[:, :2] > 3 * self.rounding[:, None]  # that float32 can tell from 0
        return np.asarray(good & self.solved[:, :2].all(axis=1) & told.all(axis=1))

    def share(self, *words: str) -> float:
        """The share of the training spent with one of these verdicts."""
        return float(np.average(np.isin(self.word, words), weights=self.weight)) if len(self.word) else float("nan")


def points(runs: Table) -> Points:
    """All measurements of these runs."""
    words = [verdicts(run.metrics) for run in runs]

    def joined(values: list) -> np.ndarray:
        return np.concatenate(values) if values else np.zeros(0)

    return Points(
        word=joined(words),
        rate=joined([np.full(len(w), run.config.learning_rate) for w, run in zip(words, runs, strict=True)]),
        step=joined([run.metrics["step"] for run in runs]),
        run=joined([np.full(len(w), i) for i, w in enumerate(words)]),
        expected=joined([run.metrics["expected_error"] for run in runs]),
        measured=joined([run.metrics["measured_error"] for run in runs]),
        h_lambda=joined([run.metrics["h_lambda"] for run in runs]),
        rounding=joined([np.broadcast_to(run.metrics.get("rounding", 0.0), len(run.metrics["step"])) for run in runs]),
        solved=solved(joined([run.metrics["h_lambda"] for run in runs])),
        weight=joined([durations(run.metrics["step"]) for run in runs]),
    )


def solved(h_lambda: np.ndarray) -> np.ndarray:
    r"""Whether the fixed number of substeps solves the truncated flows of one step, by order.

    On the sharpest mode, with $x = h\lambda_{\max}$, the flow of order n decays by $e^{-s_n}$ with
    $s_n = \sum_{k \le n+1} x^k/k$. Where that is too fast for the substeps the solver errs, and not the flow.

    >>> solved(np.array([0.5, 2.5, 3.5, 5.0, 20.0])).sum(axis=1).tolist()  # orders 0 to n - 1
    [3, 3, 2, 1, 0]
    """
    decay = np.stack([sum(np.abs(h_lambda) ** k / k for k in range(1, n + 2)) for n in range(ORDERS)], axis=-1)
    return decay <= SOLVED * SUBSTEPS


def durations(steps: np.ndarray) -> np.ndarray:
    """The share of a training that each of its measurements stands for: up to halfway to its neighbours.

    >>> durations(np.array([0, 1, 3, 10])).tolist()
    [0.05, 0.15, 0.45, 0.35]
    """
    middles = (steps[1:] + steps[:-1]) / 2
    ends = np.concatenate([[steps[0]], middles, [steps[-1]]])
    return np.diff(ends) / (steps[-1] - steps[0])


def shares(runs: Table, *words: str) -> np.ndarray:
    """For each run the share of its training with one of these verdicts."""
    return np.array([points([run]).share(*words) for run in runs])


def verdicts(metrics: dict) -> np.ndarray:
    """The verdict at each step of a run; a network that is lost is divergent from the step on at which it diverged.

    Dead units and saturated outputs have no gradient, and look as if they were inside.
    """
    rows = zip(*(metrics[name] for name in NUMBERS), strict=True)
    words = []
    for row in rows:
        numbers = dict(zip(NUMBERS, row, strict=True))
        words.append(igr.verdict({**numbers, "slope": numbers["q2"]}).word)
    diverged = [i for i, word in enumerate(words) if word == "divergent"]
    if diverged and not metrics["loss"][-1] < LOST * metrics["loss"][0]:
        words[diverged[0] :] = ["divergent"] * (len(words) - diverged[0])
    return np.array(words)


def networks(runs: Table) -> list[tuple[str, Table]]:
    """The runs by kind of network, those whose name comes first before others."""
    kinds: dict[str, Table] = {}
    for run in runs:
        kinds.setdefault(run.config.network, []).append(run)
    return sorted(kinds.items())


def rates(runs: Table) -> list[float]:
    """The learning rates of these runs, ascending."""
    return sorted({run.config.learning_rate for run in runs})


def at_rate(runs: Table, rate: float) -> Table:
    """The runs with this learning rate."""
    return [run for run in runs if run.config.learning_rate == rate]


def best_rate(runs: Table) -> float:
    """The learning rate with the best mean test accuracy at the end."""
    accuracy = {h: mean_accuracy(runs, h) for h in rates(runs)}
    return max(accuracy, key=lambda h: (accuracy[h], -h))


def mean_accuracy(runs: Table, rate: float) -> float:
    """The mean test accuracy at the end, at a learning rate."""
    return float(np.mean([run.metrics["test_accuracy"][-1] for run in at_rate(runs, rate)]))


def last_inside(runs: Table) -> float:
    """The largest learning rate at which most of the training is inside or marginal; NaN where none is."""
    within = [h for h in rates(runs) if points(at_rate(runs, h)).share("inside", "marginal") > 0.5]
    return max(within, default=float("nan"))
