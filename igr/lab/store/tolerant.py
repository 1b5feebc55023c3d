"""What can be made of the most runs: some may be sound and hold other arrays than their experiment measures."""

from collections.abc import Callable
from typing import Any

from igr.lab.store.files import StoreError
from igr.lab.store.store import Run, Table


def tried(work: Callable[[Table], Any], name: str, runs: Table, verb: str) -> tuple[Any, Table, list[str]]:
    """What `work` makes of the runs (None if nothing), the runs that it takes, and a sentence for each it does not.

    Stored bytes may be sound and hold other arrays than the experiment `name` measures, in a store of somebody else or
    of another version. Such runs must not take the others with them, so the work is done without them: the first run
    with which it fails is found by halving, is left out, and the work is tried again. Where half of the runs would have
    to go, the fault is not theirs. `verb` says in the sentences what is done.

    >>> tried(lambda some: sum(run.metrics["x"] for run in some), "sums", [Run(None, {"x": 2}, {})], "summed")[0]
    2
    """
    left, out, first = list(runs), list[tuple[Run, str]](), ""
    while left:
        made, why = _attempt(work, left)
        first = first or why
        if not why:
            for run, _ in [*out]:  # fewer runs may have failed for another reason than one of them
                again = [each for each in runs if each is run or any(each is kept for kept in left)]
                more, fails = _attempt(work, again)
                if not fails:
                    made, left, out = more, again, [pair for pair in out if pair[0] is not run]
            return made, left, [f"{_where(name, run)} cannot be {verb} and is left out: {words}." for run, words in out]
        if 2 * len(out) >= len(runs):
            break
        place, why = _first(work, left, why)
        out.append((left.pop(place), why))
    return None, [], [f"The runs of {name} cannot be {verb}: {first}."] if runs else []


def alone(work: Callable[[Run], Any], name: str, runs: Table, verb: str) -> tuple[Table, list[str]]:
    """Do some work with each run by itself; the runs that it takes, and a sentence for each that it does not."""
    kept, problems = [], []
    for run in runs:
        why = _attempt(lambda some: work(some[0]), [run])[1]
        if why:
            problems.append(f"{_where(name, run)} cannot be {verb} and is left out: {why}.")
        else:
            kept.append(run)
    return kept, problems


def _first(work: Callable[[Table], Any], runs: Table, why: str) -> tuple[int, str]:
    """The place of a run such that `work` takes those before it and fails with it, and the failure."""
    low, high = 0, len(runs)
    while high - low > 1:
        middle = (low + high) // 2
        words = _attempt(work, runs[:middle])[1]
        low, high, why = (low, middle, words) if words else (middle, high, why)
    return high - 1, why


def _attempt(work: Callable[[Table], Any], runs: Table) -> tuple[Any, str]:
    """What `work` makes of the runs, or why it fails."""
    try:
        return work(runs), ""
    except StoreError:  # a full disk is none of their faults
        raise
    except Exception as error:
        return None, f"{type(error).__name__}: {error}".rstrip(".: ")


def label_of(run: Run) -> str:
    """The description of a stored run, the same as in its progress display."""
    try:
        return str(getattr(run.config, "label", run.config.kind()))
    except Exception:  # a label may not be made for every configuration that somebody else has stored
        return run.config.kind()


def _where(name: str, run: Run) -> str:
    return f"{name}/{run.config.digest()[:16]} ({label_of(run)})"
