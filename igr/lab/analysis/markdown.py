"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table with a line for each of `lines`, which have a cell for each word of `head`.

    >>> print(markdown(["h", "accuracy"], [["0.1", "0.98"]]))
    | h | accuracy |
    | --- | --- |
    | 0.1 | 0.98 |
    """
    rows = [list(head), ["---"] * len(head), *(list(line) for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
