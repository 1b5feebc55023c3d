"""Trainings beyond the paper's grid, which `igr run mlp --beyond` adds: what the stored grid leaves open.

Full batch to interpolation: descent without mini-batch noise, the paper's own setting, with steps in proportion to 1/h,
so that all rates end at one physical time, late enough for the smallest to fit. Flatness: the focus width again, with
the Hessian's largest eigenvalue and trace and the squared batch gradients, which stored runs do not have. More seeds at
the focus width, and more rates of tanh. The rules of judgement are in `docs/log.md`, written before any of these ran.
"""

from dataclasses import dataclass

from igr.lab.analysis.cohort import cohort, pick
from igr.lab.analysis.correlation import correlation
from igr.lab.analysis.findings import Finding, pending
from igr.lab.experiments.flatness import flatness
from igr.lab.store.config import Scale
from igr.lab.store.store import Table
from igr.lab.training.config import Measure, Noise, Schedule, Shape
from igr.lab.training.stack import Network

METRICS = ("sharpness", "trace", "batch_r_ig_32")


@dataclass(frozen=True)
class Additions:
    """What `--beyond` adds at a scale."""

    time: float  # physical time of full-batch descent
    rates: tuple[float, ...]  # of full-batch descent
    seeds: int  # of full-batch descent and of flatness
    path: tuple[int, ...]  # epochs after which flatness is measured, beside the best and the last
    images: int  # on which flatness is measured; 0 is all
    more: tuple[int, ...]  # seeds of the focus width
    tanh: tuple[float, ...]  # rates


PLANS = {
    Scale.SMOKE: Additions(2.0, (0.2, 0.1), 1, (1,), 64, (), ()),
    Scale.QUICK: Additions(480.0, (0.3, 0.2, 0.15, 0.1, 0.05), 3, (5, 50), 0, (3, 4, 5), (0.03,)),
    Scale.PAPER: Additions(
        4000.0, (0.3, 0.2, 0.15, 0.1, 0.05), 3, (2, 10, 50), 10_000, (3, 4, 5, 6), (0.2, 0.02, 0.002)
    ),
}


def networks(scale: Scale, focus: Shape, rates: tuple[float, ...]) -> list[list[Network]]:
    """The networks in blocks that are stacked by themselves, for the `focus` shape of the grid and its `rates`.

    Full batch, one block for each rate; flatness; more seeds; more rates of tanh.
    """
    plan, plain = PLANS[scale], focus.replace(noise=Noise())
    full = []
    for h in plan.rates:
        steps = round(plan.time / h)
        when = focus.schedule.replace(watch=max(1, steps // 200))
        shape = plain.replace(batch_size=0, steps=steps, schedule=when)
        full.append([Network(shape, h, seed=s) for s in range(plan.seeds)])
    measure = Measure(images=plan.images, test=False, metrics=METRICS)
    flat = plain.replace(measure=measure, schedule=Schedule(early=0, every=0, epochs=plan.path))
    tanh = plain.replace(activation="tanh")
    return [
        *full,
        [Network(flat, h, seed=s) for s in range(plan.seeds) for h in rates],
        [Network(focus, h, seed=s) for s in plan.more for h in rates],
        [Network(tanh, h, seed=s) for h in plan.tanh for s in range(plan.seeds)],
    ]


def to_interpolation(runs: Table) -> Table:
    """The full-batch runs with steps in proportion to 1/h: each is a stack of one learning rate."""
    return [run for run in runs if not run.config.shape.batch_size and len(set(run.config.learning_rates)) == 1]


def findings(runs: Table) -> list[Finding]:
    """What these runs say; at paper scale, which of them are not yet computed."""
    paper = any(run.config.shape.data == "mnist" for run in runs)
    command, full = "igr run mlp --scale paper --beyond", to_interpolation(runs)
    found = _full_batch(full) if full else []
    if paper and not full:
        claim = "Full batch to interpolation: R_IG and slopes fall and accuracy grows with h at equal physical time"
        found.append(pending("mlp.full-batch.to-interpolation", claim, "figure A.6, section 3", 15, command))
    return found + flatness("mlp", runs, command, 21 if paper else 0)


def _full_batch(full: Table) -> list[Finding]:
    found, h = [], "learning_rate"
    for rule, words in (("end", "at the end, which is one physical time"), ("max_test", "at maximum test accuracy")):
        table = cohort(full, rule)
        table = pick(table | {"r_ig / loss": table["r_ig"] / table["loss"]}, table["fitted"])
        part = rule.replace("_", "-")
        for id, claim, y, sign in (
            ("r-ig-falls", "R_IG falls", "r_ig", -1),
            ("ratio-falls", "R_IG/E falls", "r_ig / loss", -1),
            ("slope-falls", "Slopes fall", "slope", -1),
            ("accuracy-grows", "Test accuracy grows", "test_accuracy", +1),
        ):
            name, where = f"mlp.full-batch.to-interpolation.{id}-with-h.{part}", "figure A.6, section 3"
            found.append(correlation(name, f"Full batch: {claim} as h grows, {words}", where, table, h, y, sign))
    return found
