"""What each data set's files become in memory."""

import hashlib
import struct

import numpy as np
import pytest

from igr.lab.data import cifar10, mnist
from igr.lab.data.dataset import Dataset, Split
from igr.lab.data.fetch import DataError, Source
from igr.lab.data.registry import DATASETS, load


def test_cifar_planes_become_channels(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (4, 3073)).astype(np.uint8)
    rows[:, 0] %= 10
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    monkeypatch.setattr(cifar10, "SOURCE", Source("c", dict.fromkeys(names, hashlib.sha256(rows).hexdigest()), ()))
    for name in names:
        (tmp_path / name).write_bytes(rows.tobytes())
    cifar = load("cifar10", tmp_path)
    assert (cifar.train.x.shape, cifar.test.x.shape) == ((20, 32, 32, 3), (4, 32, 32, 3))
    assert cifar.test.x[2, 5, 7].tolist() == [rows[2, 1 + plane * 1024 + 5 * 32 + 7] for plane in range(3)]
    assert cifar.test.y.tolist() == rows[:, 0].tolist()


def test_labels_out_of_range_and_broken_idx_files_are_refused(tmp_path, monkeypatch):
    images, labels = np.zeros((3, 2, 2, 1), np.uint8), np.array([0, 1, 10], np.int32)
    with pytest.raises(DataError, match=r"labels must lie in 0 \.\.\. 9, but reach 10"):
        Dataset("d", Split(images, labels), Split(images, labels), 255.0)
    with pytest.raises(DataError, match="do not go with 3 labels"):
        Dataset("d", Split(images[:2], labels), Split(images, labels), 255.0)
    good = {name: b"\0\0\x08\1" + struct.pack(">I", 3) + b"123" for name in mnist.SOURCE.files}
    broken = good | {"t10k-labels-idx1-ubyte": good["t10k-labels-idx1-ubyte"] + b"\0"}
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in broken.items()}
    monkeypatch.setattr(mnist, "SOURCE", Source("mnist", sums, ()))
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte is not an IDX file"):
        load("mnist", tmp_path)


def test_digits_are_a_fixed_split_of_all_of_them():
    digits = load("digits")
    assert hashlib.sha256(digits.train.y.tobytes()).hexdigest() == hashlib.sha256(load("digits").train.y).hexdigest()
    assert np.bincount(np.concatenate([digits.train.y, digits.test.y])).sum() == 1797
    assert digits.train.x.max() == digits.scale == 16


def test_hold_out_moves_images_and_subset_cuts():
    digits = load("digits")
    held = digits.hold_out(137)
    assert held.validation is not None
    assert (len(held.train), len(held.validation), len(held.test)) == (1300, 137, 360)
    both = np.concatenate([held.train.x, held.validation.x]).reshape(1437, -1)
    assert sorted(map(bytes, both)) == sorted(map(bytes, digits.train.x.reshape(1437, -1)))
    assert (held.validation.y == digits.hold_out(137).validation.y).all()
    assert (len(digits.subset(100, 50).train), len(digits.subset(100, 50).test)) == (100, 50)
    with pytest.raises(DataError, match="cannot hold out"):
        digits.hold_out(1437)
    with pytest.raises(DataError, match="choose one of digits, mnist, cifar10"):
        load("fashion")


def test_what_the_registry_says_is_what_is_loaded():
    entry, digits = DATASETS["digits"], load("digits")
    assert digits.train.x.shape[1:] == entry.shape
    assert (len(digits.train), len(digits.test)) == entry.sizes
    assert digits.classes == DATASETS["digits"].classes == len(set(digits.train.y.tolist()))
