"""The stored ResNets by family, and how each one trained on a slice of the data did on the images held out.

Every network trains with images held out. In the grid of learning rates (figures A.7, A.8) they have no part. Elsewhere
networks are compared at the epoch of best *validation* accuracy, and none has more time than those it is compared with,
counted in gradients: a plain step costs one, a penalized step or one of sharpness-aware minimization two.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from igr.lab.store import Run, Table


def grid_runs(runs: Table) -> Table:
    """The runs of the grid of learning rates: those without penalty and with the usual stem."""
    return [run for run in runs if not run.config.shape.method and run.config.shape.stem == "3x3"]


@dataclass(frozen=True)
class Outcome:
    """One network: what it is, and its accuracies against its cost."""

    h: float
    mu: float  # or the radius, where `kind` is "sam"
    seed: int
    kind: str  # "plain", "penalty", "every k", "warm-up" or "sam"
    stem: str
    diverged: bool
    cost: np.ndarray  # epochs of plain gradients up to each measurement
    validation: np.ndarray
    test: np.ndarray
    r_ig: float  # at maximum test accuracy

    def best(self, budget: float = np.inf) -> tuple[float, float]:
        """Validation and test accuracy at the epoch of best validation accuracy, among those within a budget."""
        within = np.where((self.cost <= budget * (1 + 1e-9)) & np.isfinite(self.validation), self.validation, -1.0)
        row = int(within.argmax())
        return (float(self.validation[row]), float(self.test[row])) if within[row] >= 0 else (np.nan, np.nan)


def gradients(shape: Any, step: np.ndarray) -> np.ndarray:
    """How many batch gradients the first steps of a run took.

    >>> from igr.lab.sweep import Shape
    >>> shape = Shape(model="resnet18", method="forward", every=4, warm_up=100)
    >>> gradients(shape, np.array([50, 100, 300])).tolist()
    [50.0, 100.0, 350.0]
    """
    more = np.ceil(np.maximum(0, step - shape.warm_up) / shape.every) if shape.method else 0.0
    return step + more


def outcomes(runs: Table) -> list[Outcome]:
    """Every network."""
    return [each for run in runs for each in _outcomes(run)]


def _outcomes(run: Run) -> list[Outcome]:
    m, shape = run.metrics, run.config.shape
    cost = gradients(shape, m["step"]) / float(m["steps_per_epoch"])
    return [
        Outcome(
            h=float(m["learning_rate"][k]),
            mu=float(m["mu"][k]),
            seed=int(m["seed"][k]),
            kind=_kind(shape),
            stem=shape.stem,
            diverged=bool(m["diverged"][k] >= 0),
            cost=cost,
            validation=m["validation_accuracy"][:, k],
            test=m["test_accuracy"][:, k],
            r_ig=float(m["best_r_ig"][k]),
        )
        for k in range(len(m["seed"]))
    ]


def _kind(shape: Any) -> str:
    if shape.method in ("", "sam"):
        return shape.method or "plain"
    if shape.every > 1:
        return f"every {shape.every}"
    return "warm-up" if shape.warm_up else "penalty"


def select(found: Iterable[Outcome], **wanted: Any) -> list[Outcome]:
    """The networks with these values, by seed; the 3x3 stem unless another is named."""
    wanted = {"stem": "3x3"} | wanted
    chosen = (each for each in found if all(getattr(each, name) == value for name, value in wanted.items()))
    return sorted(chosen, key=lambda each: each.seed)


def table_rates(found: Iterable[Outcome]) -> tuple[list[float], list[float]]:
    """The learning rates and the mus of the search, the rates being those at which some of the mus were tried.

    A mu that was tried at one rate only, where h + 4 mu is the rate of a plain network, is the control's and no part of
    the table.
    """
    found = list(found)
    cells = {(each.h, each.mu) for each in select(found, kind="penalty")}
    totals = {round(each.h, 9) for each in select(found, kind="plain")}
    tried = {mu: [h for h, other in cells if other == mu] for mu in {mu for _, mu in cells}}
    mus = sorted(mu for mu, rates in tried.items() if len(rates) > 1 or round(rates[0] + 4 * mu, 9) not in totals)
    return sorted({h for h, mu in cells if mu in mus}), mus


def chosen(found: Iterable[Outcome], kind: str = "penalty", mus: Iterable[float] | None = None, **wanted: Any) -> float:
    """The mu (or radius) with the best validation accuracy in the first seed there is; NaN where there is none.

    Only the first seed has all of them, so only it chooses, whatever the others say later.
    """
    every = [each for each in select(found, kind=kind, **wanted) if mus is None or each.mu in mus]
    first = [each for each in every if each.seed == every[0].seed]
    scores = {each.mu: each.best()[0] for each in first}
    good = {mu: score for mu, score in scores.items() if np.isfinite(score)}
    return max(good, key=lambda mu: (good[mu], -mu)) if good else float("nan")


def matched(ours: Iterable[Outcome], theirs: Iterable[Outcome]) -> np.ndarray:
    """Test accuracies of ours and theirs, a row for each seed both have, each at its epoch of best validation accuracy.

    The others have as much time as ours took: what they reach later does not count.
    """
    other = {each.seed: each for each in theirs}
    both = [(each, other[each.seed]) for each in ours if each.seed in other]
    return np.array([(a.best()[1], b.best(float(a.cost[-1]))[1]) for a, b in both], float).reshape(-1, 2)


def gains(ours: Iterable[Outcome], theirs: Iterable[Outcome]) -> np.ndarray:
    """By how many points of test accuracy ours are ahead of theirs in no more time, seed by seed."""
    accuracies = matched(ours, theirs)
    return 100 * (accuracies[:, 0] - accuracies[:, 1])


def pairs(found: list[Outcome], h: float, stem: str = "3x3") -> tuple[list[Outcome], list[Outcome]]:
    """The penalized networks of a rate at the mu the first seed's validation accuracy chooses, and the plain ones."""
    mus = table_rates(found)[1] if stem == "3x3" else None
    mu = chosen(found, mus=mus, h=h, stem=stem)
    return select(found, kind="penalty", h=h, mu=mu, stem=stem), select(found, kind="plain", h=h, stem=stem)


def best_rate(found: list[Outcome]) -> float:
    """The rate of the search at which the penalty raises the *validation* accuracy of the first seed most."""
    raised = {}
    for h in table_rates(found)[0]:
        ours, plain = pairs(found, h)
        if ours and plain:
            raised[h] = ours[0].best()[0] - plain[0].best()[0]
    return max(raised, key=lambda h: raised[h]) if raised else float("nan")


def top(found: Iterable[Outcome]) -> list[Outcome]:
    """The seeds of the model (rate and mu) whose first seed has the best validation accuracy."""
    every = sorted(found, key=lambda each: each.seed)
    first = [each for each in every if each.seed == every[0].seed and np.isfinite(each.best()[0])]
    if not first:
        return []
    best = max(first, key=lambda each: each.best()[0])
    return [each for each in every if (each.h, each.mu) == (best.h, best.mu)]


def equal_total_rates(found: list[Outcome]) -> list[tuple[list[Outcome], list[Outcome]]]:
    """Penalized networks beside the plain ones whose step is as large as theirs and four times their mu together."""
    matches = []
    for big in sorted({each.h for each in select(found, kind="plain")}):
        models = {(each.h, each.mu) for each in select(found, kind="penalty")}
        same = [(h, mu) for h, mu in sorted(models) if abs(h + 4 * mu - big) < 1e-9]
        matches += [(select(found, kind="penalty", h=h, mu=mu), select(found, kind="plain", h=big)) for h, mu in same]
    return matches
