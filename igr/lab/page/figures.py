"""The figures, one experiment after another: picture, caption, numbers, command, cost, n and hardware."""

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from igr.lab.captions import Caption
from igr.lab.findings import Finding
from igr.lab.page.predictions import verdict

if TYPE_CHECKING:
    from igr.lab.chapter import Chapter


def chapters(own: "Sequence[Chapter]", other: "Sequence[Chapter]") -> str:
    """A section for each experiment, with the figures of both sources side by side."""
    names = dict.fromkeys(each.name for each in (*own, *other))
    return "".join(_experiment([each for each in (*own, *other) if each.name == name]) for name in names)


def _experiment(sides: "Sequence[Chapter]") -> str:
    first = sides[0]
    stems = dict.fromkeys(stem for side in sides for stem in side.captions)
    parts = [f"<p>{escape(first.claim)}</p>", *map(_about, sides)]
    parts += [_figure(stem, sides) for stem in stems]
    anchor = f"experiment-{escape(first.name)}"
    heading = f'<h2 id="{anchor}">Figures: {escape(first.name)}</h2>'
    return f'<section aria-labelledby="{anchor}">{heading}{"".join(parts)}</section>'


def _about(side: "Chapter") -> str:
    used = (each for each in side.record.get("versions", []) if each)
    versions = "; ".join(", ".join(f"{name} {number}" for name, number in each.items()) for each in used)
    commits = ", ".join(str(each)[:12] for each in side.record.get("commit", []) if each)
    made = f" Commit {commits}; {versions}." if commits else f" {versions}." if versions else ""
    problems = "".join(f'<p class="warn">{escape(problem)}</p>' for problem in side.missing)
    about = f"{_command(side)} {escape(side.about() + made)}"
    return f"<p><strong>{escape(side.source)}:</strong> {about}</p>{problems}"


def _command(side: "Chapter") -> str:
    """A line of code that breaks between words and not at a hyphen."""
    return f"<code>{' '.join(f'<span>{escape(word)}</span>' for word in side.command.split())}</code>"


def _figure(stem: str, sides: "Sequence[Chapter]") -> str:
    having = [side for side in sides if stem in side.captions]
    caption = having[0].captions[stem]
    pictures = "".join(_picture(stem, side, caption) for side in having)
    alone = " alone" if len(having) == 1 else ""
    numbers = "".join(_numbers(stem, side) for side in having)
    return (
        f'<figure aria-labelledby="{escape(stem)}"><h3 id="{escape(stem)}">{escape(caption.title)}</h3>'
        f'<div class="pictures{alone}">{pictures}</div>'
        f'<figcaption>{escape(caption.text)}<div class="pictures">{numbers}</div></figcaption></figure>'
    )


def _picture(stem: str, side: "Chapter", caption: Caption) -> str:
    path = next(path for path in side.figures if path.stem == stem and path.suffix == ".png")
    data = base64.b64encode(path.read_bytes()).decode()
    words = escape(f"{caption.title}, {side.source}. {caption.text}")
    what = escape(f"larger: {caption.title}, {side.source}")
    return (
        f'<div class="picture"><img alt="{words}" src="data:image/png;base64,{data}">'
        f"{escape(side.source)}, scale {escape(side.scale)} "
        f'<button type="button" aria-pressed="false" aria-label="{what}">larger</button></div>'
    )


def _numbers(stem: str, side: "Chapter") -> str:
    """What the picture shows in numbers, folded, and what they cost."""
    cost = f"{_command(side)} {escape(side.about())}"
    found = side.captions[stem].numbers(side.findings)
    items = (f"{escape(each.claim)}: {_number(each)}, n = {each.n:,}: {verdict(each)}" for each in found)
    lines = "".join(f"<li>{item}</li>" for item in items)
    count = "1 number" if len(found) == 1 else f"{len(found)} numbers"
    fold = f"<details><summary>{count} of {escape(side.source)}</summary><ul>{lines}</ul></details>" if found else ""
    return f"<div><p><strong>{escape(side.source)}.</strong> {cost}</p>{fold}</div>"


def _number(finding: Finding) -> str:
    return escape(" ".join(filter(None, (finding.number, finding.range))))
