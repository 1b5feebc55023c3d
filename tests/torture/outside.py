"""What surrounds a run: the disk, the network, and networks that diverge beside others."""

import functools
import gzip
import hashlib
import os
import resource
import signal
from collections import Counter as Tally
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from torture.kit import UNIT, Line, forked, metrics

from igr.lab.data import fetch as getting
from igr.lab.runs.local import run_units
from igr.lab.runs.unit import Session
from igr.lab.store.files import StoreError
from igr.lab.store.store import Store
from igr.lab.training.config import Schedule, Shape
from igr.lab.training.stack import StackRun


def disks(root: Path) -> Iterator[Line]:
    """Files may not grow beyond a size, as on a full disk."""
    tally = Tally()
    for size in (0, 64, 128, 256, 512, 1024, 2048):
        where = root / f"disk{size}"

        def work(where: Path = where, size: int = size) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            try:
                run_units(Store(where), "test", [UNIT], save_every=0.0)
            except StoreError:
                os._exit(2)

        code = os.waitstatus_to_exitcode(os.waitpid(forked(work), 0)[1])
        tally["attempts"] += 1
        tally["errors not ours"] += code not in (0, 2)
        tally["lost or changed"] += bool(list(where.rglob(".tmp-*")))
        run_units(Store(where), "test", [UNIT])
        tally["lost or changed"] += not metrics(Store(where), UNIT)
    yield "a disk that is full at one of seven sizes", tally


def mirrors(root: Path) -> Iterator[Line]:
    """Mirrors that fail in every way before one that does not, asked by eight at once, on a harmed cache."""
    from test_fetch import Handler

    content = {f"file{k}": bytes([k]) * 10_000 for k in range(3)}
    served = {f"{name}.gz": gzip.compress(data) for name, data in content.items()}
    http = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, served, []))
    Thread(target=http.serve_forever, daemon=True).start()
    base, sums = f"http://127.0.0.1:{http.server_port}", {k: hashlib.sha256(v).hexdigest() for k, v in content.items()}
    getting.PATIENCE, tally = 5.0, Tally()
    for how in ("down", "cut", "wrong", "endless", "drip-head"):
        source = getting.Source("set", sums, (f"{base}/{how}/", f"{base}/good/"), megabytes=1)
        cache = root / f"cache-{how}"
        (cache / "set").mkdir(parents=True)
        for name in content:
            (cache / "set" / name).write_bytes(b"harmed")

        def get(_: int, source: getting.Source = source, cache: Path = cache) -> bool:
            return getting.fetch(source, cache=cache) == content

        with ThreadPoolExecutor(8) as pool:
            for answer in pool.map(get, range(8)):
                tally["attempts"] += 1
                tally["lost or changed"] += not answer
    http.shutdown()
    yield "a bad mirror before a good one, a harmed cache, eight at once", tally


def diverging() -> Iterator[Line]:
    """Networks that diverge beside networks that do not, in one stack: the others keep every bit."""
    shape = Shape(width=8, depth=1, steps=60, train_images=96, schedule=Schedule(early=2, every=4))
    sound, seeds, tally = tuple(0.05 * (k + 1) for k in range(10)), (*range(10), *range(70)), Tally()

    def trained(rate: float) -> Any:
        return StackRun(shape, sound + (rate,) * 70, (0.0,) * 80, seeds).compute(Session())

    calm, mixed = trained(0.1), trained(1e30)
    tally["attempts"] = int((mixed["diverged"][10:] >= 0).sum())
    tally["read as data"] = 70 - tally["attempts"] + int((mixed["diverged"][:10] >= 0).sum())
    for name, values in calm.items():
        if np.shape(values)[-1:] == (80,):
            tally["lost or changed"] += not np.array_equal(values[..., :10], mixed[name][..., :10], equal_nan=True)
    yield "a network that diverges beside others", tally
