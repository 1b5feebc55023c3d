"""What has no modified field, said in one sentence with what to do instead."""

import warnings
from typing import Any

import numpy as np

from igr._typing import Count

INSTEAD = "use igr.step_field on its live state instead"
LARGEST = 0.3  # of the update: a correction beyond this is not a small one


def check_memory(memory: Any, tol: float, count: Count | None, given: int | None) -> None:
    """Refuse a transformation that does not forget, or does not stand still while the gradient does."""
    prefix, change = memory.prefix, memory.change
    n, chunk = len(prefix), memory.chunk
    schedule = "" if count is not None else "give count= if it has a schedule, otherwise "
    if not np.all(np.isfinite(prefix[-chunk:])):
        raise ValueError(
            "this transformation has no modified field: under a constant gradient its update falls to zero or is not "
            f"finite; {schedule}{INSTEAD}."
        )
    if count is None and _forgets_ever_more_slowly(prefix, chunk):
        raise ValueError(
            "this transformation does not forget at a steady rate: the more steps it has made the longer its memory, "
            f"so it follows no field of the parameters; {INSTEAD}."
        )
    if prefix[-chunk:].max() >= tol:
        half = prefix[n // 2 - chunk // 2 : n // 2 + chunk // 2].max()
        if prefix[-1] > 0.4 * half or (given is None and count is None):  # a count ends the history, too
            geometric = prefix[-1] <= 0.4 * half
            raise ValueError(
                f"this transformation does not forget: {n} steps after its gradients became equal, earlier ones still "
                f"change its update by {prefix[-1]:.1e} of its length, so it follows no field of the parameters; "
                + ("give history= if its memory is longer than that, or " if geometric else "")
                + f"{INSTEAD}."
            )
        return
    if change[-chunk:].max() >= tol and change[-chunk:].max() > 0.9 * change[-2 * chunk : -chunk].max(initial=0):
        raise ValueError(
            f"this transformation has no modified field: its update changes by {change[-chunk:].max():.1e} of its "
            "length while the gradient stays the same, as that of a schedule, of noise, of a sign in the memory (yogi) "
            f"or of a cycle of steps such as SAM or MultiSteps does; {schedule}{INSTEAD}."
        )


def _forgets_ever_more_slowly(prefix: np.ndarray, chunk: int) -> bool:
    """Whether what is left of the past falls at a lower rate at the end than before: geometric forgetting has one."""
    n = len(prefix)
    left = prefix[[n // 2, 3 * n // 4, n - 1]]
    if n < 4 * chunk or left[-1] < 1e-14:
        return False
    rates = np.log(left[:-1] / left[1:])
    return bool(rates[1] < 0.9 * rates[0])


def judge(ratio: float, remainder: float) -> None:
    """Refuse or warn, from the size of the correction and of what it leaves out, both relative to the update."""
    if not (np.isfinite(ratio) and np.isfinite(remainder)):
        raise ValueError(
            "the update of this transformation or its derivative is zero or not finite here, so it has no modified "
            f"field at these parameters; {INSTEAD}."
        )
    if ratio > LARGEST:
        warnings.warn(
            f"the correction is {ratio:.2g} of the update, and a first order means little beyond {LARGEST}: the "
            "gradient changes too much within the optimizer's memory; take smaller steps or a shorter memory, or "
            f"{INSTEAD}.",
            stacklevel=4,
        )
    elif remainder > LARGEST:
        raise ValueError(
            f"this transformation is not smooth here: along its last gradients the update differs by {remainder:.2g} "
            "of its length from the first order, as where a sign or a threshold is crossed, so it has no modified "
            f"field at these parameters; {INSTEAD}."
        )
