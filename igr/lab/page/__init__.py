"""The report's page: one HTML file with its style, script and pictures inside. Everything it shows is handed to it."""

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from igr.lab.page.figures import chapters
from igr.lab.page.predictions import predictions
from igr.lab.page.runs import configurations, left_out, negative

if TYPE_CHECKING:  # chapters are made by modules that need the pictures' library; the page needs only their words
    from igr.lab.chapter import Chapter

TITLE = "Implicit gradient regularization: what the stored runs say"
THEOREM = """
<section aria-labelledby="theorem"><h2 id="theorem">The theorem in words</h2>
<p>Gradient descent takes straight steps of size h along −∇E. It does not stay on the gradient flow of the loss E: the
flow bends during a step, the step does not. But it stays much closer to the flow of another loss,</p>
<p class="formula"><span>Ẽ = E + (h/4) |∇E|² = E + λ R<sub>IG</sub>,</span> <span>λ = hm/4,</span>
<span>R<sub>IG</sub> = |∇E|²/m,</span></p>
<p>with m the number of parameters. One step is within O(h²) of the flow of E and within O(h³) of the flow of Ẽ. So
descent prefers shallow slopes, more so with larger steps and more parameters, although nobody added a penalty: an
implicit one. The paper (Barrett &amp; Dherin, ICLR 2021) predicts that networks trained with a larger λ end with a
smaller R<sub>IG</sub> (prediction 1) and at optima with smaller slopes around them (2), test better (3), and withstand
more noise on their parameters (4). As a control it adds the same penalty explicitly: as μ|∇E|², with a rate μ in the
units of the built-in h/4.</p></section>
"""


def page(own: "Sequence[Chapter]", other: "Sequence[Chapter]", table: str) -> str:
    """The whole report; `table` is the CSV of all findings, which the page carries for its reader."""
    both = [*own, *other]
    assets = files(__name__)
    style, script = ((assets / name).read_text("utf-8") for name in ("style.css", "page.js"))
    body = [
        f"<header><h1>{escape(TITLE)}</h1>{_whence(own, other)}{_contents(both)}</header>",
        THEOREM,
        predictions(own, other, _data_uri(table)),
        chapters(own, other),
        left_out(both),
        negative(both),
        configurations(both),
        "<footer><p>Made by <code>igr report</code> from stored runs alone; it computes nothing and needs no network. "
        "The measurements it links to lie in the folder <code>data</code> beside it.</p></footer>",
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>{escape(TITLE)}</title>'
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>{head}\n<style>\n{style}</style></head>\n'
        f"<body><main>\n{''.join(body)}</main>\n<script>\n{script}</script></body>\n</html>\n"
    )


def _data_uri(table: str) -> str:
    return "data:text/csv;base64," + base64.b64encode(table.encode()).decode()


def _whence(own: "Sequence[Chapter]", other: "Sequence[Chapter]") -> str:
    """Whose runs these are."""
    parts = []
    for group in (own, other):
        if group:
            scales = ", ".join(f"{each.name} at scale {each.scale}" for each in group)
            parts.append(f"<strong>{escape(group[0].source)}</strong> ({escape(scales)})")
    return f'<p class="soft">Shown: {", beside ".join(parts)}.</p>'


def _contents(both: "Sequence[Chapter]") -> str:
    names = dict.fromkeys(each.name for each in both)
    links = [("theorem", "The theorem"), ("predictions", "Predictions and verdicts")]
    links += [(f"experiment-{name}", f"Figures: {name}") for name in names]
    links += [("left-out", "Left out, and why"), ("negative", "Negative results"), ("runs", "Configurations and data")]
    items = "".join(f'<li><a href="#{escape(anchor)}">{escape(text)}</a></li>' for anchor, text in links)
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'
