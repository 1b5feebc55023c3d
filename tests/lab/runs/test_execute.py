"""One attempt at one unit, as a function of plain data; and what changes when a unit is resumed elsewhere."""

import contextlib
import json
import pickle
import threading

import jax
import numpy as np
import pytest
from units import Broken, Counter

from igr.lab.runs.execute import Order, execute
from igr.lab.runs.local import run_units
from igr.lab.runs.unit import Cancelled, Session
from igr.lab.store import provenance
from igr.lab.store.store import DamageWarning, Store


def order(tmp_path, unit, **options):
    return Order("test", unit.to_json(), str(tmp_path), save_every=0.0, **options)


def test_an_order_is_plain_data_and_computes_what_run_units_does(tmp_path):
    plain = pickle.loads(pickle.dumps(order(tmp_path / "a", Counter(4))))
    told = []
    assert execute(plain, lambda fraction, text: told.append(fraction)) == "computed"
    assert execute(plain) == "skipped"
    assert told[-1] == 1.0
    run_units(Store(tmp_path / "b"), "test", [Counter(4)])
    one, other = (Store(tmp_path / name).folder("test", Counter(4)).path for name in "ab")
    assert (one / "metrics.npz").read_bytes() == (other / "metrics.npz").read_bytes()


def test_what_goes_wrong_is_raised(tmp_path):
    with pytest.raises(FloatingPointError, match="no"):
        execute(order(tmp_path, Broken(1)))
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        execute(order(tmp_path, Counter(3)), stop=stop)
    with Store(tmp_path).folder("test", Counter(3)).lock() as mine:
        assert mine
        assert execute(order(tmp_path, Counter(3))) == "elsewhere"


def attempt(tmp_path, unit, then, at=2):
    """One attempt under a claim of this process, and `then(folder)` when the unit has come to a number."""
    folder = Store(tmp_path).folder("test", unit)
    with folder.lock() as mine:
        assert mine

        def progress(fraction, text):
            if text == str(at):
                then(folder)

        return folder, execute(order(tmp_path, unit, token=folder.permit.token), progress)


def test_an_attempt_that_was_given_up_writes_nothing_more(tmp_path):
    kept = []

    def give_up(folder):
        folder.permit = folder.permit.renew()
        kept.append(folder.read_checkpoint())

    folder, how = attempt(tmp_path, Counter(4), give_up)
    assert how == "elsewhere"
    assert folder.read_checkpoint() == kept[0]
    assert folder.status() == "cut"
    assert execute(order(tmp_path, Counter(4), token="old")) == "elsewhere"
    assert execute(order(tmp_path, Counter(4))) == "computed"


@pytest.mark.parametrize("change", [0.0, 1.0])
def test_of_two_finished_attempts_the_first_stays_and_a_difference_is_said(tmp_path, change):
    def finish(folder):
        sums = np.array([0.0, 1.0, 3.0]) + change
        folder.write({"sums": sums, "count": 3})
        first.append(folder.files({"sums": sums, "count": 3})["metrics.npz"])

    first, caught = [], pytest.warns(DamageWarning, match="computed twice, with different results")
    with caught if change else contextlib.nullcontext():
        folder, how = attempt(tmp_path, Counter(2), finish)
    assert how == "skipped"
    assert (folder.path / "metrics.npz").read_bytes() == first[0]


def begun(tmp_path, **changes):
    """A unit with a checkpoint that was written under other conditions."""
    folder = Store(tmp_path).folder("test", Counter(3))
    session = Session(folder, save_every=0.0)
    session.conditions = [session.conditions[0] | changes]
    session.save(lambda: {"sums": np.array([0.0, 1.0])})
    return folder


def test_a_unit_resumed_under_other_conditions_says_so_in_its_record(tmp_path):
    folder = begun(tmp_path, usable_cores=4096)
    with pytest.warns(DamageWarning, match=r"begun under other conditions \(usable_cores\)"):
        run_units(Store(tmp_path), "test", [Counter(3)])
    record = folder.read().record
    assert [each["usable_cores"] for each in record["resumed"]] == [4096]
    assert provenance.reproducible([record]).startswith("Some of these units do not say")


def test_a_unit_begun_with_other_random_numbers_starts_anew(tmp_path):
    folder = begun(tmp_path, prng="rbg")
    with pytest.warns(DamageWarning, match=r"other random numbers \(prng\)"):
        run_units(Store(tmp_path), "test", [Counter(3)])
    assert "resumed" not in folder.read().record


def test_conditions_see_the_generator_of_random_numbers():
    usual = provenance.conditions()
    with jax.default_prng_impl("rbg"):
        assert provenance.differing(usual, provenance.conditions()) == ["prng"]
    assert json.loads(json.dumps(usual)) == usual


def test_what_can_be_said_of_bits():
    now = provenance.conditions()
    same, other = {"conditions": now}, {"conditions": now | {"usable_cores": 4096}}
    assert provenance.reproducible([same, same]).startswith("All units ran under the same conditions")
    assert "different usable_cores" in provenance.reproducible([same, other])
    assert provenance.older({"code": provenance.code()}) is False
    assert provenance.older({"code": "of yesterday"}) is True
    assert provenance.older({}) is None


def test_the_digest_of_the_code_sees_code_and_no_words(monkeypatch):
    bare = provenance._bare
    source = '"""Doc."""\n\n\ndef f(x):\n    """Doc\n    of two lines."""\n    return "text" + x  # why\n'
    assert bare(source) == 'def f(x):\n    return "text" + x'
    assert bare(source.replace("why", "because").replace("Doc", "Words")) == bare(source)
    assert bare(source.replace("text", "test")) != bare(source)
    assert bare('x = "a"\ny = ("b"\n     "c")\n') == 'x = "a"\ny = ("b"\n     "c")', "strings that are values stay"
