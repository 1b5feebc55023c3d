"""What listens to a training: every event arrives, and files survive an interruption."""

import csv
import io

import numpy as np
import pytest
from units import Counter

from igr.lab.runs.local import run_units
from igr.lab.runs.unit import Session
from igr.lab.sinks.csv import CsvFiles
from igr.lab.sinks.registry import SINKS, make
from igr.lab.sinks.sink import Event, Sinks
from igr.lab.store.config import ConfigError
from igr.lab.store.store import Store
from igr.lab.training.config import Schedule, Shape
from igr.lab.training.stack import StackRun

RUN = StackRun(
    Shape(width=4, depth=1, steps=4, train_images=64, schedule=Schedule(early=1, every=2)),
    (0.1, 0.2),
    (0.0,) * 2,
    (0, 1),
)


def event(step, **numbers):
    return Event("test", "0f", "a unit", step, numbers)


def read(folder):
    (path,) = (folder / "csv").glob("*.csv")
    return list(csv.DictReader(io.StringIO(path.read_text())))


class Kept:
    """Ten lines of a user's."""

    def __init__(self):
        self.events, self.closed = [], False

    def event(self, event):
        self.events.append(event)

    def close(self):
        self.closed = True


def test_a_training_tells_its_sinks_what_it_stores(tmp_path):
    sink, store = Kept(), Store(tmp_path)
    run_units(store, "mlp", [RUN], sinks=[sink, CsvFiles(tmp_path)])
    metrics = store.folder("mlp", RUN).read().metrics
    assert sink.closed
    assert [each.step for each in sink.events] == metrics["step"].tolist()
    for i, each in enumerate(sink.events):
        assert each.label == RUN.label
        assert each.numbers["learning_rate"].tolist() == [0.1, 0.2]
        np.testing.assert_array_equal(each.numbers["test_accuracy"], metrics["test_accuracy"][i])
        assert ("r_ig" in each.numbers) == metrics["full"][i]
    rows = read(tmp_path)
    assert [(int(row["step"]), int(row["network"])) for row in rows] == [
        (s, k) for s in metrics["step"] for k in (0, 1)
    ]
    last = [float(row["r_ig"]) for row in rows[-2:]]
    assert last == metrics["r_ig"][-1].tolist()
    assert run_units(store, "mlp", [RUN], sinks=[again := Kept()]).skipped
    assert again.events == []


def test_a_csv_takes_new_columns_and_replaces_what_is_done_again(tmp_path):
    first = CsvFiles(tmp_path)
    first.event(event(0, loss=np.array([2.0, 3.0])))
    first.event(event(1, loss=np.array([1.0, 2.0]), mine=np.array([7.0, 8.0])))
    first.event(event(2, loss=np.array([0.5, 1.0])))
    with open(next(tmp_path.rglob("*.csv")), "a") as file:
        file.write("3,0,0.")  # killed in the middle of a line
    resumed = CsvFiles(tmp_path)  # from the checkpoint at step 1
    resumed.event(event(2, loss=np.array([0.25, 0.5])))
    rows = read(tmp_path)
    assert [row["step"] for row in rows] == ["0", "0", "1", "1", "2", "2"]
    assert [row["loss"] for row in rows] == ["2.0", "3.0", "1.0", "2.0", "0.25", "0.5"]
    assert [row["mine"] for row in rows] == ["", "", "7.0", "8.0", "", ""]


def test_tensorboard_has_the_scalars_of_each_network(tmp_path):
    pytest.importorskip("tensorboardX", reason="no TensorBoard test: tensorboardX is not installed")
    sink = SINKS["tensorboard"](tmp_path)
    for step in (0, 5):
        sink.event(event(step, loss=np.array([2.0, np.nan]), seed=np.array([0, 1])))
    sink.close()
    files = {path.parent.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*tfevents*")}
    assert sorted(files) == ["tensorboard/test/0f/0", "tensorboard/test/0f/1"]
    assert files["tensorboard/test/0f/0"].count(b"loss") == 2
    assert files["tensorboard/test/0f/1"].count(b"loss") == 0, "a number that is not finite is no point of a curve"


def test_a_sink_that_fails_is_left_out_and_costs_no_training(tmp_path):
    class Failing(Kept):
        def event(self, event):
            raise OSError("the server is gone")

    failing, sound = Failing(), Kept()
    sinks = Sinks([failing, sound])
    with pytest.warns(
        UserWarning, match="Failing receives no further events: it raised OSError: the server is gone"
    ) as caught:
        sinks.event(event(0))
    sinks.event(event(1))  # a second warning would be an error
    sinks.event(event(2))
    assert len(caught) == 1
    assert len(sound.events) == 3
    sinks.close()
    assert sound.closed
    assert not failing.closed


def test_a_file_of_a_users_own_is_a_sink(tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    def __init__(self, folder): self.path = folder / 'mine.txt'\n"
        "    def event(self, event): self.path.write_text(f'step {event.step}')\n"
        "    def close(self): pass\n"
        "def sink(folder): return Mine(folder)\n"
    )
    sink = make(str(tmp_path / "mine.py"), tmp_path)
    sink.event(event(3))
    assert (tmp_path / "mine.txt").read_text() == "step 3"
    (tmp_path / "empty.py").write_text("")
    for name, message in (
        ("empty.py", "has no function sink"),
        ("no.py", "There is no sink"),
        ("wandb", "choose csv, tens"),
    ):
        with pytest.raises(ConfigError, match=message):
            make(str(tmp_path / name) if name.endswith("py") else name, tmp_path)


def test_without_sinks_a_unit_says_nothing(tmp_path):
    Session().emit(1, {"loss": 2.0})
    assert run_units(Store(tmp_path), "test", [Counter()], sinks=[kept := Kept()]).computed
    assert kept.closed
