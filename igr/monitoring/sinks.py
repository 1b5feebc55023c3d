"""Where readings go: JSON lines, CSV, TensorBoard, one live line. A sink is any `sink(step, numbers)`."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from igr._typing import RealScalarLike

Own = TypeVar("Own", bound="Closing")  # not `Self`, which beartype cannot check a method at a time


class Closing:
    """What can be closed, and closes itself at the end of a `with` block."""

    close: Callable[[], None]

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JsonLines(Closing):
    r"""One JSON object a line, `{"step": 0, "q2": 0.1, ...}`; a number that is not finite becomes `null`.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> with JsonLines(path) as sink:
    ...     sink(0, {"q2": 0.25, "cosine": float("nan")})
    >>> path.read_text()
    '{"step": 0, "q2": 0.25, "cosine": null}\n'
    """

    def __init__(self, path: str | Path) -> None:
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)

    def __call__(self, step: int, numbers: Mapping[str, RealScalarLike]) -> None:
        """Append a line and flush it, so that a crash loses nothing."""
        row = {name: value if math.isfinite(value) else None for name, value in _floats(numbers).items()}
        self.file.write(json.dumps({"step": int(step), **row}) + "\n")
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Csv(Closing):
    """A CSV file with a header from the first step; a number that is not finite is an empty cell.

    A file that is there is continued, so that a resumed training keeps its rows.
    """

    def __init__(self, path: str | Path) -> None:
        self.file = open(path, "a+", newline="", encoding="utf-8")  # noqa: SIM115 (closed by close)
        self.file.seek(0)
        columns = next(csv.reader(self.file), None)
        self.file.seek(0, 2)
        self.writer: csv.DictWriter[str] | None = csv.DictWriter(self.file, columns) if columns else None

    def __call__(self, step: int, numbers: Mapping[str, RealScalarLike]) -> None:
        """Write a row."""
        row = {name: value if math.isfinite(value) else "" for name, value in _floats(numbers).items()}
        if self.writer is None:
            self.writer = csv.DictWriter(self.file, ["step", *row])
            self.writer.writeheader()
        if {"step", *row} != set(self.writer.fieldnames):
            raise ValueError(
                f"the CSV file has the columns {', '.join(self.writer.fieldnames)}, and this step has others: "
                "use another file, or JsonLines."
            )
        self.writer.writerow({"step": int(step), **row})
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class TensorBoard(Closing):
    """Scalars in a TensorBoard event file in `folder`, under `prefix/name`; needs the package tensorboard."""

    def __init__(self, folder: str | Path, prefix: str = "igr") -> None:
        try:
            from tensorboard.summary import Writer
        except ImportError as absent:
            raise ImportError(
                "the TensorBoard sink needs the package tensorboard: pip install tensorboard."
            ) from absent
        self.writer, self.prefix = Writer(str(folder)), prefix

    def __call__(self, step: int, numbers: Mapping[str, RealScalarLike]) -> None:
        """Write every finite number as a scalar."""
        for name, value in _floats(numbers).items():
            if math.isfinite(value):
                self.writer.add_scalar(f"{self.prefix}/{name}", value, step=int(step))

    def close(self) -> None:
        """Write what is left and close the file."""
        self.writer.close()


class Live(Closing):
    """One line in the terminal that follows the training: the step, some numbers and the verdict. Needs rich."""

    def __init__(
        self, names: Iterable[str] = ("loss", "r_ig", "q2", "cosine", "h_lambda"), console: Any = None
    ) -> None:
        try:
            from rich.live import Live as RichLive
            from rich.text import Text
        except ImportError as absent:
            raise ImportError("the live line needs the package rich: pip install rich.") from absent
        self.names, self.text = tuple(names), Text
        self.live = RichLive("", console=console, auto_refresh=False, transient=False)
        self.live.start()

    def __call__(self, step: int, numbers: Mapping[str, RealScalarLike]) -> None:
        """Replace the line."""
        from igr.regimes.verdicts import verdict

        values = _floats(numbers)
        shown = [f"{name} {values[name]:.3g}" for name in self.names if math.isfinite(values.get(name, math.nan))]
        self.live.update(self.text("  ".join([f"step {int(step)}", *shown, verdict(values).word])), refresh=True)

    def close(self) -> None:
        """Leave the last line in place."""
        self.live.stop()


def _floats(numbers: Mapping[str, RealScalarLike]) -> dict[str, float]:
    """Plain numbers, for which the host waits here and nowhere else."""
    return {name: float(value) for name, value in numbers.items()}
