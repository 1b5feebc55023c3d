"""The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn, in one fixed split; no network needed."""

from pathlib import Path

import numpy as np

from igr.lab.data.dataset import Dataset, Entry, split

TRAIN = 1437


def load(data_dir: str | Path | None = None) -> Dataset:
    """Digits: 1,437 images for training and 360 for testing, from scikit-learn. `data_dir` is ignored."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = np.asarray(x).reshape(-1, 8, 8, 1).astype(np.uint8), np.asarray(y)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:TRAIN], order[TRAIN:]
    return Dataset("digits", split(x[train], y[train]), split(x[test], y[test]), 16.0)


ENTRY = Entry(load, shape=(8, 8, 1), sizes=(1437, 360))
