"""Captions: what a figure shows, in words, and which findings are its numbers."""

from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

from igr.lab.analysis.findings import Finding


@dataclass(frozen=True)
class Caption:
    """The words of one figure. `findings` are ids; an id stands for every finding whose id begins with its groups.

    >>> caption = Caption("R_IG/E against h", "One dot per learning rate.", ("two-parameter.norm-falls-with-h",))
    >>> finding = Finding("R_IG/E falls", "", "", -1.0, 30, "holds", id="two-parameter.norm-falls-with-h.converged")
    >>> len(caption.numbers([finding])), len(Caption("Another", "").numbers([finding]))
    (1, 0)
    """

    title: str  # one line, also read aloud by screen readers
    text: str  # what is drawn, and how to read it
    findings: tuple[str, ...] = ()

    def numbers(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that this figure shows."""
        return [each for each in findings if any(each.is_part_of(name) for name in self.findings)]


def caption_of(module: ModuleType, stem: str) -> Caption:
    """The caption that an experiment gives the figure `stem`, or the figure's name where it gives none."""
    return getattr(module, "CAPTIONS", {}).get(stem, Caption(stem, ""))
