"""When a unit of work keeps a checkpoint."""

import dataclasses
import threading

import numpy as np
import pytest

from igr.lab.config import Config
from igr.lab.store import Store
from igr.lab.work import Cancelled, Session, Trial


@dataclasses.dataclass(frozen=True)
class Nothing(Config):
    """A configuration of nothing in particular."""

    seed: int = 0


def test_a_trial_says_how_it_is_computed():
    with pytest.raises(TypeError, match="abstract"):
        Trial()  # pyright: ignore[reportAbstractUsage]


def test_a_unit_that_is_asked_to_stop_saves_first(tmp_path):
    """Ctrl-C between two checkpoints loses nothing: the next one is written before the unit ends."""
    stop = threading.Event()
    folder = Store(tmp_path).folder("test", Nothing())
    session = Session(folder, stop=stop, save_every=1e9)
    assert not session.save(lambda: {"step": np.array(1)})
    stop.set()
    with pytest.raises(Cancelled):
        session.save(lambda: {"step": np.array(2)})
    saved = folder.load_checkpoint()
    assert saved is not None
    assert saved["step"] == 2


def test_checkpoints_take_a_small_share_of_the_time(tmp_path, monkeypatch):
    """A checkpoint that takes 3 s is written every 100 s, not every 2 s."""
    clock = [0.0]
    monkeypatch.setattr("igr.lab.work.time.monotonic", lambda: clock[0])
    session = Session(Store(tmp_path).folder("test", Nothing()), save_every=2.0)

    def slow():
        clock[0] += 3.0
        return {"step": np.array(1)}

    clock[0] = 2.5
    assert session.save(slow)
    clock[0] += 50
    assert not session.save(slow)
    clock[0] += 51
    assert session.save(slow)
