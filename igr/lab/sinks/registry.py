"""The sinks by name. A new one is a class that is made from the output folder, and a line in `SINKS`.

It writes into the folder of its name in the output folder, which is checked for links beforehand. A file of your own
needs no line: `igr run NAME --sink my_sink.py` calls its function `sink(folder)`.
"""

from collections.abc import Callable
from pathlib import Path

from igr.lab.sinks.csv import CsvFiles
from igr.lab.sinks.sink import Sink
from igr.lab.sinks.tensorboard import TensorBoardRuns
from igr.lab.store.config import ConfigError
from igr.lab.store.files import refuse_links
from igr.lab.store.modules import from_file

SINKS: dict[str, Callable[[Path], Sink]] = {
    "csv": CsvFiles,
    "tensorboard": TensorBoardRuns,
}


def make(name: str, folder: str | Path) -> Sink:
    """The sink called `name`, or made by the Python file `name`, which writes into `folder`."""
    if name in SINKS:
        refuse_links(Path(folder) / name)  # a built-in sink writes into the folder of its name
        return SINKS[name](Path(folder))
    path = Path(name)
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(
            f"There is no sink {name!r}: choose {', '.join(SINKS)}, or give a Python file with sink(folder)."
        )
    module = from_file(path.resolve(), "igr_sink")
    if not callable(getattr(module, "sink", None)):
        raise ConfigError(f"{path} has no function sink(folder) that returns a sink.")
    return module.sink(Path(folder))
