"""Docstrings are written in Markdown; Sphinx reads reStructuredText. The little that they use is rewritten here."""

import re
from collections.abc import Callable

FORMULA = re.compile(r"^(?P<indent>[ ]*)\$\$(?P<latex>.+?)\$\$[ ]*$", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^(?P<indent>[ ]*)```(?P<language>\w*)\n(?P<code>.*?)^[ ]*```[ ]*$", re.DOTALL | re.MULTILINE)
DOCTEST = re.compile(r"^[ ]*>>> .*\n(?:^[ ]*\S.*\n?)*", re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)(?:[ ]{4}.*\n|\n(?=[ ]{4}))+")
ITEM = re.compile(r"^([ ]*(?!- )\S.*\n)(?=[ ]*- )", re.MULTILINE)
# A formula or code within a line: in the order in which they are found, neither looks into the other.
INLINE = re.compile(
    r"(?<![`:])`(?P<code>[^`]+)`(?!`)"
    r"|(?<![\\$])\$(?P<latex>[^$]+)\$"
    r"|\[(?P<text>[^\]]+)\]\((?P<target>[^)]+)\)"
)


def restructured(text: str, resolve: Callable[[str], str | None]) -> str:
    """`text` in reStructuredText. `resolve` gives the full name of what has an entry, and None for other code."""
    kept: list[str] = []

    def keep(rewritten: str) -> str:
        kept.append(rewritten)
        return f"\0{len(kept) - 1}\0"

    def formula(found: re.Match[str]) -> str:
        indent, latex = found["indent"], " ".join(found["latex"].split())
        return keep(f"\n{indent}.. math::\n\n{indent}   {latex}\n")

    def fence(found: re.Match[str]) -> str:
        code = "".join(f"   {line}\n" for line in found["code"].splitlines())
        return keep(f"\n{found['indent']}.. code-block:: {found['language'] or 'text'}\n\n{code}\n")

    def inline(found: re.Match[str]) -> str:
        if found["code"]:
            name = resolve(found["code"])
            return f":py:obj:`{found['code']} <{name}>`" if name else f"``{found['code']}``"
        if found["latex"]:
            return f":math:`{' '.join(found['latex'].split())}`"
        return f"`{found['text']} <{found['target']}>`__"

    def spaced(found: re.Match[str]) -> str:
        """Markup ends at a space or a mark in reStructuredText: a letter right behind it is joined by a null."""
        after = text[found.end() : found.end() + 1]
        before = text[found.start() - 1 : found.start()]
        return ("\\ " if before.isalnum() else "") + inline(found) + ("\\ " if after.isalnum() or after == "_" else "")

    text = FENCE.sub(fence, text)
    text = FORMULA.sub(formula, text)
    text = DOCTEST.sub(lambda found: keep(found[0]), text)
    text = INDENTED.sub(lambda found: keep(f".. code-block:: python\n\n{found[0]}"), text)
    text = INLINE.sub(spaced, text)
    text = ITEM.sub(r"\1\n", text)
    while "\0" in text:
        text = re.sub("\0(\\d+)\0", lambda found: kept[int(found[1])], text)
    return text
