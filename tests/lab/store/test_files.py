"""Files: bytes that depend on the arrays alone, and archives made to harm."""

import gc
import os
import sys
import time
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

from igr.lab.store import files
from igr.lab.store.files import Damaged, npz_arrays, npz_bytes


def test_npz_bytes_depend_on_the_arrays_alone():
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.int64(3)}
    first = npz_bytes(arrays)
    time.sleep(2.1)  # the clock of a zip file ticks every two seconds
    assert npz_bytes(dict(reversed(arrays.items()))) == first
    assert npz_bytes({**arrays, "a": np.int64(4)}) != first
    again = npz_arrays(first)
    assert again["a"].dtype == np.int64
    np.testing.assert_array_equal(again["b"], arrays["b"])


def test_small_floats_of_accelerators_become_float32():
    """NumPy would write them without their name, and read them as raw bytes."""
    values = [1.0, -2.5, 0.125]
    for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn):
        found = npz_arrays(npz_bytes({"a": np.array(values, kind)}))["a"]
        assert (found.dtype, found.tolist()) == (np.float32, values)


def test_nothing_is_pickled():
    with pytest.raises(ValueError, match="pickle"):
        npz_bytes({"a": np.array([object()])})


def test_files_have_the_mode_of_the_users_umask(tmp_path):
    before = os.umask(0o077)
    try:
        files.write_atomically(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def archive(tmp_path, members, **options):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members:
            file.writestr(name, data, **options)
    return (tmp_path / "a.npz").read_bytes()


def header(shape, descr="<f8"):
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


BOMBS = {
    "a shape of a petabyte": [("a.npy", header((2**47,)) + bytes(8))],
    "a negative shape": [("a.npy", header((-1,)) + bytes(8))],
    "objects": [("a.npy", header((1,), "|O") + b"cos\nsystem\n")],
    "a type of no size": [("a.npy", header((2**60,), "|V0"))],
    "two of one name": [("a.npy", header(()) + bytes(8)), ("a.npy", header(()) + bytes(8))],
    "no magic": [("a.npy", b"nothing")],
    "a header of code": [("a.npy", b"\x93NUMPY\x01\x00\x10\x00" + b"__import__('os')")],
    "zeros": [("a.npy", bytes(50_000_000))],
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_archives_are_damage_and_take_no_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "SLACK", 1_000_000)
    data = archive(tmp_path, BOMBS[name])
    tracemalloc.start()
    with pytest.raises(Damaged):
        npz_arrays(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_several_threads_read_arrays_at_once():
    """CPython 3.11 raises "AST constructor recursion depth mismatch" where garbage is collected meanwhile."""

    class Garbage:
        def __del__(self):
            sum(range(20))

    def read(_):
        for one in (Garbage(), Garbage()):
            one.itself = one
        return npz_arrays(data, "a")["a"].size

    data, before = npz_bytes({"a": np.zeros(3)}), gc.get_threshold()
    gc.set_threshold(5)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(read, range(2000))) == {3}
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*before)


def test_what_compresses_beyond_the_bound_of_a_reader_is_written_so_that_it_is_read(monkeypatch):
    monkeypatch.setattr(files, "SLACK", 1_000_000)
    zeros = np.zeros(5_000_000, np.int8)
    data = npz_bytes({"a": zeros})
    np.testing.assert_array_equal(npz_arrays(data)["a"], zeros)
    assert npz_bytes({"a": zeros}) == data
    assert len(npz_bytes({"a": zeros[:500_000]})) < 10_000, "small ones are compressed"
