"""Mathematics as MathML, made while the site is built: browsers draw it themselves, with no script and no network."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What `pymdownx.arithmatex` leaves of $...$ and $$...$$ in its generic mode.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>([,.;:!?)]*)', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
BAR = "<mo>&#x0007C;</mo>"  # |, which as an operator is stretched and set apart, and as a superscript's base sinks
PLAIN = '<mo stretchy="false" form="prefix" lspace="0" rspace="0">&#x0007C;</mo>'
RAISED = re.compile(
    rf"{re.escape(BAR)}(?P<inside>(?:(?!{re.escape(BAR)}).)*)<msup>{re.escape(BAR)}(?P<power>.*?)</msup>"
)
PRIMED = re.compile(r"<msup>(<m([io])[^>]*>[^<]*</m\2>)<mi>(&#x0203[23];)</mi></msup>")
LETTER = re.compile(r'<mi mathvariant="(double-struck|script)">(\w)</mi>')
LETTERS = {("double-struck", "R"): "ℝ", ("script", "N"): "𝒩"}  # browsers have dropped these variants


def on_page_content(content: str, **_: Any) -> str:
    """Replace the formulas of a page; a comma after one does not begin a line."""
    content = BLOCK.sub(lambda found: f'<div class="formula">{_parts(found[1])}</div>', content)
    return INLINE.sub(lambda found: f'<span class="whole">{_mathml(found[1], "inline")}{found[2]}</span>', content)


def _parts(latex: str) -> str:
    """What stands side by side in a display, each by itself, so that a narrow page can put one below the other."""
    return "".join(f"<div>{_mathml(part, 'block')}</div>" for part in re.split(r"\\q?quad\b", latex))


def _mathml(latex: str, display: str) -> str:
    """MathML in which |x|^2 is the power of a group and not of its right bar."""
    made = re.sub(r"<mo[^>]*>&#x0007C;</mo>", BAR, convert(html.unescape(latex).strip(), display=display))
    made = PRIMED.sub(r'\1<mo lspace="0" rspace="0">\3</mo>', made)  # a prime is high and small by itself
    made = LETTER.sub(lambda found: f"<mi>{LETTERS[found[1], found[2]]}</mi>", made)
    made = RAISED.sub(rf"<msup><mrow>{BAR}\g<inside>{BAR}</mrow>\g<power></msup>", made)
    return made.replace(BAR, PLAIN)
