"""Matplotlib's SVG for the page: small, and with a second set of colours for the dark.

A figure is an image of its own (`<img>`), which no script and no style sheet of the page reaches: the colours must be
inside it. Each becomes a CSS variable with two values, the second under `prefers-color-scheme: dark`. Greys are turned
over, so that black is light and white is the page's dark ground, and so are pale tints. Other colours keep their hue
and their order of lightness and are lifted, with the lightness L of Oklab
(https://bottosson.github.io/posts/oklab/), to L' = 0.42 + 0.5 L.

Lengths are rounded to a tenth of a point, lines are stored as differences, each set of properties is a class, and
groups that say nothing are left out.
"""

import re
from itertools import count
from pathlib import Path

import numpy as np
from markupsafe import Markup

GROUND, INK = 0.25, 0.93  # the lightness of black's and white's places in the dark
GREY, TINT, PALE = 0.02, 0.06, 0.85  # chroma of a grey and, above the lightness PALE, of a tint
FONTS = "'DejaVu Sans',Verdana,sans-serif"  # the second is as wide as the first, with which matplotlib measured
_TO_LMS = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                    [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
_TO_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                    [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip
_COLOUR = re.compile(r"(?<=:)#[0-9a-f]{6}\b")
_LETTERS = re.compile(
    r'<tspan x="[-.\d]+"( y="[-.\d]+" class="\w+")>[^<&\s]</tspan>(?:<tspan x="[-.\d]+"\1>[^<&\s]</tspan>)+'
)
_MARKERS = re.compile(
    r'<use href="#(\w+)" x="[^"]*" y="[^"]*" class="(\w+)"/>(?:<use href="#\1" x="[^"]*" y="[^"]*" class="\2"/>)+'
)
_UNSEEN = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)


def themed(svg: str) -> str:
    """The same picture in fewer characters, which follows the reader's choice of light or dark.

    >>> print(themed('<svg><path d="M 1.234 2 L 1.734 1.5 " style="stroke: #0072b2"/></svg>').replace("><", "> <"))
    <svg> <style>svg{--c0:#000000;--c1:#0072b2;fill:var(--c0)}@media (prefers-color-scheme:
    dark){svg{--c0:#e8e8e8;--c1:#47a2e5}}.s0{stroke:var(--c1)}</style> <path d="M1.2 2l.5 -.5" class="s0"/> </svg>
    """
    svg = re.sub(r"\s+", " ", _UNSEEN.sub("", svg)).replace("> <", "><").strip()
    svg = re.sub(r'(?<= d=")[^"]*', lambda found: differences(found[0]), svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r'( (?:[xy]|width|height)="-?\d+\.\d)\d+', r"\1", svg)
    svg = re.sub(r"translate\([^)]*\)", lambda found: re.sub(r"(\.\d)\d+", r"\1", found[0]), svg)
    svg = _without_empty_groups(_short_names(svg)).replace("xlink:href=", "href=")
    classes: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        rules = re.sub(r"\s*([:;])\s*", r"\1", found[1]).strip("; ")
        return f'class="{classes.setdefault(rules, f"s{len(classes)}")}"'

    svg = re.sub(r'(?<= )style="([^"]*)"', named, svg)
    svg = _joined(svg, {name for rules, name in classes.items() if not re.search(r"(?<!-)opacity", rules)})
    sheet = "".join(f".{name}{{{rules}}}" for rules, name in classes.items())
    sheet = re.sub(r"font-family:[^;}]*", f"font-family:{FONTS}", sheet)
    names = {colour: f"--c{k}" for k, colour in enumerate(dict.fromkeys(["#000000", *_COLOUR.findall(sheet)]))}
    sheet = _COLOUR.sub(lambda found: f"var({names[found[0]]})", sheet)
    light, dark = (";".join(f"{name}:{pick(c)}" for c, name in names.items()) for pick in (str, in_the_dark))
    # what has no colour of its own is black
    rules = f"svg{{{light};fill:var(--c0)}}@media (prefers-color-scheme: dark){{svg{{{dark}}}}}{sheet}"
    return re.sub(r"<svg[^>]*>", lambda found: f"{found[0]}<style>{rules}</style>", svg, count=1)


def differences(path: str) -> str:
    """A path to a tenth of a point. Straight lines go by differences, without those that are too short to be seen.

    >>> differences("M 1.04 2 L 2.04 2.04 L 2.04 2.04 L 3 1 z M 0 0 L 1 1"), differences("M 0 0 C 1.26 0 1 1 2 2 z ")
    ('M1 2l1 0 1 -1zM0 0l1 1', 'M 0 0 C 1.3 0 1 1 2 2 z')
    """
    tokens = re.findall(r"[A-Za-z]|[-+.\deE]+(?![A-Za-z])", path)
    if not set(re.findall(r"[A-Za-z]", re.sub(r"e[-+]?\d+", "", path))) <= set("MLz"):
        return re.sub(r"-?\d+\.\d+", lambda found: _short(round(10 * float(found[0])), zero="0"), path).strip()
    written, at, rest, lines = [], (0, 0), iter(tokens), 0
    for token in rest:
        if token == "z":
            written.append("z")
            continue
        x, y = (round(10 * float(next(rest))) for _ in range(2))
        if token == "M":
            written.append(f"M{_short(x)} {_short(y)}")
            lines = 0
        elif (x, y) != at or not lines:
            written.append(f"{' ' if lines else 'l'}{_short(x - at[0])} {_short(y - at[1])}")
            lines += 1
        at = (x, y)
    return "".join(written)


def _short(tenths: int, zero: str = "") -> str:
    """A number of tenths without digits that say nothing; a 0 before the point is `zero`."""
    whole, part = divmod(abs(tenths), 10)
    text = (str(whole) if whole or not part else zero) + (f".{part}" if part else "")
    return f"-{text}" if tenths < 0 else text


def _short_names(svg: str) -> str:
    """Names in the place of hashes, and none where nothing refers to one."""
    used, fresh = dict[str, str](), count()
    for name in re.findall(r"(?:href=\"#|url\(#)([^\")]+)", svg):
        used.setdefault(name, f"n{next(fresh)}")
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{used[found[1]]}"' if found[1] in used else "", svg)
    return re.sub(r"(href=\"#|url\(#)([^\")]+)", lambda found: found[1] + used[found[2]], svg)


def _without_empty_groups(svg: str) -> str:
    """Leave out groups without an attribute, which matplotlib puts around each marker and each tick.

    >>> _without_empty_groups('<g><g class="a"><g><path/></g></g><g/></g>')
    '<g class="a"><path/></g>'
    """
    kept, empty = list[str](), list[bool]()
    for part in re.split(r"(<g(?: [^>]*)?/?>|</g>)", svg):
        if part == "</g>" and empty.pop():
            continue
        if part.startswith("<g") and not part.endswith("/>") and re.match(r"<g[ >]", part):
            empty.append(part == "<g>")
        if part not in ("<g>", "<g/>"):
            kept.append(part)
    return "".join(kept)


def _line(letters: str) -> str:
    """Letters of one line and one class as one text with a place for each."""
    parts = re.findall(r'x="([^"]*)"( [^>]*)>(.)', letters)
    return f'<tspan x="{" ".join(x for x, _, _ in parts)}"{parts[0][1]}>{"".join(c for *_, c in parts)}</tspan>'


def _joined(svg: str, plain: set[str]) -> str:
    """Say once what neighbours share: the class of equal markers (if it is one of `plain`), the line of letters.

    >>> _joined('<use href="#n" x="1.0" y="2.5" class="s"/><use href="#n" x="3.0" y="4.0" class="s"/>', {"s"})
    '<g class="s"><use href="#n" x="1" y="2.5"/><use href="#n" x="3" y="4"/></g>'
    >>> _joined('<tspan x="0" y="-1" class="s">1</tspan><tspan x="5" y="-1" class="s">0</tspan>', set())
    '<tspan x="0 5" y="-1" class="s">10</tspan>'
    """
    svg = re.sub(r'( [xy]="-?\d+)\.0"', r'\1"', svg)
    svg = _LETTERS.sub(lambda found: _line(found[0]), svg)

    def grouped(found: re.Match[str]) -> str:
        own = f' class="{found[2]}"'
        return f"<g{own}>{found[0].replace(own, '')}</g>" if found[2] in plain else found[0]

    return _MARKERS.sub(grouped, svg)


def in_the_dark(colour: str) -> str:
    """The colour that takes the place of this one on a dark ground.

    >>> in_the_dark("#ffffff"), in_the_dark("#000000"), in_the_dark("#0072b2")
    ('#222222', '#e8e8e8', '#47a2e5')
    """
    linear = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(linear <= 0.04045, linear / 12.92, ((linear + 0.055) / 1.055) ** 2.4)
    lightness, *chroma = _TO_LAB @ np.cbrt(_TO_LMS @ linear)
    grey = np.hypot(*chroma) < (TINT if lightness > PALE else GREY)
    lightness = INK + (GROUND - INK) * lightness if grey else 0.42 + 0.5 * lightness
    lms = np.linalg.solve(_TO_LAB, np.array([lightness, *chroma])) ** 3
    linear = np.clip(np.linalg.solve(_TO_LMS, lms), 0, 1)
    values = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * float(v)):02x}" for v in values)


def address(path: Path) -> Markup:
    """The `data:` address of an SVG file. It has neither `"` nor `&`, so it cannot leave an attribute in quotes."""
    svg = themed(path.read_text(errors="replace")).replace("'", "&apos;").replace('"', "'")
    for sign in "%&#":
        svg = svg.replace(sign, f"%{ord(sign):02X}")
    return Markup("data:image/svg+xml," + svg)
