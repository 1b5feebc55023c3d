"""Doctests in docstrings, fenced before they become Markdown, in which `>>>` would be a quotation in a quotation."""

import re
from typing import Any

import griffe

BLOCK = re.compile(r"(?:^[ \t]*>>> .*\n?(?:^[ \t]*\S.*\n?)*)+(?:\n?[ \t]*>>> .*\n?(?:^[ \t]*\S.*\n?)*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fences them in every docstring that is shown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the text, never the source."""
        if obj.docstring is not None:
            obj.docstring.value = BLOCK.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value)
