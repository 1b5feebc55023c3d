"""Mathematics as MathML, made while the site is built: browsers draw it themselves, with no script and no network."""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

BAR = "<mo>&#x0007C;</mo>"  # |, which as an operator is stretched and set apart, and as a superscript's base sinks
PLAIN = '<mo stretchy="false" form="prefix" lspace="0" rspace="0">&#x0007C;</mo>'
RAISED = re.compile(
    rf"{re.escape(BAR)}(?P<inside>(?:(?!{re.escape(BAR)}).)*)<msup>{re.escape(BAR)}(?P<power>.*?)</msup>"
)
PRIMED = re.compile(r"<msup>(<m([io])[^>]*>[^<]*</m\2>)<mi>(&#x0203[23];)</mi></msup>")
LETTER = re.compile(r'<mi mathvariant="(double-struck|script)">(\w)</mi>')
LETTERS = {("double-struck", "R"): "ℝ", ("script", "N"): "𝒩"}  # browsers have dropped these variants


def mathml(latex: str, display: str) -> str:
    """MathML in which |x|^2 is the power of a group and not of its right bar."""
    made = re.sub(r"<mo[^>]*>&#x0007C;</mo>", BAR, convert(latex.strip(), display=display))
    made = PRIMED.sub(r'\1<mo lspace="0" rspace="0">\3</mo>', made)  # a prime is high and small by itself
    made = LETTER.sub(lambda found: f"<mi>{LETTERS[found[1], found[2]]}</mi>", made)
    made = RAISED.sub(rf"<msup><mrow>{BAR}\g<inside>{BAR}</mrow>\g<power></msup>", made)
    return made.replace(BAR, PLAIN)


def inline(writer: Any, node: nodes.math) -> None:
    """A formula within a line. The mark that follows it does not begin the next one (see `pages.py`)."""
    writer.body.append(f'<span class="whole">{mathml(node.astext(), "inline")}</span>')
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    """What stands side by side in a display, each by itself, so that a narrow page can put one below the other."""
    parts = [f"<div>{mathml(part, 'block')}</div>" for part in re.split(r"\\q?quad\b", node.astext())]
    writer.body.append(f'<div class="formula">{"".join(parts)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Make it the renderer of mathematics, `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
