"""Events as CSV: one file for each unit, one line for each network and step, appended during the training."""

import csv
import io
from pathlib import Path
from typing import Any

from igr.lab.sinks.sink import Event
from igr.lab.store.files import write_atomically


class CsvFiles:
    """Writes `csv/EXPERIMENT-UNIT.csv` in `folder`, with the columns `step`, `network` and all that is measured.

    A resumed unit repeats the steps since its last checkpoint; their lines are replaced. A new column is empty in the
    lines before it appears.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder) / "csv"
        self._columns: dict[Path, list[str]] = {}  # of the files that this process writes

    def event(self, event: Event) -> None:
        """Append a line for each network of `event`."""
        path = self.folder / f"{event.experiment}-{event.unit}.csv"
        rows = [{"step": event.step, "network": k} | row for k, row in enumerate(event.rows())]
        names = list(dict.fromkeys(name for row in rows for name in row))
        known = self._columns.get(path)
        if known is None or not set(names) <= set(known):
            old = [row for row in _read(path) if int(row["step"]) < event.step]
            self._columns[path] = list(dict.fromkeys([*(known or (old[0] if old else [])), *names]))
            write_atomically(path, _text(old + rows, self._columns[path], head=True).encode())
            return
        with open(path, "a", newline="") as file:
            file.write(_text(rows, known, head=False))

    def close(self) -> None:
        """Do nothing: the files are complete after every event."""


def _read(path: Path) -> list[dict[str, str]]:
    """The complete lines of a file. A process that was killed may have left an incomplete one at the end."""
    if not path.exists():
        return []
    text = path.read_text()
    return list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))


def _text(rows: list[dict[str, Any]], columns: list[str], head: bool) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    if head:
        writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
