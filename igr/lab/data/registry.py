"""The data sets by name. A new one is a file beside this one, with an `ENTRY`, and a line in `DATASETS`.

`digits` is embedded and needs no network; `mnist` and `cifar10` are downloaded once, checked and cached. Given a folder
(`data_dir`, or the environment variable IGR_DATA_DIR) nothing touches the network.
"""

from pathlib import Path

from igr.lab.data import cifar10, digits, mnist
from igr.lab.data.dataset import Dataset, Entry
from igr.lab.data.fetch import DataError

DATASETS: dict[str, Entry] = {
    "digits": digits.ENTRY,
    "mnist": mnist.ENTRY,
    "cifar10": cifar10.ENTRY,
}


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """The data set called `name`, from the folder `data_dir`; without one it is downloaded at the first call.

    >>> digits = load("digits")
    >>> digits.train.x.shape, digits.test.x.shape, digits.scale
    ((1437, 8, 8, 1), (360, 8, 8, 1), 16.0)
    """
    if name not in DATASETS:
        raise DataError(f"No data set is called {name!r}: choose one of {', '.join(DATASETS)}.")
    return DATASETS[name].load(data_dir)
