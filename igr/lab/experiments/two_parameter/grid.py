"""Section 5 and appendix A.4: implicit and explicit regularization of a model with two parameters."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from igr.lab.experiments.two_parameter.captions import CAPTIONS as CAPTIONS
from igr.lab.experiments.two_parameter.model import TABLE, Descent, Flow, Row
from igr.lab.experiments.two_parameter.scans import PenaltyScan, RateScan
from igr.lab.runs.unit import Trial
from igr.lab.store.config import Config, ConfigError, Scale, option
from igr.lab.store.store import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from igr.lab.analysis.findings import Finding

CLAIM = (
    "On E = (y - abx)^2/2 gradient descent follows the modified flow more closely than the gradient flow, "
    "and larger learning rates end at flatter minima of smaller norm."
)

# Learning rates and amounts of explicit regularization in the two scans; all scales have the runs of Table A.1.
COUNTS = {Scale.SMOKE: (40, 7), Scale.QUICK: (240, 41), Scale.PAPER: (960, 121)}


@dataclass(frozen=True)
class Options(Config):
    """The options of `igr run two-parameter`."""

    stop_loss: float = option("a run ends where E falls below this", 1e-12)
    rates: int = option("learning rates in the scan; 0 takes the scale's number", 0)

    def check(self) -> None:
        """Validate the number of rates."""
        if self.rates and self.rates < 4:
            raise ConfigError(f"rates must be 0 or at least 4, and it is {self.rates}.")


def trials(scale: Scale, options: Options | None = None) -> list[Trial]:
    """All runs of Table A.1 with both integrators, and the two scans from start I."""
    options = options or Options()
    rates, amounts = COUNTS[scale]
    stop = options.stop_loss
    scans = [
        RateScan(TABLE[0].start, stop_loss=stop, count=options.rates or rates),
        PenaltyScan(TABLE[0].start, stop_loss=stop, count=amounts),
    ]
    return [trial for row in TABLE for trial in of_row(row, stop)] + scans


def of_row(row: Row, stop_loss: float) -> list[Trial]:
    """The runs of one column of Table A.1, which end at `stop_loss`. All are kept at the times of descent at h_M."""
    every = round(row.moderate / row.euler)
    amounts = (0.0, row.moderate / 2, row.mu)  # the gradient flow, the modified flow and the explicit one
    descents = [(row.small, round(row.moderate / row.small), 0.0), (row.moderate, 1, 0.0)]
    descents += [(row.euler, every, mu) for mu in amounts]
    if row.large is not None:
        descents.append((row.large, 1, 0.0))
    if row.name == "II":  # the control: the same mu, multiplying the squared norm as in the paper's Equation 8
        descents.append((row.euler, every, 2 * row.mu))
    return [
        *(
            Descent(row.start, stop_loss=stop_loss, learning_rate=h, mu=mu, every=samples)
            for h, samples, mu in descents
        ),
        *(Flow(row.start, stop_loss=stop_loss, learning_rate=row.moderate, mu=mu, every=every) for mu in amounts),
    ]


def figures(runs: Table) -> "dict[str, Figure]":
    """The figures that the stored `runs` suffice for, by name."""
    from igr.lab.experiments.two_parameter.figures import figures

    return figures(runs)


def findings(runs: Table) -> "list[Finding]":
    """The claims of the paper with the numbers measured in `runs`."""
    from igr.lab.experiments.two_parameter.findings import findings

    return findings(runs)


def cards(runs: Table) -> "dict[str, Figure]":
    """The small figures of the predictions whose headlines are here, by the keys of `PREDICTIONS`."""
    from igr.lab.experiments.two_parameter.cards import cards

    return cards(runs)


def views(runs: Table) -> dict[str, str]:
    """Tables for pages, as Markdown by name."""
    from igr.lab.experiments.two_parameter.tables import views

    return views(runs)
