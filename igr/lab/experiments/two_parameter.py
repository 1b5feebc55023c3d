"""Section 5 and appendix A.4: implicit and explicit regularization where the whole parameter plane can be seen."""

from dataclasses import dataclass

from igr.lab.config import Config, ConfigError, Scale, option
from igr.lab.experiments.two_parameter_captions import CAPTIONS as CAPTIONS
from igr.lab.experiments.two_parameter_figures import figures as figures
from igr.lab.experiments.two_parameter_findings import findings as findings
from igr.lab.experiments.two_parameter_model import TABLE, Descent, Flow, Row
from igr.lab.experiments.two_parameter_scans import PenaltyScan, RateScan
from igr.lab.work import Trial

CLAIM = (
    "On E = (y - abx)^2/2 gradient descent follows the modified flow more closely than the gradient flow, "
    "and larger learning rates end at flatter minima of smaller norm."
)

# Learning rates and amounts of explicit regularization in the two scans; all scales have the runs of Table A.1.
COUNTS = {Scale.SMOKE: (40, 7), Scale.QUICK: (240, 41), Scale.PAPER: (960, 121)}


@dataclass(frozen=True)
class Options(Config):
    """What may be changed on the command line."""

    stop_loss: float = option("a run ends where E falls below this", 1e-12)
    rates: int = option("learning rates in the scan; 0 takes the scale's number", 0)

    def check(self) -> None:
        """A scan of less than four rates shows nothing."""
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
    """The runs of one column of Table A.1. Their `every` puts all of them on the times of gradient descent at h_M."""
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
