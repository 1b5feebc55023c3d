"""The download path against a real HTTP server on localhost; the network is never touched."""

import contextlib
import functools
import gzip
import hashlib
import io
import struct
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from igr.lab import data
from igr.lab.data import DataError, Dataset, Source, Split, fetch, load


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def files():
    rng = np.random.default_rng(0)
    arrays = {
        "train-images-idx3-ubyte": rng.integers(0, 256, (12, 28, 28)),
        "train-labels-idx1-ubyte": rng.integers(0, 10, 12),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (5, 28, 28)),
        "t10k-labels-idx1-ubyte": rng.integers(0, 10, 5),
    }
    return {name: idx(array.astype(np.uint8)) for name, array in arrays.items()}


def sums(files):
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


class Handler(BaseHTTPRequestHandler):
    """Serves `/HOW/FILE.gz`, where HOW says what goes wrong."""

    def __init__(self, files, asked, *args):
        self.files, self.asked = files, asked
        super().__init__(*args)

    def do_GET(self):
        _, how, name = self.path.split("/")
        self.asked.append((how, name))
        if how == "down" or name not in self.files:
            self.send_error(503)
            return
        body = self.files[name]
        if how == "wrong":
            body = gzip.compress(b"not these bytes")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if how == "cut":
            body = body[: len(body) // 2]
        if how == "silent":
            time.sleep(1.0)
        step = max(1, len(body) // 5) if how == "slow" else max(1, len(body))
        with contextlib.suppress(OSError):  # the client may have gone
            for i in range(0, len(body), step):
                self.wfile.write(body[i : i + step])
                self.wfile.flush()
                time.sleep(0.02 if how == "slow" else 0.0)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(files):
    asked = []
    served = {f"{name}.gz": gzip.compress(content) for name, content in files.items()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"deep/folder/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    served["all.tar.gz"] = buffer.getvalue()
    http = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, served, asked))
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}", asked
    http.shutdown()
    http.server_close()
    thread.join()


def source(files, base, *ways, archive=None):
    return Source("mnist", sums(files), tuple(f"{base}/{how}/" for how in ways), archive)


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("IGR_DATA_DIR", raising=False)


@pytest.mark.parametrize("ways", [["good"], ["slow"], ["down", "good"], ["cut", "good"], ["wrong", "good"]])
def test_download_is_checked_cached_and_survives_bad_mirrors(files, server, tmp_path, ways):
    base, asked = server
    assert fetch(source(files, base, *ways), cache=tmp_path) == files
    assert {how for how, _ in asked} == set(ways)
    asked.clear()
    assert fetch(source(files, base, *ways), cache=tmp_path) == files
    assert asked == []  # the second time from the cache


def test_a_mirror_that_falls_silent_is_left_for_the_next(files, server, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "TIMEOUT", 0.2)
    base, _ = server
    one = {"t10k-labels-idx1-ubyte": files["t10k-labels-idx1-ubyte"]}
    assert fetch(source(one, base, "silent", "good"), cache=tmp_path) == one


def test_one_archive_for_all_files_is_downloaded_once(files, server, tmp_path, capsys):
    base, asked = server
    assert fetch(source(files, base, "good", archive="all.tar.gz"), cache=tmp_path) == files
    assert asked == [("good", "all.tar.gz")]
    assert capsys.readouterr() == ("", ""), "no bar where there is no terminal, and none in what a pipe reads"


@pytest.mark.parametrize("archive", [None, "all.tar.gz"])
@pytest.mark.parametrize("how", ["down", "cut", "wrong"])
def test_no_good_mirror_is_one_sentence_and_caches_nothing(files, server, tmp_path, how, archive):
    base, _ = server
    with pytest.raises(DataError, match=r"could not be downloaded .*give it as --data-dir\.$") as caught:
        fetch(source(files, base, how, archive=archive), cache=tmp_path)
    assert (archive or "train-images-idx3-ubyte.gz") in str(caught.value)
    assert base in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.rglob("*ubyte*")) == []


def test_a_damaged_cache_is_downloaded_again(files, server, tmp_path):
    base, asked = server
    fetch(source(files, base, "good"), cache=tmp_path)
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    asked.clear()
    assert fetch(source(files, base, "good"), cache=tmp_path) == files
    assert asked == [("good", "t10k-labels-idx1-ubyte.gz")]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("through", ["argument", "environment"])
def test_a_local_folder_is_read_and_nothing_is_downloaded(files, server, tmp_path, monkeypatch, zipped, through):
    base, asked = server
    (tmp_path / "mnist").mkdir()
    for name, content in files.items():
        path = tmp_path / "mnist" / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content, 1) if zipped else content)
    monkeypatch.setattr(data, "MNIST", source(files, base, "good"))
    if through == "environment":
        monkeypatch.setenv("IGR_DATA_DIR", str(tmp_path))
    mnist = load("mnist", tmp_path if through == "argument" else None)
    assert asked == []
    assert (mnist.train.x.shape, mnist.test.x.shape, mnist.scale) == ((12, 28, 28, 1), (5, 28, 28, 1), 255.0)
    assert mnist.train.x.tobytes() == files["train-images-idx3-ubyte"][16:]
    assert mnist.test.y.tolist() == list(files["t10k-labels-idx1-ubyte"][8:])


@pytest.mark.parametrize("fault", ["missing", "cut", "altered", "not gzip"])
def test_a_bad_local_file_is_named_with_what_to_do(files, server, tmp_path, monkeypatch, fault):
    base, asked = server
    for name, content in files.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    if fault == "missing":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes({"cut": whole[:-20], "altered": gzip.compress(b"x"), "not gzip": b"<html>404</html>"}[fault])
    monkeypatch.setattr(data, "MNIST", source(files, base, "good"))
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.*(put it there|replace it)") as caught:
        load("mnist", tmp_path)
    assert "\n" not in str(caught.value)
    assert asked == []


def test_cifar_planes_become_channels(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (4, 3073)).astype(np.uint8)
    rows[:, 0] %= 10
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    monkeypatch.setattr(data, "CIFAR10", Source("c", dict.fromkeys(names, hashlib.sha256(rows).hexdigest()), ()))
    for name in names:
        (tmp_path / name).write_bytes(rows.tobytes())
    cifar = load("cifar10", tmp_path)
    assert (cifar.train.x.shape, cifar.test.x.shape) == ((20, 32, 32, 3), (4, 32, 32, 3))
    assert cifar.test.x[2, 5, 7].tolist() == [rows[2, 1 + plane * 1024 + 5 * 32 + 7] for plane in range(3)]
    assert cifar.test.y.tolist() == rows[:, 0].tolist()


def test_labels_out_of_range_and_broken_idx_files_are_refused(tmp_path, files, monkeypatch):
    images, labels = np.zeros((3, 2, 2, 1), np.uint8), np.array([0, 1, 10], np.int32)
    with pytest.raises(DataError, match=r"labels must lie in 0 \.\.\. 9, but reach 10"):
        Dataset("d", Split(images, labels), Split(images, labels), 255.0)
    with pytest.raises(DataError, match="do not go with 3 labels"):
        Dataset("d", Split(images[:2], labels), Split(images, labels), 255.0)
    broken = {**files, "t10k-labels-idx1-ubyte": files["t10k-labels-idx1-ubyte"] + b"\0"}
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(data, "MNIST", Source("mnist", sums(broken), ()))
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
