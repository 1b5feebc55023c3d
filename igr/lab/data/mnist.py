"""MNIST: 70,000 handwritten digits of 28 x 28 pixels, in the IDX format."""

import struct
from pathlib import Path

import numpy as np

from igr.lab.data.dataset import Dataset, Entry, split
from igr.lab.data.fetch import DataError, Source, fetch

SOURCE = Source(
    "mnist",
    {
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    megabytes=11,
)


def load(data_dir: str | Path | None = None) -> Dataset:
    """MNIST from the folder `data_dir`; without one it is downloaded once."""
    images, labels, test_images, test_labels = (_idx(f, b) for f, b in fetch(SOURCE, data_dir).items())
    return Dataset("mnist", split(images[..., None], labels), split(test_images[..., None], test_labels), 255.0)


def _idx(name: str, content: bytes) -> np.ndarray:
    """An array from the IDX format: two zero bytes, a type (8: uint8), the rank, the sizes, the values."""
    rank = content[3] if len(content) > 3 and content[:3] == b"\0\0\x08" else 0
    sizes = struct.unpack_from(f">{rank}I", content, 4) if rank and len(content) >= 4 + 4 * rank else ()
    if not sizes or len(content) != 4 + 4 * rank + int(np.prod(sizes)):
        raise DataError(f"{name} is not an IDX file of unsigned bytes, or it is truncated: download it again.")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(sizes)


ENTRY = Entry(load, shape=(28, 28, 1), sizes=(60_000, 10_000), source=SOURCE)
