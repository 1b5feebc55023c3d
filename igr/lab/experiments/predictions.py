"""The theorem and the four predictions of the paper, and the finding that stands for each.

An experiment has many findings on one prediction: other stopping times, controls, other networks. The report and the
terminal begin with one of them, the headline, and count the others beside it. Each says why it was chosen. To change a
headline, edit its entry here. The report asks the headline's experiment for `cards(runs)`, small figures by the keys of
this table; where it has none, the headline's full figure takes their place.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from igr.lab.analysis.findings import Finding
from igr.lab.store.config import Scale


@dataclass(frozen=True)
class Prediction:
    """One claim of the paper and its headline.

    >>> one = PREDICTIONS["prediction-1"]
    >>> one.headline(Scale.QUICK), one.experiment
    ('mlp.equal-loss.slope-falls-with-h.common-range', 'mlp')
    """

    title: str
    short: str  # for the terminal: at most 36 characters
    sentence: str  # for people who do not know the paper
    paper: str  # the headline's id at paper scale
    quantity: str  # what the headline's number is, in words
    counted: str  # what its n counts
    figure: str  # the full figure
    why: str  # this finding, and none of the others
    quick: str = ""  # the headline's id at the smaller scales, where it is another

    @property
    def experiment(self) -> str:
        """The experiment that has the headline at paper scale."""
        return self.paper.partition(".")[0]

    def headline(self, scale: str) -> str:
        """The id of the headline at this scale."""
        return self.paper if scale == Scale.PAPER else self.quick or self.paper

    def among(self, findings: Iterable[Finding], scale: str) -> Finding | None:
        """The headline, where these findings have it."""
        return next((each for each in findings if each.id == self.headline(scale)), None)

    def about(self, findings: Iterable[Finding]) -> list[Finding]:
        """All findings on this claim: those that name it, and those of the same group as the headline.

        >>> a = Finding("", "prediction 1, figure 2a", "", -1.0, 9, "holds", id="mlp.r-ig-falls-with-h")
        >>> b = Finding("", "figure A.9", "", -1.0, 9, "holds", id="mlp.accuracy-falls-with-r-ig")
        >>> len(PREDICTIONS["prediction-1"].about([a, b])), len(PREDICTIONS["prediction-3"].about([a, b]))
        (1, 0)
        """
        groups = {".".join(id.split(".")[:2]) for id in (self.paper, self.quick) if id}
        name = self.title.removeprefix("The ").lower()
        return [each for each in findings if name in each.paper.lower() or any(map(each.is_part_of, groups))]


@dataclass(frozen=True)
class Limit:
    """What the smaller scales cannot show, and the command that shows it."""

    what: str
    finding: str  # its id at paper scale
    command: str
    cost: str


PREDICTIONS = {
    "theorem": Prediction(
        "The theorem",
        "steps follow the modified flow",
        "Gradient descent stays closer to the flow of the modified loss E + (h/4)|∇E|² than to the gradient flow of "
        "the loss E: over a fixed time, its distance to the former shrinks as h².",
        "theorem.order.modified-flow.smooth",
        "observed order of the distance to the modified flow (the theorem says 2)",
        "networks",
        "theorem-orders",
        "The theorem is about the power of h, so the headline is the observed power, on the networks that meet its "
        "assumption of a smooth loss. The ratios of distances, the two-parameter model and networks with kinks are "
        "counted beside it.",
    ),
    "prediction-1": Prediction(
        "Prediction 1",
        "R_IG relative to E falls with h",
        "Networks trained with a larger learning rate have a smaller R_IG, the squared gradient norm over m, relative "
        "to the training loss E.",
        "mlp.equal-loss.slope-falls-with-h.common-range",
        "rank correlation of h and the slope at equal training loss, within widths",
        "networks",
        "mlp-controls",
        "The prediction is about R_IG relative to E. Where E is the same and so is the width, R_IG/E falls exactly "
        "where the slope does, and neither how far training has come nor the number of parameters in R_IG has a part. "
        "The correlation of R_IG with λ over all networks, as in figure 2a, mixes these.",
    ),
    "prediction-2": Prediction(
        "Prediction 2",
        "Larger steps end at flatter optima",
        "Networks trained with a larger learning rate end at flatter optima: the slopes around them are smaller.",
        "mlp.slope-falls-with-h.noise",
        "rank correlation of h and the slope after parameter noise",
        "networks",
        "mlp-3a",
        "At an optimum every slope is small, and the smaller the longer one has trained. The slope some way off, after "
        "noise on the parameters as in figure 3a, says how flat the surroundings are.",
    ),
    "prediction-3": Prediction(
        "Prediction 3",
        "Test accuracy grows with lambda",
        "Networks trained with a larger λ = hm/4 reach a higher test accuracy.",
        "mlp.within-width.accuracy-grows-with-h.max-test",
        "rank correlation of h and test accuracy, within widths",
        "networks",
        "mlp-2",
        "Wide networks test better for other reasons too, and λ grows with the width. At one width λ is proportional "
        "to h, so that the correlation within widths is that with λ, without this confounder.",
    ),
    "prediction-4": Prediction(
        "Prediction 4",
        "Accuracy withstands more noise",
        "Networks trained with a larger learning rate keep their test accuracy under more noise on their parameters.",
        "mlp.accuracy-under-noise-grows-with-h",
        "rank correlation of h and test accuracy under noise",
        "networks",
        "mlp-3b",
        "It is the paper's own measurement, figure 3b, at the one width at which noise was tried.",
    ),
}

LIMITS = (
    Limit(
        "how much the explicit penalty raises test accuracy (figure 3c)",
        "resnet.boost-of-12-points",
        "igr run resnet --scale paper",
        "about an hour on an NVIDIA H200",
    ),
)
