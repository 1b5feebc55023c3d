"""The stored ResNets by kind, and the accuracies of each one against its cost.

Every network trains with some images held out. The grid of learning rates (figures A.7 and A.8) does not use these. In
all other comparisons, accuracies are those at the epoch of best *validation* accuracy, and no network has more time
than those it is compared with. Time is counted in gradients: a plain step costs one, a penalized step or a step of
sharpness-aware minimization two.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from igr.lab.store.store import Run, Table

BATCHES = ("batch_r_ig_512",)  # beside the paths of further seeds: what tells these runs from those of the grid


def with_paths(runs: Table) -> Table:
    """The runs that train the grid's networks of further seeds again, to have their paths."""
    return [run for run in runs if run.config.shape.measure.metrics == BATCHES]


def unmeasured(runs: Table) -> Table:
    """The runs that do not measure flatness: those that do train the same networks again."""
    return [run for run in runs if not run.config.shape.measure.metrics]


def grid_runs(runs: Table) -> Table:
    """The runs of the grid of learning rates: those without penalty and with the usual stem.

    Seeds that were trained at one rate alone belong to a comparison: they would give that rate more weight.
    """
    shapes = [(run, run.config.shape) for run in unmeasured(runs)]
    plain = [run for run, shape in shapes if not shape.method and shape.stem == "3x3"]
    rates: dict[int, set[float]] = {}
    for run in plain:
        for seed, h in zip(run.config.seeds, run.config.learning_rates, strict=True):
            rates.setdefault(seed, set()).add(h)
    every = {h for mine in rates.values() for h in mine}
    single = {seed for seed, mine in rates.items() if len(mine) == 1 and len(every) > 1}
    return [run for run in plain if not set(run.config.seeds) <= single]


@dataclass(frozen=True)
class Outcome:
    """What one network is, and its accuracies against its cost."""

    h: float
    mu: float  # or the radius, where `kind` is "sam"
    seed: int
    kind: str  # "plain", "penalty", "every k", "warm-up", "exact", "radius r" or "sam"
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
    """How many batch gradients the first `step` steps of a run took.

    >>> from igr.lab.training.config import Shape
    >>> shape = Shape(model="resnet18", method="forward", every=4, warm_up=100)
    >>> gradients(shape, np.array([50, 100, 300])).tolist()
    [50.0, 100.0, 350.0]
    """
    more = np.ceil(np.maximum(0, step - shape.warm_up) / shape.every) if shape.method else 0.0
    return step + more


def outcomes(runs: Table) -> list[Outcome]:
    """The outcomes of all networks of `runs`, but for those that train again to measure flatness."""
    return [each for run in unmeasured(runs) for each in _outcomes(run)]


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
    if shape.method == "exact" or shape.radius:
        return "exact" if shape.method == "exact" else f"radius {shape.radius:g}"
    return "warm-up" if shape.warm_up else "penalty"


def select(found: Iterable[Outcome], **wanted: Any) -> list[Outcome]:
    """The networks with these values, by seed; the 3x3 stem unless another is named."""
    wanted = {"stem": "3x3"} | wanted
    chosen = (each for each in found if all(getattr(each, name) == value for name, value in wanted.items()))
    return sorted(chosen, key=lambda each: each.seed)


def table_rates(found: Iterable[Outcome]) -> tuple[list[float], list[float]]:
    """The learning rates and the mus of the search: the rates are those at which some of the mus were tried.

    A mu that was tried at one rate only, where h + 4 mu is the rate of a plain network, belongs to the control and not
    to the search.
    """
    found = list(found)
    cells = {(each.h, each.mu) for each in select(found, kind="penalty")}
    totals = {round(each.h, 9) for each in select(found, kind="plain")}
    tried = {mu: [h for h, other in cells if other == mu] for mu in {mu for _, mu in cells}}
    mus = sorted(mu for mu, rates in tried.items() if len(rates) > 1 or round(rates[0] + 4 * mu, 9) not in totals)
    return sorted({h for h, mu in cells if mu in mus}), mus


def chosen(found: Iterable[Outcome], kind: str = "penalty", mus: Iterable[float] | None = None, **wanted: Any) -> float:
    """The mu (or radius) with the best validation accuracy of the first seed; NaN where there is none.

    Only the first seed was trained with all of them, so the other seeds have no say. `mus` restricts the choice.
    """
    every = [each for each in select(found, kind=kind, **wanted) if mus is None or each.mu in mus]
    first = [each for each in every if each.seed == every[0].seed]
    scores = {each.mu: each.best()[0] for each in first}
    good = {mu: score for mu, score in scores.items() if np.isfinite(score)}
    return max(good, key=lambda mu: (good[mu], -mu)) if good else float("nan")


def matched(ours: Iterable[Outcome], theirs: Iterable[Outcome]) -> np.ndarray:
    """The test accuracies of `ours` and `theirs` at best validation accuracy, one row per seed that both have.

    Theirs have as much time as ours took; what they reach later does not count.
    """
    other = {each.seed: each for each in theirs}
    both = [(each, other[each.seed]) for each in ours if each.seed in other]
    return np.array([(a.best()[1], b.best(float(a.cost[-1]))[1]) for a, b in both], float).reshape(-1, 2)


def gains(ours: Iterable[Outcome], theirs: Iterable[Outcome]) -> np.ndarray:
    """The lead of `ours` over `theirs` in points of test accuracy at equal cost, seed by seed."""
    accuracies = matched(ours, theirs)
    return 100 * (accuracies[:, 0] - accuracies[:, 1])


def pairs(found: list[Outcome], h: float, stem: str = "3x3") -> tuple[list[Outcome], list[Outcome]]:
    """The penalized networks of rate `h` at the mu that the first seed chooses, and the plain networks."""
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
    """Pairs of penalized and plain networks with h + 4 mu of the first equal to h of the second."""
    matches = []
    for big in sorted({each.h for each in select(found, kind="plain")}):
        models = {(each.h, each.mu) for each in select(found, kind="penalty")}
        same = [(h, mu) for h, mu in sorted(models) if abs(h + 4 * mu - big) < 1e-9]
        matches += [(select(found, kind="penalty", h=h, mu=mu), select(found, kind="plain", h=big)) for h, mu in same]
    return matches
