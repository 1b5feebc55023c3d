r"""The animation of README and documentation: gradient descent leaves the gradient flow and stays on the modified flow.

The loss has two valleys and the start lies near the ridge between them, where a small difference decides. Paths come
from `igr.descend` and `igr.flow`, at the same times. The file is a GIF, which every viewer of Markdown shows.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from PIL import Image

import igr
from igr.lab.explorer.losses import two_valleys
from igr.lab.plots.style import GREEN, ORANGE, RED, axes_grid, style
from igr.lab.store.files import write_atomically

H, START, STEPS = 0.08, (-0.375, 1.5), 64
FIRST, REST, END = 18, 6, 34  # the frames of the first steps one by one, the frames after them, and of the last picture
COLOURS = {"gradient": GREEN, "modified": ORANGE, "descent": RED}
DPI = 140  # a picture of 1,400 pixels, shown at half of that: sharp on a screen with small pixels
LARGE = {"font.size": 14, "axes.titlesize": 14, "axes.labelsize": 13, "xtick.labelsize": 12, "ytick.labelsize": 12}
FINE = 8  # times in each step at which the flows are drawn


class Trajectories(NamedTuple):
    """Three paths from one start: descent at each step, and the two flows at `FINE` times in each step."""

    descent: np.ndarray
    gradient: np.ndarray
    modified: np.ndarray

    def gap(self, name: str) -> np.ndarray:
        """The distance from descent to a flow at each step."""
        return np.asarray(igr.distance(jnp.asarray(self.descent), jnp.asarray(getattr(self, name)[::FINE])))


def paths(h: float = H, start: tuple[float, float] = START, steps: int = STEPS) -> Trajectories:
    """Gradient descent on `two_valleys`, the gradient flow (h = 0), and the flow of the modified loss."""
    field = igr.gradient_field(lambda p, h: igr.modified_loss(two_valleys, h)(p))  # one field, compiled once
    with jax.enable_x64(True):
        p, times = jnp.asarray(start, jnp.float64), jnp.linspace(0.0, steps * h, steps * FINE + 1)
        descent = igr.descend(igr.gradient_step(two_valleys, h), p, steps)
        flows = (igr.flow(field, p, times, args=(rate,)) for rate in (0.0, h))
        return Trajectories(*map(np.asarray, (descent, *flows)))


def _plane(axes: Any) -> None:
    """The loss as shaded contours, and its two minima with their names."""
    a, b = np.meshgrid(np.linspace(-1.55, 1.55, 241), np.linspace(-0.5, 1.72, 181))
    with jax.enable_x64(True):
        values = np.asarray(two_valleys(jnp.stack([jnp.asarray(a), jnp.asarray(b)])))
    levels = np.geomspace(0.02, 20, 14)
    axes.contourf(a, b, np.maximum(values, 0.0201), levels, cmap="Blues", alpha=0.3, norm="log")
    axes.contour(a, b, values, levels, colors="0.72", linewidths=0.7)
    for x, word in ((-1, "sharp minimum"), (1, "flat minimum")):
        axes.plot(x, 0, "x", color="0.1", ms=11, mew=2.6, zorder=6)
        axes.text(x, -0.1, word, ha="center", va="top", color="0.1", zorder=6, linespacing=0.95)
    axes.set(xlim=(-1.55, 1.55), ylim=(-0.44, 1.72), xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color("0.75")


class _Picture:
    """The figure with what moves in it."""

    def __init__(self, drawn: Trajectories) -> None:
        self.paths, self.steps = drawn, len(drawn.descent) - 1
        self.figure, (plane, chart) = axes_grid(1, 2, size=(5.0, 4.7), width_ratios=(1.75, 1.0))
        self.figure.set_dpi(DPI)
        _plane(plane)
        self.words = self.figure.suptitle("", x=0.012, ha="left", size=16.5, weight="bold")
        gaps = {name: drawn.gap(name) for name in ("gradient", "modified")}
        chart.set(xlim=(0, self.steps), ylim=(-0.03, 1.06 * gaps["gradient"].max()), xlabel="step")
        chart.set_title("distance from gradient\ndescent to each flow", weight="normal")
        dots = {"marker": "o", "ms": 6.5, "mec": "white", "mew": 0.8, "lw": 0.9, "color": COLOURS["descent"]}
        wide = {"gradient": {"lw": 4.5, "ls": (0, (2.2, 0.8))}, "modified": {"lw": 4.5}}
        self.lines = {n: plane.plot([], [], color=COLOURS[n], zorder=4, **wide[n])[0] for n in wide}
        self.heads = {n: plane.plot([], [], "o", ms=10, color=COLOURS[n], mec="white", zorder=5)[0] for n in wide}
        self.dots = plane.plot([], [], zorder=7, **dots)[0]
        self.curves = {n: (gaps[n], chart.plot([], [], color=COLOURS[n], **wide[n])[0]) for n in wide}
        names = {
            "gradient": ("the gradient\nflow of E", (-1.06, 0.62)),
            "modified": ("the modified flow:\nthat of " + r"$\mathbf{E + \frac{h}{4}\,|\nabla E|^2}$", (0.22, 0.58)),
            "descent": (f"gradient descent,\nsteps of h = {H:g}", (-0.28, 1.35)),
        }
        for name, (text, place) in names.items():
            plane.text(*place, text, color=_dark(COLOURS[name]), size=14.5, weight="bold", linespacing=1.05, zorder=8)
        self.titles = [
            (0, "Gradient descent takes finite steps …"),
            (9, "… so it leaves the gradient flow …"),
            (22, "… and stays near the flow of another, modified loss."),
            (self.steps, "Descent ends in the flat minimum, as the modified flow predicts."),
        ]

    def draw(self, n: int) -> Image.Image:
        """The picture after n steps."""
        self.words.set_text(max(title for title in self.titles if title[0] <= n)[1])
        self.dots.set_data(*self.paths.descent[: n + 1].T)
        for name, line in self.lines.items():
            path = getattr(self.paths, name)[: n * FINE + 1]
            line.set_data(*path.T)
            self.heads[name].set_data(*path[-1:].T)
            gap, curve = self.curves[name]
            curve.set_data(np.arange(n + 1), gap[: n + 1])
        self.figure.canvas.draw()
        return Image.fromarray(np.asarray(self.figure.canvas.buffer_rgba())[..., :3].copy())  # pyright: ignore


def _dark(colour: str) -> tuple[float, ...]:
    """The colour for text on a light ground, where a line's own would be too pale."""
    return tuple(0.72 * int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def _schedule(steps: int) -> Iterator[tuple[int, int]]:
    """The step that each frame shows and its milliseconds: slow at first, and long at the end."""
    for n in range(steps + 1):
        if n <= FIRST or n % 2 == 0:
            yield n, 1000 if n == 0 else 240 if n <= FIRST else 90
    yield steps, 3600


def frames(drawn: Trajectories) -> Iterator[tuple[Image.Image, int]]:
    """The pictures, each with its milliseconds."""
    with style():
        for name, size in LARGE.items():
            matplotlib.rcParams[name] = size  # pyright: ignore[reportArgumentType]
        picture = _Picture(drawn)
        for n, duration in _schedule(len(drawn.descent) - 1):
            yield picture.draw(n), duration


def write(path: Path, drawn: Trajectories | None = None) -> None:
    """Write the animation, a GIF that repeats."""
    images, durations = zip(*frames(drawn or paths()), strict=True)
    palette = images[-1].quantize(96, dither=Image.Dither.NONE)
    reduced = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    buffer = io.BytesIO()
    reduced[0].save(buffer, "GIF", save_all=True, append_images=reduced[1:], duration=durations, loop=0, optimize=True)
    write_atomically(path, buffer.getvalue())
