"""The explorer: a page on which the start and the step size of the two-parameter model are moved by hand.

It is one file, `explorer.html`, that needs no network, no server and nothing beside it. Its paths are computed in the
page; `tests/test_explorer.py` compares them with the library's.
"""

from importlib.resources import files
from pathlib import Path


def page() -> Path:
    """Where the explorer is on this machine.

    >>> page().name
    'explorer.html'
    """
    return Path(str(files(__name__) / "explorer.html"))
