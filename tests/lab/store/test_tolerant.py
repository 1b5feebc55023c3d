"""Some runs are sound and of no use: the others stay, and no good one is left out with them."""

import pytest
from units import Counter

from igr.lab.store.files import StoreError
from igr.lab.store.store import Run
from igr.lab.store.tolerant import alone, label_of, tried


def runs(*values):
    return [Run(Counter(k), {"x": value}, {}) for k, value in enumerate(values)]


def total(some):
    return sum(run.metrics["x"] for run in some)


@pytest.mark.parametrize("bad", [{0}, {6}, {3}, {0, 6}, {2, 3}, {0, 1, 2}])
def test_several_bad_ones_are_named_and_the_others_stay(bad):
    given = runs(*("text" if k in bad else 10**k for k in range(7)))
    made, kept, problems = tried(total, "test", given, "summed")
    assert made == sum(10**k for k in range(7) if k not in bad)
    assert kept == [run for k, run in enumerate(given) if k not in bad]
    assert sorted(problems) == sorted(
        f"test/{Counter(k).digest()[:16]} (counter {k}) cannot be summed and is left out: "
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'." for k in bad
    )  # fmt: skip


def test_work_that_needs_several_runs_loses_no_good_one():
    def work(some):
        if len(some) < 3:
            raise ValueError("too few")
        return total(some)

    given = runs(1, 2, 3, "text", 5, 6, 7)
    made, kept, problems = tried(work, "test", given, "summed")
    assert made == 24
    assert kept == [run for run in given if run.metrics["x"] != "text"]
    assert len(problems) == 1


def test_a_fault_of_the_work_is_not_the_runs():
    calls = []

    def broken(some):
        calls.append(len(some))
        raise RuntimeError("no")

    assert tried(broken, "test", runs(*range(64)), "drawn") == (
        None, [], ["The runs of test cannot be drawn: RuntimeError: no."]
    )  # fmt: skip
    assert len(calls) < 300
    assert tried(total, "test", [], "summed") == (None, [], [])
    assert tried(total, "test", runs(1, 2), "summed")[0] == 3


def test_a_store_that_cannot_be_written_is_no_fault_of_a_run():
    def full(some):
        raise StoreError("the disk is full")

    with pytest.raises(StoreError):
        tried(full, "test", runs(1), "written")
    with pytest.raises(StoreError):
        alone(full, "test", runs(1), "written")


def test_work_with_each_by_itself():
    given = runs(1, "text", 3)
    kept, problems = alone(lambda run: run.metrics["x"] + 1, "test", given, "added")
    assert kept == [given[0], given[2]]
    assert "(counter 1) cannot be added" in problems[0]


def test_a_label_that_cannot_be_made_is_the_class():
    class Nameless(Counter):
        @property
        def label(self):
            raise ZeroDivisionError

    assert label_of(Run(Nameless(1), {}, {})) == Nameless.kind()
    assert label_of(runs(1)[0]) == "counter 0"
