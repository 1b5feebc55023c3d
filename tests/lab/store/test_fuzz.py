"""All readers on bytes of all kinds: only our own errors come out, and nothing is written."""

import gzip
import hashlib
import io
import json
import shlex
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from units import Counter, contents

from igr.lab.data import cifar10, mnist
from igr.lab.data.fetch import DataError, Source, fetch
from igr.lab.report.stamp import recall
from igr.lab.store import checkpoint, schema, trusted
from igr.lab.store.care import verify
from igr.lab.store.claim import Permit, place
from igr.lab.store.config import Config, ConfigError
from igr.lab.store.files import Damaged, npz_arrays, npz_bytes
from igr.lab.store.lock import holder
from igr.lab.store.reading import read_run
from igr.lab.store.store import Store
from igr.lab.store.text import plain

EXAMPLES = settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
RECORD = {"format": 1, "experiment": "test", "kind": "units:Counter", "config": {"length": 3, "seed": 0},
          "digest": Counter(3).digest(), "precision": "float32", "device": "cpu", "seconds": 1.0}  # fmt: skip
GOOD = npz_bytes({"sums": np.arange(5.0), "count": 3})
CLAIM = {"pid": 1, "host": "h", "since": 1.0, "token": "t"}
OURS = (Damaged, ConfigError)


def changed(good: bytes):
    """Bytes of any kind, or good ones with some of them other, left out or more."""
    edits = st.lists(st.tuples(st.integers(0, len(good)), st.binary(max_size=6), st.integers(0, 6)), max_size=4)

    def apply(edits):
        data = bytearray(good)
        for start, new, old in edits:
            data[start : start + old] = new
        return bytes(data)

    return st.binary(max_size=200) | edits.map(apply)


def only_ours(function, *arguments):
    try:
        return function(*arguments)
    except OURS as error:
        words = str(error)
    assert words
    assert "\n" not in words
    return None


@EXAMPLES
@given(st.sampled_from([*RECORD, "bytes", "versions", "conditions", "code", "new"]), JSON)
def test_records(tmp_path, field, value):
    record = RECORD | {field: value}
    folder = tmp_path / "test" / Counter(3).digest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record).encode()
    (folder / "config.json").write_bytes(text)
    (folder / "metrics.npz").write_bytes(GOOD)
    sums = {"config.json": text, "metrics.npz": GOOD}
    lines = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sums.items())
    (folder / "SHA256SUMS").write_text(lines)
    run = only_ours(read_run, folder)
    assert run is None or run.config == Counter(3)
    assert sorted(path.name for path in folder.iterdir()) == ["SHA256SUMS", "config.json", "metrics.npz"]


@EXAMPLES
@given(changed(json.dumps(RECORD).encode()))
def test_bytes_of_records_and_configurations(data):
    only_ours(schema.record, data, Path("config.json"))
    only_ours(Config.from_json, data.decode("latin-1"))


@EXAMPLES
@given(st.dictionaries(st.sampled_from(["kind", "length", "seed", "other"]), JSON))
def test_configurations(values):
    only_ours(Config.from_json, json.dumps({"kind": "units:Counter", **values}))


@EXAMPLES
@given(changed(schema.index_bytes(["0" * 16], {"scale": "smoke"})) | JSON.map(lambda value: json.dumps(value).encode()))
def test_indices(tmp_path, data):
    found = only_ours(schema.index, data, Path("index.json"))
    assert found is None or found["units"] == ["0" * 16]
    (tmp_path / "test").mkdir(exist_ok=True)
    (tmp_path / "test" / "index.json").write_bytes(data)
    store = Store(tmp_path)
    assert store.runs("test")[0] == []
    assert bool(store.harm) == (found is None) == bool([*verify(tmp_path)])
    assert contents(tmp_path) == {tmp_path / "test" / "index.json": data}


@EXAMPLES
@given(st.sampled_from(["scale", "options", "flags", "source", "format", "units", "new"]), JSON)
def test_indices_with_right_sums(field, value):
    content = {"format": 1, "units": ["0" * 16], "scale": "smoke", "options": {}, "flags": []} | {field: value}
    data = schema.encode({**content, "sha256": schema._sum(content)})
    found = only_ours(schema.index, data, Path("index.json"))
    if found is not None:  # what the report makes a command of
        assert isinstance(shlex.join([found.get("source") or "test", found["scale"], *found["flags"]]), str)


@EXAMPLES
@given(changed(json.dumps(CLAIM).encode()) | JSON.map(json.dumps))
@example(json.dumps(CLAIM | {"host": "\x1b[31m" * 50, "pid": 10**300}))
def test_claims_and_the_list_of_trusted_files(tmp_path, data):
    path = place(tmp_path, "one")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    before = contents(tmp_path)
    words = holder(tmp_path, "one")
    assert words == plain(words)[:200]
    assert not Permit(path, "x" * 16).valid
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trusted, "_list", lambda: path)
        assert not trusted.is_trusted(tmp_path / "evil.py")
    assert contents(tmp_path) == before


@EXAMPLES
@given(changed(b"0" * 64 + b"  config.json\n" + b"1" * 64 + b"  metrics.npz\n"))
def test_sums(data):
    only_ours(schema.sums, data, Path("SHA256SUMS"))


@EXAMPLES
@given(changed(GOOD) | changed(npz_bytes({"a": np.ones(3)}, compress=False)))
def test_archives(data):
    only_ours(npz_arrays, data)


@EXAMPLES
@given(changed(npz_bytes({"a": np.ones(3), checkpoint.UNIT: np.array("x")}, compress=False)))
def test_checkpoints_with_right_sums(data):
    file = hashlib.sha256(data).hexdigest().encode() + b"\n" + data
    found = only_ours(checkpoint.unpack, file, "x", Path("checkpoint.bin"))
    assert found is None or checkpoint.UNIT not in found


@EXAMPLES
@given(changed(json.dumps({"stamp": "s", "files": ["a.png"]}).encode()) | JSON.map(lambda v: json.dumps(v).encode()))
def test_stamps(tmp_path, data):
    (tmp_path / ".test.json").write_bytes(data)
    (tmp_path / "a.png").write_bytes(b"")
    kept = recall(tmp_path / ".test.json", "s")
    assert kept is None or all(path.parent == tmp_path for path in kept)


def loaded(module, folder, data):
    """What the reader of a data set makes of these bytes in each of its files, with right sums."""
    for name in module.SOURCE.files:
        (folder / name).write_bytes(data)
    sums = dict.fromkeys(module.SOURCE.files, hashlib.sha256(data).hexdigest())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SOURCE", Source("set", sums, ()))
        return only_ours(module.load, folder)


@EXAMPLES
@given(changed(b"\0\0\x08\1" + struct.pack(">I", 3) + b"123"))
def test_digits(tmp_path, data):
    assert loaded(mnist, tmp_path, data) is None  # labels and images of one file never go together
    assert issubclass(DataError, ConfigError)


@EXAMPLES
@given(st.binary(max_size=40) | st.sampled_from([bytes(3073), bytes(3072), bytes(6146), b""]))
def test_photographs(tmp_path, data):
    assert (loaded(cifar10, tmp_path, data) is not None) == (len(data) in (3073, 6146))


def wrapped(archive: bool) -> bytes:
    """The content b"123" of the file `f`, as a mirror has it."""
    if not archive:
        return gzip.compress(b"123", mtime=0)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo("set/f")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"123"))
    return buffer.getvalue()


@settings(EXAMPLES, max_examples=12)
@given(st.data(), st.booleans())
def test_downloads(tmp_path, data, archive):
    """Only what has the right sum gets into the cache, whatever a mirror sends."""
    content, cache = data.draw(changed(wrapped(archive))), tmp_path / "cache"
    (tmp_path / ("all.tar.gz" if archive else "f.gz")).write_bytes(content)
    sums = {"f": hashlib.sha256(b"123").hexdigest()}
    source = Source("set", sums, (tmp_path.as_uri() + "/",), archive="all.tar.gz" if archive else None)
    found = only_ours(fetch, source, None, cache)
    assert found in (None, {"f": b"123"})
    assert contents(cache) in ({}, {cache / "set" / "f": b"123"})
    shutil.rmtree(cache, ignore_errors=True)


def test_the_fuzzing_finds_a_reader_that_lets_other_errors_out():
    with pytest.raises(json.JSONDecodeError):
        only_ours(json.loads, b"{")
