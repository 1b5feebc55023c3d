"""Section 6 and appendix A.5: MLPs of several widths and learning rates on handwritten digits.

One set of trainings feeds all figures: a grid of widths and learning rates (figures 2 and A.3 to A.6), noise on the
parameters of maximum test accuracy for one width (3a and 3b), batch sizes up to the whole training set (A.6, top
right), and the activations tanh and GELU, which are not in the paper. `--beyond` adds what the grid leaves open.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from igr.lab.data.registry import DATASETS
from igr.lab.experiments.mlp.captions import CAPTIONS as CAPTIONS
from igr.lab.store.config import Config, ConfigError, Scale, option
from igr.lab.store.store import Table
from igr.lab.training.config import Noise, Schedule, Shape, ShapeChanges
from igr.lab.training.stack import Network, StackRun, stacks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from igr.lab.analysis.findings import Finding

CLAIM = (
    "Networks with a larger implicit rate hm/4 (larger learning rates, more parameters) end with smaller R_IG and "
    "smaller slopes, have a higher test accuracy, and keep it under more parameter noise."
)

SIGMAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0)  # up to 300 %, as in figure 3


@dataclass(frozen=True)
class Grid:
    """What a scale computes."""

    data: str
    train_images: int  # of the data set; 0 is all
    widths: tuple[int, ...]
    focus: int  # the width of figures 3, A.3, A.4, A.5, of the batch sizes and of the activations
    rates: tuple[float, ...]
    seeds: int
    epochs: int
    batches: tuple[tuple[int, int, tuple[float, ...], int], ...]  # (batch size, epochs, rates, seeds); 0 is full batch
    realizations: tuple[int, int]  # of the noise, for slopes and for accuracies
    stretch: float  # see `Schedule`
    early: int


PAPER_RATES = (0.5, 0.1, 0.05, 0.01, 0.005, 0.001, 0.0005)
QUICK_RATES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
GRIDS = {
    Scale.SMOKE: Grid("digits", 320, (24, 32), 32, (0.2, 0.1, 0.05), 2, 120, ((0, 400, (0.5,), 2),), (1, 2), 1.5, 0),
    Scale.QUICK: Grid(
        "digits", 0, (16, 32, 64), 32, QUICK_RATES, 3, 250,
        ((128, 500, QUICK_RATES, 3), (0, 1600, (0.5, 0.4, 0.3, 0.2, 0.15), 3)), (4, 25), 1.15, 5,
    ),
    Scale.PAPER: Grid(
        "mnist", 0, (50, 100, 200, 400, 800, 1600), 400, PAPER_RATES, 3, 200,
        ((128, 200, PAPER_RATES, 3), (512, 400, PAPER_RATES, 3), (4096, 1400, PAPER_RATES, 3),
         (0, 10_000, (0.5, 0.4, 0.3, 0.2, 0.1), 1)), (10, 100), 1.1, 6,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Options(Config):
    """The options of `igr run mlp`."""

    seeds: int = option("seeds for each model of the grid; 0 takes the scale's number", 0)
    epochs: int = option("epochs of training in the grid; 0 takes the scale's number", 0)
    validation: int = option("training images held out, to stop at maximum validation accuracy too", 0)
    beyond: bool = option("also full batch to interpolation, flatness, more seeds and tanh rates", False)
    shape: ShapeChanges = option("changes to every network", ShapeChanges())  # noqa: RUF009

    def check(self) -> None:
        """Validate the counts."""
        if min(self.seeds, self.epochs, self.validation) < 0:
            raise ConfigError("seeds, epochs and validation must not be negative.")


def trials(scale: Scale, options: Options | None = None) -> list[StackRun]:
    """The grid, the batch sizes and the activations at a scale, as stacks of networks of equal shape."""
    options, grid = options or Options(), GRIDS[scale]
    seeds, epochs = options.seeds or grid.seeds, options.epochs or grid.epochs
    images = _images(grid) - options.validation
    if images < 32:
        raise ConfigError(f"validation must leave at least 32 of {_images(grid)} images to train on.")
    schedule = Schedule(early=grid.early, stretch=grid.stretch)
    base = Shape(data=grid.data, train_images=grid.train_images, steps=epochs * (images // 32), schedule=schedule)
    base = base.replace(validation=options.validation)
    noise = Noise(SIGMAS, *grid.realizations)
    focus = base.replace(width=grid.focus)

    shapes = [base.replace(width=w, noise=noise if w == grid.focus else Noise()) for w in grid.widths]
    networks = [Network(shape, h, seed=s) for shape in shapes for s in range(seeds) for h in grid.rates]
    for size, longer, rates, some in grid.batches:
        steps = longer * (images // size if size else 1)
        # A full-batch epoch is one step: the test accuracy is then measured less often than every epoch.
        when = schedule.replace(watch=1 if size else max(1, longer // 200))
        shape = focus.replace(batch_size=size, steps=steps, schedule=when)
        networks += [Network(shape, h, seed=s) for s in range(min(some, seeds)) for h in rates]
    for name in ("tanh", "gelu"):  # last, as they are not in the paper
        networks += [Network(focus.replace(activation=name), h, seed=s) for s in range(seeds) for h in grid.rates]
    from igr.lab.experiments.mlp import beyond  # here, since it imports SciPy: `igr run mlp --help` needs none

    blocks = [networks, *(beyond.networks(scale, focus.replace(noise=noise), grid.rates) if options.beyond else [])]
    changed = ([n.replace(shape=options.shape.of(n.shape)) for n in block] for block in blocks)
    return [unit for block in changed for unit in stacks(block)]  # a block has stacks of its own


def figures(runs: Table) -> "dict[str, Figure]":
    """The figures that the stored `runs` suffice for, by name."""
    from igr.lab.experiments.mlp.figures import figures

    return figures(runs)


def findings(runs: Table) -> "list[Finding]":
    """The claims of the paper with the numbers measured in `runs`."""
    from igr.lab.experiments.mlp.findings import findings

    return findings(runs)


def _images(grid: Grid) -> int:
    return grid.train_images or DATASETS[grid.data].sizes[0]


def cards(runs: Table) -> "dict[str, Figure]":
    """The small figures of the predictions whose headlines are here, by the keys of `PREDICTIONS`."""
    from igr.lab.experiments.mlp.cards import cards

    return cards(runs)


def views(runs: Table) -> dict[str, str]:
    """Tables for pages, as Markdown by name."""
    from igr.lab.experiments.mlp.tables import views

    return views(runs)
