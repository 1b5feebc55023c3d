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
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from igr.lab.data import fetch as getting
from igr.lab.data import mnist
from igr.lab.data.fetch import DataError, Source, fetch
from igr.lab.data.registry import DATASETS, load


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
        if how in ("drip-head", "endless"):
            self.wfile.write(b"HTTP/1.0 200 OK\r\n" + (b"\r\n" if how == "endless" else b"X: "))
            with contextlib.suppress(OSError):
                for _ in range(3000):
                    self.wfile.write(b"0" * (1 << 16 if how == "endless" else 1))
                    time.sleep(0.0 if how == "endless" else 0.02)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if how == "cut":
            body = body[: len(body) // 2]
        if how == "silent":
            time.sleep(1.0)
        step = {"slow": max(1, len(body) // 5), "drip-body": 1}.get(how, max(1, len(body)))
        with contextlib.suppress(OSError):  # the client may have gone
            for i in range(0, len(body), step):
                self.wfile.write(body[i : i + step])
                self.wfile.flush()
                time.sleep(0.02 if how in ("slow", "drip-body") else 0.0)

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
    monkeypatch.setattr(getting, "TIMEOUT", 0.2)
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
    monkeypatch.setattr(mnist, "SOURCE", source(files, base, "good"))
    if through == "environment":
        monkeypatch.setenv("IGR_DATA_DIR", str(tmp_path))
    found = load("mnist", tmp_path if through == "argument" else None)
    assert asked == []
    assert (found.train.x.shape, found.test.x.shape, found.scale) == ((12, 28, 28, 1), (5, 28, 28, 1), 255.0)
    assert found.train.x.tobytes() == files["train-images-idx3-ubyte"][16:]
    assert found.test.y.tolist() == list(files["t10k-labels-idx1-ubyte"][8:])


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
    monkeypatch.setattr(mnist, "SOURCE", source(files, base, "good"))
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.*(put it there|replace it)") as caught:
        load("mnist", tmp_path)
    assert "\n" not in str(caught.value)
    assert asked == []


def test_every_mirror_is_asked_over_tls():
    sources = [entry.source for entry in DATASETS.values() if entry.source]
    assert len(sources) > 1
    assert [url for source in sources for url in source.mirrors if not url.startswith("https://")] == []


def test_an_empty_environment_variable_is_none_and_not_the_current_folder(files, server, tmp_path, monkeypatch):
    base, asked = server
    monkeypatch.chdir(tmp_path)
    for name in files:
        (tmp_path / name).write_bytes(b"of something else")
    monkeypatch.setenv("IGR_DATA_DIR", "")
    assert fetch(source(files, base, "good"), cache=tmp_path / "cache") == files
    assert len(asked) == 4


@pytest.mark.parametrize("archive", ["", "file", "header"])
def test_what_unpacks_to_more_than_it_may_is_left_before_it_is_unpacked(files, tmp_path, monkeypatch, archive):
    """200 MB of zeros in a wrapper of 200 kB: the memory used stays near the 1 MB that a file may have."""
    name, zeros = "t10k-labels-idx1-ubyte", bytes(200_000_000)
    wrapped = tmp_path / (f"{name}.gz" if not archive else "all.tar.gz")
    if archive:
        with tarfile.open(wrapped, "w:gz", compresslevel=1) as tar:
            info = tarfile.TarInfo(name)
            if archive == "header":  # what an archive says of a file may be longer than any file
                info.pax_headers = {"comment": "0" * 30_000_000}
                zeros = b""
            info.size = len(zeros)
            tar.addfile(info, io.BytesIO(zeros))
            del info
    else:
        wrapped.write_bytes(gzip.compress(zeros, 1))
    del zeros
    bomb = Source("mnist", {name: "0" * 64}, (wrapped.parent.as_uri() + "/",), "all.tar.gz" if archive else None,
                  largest=1_000_000)  # fmt: skip
    tracemalloc.start()
    with pytest.raises(DataError, match="has more than 1,000,000 bytes" if not archive else "unpacks to more"):
        fetch(bomb, cache=tmp_path / "cache")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("where", ["body", "head"])
def test_a_mirror_that_drips_is_given_up(files, server, tmp_path, monkeypatch, where):
    """A byte every 20 ms never runs into the time without a byte, and would take an hour for a megabyte."""
    monkeypatch.setattr(getting, "PATIENCE", 0.3)
    base, asked = server
    one = {"t10k-images-idx3-ubyte": files["t10k-images-idx3-ubyte"]}
    begun = time.monotonic()
    assert fetch(source(one, base, f"drip-{where}", "good"), cache=tmp_path) == one
    assert [how for how, _ in asked] == [f"drip-{where}", "good"]
    assert time.monotonic() - begun < 20, "of the minute and more that it would take"


def test_a_mirror_that_sends_without_end_is_left(files, server, tmp_path):
    base, _ = server
    one = {"t10k-labels-idx1-ubyte": files["t10k-labels-idx1-ubyte"]}
    little = Source("mnist", sums(one), (f"{base}/endless/", f"{base}/good/"), megabytes=1)
    assert fetch(little, cache=tmp_path) == one


def test_several_processes_on_a_harmed_cache_all_get_the_data(files, server, tmp_path):
    """As threads here: each finds the harmed file, and none removes what another one has mended meanwhile."""
    base, _ = server
    (tmp_path / "mnist").mkdir()
    for name in files:
        (tmp_path / "mnist" / name).write_bytes(b"harmed")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: fetch(source(files, base, "slow"), cache=tmp_path), range(8)))
    assert found == [files] * 8
