"""The rows of the table of findings and the panels of figures: each once, with what both sources have of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from igr.lab.analysis.findings import Finding
from igr.lab.plots.captions import Caption
from igr.lab.report.chapter import Chapter

Pair = tuple[Finding | None, Finding | None]


def pairs(own: Sequence[Finding], other: Sequence[Finding]) -> list[Pair]:
    """The findings of both sources side by side, matched by id: all of `own`, then the rest of `other`.

    >>> a = Finding("after 10 steps", "", "Spearman", 0.0, 10, "mixed", id="falls.equal-steps")
    >>> b = Finding("after 2000 steps", "", "Spearman", 0.0, 2000, "mixed", id="falls.equal-steps")
    >>> [(x and x.n, y and y.n) for x, y in pairs([a], [b])], len(pairs([a], []))
    ([(10, 2000)], 1)
    """
    left = {each.id: each for each in other}
    found: list[Pair] = [(mine, left.pop(mine.id, None)) for mine in own]
    return found + [(None, each) for each in left.values()]


def rows(own: Sequence[Chapter], other: Sequence[Chapter]) -> list[tuple[str, Pair]]:
    """The name of the experiment and the pair of findings of each row, in the order of the experiments."""
    ours, theirs = ({each.name: each.findings for each in group} for group in (own, other))
    names = dict.fromkeys([*ours, *theirs])
    return [(name, pair) for name in names for pair in pairs(ours.get(name, []), theirs.get(name, []))]


@dataclass(frozen=True)
class Panel:
    """One figure: its pictures, each with the sources that show it."""

    stem: str
    caption: Caption
    pictures: list[tuple[Path, list[Chapter]]]


def panels(sides: Sequence[Chapter]) -> list[Panel]:
    """The figures of one experiment; sources whose pictures have the same bytes share one."""
    made = []
    for stem in dict.fromkeys(stem for side in sides for stem in side.pictures()):
        having = [side for side in sides if stem in side.pictures()]
        shared: dict[bytes, tuple[Path, list[Chapter]]] = {}
        for side in having:
            path = side.pictures()[stem]
            shared.setdefault(path.read_bytes(), (path, []))[1].append(side)
        made.append(Panel(stem, having[0].captions[stem], list(shared.values())))
    return made
