"""The answer: what the runs say about the theorem and the four predictions, for the report's cards and the terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.experiments.predictions import LIMITS, PREDICTIONS, Limit, Prediction
from igr.lab.report.chapter import Chapter
from igr.lab.store.config import Scale


@dataclass(frozen=True)
class Side:
    """What one source says about a prediction."""

    chapter: Chapter
    finding: Finding
    tally: tuple[Verdict, ...]  # of all findings of this source on the same claim
    picture: Path | None


@dataclass(frozen=True)
class Card:
    """A prediction, and what each source says about it."""

    key: str
    prediction: Prediction
    own: Side | None
    other: Side | None
    figure: str  # the name of the full figure, or an empty string where it is not drawn

    @property
    def sides(self) -> list[Side]:
        """What there is, paper scale first."""
        found = [side for side in (self.own, self.other) if side]
        return sorted(found, key=lambda side: side.chapter.scale != Scale.PAPER)

    @property
    def picture(self) -> Path | None:
        """The small figure: that of the first source which has one."""
        return next((side.picture for side in self.sides if side.picture), None)


@dataclass(frozen=True)
class Missing:
    """What the user's own runs cannot say, and what other runs at paper scale say about it."""

    limit: Limit
    chapter: Chapter | None
    finding: Finding | None


def cards(own: Sequence[Chapter], other: Sequence[Chapter]) -> list[Card]:
    """A card for each prediction, those without a finding too."""
    made = []
    for key, prediction in PREDICTIONS.items():
        drawn = any(prediction.figure in chapter.captions for chapter in (*own, *other))
        mine, theirs = (_side(key, prediction, group) for group in (own, other))
        made.append(Card(key, prediction, mine, theirs, prediction.figure if drawn else ""))
    return made


def _side(key: str, prediction: Prediction, group: Sequence[Chapter]) -> Side | None:
    for chapter in group:
        finding = prediction.among(chapter.findings, chapter.scale)
        if finding:
            everything = [each.verdict for chapter in group for each in prediction.about(chapter.findings)]
            picture = chapter.cards.get(key) or chapter.pictures().get(prediction.figure)
            return Side(chapter, finding, tuple(everything), picture)
    return None


def limits(own: Sequence[Chapter], other: Sequence[Chapter]) -> Iterator[Missing]:
    """What `own` cannot show for lack of scale, beside the number that `other` has for it."""
    for limit in LIMITS:
        experiment = limit.finding.partition(".")[0]
        if any(each.name == experiment and each.scale == Scale.PAPER for each in own):
            continue
        side = next((each for each in other if each.name == experiment and each.scale == Scale.PAPER), None)
        finding = next((each for each in side.findings if each.id == limit.finding), None) if side else None
        yield Missing(limit, side, finding)
