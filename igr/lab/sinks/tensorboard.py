"""Events for TensorBoard. It needs a package that writes its files: tensorboardX or torch."""

import importlib
import math
from pathlib import Path
from typing import Any

from igr.lab.sinks.sink import Event
from igr.lab.store.config import ConfigError

WRITERS = ("tensorboardX", "torch.utils.tensorboard")


class TensorBoardRuns:
    """Writes a TensorBoard run for each network into `tensorboard/EXPERIMENT/UNIT/NETWORK` in `folder`.

    A resumed unit repeats the steps since its last checkpoint; TensorBoard drops the old ones.
    """

    def __init__(self, folder: str | Path):
        self.folder, self._writer = Path(folder) / "tensorboard", writer()
        if self._writer is None:
            raise ConfigError("the sink tensorboard needs a package that writes its files: `pip install tensorboardX`.")
        self._open: dict[tuple[str, str, int], Any] = {}

    def event(self, event: Event) -> None:
        """Add each finite number of `event` as a scalar with the name of its column."""
        for k, row in enumerate(event.rows()):
            key = (event.experiment, event.unit, k)
            if key not in self._open:
                place = self.folder / event.experiment / event.unit / str(k)
                self._open[key] = self._writer(str(place), purge_step=event.step)
            for name, value in row.items():
                if math.isfinite(value):
                    self._open[key].add_scalar(name, value, event.step)
            self._open[key].flush()

    def close(self) -> None:
        """Close the files."""
        for log in self._open.values():
            log.close()


def writer() -> Any:
    """The class that writes TensorBoard's files, or None where no package that has it is installed."""
    for name in WRITERS:
        try:
            return importlib.import_module(name).SummaryWriter
        except (ImportError, AttributeError):
            continue
    return None
