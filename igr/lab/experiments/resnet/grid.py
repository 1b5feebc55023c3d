"""Section 6, figure 3c and appendix A.5: ResNet-18, the learning rate, and the explicit penalty.

All networks train on the same images, with the same other images held out. The grid consists of plain networks of
several learning rates (figures A.7 and A.8). The search of mu is compared with it (figure 3c), and so are
sharpness-aware minimization and a control in which a small step and a penalty have the total rate of a large step.
`follow_up` repeats the best mu of the search with other seeds, at every k-th step, after a warm-up, and with the other
stem.

Time is counted in gradients; a penalized step costs two. Plain networks train until they fit their images exactly,
after which their test accuracy hardly changes. In a comparison they have at most the time of the other networks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from igr.lab.data.registry import DATASETS
from igr.lab.experiments.resnet.captions import CAPTIONS as CAPTIONS
from igr.lab.experiments.resnet.runs import BATCHES, chosen, outcomes, select
from igr.lab.store.config import Config, ConfigError, Scale, option
from igr.lab.store.store import Table
from igr.lab.training.config import Measure, Schedule, Shape, ShapeChanges
from igr.lab.training.stack import Network, StackRun, stacks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from igr.lab.analysis.findings import Finding

CLAIM = (
    "ResNet-18 with larger learning rates has smaller R_IG, smaller slopes and a higher test accuracy, and an explicit "
    "penalty mu |grad E|^2 raises the test accuracy by more than 12 points."
)


@dataclass(frozen=True)
class ResNetPlan:
    """What a scale computes."""

    base: Shape  # what all networks share
    grid: tuple[tuple[float, int], ...]  # plain: learning rates and their epochs, as small ones take longer to fit
    seeds: int
    path: tuple[int, ...]  # epochs after which R_IG is measured, of the first seeds; of all at the end and at the best
    paths: int  # how many seeds these are: on CIFAR-10 a measurement takes as long as nine epochs of training
    search: tuple[tuple[float, int], ...]  # penalized: learning rates and their epochs
    mus: tuple[float, ...]
    rate: float  # of all that follows
    larger: tuple[float, ...]  # learning rates that the control replaces by a penalty
    radii: tuple[float, ...]  # of sharpness-aware minimization
    every: tuple[int, ...]  # steps from one penalty to the next
    stem: bool  # also the 7x7 one
    other_seeds: int  # of what follows
    subset: Measure  # how R_IG is measured of networks that are not in the grid
    confirm: int = 0  # further seeds of the best mu at `rate`, beside plain ones, to judge the boost
    exact: bool = False  # the exact penalty at the chosen cells
    lengths: tuple[float, ...] = ()  # of the step of differences, at `rate` and its best mu
    flat: Measure | None = None  # how flatness is measured, of plain networks at their best epoch and end


PATH = (2, 8)  # epochs after which flatness is measured too: a measurement takes longer than one of R_IG
PLANS = {
    Scale.SMOKE: ResNetPlan(
        Shape(model="resnet18", data="digits", train_images=160, validation=32, width=2, batch_size=32,
              precision="highest"),
        ((0.05, 2), (0.1, 2)), 2, (0, 1), 1, ((0.05, 1), (0.1, 1)), (0.01, 0.1), 0.05, (0.1,), (), (), False, 1,
        Measure(),
    ),
    Scale.QUICK: ResNetPlan(  # few images, so that narrow networks fit them all in seconds and are far from perfect
        Shape(model="resnet18", data="digits", train_images=800, validation=200, width=4, batch_size=32,
              schedule=Schedule(watch=3)),
        ((0.01, 60), (0.03, 60), (0.1, 60), (0.3, 60), (1.0, 60)), 3, (0, 1, 2, 4, 8, 16, 32), 3,
        ((0.03, 30), (0.1, 30)), (0.01, 0.03, 0.1), 0.1, (0.3,), (0.1,), (2,), False, 3, Measure(),
    ),
    Scale.PAPER: ResNetPlan(
        Shape(model="resnet18", data="cifar10", validation=5000, width=64, batch_size=512, precision="bfloat16",
              measure=Measure(test=False)),
        ((0.005, 120), (0.01, 70), (0.02, 40), (0.05, 32), (0.1, 32), (0.2, 32)), 3,
        (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96), 1,
        ((0.005, 70), (0.01, 60), (0.02, 60), (0.05, 40)), (0.02, 0.06, 0.2), 0.02, (0.1, 0.2), (0.05, 0.2),
        (4,), True, 3, Measure(images=10_000, test=False), 7, True, (0.01, 0.03, 0.09, 0.2),
        Measure(images=10_000, test=False, metrics=("sharpness", "trace", "batch_r_ig_512")),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Options(Config):
    """The options of `igr run resnet`."""

    seeds: int = option("seeds for each learning rate; 0 takes the scale's number", 0)
    epochs: int = option("epochs of training in the grid; 0 takes the scale's number", 0)
    search_epochs: int = option("epochs of a penalized network of the search; 0 takes the scale's number", 0)
    other_seeds: int = option("seeds of the other comparisons; 0 takes the scale's number", 0)
    shape: ShapeChanges = option("changes to every network", ShapeChanges())  # noqa: RUF009

    def check(self) -> None:
        """Validate the counts."""
        if min(self.seeds, self.epochs, self.search_epochs, self.other_seeds) < 0:
            raise ConfigError("seeds, epochs, search_epochs and other_seeds must not be negative.")


class Family:
    """The networks of a scale by purpose."""

    def __init__(self, scale: Scale, options: Options | None):
        options, self.plan = options or Options(), PLANS[scale]
        self.changes = options.shape
        self.seeds = options.seeds or self.plan.seeds
        self.other_seeds = options.other_seeds or self.plan.other_seeds
        self.grid = {h: options.epochs or epochs for h, epochs in self.plan.grid}
        self.search = {h: options.search_epochs or epochs for h, epochs in self.plan.search}
        base = self.plan.base
        images = base.train_images or DATASETS[base.data].sizes[0]
        self.epoch = (images - base.validation) // base.batch_size  # steps

    def _shape(self, epochs: int, path: tuple[int, ...] | None, **shape: object) -> Shape:
        schedule = self.plan.base.schedule.replace(early=0, every=0, epochs=path or ())
        usual = {} if path is not None else {"measure": self.plan.subset}
        shape = {"steps": epochs * self.epoch, "schedule": schedule, **usual, **shape}
        return self.changes.of(self.plan.base.replace(**shape))

    def plain(self, seeds: Iterable[int]) -> list[Network]:
        """Networks without penalty, one for each learning rate of the grid."""
        paths = {s: self.plan.path if s < self.plan.paths else () for s in seeds}
        return [Network(self._shape(n, paths[s]), h, seed=s) for s in paths for h, n in self.grid.items()]

    def flatness(self, seeds: Iterable[int]) -> list[Network]:
        """The grid again with lambda_max, trace and squared batch gradients, which a stored run cannot measure."""
        if self.plan.flat is None:
            return []
        shapes = {h: self._shape(n, PATH, measure=self.plan.flat) for h, n in self.grid.items()}
        return [Network(shape, h, seed=s) for s in seeds for h, shape in shapes.items()]

    def paths(self, seeds: Iterable[int]) -> list[Network]:
        """The grid again with the path that the first seed has, for further seeds, and the squared batch gradients."""
        if self.plan.flat is None:
            return []
        measure = self.plan.base.measure.replace(metrics=BATCHES)
        shapes = {h: self._shape(n, self.plan.path, measure=measure) for h, n in self.grid.items()}
        return [Network(shape, h, seed=s) for s in seeds for h, shape in shapes.items()]

    def penalized(self, cells: Iterable[tuple[float, float]], seeds: Iterable[int], **shape: object) -> list[Network]:
        """Networks with penalty, for pairs of learning rate and mu."""
        shape = {"method": "forward", **shape}
        return [Network(self._shape(self.search[h], None, **shape), h, mu, s) for s in seeds for h, mu in cells]

    def table(self) -> list[tuple[float, float]]:
        """The table of figure 3c, mu by mu, so that a search that is cut has its columns complete."""
        return [(h, mu) for mu in self.plan.mus for h in self.search]

    def control(self) -> list[tuple[float, float]]:
        """Pairs of h and mu with h + 4 mu a larger learning rate: descent with step h has mu = h/4 built in."""
        return [(self.plan.rate, round((big - self.plan.rate) / 4, 9)) for big in self.plan.larger]

    def sam(self, radii: Iterable[float], seeds: Iterable[int]) -> list[Network]:
        """Sharpness-aware minimization at the rate of the comparisons."""
        shape, h = self._shape(self.search[self.plan.rate], None, method="sam"), self.plan.rate
        return [Network(shape, h, seed=s, rho=radius) for s in seeds for radius in radii]

    def stem(self, mu: float, seeds: Iterable[int]) -> list[Network]:
        """The 7x7 stem with Haiku's initialization, without penalty and with it."""
        other, h = {"stem": "7x7", "init": "haiku"}, self.plan.rate
        plain = [Network(self._shape(self.grid[h], None, **other), h, seed=s) for s in seeds]
        return plain + self.penalized([(h, mu)], seeds, **other)


def trials(scale: Scale, options: Options | None = None) -> list[StackRun]:
    """The grid with one seed, the search and the control, other seeds of the grid, SAM, other seeds of the control.

    Last come the networks of the grid again, with flatness, and with the paths that stored seeds do not have.
    """
    family = Family(scale, options)
    first, rest, others = [0], range(1, family.seeds), range(1, family.other_seeds)
    blocks = [
        family.plain(first),
        family.penalized(family.table() + family.control(), first),
        family.plain(rest),
        family.sam(family.plan.radii, first),
        family.penalized(family.control(), others),
        family.flatness(range(family.seeds)),
        family.paths(range(family.plan.paths, family.seeds)),
    ]
    return list(dict.fromkeys(unit for block in blocks for unit in stacks(block)))  # the control may be in the table


def follow_up(scale: Scale, options: Options | None, runs: Table) -> list[StackRun]:
    """What finished runs decide: at each rate of the search the best mu with other seeds, then the comparisons with it.

    A rate counts as searched when all its mus are finished, and SAM when all its radii are.
    """
    family, found = Family(scale, options), outcomes(runs)
    plan = family.plan

    def settled(kind: str, h: float, candidates: tuple[float, ...]) -> float:
        """The best mu (or radius) of a rate; NaN while some are to be tried, or where all diverged."""
        tried = {each.mu for each in select(found, kind=kind, h=h, seed=0)}
        return chosen(found, kind, mus=candidates, h=h) if tried >= set(candidates) else float("nan")

    best = {h: mu for h in family.search if np.isfinite(mu := settled("penalty", h, plan.mus))}
    radius = settled("sam", plan.rate, plan.radii)
    blocks = [
        family.penalized(best.items(), range(1, family.seeds)),
        family.sam([radius] if np.isfinite(radius) else [], range(1, family.other_seeds)),
    ]
    if plan.rate in best:
        mu, seeds = best[plan.rate], range(family.other_seeds)
        cell = [(plan.rate, mu)]
        blocks += [family.penalized(cell, seeds, every=k) for k in plan.every]
        if plan.confirm:
            more = range(family.seeds, family.seeds + plan.confirm)
            plain = [network for network in family.plain(more) if network.learning_rate == plan.rate]
            blocks += [plain, family.penalized(cell, more)]
        blocks += [family.penalized(cell, seeds, radius=length) for length in plan.lengths]
        if plan.every:  # at smoke scale neither: each is a program to compile
            half = family.search[plan.rate] * family.epoch // 2
            blocks.append(family.penalized(cell, seeds, warm_up=half))
        if plan.stem:
            blocks.append(family.stem(mu, seeds))
    if plan.exact:
        blocks.append(family.penalized(best.items(), range(family.seeds), method="exact"))
    known = {run.config for run in runs}
    return [unit for block in blocks for unit in stacks(block) if unit not in known]


def figures(runs: Table) -> "dict[str, Figure]":
    """The figures that the stored `runs` suffice for, by name."""
    from igr.lab.experiments.resnet.figures import figures

    return figures(runs)


def findings(runs: Table) -> "list[Finding]":
    """The claims of the paper with the numbers measured in `runs`."""
    from igr.lab.experiments.resnet.findings import findings

    return findings(runs)


def views(runs: Table) -> dict[str, str]:
    """Tables for pages, as Markdown by name."""
    from igr.lab.experiments.resnet.tables import views

    return views(runs)
