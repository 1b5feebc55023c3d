"""CIFAR-10: 60,000 photographs of 32 x 32 pixels in ten classes. Read from its binary version: nothing is unpickled."""

from pathlib import Path

import numpy as np

from igr.lab.data.dataset import Dataset, Entry, Split, split
from igr.lab.data.fetch import DataError, Source, fetch

SOURCE = Source(
    "cifar-10-batches-bin",
    {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    (
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",  # the home is throttled at times
        "https://www.cs.toronto.edu/~kriz/",
    ),
    archive="cifar-10-binary.tar.gz",
    megabytes=162,
)


def load(data_dir: str | Path | None = None) -> Dataset:
    """CIFAR-10 from the folder `data_dir`; without one it is downloaded once."""
    rows = [_rows(name, content) for name, content in fetch(SOURCE, data_dir).items()]
    return Dataset("cifar10", _planar(np.concatenate(rows[:5])), _planar(rows[5]), 255.0)


def _rows(name: str, content: bytes) -> np.ndarray:
    """A row for each image: a label byte and 3,072 values."""
    if not content or len(content) % 3073:
        raise DataError(f"{name} is not a file of CIFAR-10 in its binary version, or it is cut short: get it anew.")
    return np.frombuffer(content, np.uint8).reshape(-1, 3073)


def _planar(rows: np.ndarray) -> Split:
    """Rows of a label byte, then the red, the green and the blue plane of a 32 x 32 image."""
    return split(np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), rows[:, 0])


ENTRY = Entry(load, shape=(32, 32, 3), sizes=(50_000, 10_000), source=SOURCE)
