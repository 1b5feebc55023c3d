"""Units that depend on what others found: computed after them, listed with them, and waited for where they must be."""

import errno
import os
import sys
import types

import numpy as np
import pytest
from units import Counter

from igr.lab import experiments
from igr.lab.cli import app as cli
from igr.lab.runs.follow_up import rounds
from igr.lab.store import files
from igr.lab.store.config import Scale
from igr.lab.store.store import Store


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """`igr run best ...`: an experiment of three counters, of which the longest that is finished is gone beyond."""
    module = types.ModuleType("best_experiment")

    def follow_up(scale, options, runs):
        return [Counter(10 * max(run.config.length for run in runs))] if len(runs) > 1 else []

    module.CLAIM, module.trials, module.follow_up = (
        "Longer is better.",
        lambda scale: [Counter(n) for n in (3, 4, 5)],
        follow_up,
    )
    module.figures, module.findings = lambda runs: {}, lambda runs: []
    monkeypatch.setitem(sys.modules, "best_experiment", module)
    monkeypatch.setitem(experiments.REGISTRY, "best", "best_experiment")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["igr", "run", "best", "--out", str(tmp_path), *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return caught.value.code, capsys.readouterr().err

    return run


def lengths(root):
    return [run.config.length for run in Store(root).runs("best")[0]]


def test_what_the_trials_decide_is_computed_after_them_and_is_part_of_the_report(call, tmp_path):
    code, said = call()
    assert code == 0
    assert said.count("computed, 0 already there.") == 2
    assert lengths(tmp_path) == [3, 4, 5, 50]
    code, said = call()
    assert "best: 0 computed, 3 already there." in said
    assert "best: 0 computed, 1 already there." in said


def test_while_the_trials_are_unfinished_nothing_follows_and_that_is_said(call, tmp_path):
    code, said = call("--only", "counter 4")
    assert code == 0
    assert "best: what follows from these units is decided when more are finished." in said
    assert lengths(tmp_path) == [4]
    assert rounds(Store(tmp_path), "best", experiments.load("best"), Scale.QUICK)[1] == []


def test_a_choice_changes_as_more_is_finished(call, tmp_path):
    call("--only", "counter 3")
    call("--only", "counter 4")  # `--only` is for both rounds, and "counter 40" has it
    assert sorted(lengths(tmp_path)) == [3, 4, 40]
    call("--only", "counter 5")
    assert sorted(lengths(tmp_path)) == [3, 4, 5, 50]
    assert (tmp_path / "best" / Counter(40).digest()[:16]).is_dir(), "kept, and no longer asked for"


def test_only_may_pick_what_follows_and_nothing_else(call, tmp_path):
    for length in (3, 4):
        Store(tmp_path).folder("best", Counter(length)).write({"sums": np.zeros(1)})
    code, said = call("--only", "40")
    assert code == 0
    assert "best: 1 computed, 0 already there." in said
    code, said = call("--only", "counter 7")
    assert code == 2
    assert "No unit of best has 'counter 7' in its description; one of them is 'counter 3'." in said


def test_a_damaged_run_decides_nothing(call, tmp_path):
    call()
    (tmp_path / "best" / Counter(5).digest()[:16] / "metrics.npz").write_bytes(b"")
    assert [unit.length for unit in rounds(Store(tmp_path), "best", experiments.load("best"), Scale.QUICK)[1]] == [40]


@pytest.mark.filterwarnings("default::igr.lab.store.files.DamageWarning")
@pytest.mark.parametrize("harm", ["unreadable", "other arrays"])
def test_a_trial_of_no_use_is_left_out_of_what_is_decided(call, tmp_path, monkeypatch, harm):
    assert call()[0] == 0
    folder = Store(tmp_path).folder("best", Counter(5))
    module = sys.modules["best_experiment"]
    monkeypatch.setattr(
        module,
        "follow_up",
        lambda scale, options, runs: [Counter(10 * max(int(run.metrics["count"]) for run in runs))],
        raising=False,
    )
    if harm == "unreadable":
        real = files.os.open

        def failing(path, *more, **options):
            if str(path).startswith(str(folder.path)):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(path, *more, **options)

        monkeypatch.setattr(files.os, "open", failing)
    else:
        folder.write({"something": np.zeros(3)})
    code, said = call()
    assert code == int(harm == "unreadable"), "a unit that cannot be read fails"
    assert ("cannot be followed up and is left out: KeyError: 'count'" in said) == (harm == "other arrays")
    assert Store(tmp_path).folder("best", Counter(50)).finished(), "5 + 1 of the others"
