"""Data sets in memory, and the entry of a data set in the registry."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from igr.lab.data.fetch import DataError, Source


@dataclasses.dataclass(frozen=True)
class Split:
    """Images of one kind and their labels."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Images and labels for training and testing, and for validation where a part of the training set is held out.

    Images are uint8 arrays in NHWC order, labels int32; `scale` is the largest pixel value, by which the engine divides
    on the device (the paper's pixels / 255).
    """

    name: str
    train: Split
    test: Split
    scale: float
    classes: int = 10
    validation: Split | None = None

    def __post_init__(self):
        for split in (self.train, self.test):
            if split.x.ndim != 4 or split.x.shape[1:] != self.train.x.shape[1:] or len(split.x) != len(split.y):
                raise DataError(f"{self.name}: images of shape {split.x.shape} do not go with {len(split.y)} labels.")
            if len(split) and not 0 <= split.y.min() <= split.y.max() < self.classes:
                raise DataError(f"{self.name}: labels must lie in 0 ... {self.classes - 1}, but reach {split.y.max()}.")

    def subset(self, train: int, test: int) -> "Dataset":
        """The first `train` training images and `test` test images."""
        cut = (Split(s.x[:n], s.y[:n]) for s, n in ((self.train, train), (self.test, test)))
        return dataclasses.replace(self, train=next(cut), test=next(cut))

    def hold_out(self, count: int, seed: int = 0) -> "Dataset":
        """Move `count` training images, drawn at random by `seed`, to a validation set."""
        if not 0 < count < len(self.train):
            raise DataError(f"{self.name}: cannot hold out {count} of {len(self.train)} training images.")
        order = np.random.default_rng(seed).permutation(len(self.train))
        held, kept = np.sort(order[:count]), np.sort(order[count:])
        part = {name: Split(self.train.x[i], self.train.y[i]) for name, i in (("train", kept), ("validation", held))}
        return dataclasses.replace(self, **part)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A data set in the registry: how it is loaded, and what is known about it beforehand."""

    load: Callable[[str | Path | None], Dataset]  # takes the folder of data sets, or None to download
    shape: tuple[int, int, int]  # of an image: height, width, channels
    sizes: tuple[int, int]  # training and test images
    classes: int = 10
    source: Source | None = None  # None: nothing is downloaded


def split(x: np.ndarray, y: np.ndarray) -> Split:
    """The images `x` with the labels `y` as int32."""
    return Split(x, y.astype(np.int32))
