"""Section 6, figure 3c and appendix A.5: ResNet-18, the learning rate, and the penalty made explicit.

Three families. The grid trains plain networks of several learning rates on the whole training set (figures A.7, A.8).
The search tries mu at several rates with images held out (figure 3c), beside sharpness-aware minimization and a control
in which a small step and a penalty have the total rate of a large step. What the search decides is repeated with other
seeds, thinned out over the steps, and tried with the other stem: `follow_up`.

Equal time throughout: a penalized step costs two gradients, so networks without penalty train twice as long.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from igr.lab.config import Config, ConfigError, Scale, option
from igr.lab.data import SIZES
from igr.lab.experiments.resnet_captions import CAPTIONS as CAPTIONS
from igr.lab.experiments.resnet_figures import figures as figures
from igr.lab.experiments.resnet_findings import findings as findings
from igr.lab.experiments.resnet_runs import chosen, outcomes, select, top
from igr.lab.store import Table
from igr.lab.sweep import Measure, Network, Schedule, Shape, StackRun, stacks

CLAIM = (
    "ResNet-18 with larger learning rates has smaller R_IG and smaller slopes and tests better, and adding the penalty "
    "mu |grad E|^2 explicitly raises test accuracy by more than 12 points."
)


@dataclass(frozen=True)
class Plan:
    """What a scale computes."""

    base: Shape  # what all networks share; few full measurements, as one of ResNet-18 takes as long as ten epochs
    grid: tuple[tuple[float, int], ...]  # learning rates and their epochs: small ones take longer to fit
    seeds: int
    held_out: int  # images
    rates: tuple[float, ...]  # of the search
    mus: tuple[float, ...]
    epochs: int  # of a penalized network; a plain one has twice as many
    rate: float  # of all that follows
    larger: tuple[float, ...]  # learning rates that the control replaces by a penalty
    radii: tuple[float, ...]  # of sharpness-aware minimization
    radius: float  # of the penalty's forward difference; 0 is the default of `igr.value_and_grad`
    every: tuple[int, ...]  # steps from one penalty to the next
    stem: bool  # also the 7x7 one
    other_seeds: int  # of what follows


PLANS = {
    Scale.SMOKE: Plan(
        Shape(model="resnet18", data="digits", train_images=128, width=2, batch_size=32, precision="highest"),
        ((0.05, 2), (0.2, 2)), 2, 32, (0.05, 0.1), (0.01, 0.1), 1, 0.05, (0.1,), (), 0.1, (), False, 1,
    ),
    Scale.QUICK: Plan(  # few images, so that narrow networks fit them all in seconds and are far from perfect
        Shape(model="resnet18", data="digits", train_images=600, width=4, batch_size=32,
              schedule=Schedule(early=0, stretch=2.0, watch=3)),
        ((0.01, 30), (0.03, 30), (0.1, 30), (0.3, 30), (1.0, 30)), 3, 200, (0.03, 0.1), (0.01, 0.03, 0.1), 30, 0.1,
        (0.3,), (0.1,), 0.1, (2,), False, 3,
    ),
    Scale.PAPER: Plan(
        Shape(model="resnet18", data="cifar10", width=64, batch_size=512, precision="bfloat16",
              measure=Measure(images=10_000), schedule=Schedule(early=1, stretch=2.0)),
        ((0.005, 100), (0.01, 80), (0.05, 40), (0.1, 40), (0.2, 40)), 3, 5000, (0.005, 0.01, 0.02, 0.05),
        (0.01, 0.03, 0.1, 0.3), 30, 0.02, (0.1, 0.2), (0.05, 0.1, 0.2), 0.0, (2, 4), True, 1,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Options(Config):
    """What may be changed on the command line."""

    seeds: int = option("seeds for each learning rate; 0 takes the scale's number", 0)
    epochs: int = option("epochs of training in the grid; 0 takes the scale's number", 0)
    search_epochs: int = option("epochs of a penalized network of the search; 0 takes the scale's number", 0)
    other_seeds: int = option("seeds of the other comparisons; 0 takes the scale's number", 0)

    def check(self) -> None:
        """Counts are not negative."""
        if min(self.seeds, self.epochs, self.search_epochs, self.other_seeds) < 0:
            raise ConfigError("seeds, epochs, search_epochs and other_seeds must not be negative.")


class Family:
    """The networks of a scale, by what is asked of them."""

    def __init__(self, scale: Scale, options: Options | None):
        options, self.plan = options or Options(), PLANS[scale]
        self.seeds = options.seeds or self.plan.seeds
        self.other_seeds = options.other_seeds or self.plan.other_seeds
        self.grid_epochs, self.epochs = options.epochs, options.search_epochs or self.plan.epochs
        base = self.plan.base
        images = base.train_images or SIZES[base.data][0]
        self.epoch = (images - self.plan.held_out) // base.batch_size  # steps, with images held out
        self.whole_epoch = images // base.batch_size
        self.whole = base.replace(measure=Measure())
        ends = Schedule(
            early=0, every=1 + 2 * self.epochs, watch=base.schedule.watch
        )  # R_IG at the start, the end and the best
        held = base.replace(validation=self.plan.held_out, schedule=ends)
        self.plain_shape = held.replace(steps=2 * self.epochs * self.epoch)
        self.penalty_shape = held.replace(steps=self.epochs * self.epoch, method="forward", radius=self.plan.radius)

    def grid(self, seeds: Iterable[int]) -> list[Network]:
        """Plain networks on the whole training set."""
        steps = {h: (self.grid_epochs or epochs) * self.whole_epoch for h, epochs in self.plan.grid}
        return [Network(self.whole.replace(steps=n), h, seed=s) for s in seeds for h, n in steps.items()]

    def plain(self, rates: Iterable[float], seeds: Iterable[int]) -> list[Network]:
        """Networks without penalty and with images held out."""
        return [Network(self.plain_shape, h, seed=s) for s in seeds for h in rates]

    def penalized(self, cells: Iterable[tuple[float, float]], seeds: Iterable[int], **shape: object) -> list[Network]:
        """Networks with penalty, for pairs of learning rate and mu."""
        return [Network(self.penalty_shape.replace(**shape), h, mu, s) for s in seeds for h, mu in cells]

    def search(self) -> list[tuple[float, float]]:
        """The table of figure 3c, mu by mu, so that a search that is cut has its columns complete."""
        return [(h, mu) for mu in self.plan.mus for h in self.plan.rates]

    def control(self) -> list[tuple[float, float]]:
        """Pairs of h and mu with h + 4 mu a larger learning rate: descent with step h has mu = h/4 built in."""
        return [(self.plan.rate, round((big - self.plan.rate) / 4, 9)) for big in self.plan.larger]

    def sam(self, seeds: Iterable[int]) -> list[Network]:
        """Sharpness-aware minimization at the rate of the comparisons."""
        cells = [(self.plan.rate, radius) for radius in self.plan.radii]
        return self.penalized(cells, seeds, method="sam", radius=0)


def trials(scale: Scale, options: Options | None = None) -> list[StackRun]:
    """The grid with one seed, the search, the control and SAM, then the other seeds: a session that is cut has most."""
    family = Family(scale, options)
    first, rest, others = [0], range(1, family.seeds), range(1, family.other_seeds)
    rates = family.plan.rates
    blocks = [
        family.grid(first),
        family.plain([*rates, *family.plan.larger], first),
        family.penalized(family.search() + family.control(), first),
        family.sam(first),
        family.grid(rest),
        family.plain(family.plan.larger, others),
        family.penalized(family.control(), others),
        family.sam(others),
    ]
    return list(dict.fromkeys(unit for block in blocks for unit in stacks(block)))  # the control may be in the table


def follow_up(scale: Scale, options: Options | None, runs: Table) -> list[StackRun]:
    """What finished runs decide: at each rate of the search the best mu with other seeds, then the comparisons with it.

    A rate counts as searched when all its mus are finished. The best plain rate is repeated too, once all are.
    """
    family, found = Family(scale, options), outcomes(runs)
    plan = family.plan
    tried = {h: {each.mu for each in select(found, h=h, seed=0, kind="penalty")} for h in plan.rates}
    best = {h: chosen(found, mus=plan.mus, h=h) for h in plan.rates if tried[h] >= set(plan.mus)}
    best = {h: mu for h, mu in best.items() if np.isfinite(mu)}  # a rate at which everything diverged decides nothing
    plain = [each.h for each in select(found, kind="plain", seed=0)]
    again = list(best)
    if best and set(plain) >= {*plan.rates, *plan.larger}:
        again += [each.h for each in top(select(found, kind="plain", seed=0)) if each.h not in again]
    rest = range(1, family.seeds)
    blocks = [family.plain(again, rest), family.penalized(best.items(), rest)]
    if plan.rate in best:
        mu, seeds = best[plan.rate], range(family.other_seeds)
        cell = [(plan.rate, mu)]
        blocks += [family.penalized(cell, seeds, every=k) for k in plan.every]
        if plan.every:  # at smoke scale neither: each is a program to compile
            blocks.append(family.penalized(cell, seeds, warm_up=family.penalty_shape.steps // 2))
        if plan.stem:
            place = plan.mus.index(mu)
            near = [(plan.rate, each) for each in plan.mus[max(0, place - 1) : place + 2]]
            stem = {"stem": "7x7", "init": "haiku"}
            blocks += [family.penalized(near, seeds, **stem)]
            blocks += [[Network(family.plain_shape.replace(**stem), plan.rate, seed=s) for s in seeds]]
    known = {run.config for run in runs}
    return [unit for block in blocks for unit in stacks(block) if unit not in known]
