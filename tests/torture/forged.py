"""Files that are not what was written: flipped, cut, or made to harm."""

import hashlib
import json
import random
from collections import Counter as Tally
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from torture.kit import OURS, UNIT, Line

from igr.lab.runs.local import run_units
from igr.lab.store.checkpoint import pack, unpack
from igr.lab.store.reading import read_run
from igr.lab.store.store import Store


def harmed(root: Path, draw: random.Random) -> Iterator[Line]:
    """Flipped bits and cut files: refused by name, or read as what was written."""
    store = Store(root / "harmed")
    run_units(store, "test", [UNIT])
    store.write_index("test", [UNIT], scale="smoke", options={})
    folder = store.folder("test", UNIT).path
    meant = read_run(folder)
    checkpoint = pack({"sums": np.arange(30.0)}, UNIT.digest())
    kept = root / "checkpoint.bin"

    def read(name: str, data: bytes) -> bool:
        """Whether these bytes are taken for something else than what was written."""
        if name == "checkpoint.bin":
            return not np.array_equal(unpack(data, UNIT.digest(), kept)["sums"], np.arange(30.0))
        path = folder.parent / name if name == "index.json" else folder / name
        good = path.read_bytes()
        path.write_bytes(data)
        try:
            if name == "index.json":
                runs, problems = Store(store.root).runs("test")
                return not problems and [run.config for run in runs] != [UNIT]
            found = read_run(folder)
            same = found.record == meant.record and found.config == meant.config
            return not (same and np.array_equal(found.metrics["sums"], meant.metrics["sums"]))
        except FileNotFoundError:
            return False  # it looks unfinished, and is computed again
        finally:
            path.write_bytes(good)

    flips, cuts = Tally(), Tally()
    for name in ("config.json", "metrics.npz", "SHA256SUMS", "index.json", "checkpoint.bin"):
        good = checkpoint if name == "checkpoint.bin" else (
            folder.parent / name if name == "index.json" else folder / name).read_bytes()  # fmt: skip
        places = draw.sample(range(8 * len(good)), min(8 * len(good), 3000))
        variants = [(flips, bytearray(good)) for _ in places]
        for (_, data), place in zip(variants, places, strict=True):
            data[place // 8] ^= 1 << place % 8
        variants += [(cuts, bytearray(good[:end])) for end in range(0, len(good), 1 + len(good) // 640)]
        for tally, data in variants:
            tally["attempts"] += 1
            try:
                tally["read as data"] += read(name, bytes(data))
            except OURS:
                pass  # refused by name, as it must be
            except Exception:
                tally["errors not ours"] += 1
    yield "one bit flipped, in each kind of file", flips
    yield "a file cut short, each kind", cuts


def strangers(root: Path, draw: random.Random) -> Iterator[Line]:
    """Records with right sums and values of all kinds."""
    values = [
        None,
        True,
        -1,
        10**400,
        float("nan"),
        "",
        "../../x",
        "/tmp/x",
        "[red]x[/]",
        [],
        {},
        [[[]]],
        {"a": {}},
        "\0",
    ]
    store, tally = Store(root / "strange"), Tally()
    run_units(store, "test", [UNIT])
    folder = store.folder("test", UNIT).path
    record, data = json.loads((folder / "config.json").read_text()), (folder / "metrics.npz").read_bytes()
    outside = root / "outside"
    outside.mkdir()
    for field in [*record, "new"]:
        for value in [*values, *(draw.randbytes(5).hex() for _ in range(3))]:
            text = json.dumps(record | {field: value}).encode()
            (folder / "config.json").write_bytes(text)
            sums = {"config.json": text, "metrics.npz": data}
            lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sums.items()]
            (folder / "SHA256SUMS").write_text("".join(lines))
            tally["attempts"] += 1
            try:
                tally["read as data"] += read_run(folder).config != UNIT
            except OURS:
                pass
            except Exception:
                tally["errors not ours"] += 1
    tally["lost or changed"] += len(list(outside.iterdir()))
    yield "a record with right sums and a hostile field", tally
