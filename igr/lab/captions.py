"""Captions: what a figure shows, in words, and which findings are its numbers."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

from igr.lab.findings import Finding


@dataclass(frozen=True)
class Caption:
    """A figure in words. `about` is a regular expression: findings whose place or claim matches belong to it.

    >>> caption = Caption("R_IG/E against h", "A dot a rate.", about=r"Figure 1b")
    >>> finding = Finding("R_IG/E falls as h grows", "figure 1b", "Spearman", -1.0, 30, "holds")
    >>> len(caption.numbers([finding])), len(Caption("Another", "").numbers([finding]))
    (1, 0)
    """

    title: str  # one line, read out where the figure cannot be seen
    text: str  # what is drawn, and how to read it
    about: str = "(?!)"  # matches nothing

    def numbers(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that this figure draws."""
        pattern = re.compile(self.about, re.IGNORECASE)
        return [each for each in findings if pattern.search(f"{each.paper}; {each.claim}")]


def caption_of(module: ModuleType, stem: str) -> Caption:
    """The caption an experiment gives a figure, or its bare name."""
    return getattr(module, "CAPTIONS", {}).get(stem, Caption(stem, ""))
