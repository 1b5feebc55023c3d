"""The style of all figures, and the drawing functions that they share.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish; every curve also has its own line
style or marker. Figures are objects: nothing here uses pyplot or changes a global setting, and drawing a figure twice
gives the same bytes.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from igr.lab.store.files import write_atomically

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#7F7F7F",
)

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "legend.fontsize": 7.5,
    "legend.frameon": True,
    "legend.framealpha": 0.92,
    "legend.edgecolor": "0.85",
    "legend.handlelength": 2.6,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "mathtext.fontset": "dejavusans",
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.hashsalt": "igr",
    "svg.fonttype": "none",  # words stay words, a twentieth of the size of their outlines
    "path.simplify": True,
}


METADATA: dict[str, dict[str, None]] = {  # what would name the time or the program, by the kinds of files
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The settings under which figures are made and saved; the previous ones are restored afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in STYLE.items():
            matplotlib.rcParams[name] = value  # pyright: ignore[reportArgumentType]
        yield


def axes_grid(rows: int = 1, columns: int = 1, size: tuple[float, float] = (3.6, 3.0), **options: Any) -> Any:
    """A figure with `rows` times `columns` axes; `size` is that of one panel in inches.

    Text then has the same size in all figures. `options` are those of `Figure.subplots`.
    """
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, **options)


CARD = (3.1, 2.0)  # the size of a card's figure in inches; a browser shows it as large as it is


def card_axes() -> Any:
    """A figure with one pair of axes, small enough for a card of the report."""
    return axes_grid(size=CARD)


def axis_label(words: str, symbol: str, column: str) -> str:
    """The label of an axis: `words`, the paper's `symbol`, and the name of the `column` in the code.

    >>> axis_label("learning rate", "$h$", "learning_rate")
    'learning rate $h$ (learning_rate)'
    """
    return " ".join(filter(None, (words, symbol, f"({column})")))


def logarithmic(axes: Any, which: str) -> None:
    """Make the axes named by `which` ("x", "y" or "xy") logarithmic where their lines have positive values."""
    for name in which:
        drawn = (np.asarray(getattr(line, f"get_{name}data")(), float) for line in axes.get_lines())
        if any((values > 0).any() for values in drawn if values.size):
            getattr(axes, f"set_{name}scale")("log")


def arrows(axes: Any, field: Callable[[np.ndarray, np.ndarray], tuple[Any, Any]], count: int = 17) -> None:
    """Draw the directions of a planar `field` on a grid of `count` times `count` points of the visible area."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    margin = 0.5 / count
    a, b = np.meshgrid(
        np.linspace(left + margin * (right - left), right - margin * (right - left), count),
        np.linspace(low + margin * (high - low), high - margin * (high - low), count),
    )
    u, v = field(a, b)
    length = np.hypot(u, v)
    length[length == 0] = 1
    axes.quiver(a, b, u / length, v / length, color="0.80", scale=32, width=0.0028, headwidth=4, zorder=0)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `figure` as `stem`.png, .pdf and .svg, each atomically and without a time stamp; return the paths."""
    written = []
    figure.set_dpi(matplotlib.rcParams["savefig.dpi"])
    figure.draw_without_rendering()  # places everything, which takes as long as drawing: once, not once a file
    figure.set_layout_engine(None)
    for kind, metadata in METADATA.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=metadata)
        path = stem.with_name(f"{stem.name}.{kind}")
        write_atomically(path, buffer.getvalue())
        written.append(path)
    return written
