"""The history of a training: its measurements so far, and its best parameters."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PREFIX = "history/"  # of its columns in a checkpoint


class History:
    """The measurements so far: one row for each point, NaN where a column was not measured.

    There is a column for every name under which something was measured. None has to be declared, and none is dropped.
    `saved` holds the columns of a checkpoint.

    >>> history = History()
    >>> history.add(0, {"loss": np.array([2.3])})
    >>> history.add(1, {"loss": np.array([2.1]), "mine": np.array([7.0])})
    >>> history.arrays()["mine"].ravel()
    array([nan,  7.])
    """

    def __init__(self, saved: Mapping[str, np.ndarray] | None = None):
        self.steps: list[int] = [int(n) for n in saved[f"{PREFIX}step"]] if saved else []
        self.columns: dict[str, list[np.ndarray]] = {}
        for name, values in (saved or {}).items():
            if name.startswith(PREFIX) and name != f"{PREFIX}step":
                self.columns[name.removeprefix(PREFIX)] = list(values)

    def add(self, step: int, measured: Mapping[str, np.ndarray]) -> None:
        """Append what was `measured` at `step`; a new column is NaN in the rows before."""
        self.steps.append(step)
        width = len(next(iter(measured.values())))
        blank = np.full(width, np.nan, np.float32)
        for name in {**self.columns, **measured}:
            column = self.columns.setdefault(name, [blank] * (len(self.steps) - 1))
            column.append(np.asarray(measured.get(name, blank)))

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Columns of shape (points, replicas) and the steps, with `prefix` before their names."""
        steps = {f"{prefix}step": np.array(self.steps, np.int64)}
        return steps | {f"{prefix}{name}": np.stack(rows) for name, rows in sorted(self.columns.items())}


@functools.partial(jax.jit, donate_argnums=(0, 1))
def keep_best(best: Any, kept: Any, now: Any, accuracy: jax.Array, step: jax.Array) -> tuple[Any, Any]:
    """The best accuracy with its step, and the (params, state) there, after `now` with its `accuracy` at `step`.

    `best` and `kept` are those before. The first maximum counts, and NaN is never the best.
    """
    better = accuracy > best[0]

    def choose(old: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    value = (choose(best[0], accuracy), choose(best[1], jnp.broadcast_to(step, better.shape)))
    return value, jax.tree.map(choose, kept, now)
