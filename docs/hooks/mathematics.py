"""Mathematics as MathML, made while the site is built: browsers draw it themselves, with no script and no network."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What `pymdownx.arithmatex` leaves of $...$ and $$...$$ in its generic mode.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
BAR = "<mo>&#x0007C;</mo>"  # |, which as an operator is stretched and set apart, and as a superscript's base sinks
PLAIN = '<mo stretchy="false" form="prefix" lspace="0" rspace="0">&#x0007C;</mo>'
RAISED = re.compile(
    rf"{re.escape(BAR)}(?P<inside>(?:(?!{re.escape(BAR)}).)*)<msup>{re.escape(BAR)}(?P<power>.*?)</msup>"
)


def on_page_content(content: str, **_: Any) -> str:
    """Replace the formulas of a page."""
    content = BLOCK.sub(lambda found: f'<div class="formula">{_mathml(found[1], "block")}</div>', content)
    return INLINE.sub(lambda found: _mathml(found[1], "inline"), content)


def _mathml(latex: str, display: str) -> str:
    """MathML in which |x|^2 is the power of a group and not of its right bar."""
    made = re.sub(r"<mo[^>]*>&#x0007C;</mo>", BAR, convert(html.unescape(latex).strip(), display=display))
    made = RAISED.sub(rf"<msup><mrow>{BAR}\g<inside>{BAR}</mrow>\g<power></msup>", made)
    return made.replace(BAR, PLAIN)
