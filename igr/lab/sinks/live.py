"""The live table: loss, R_IG and accuracy for each learning rate of a unit, as lines of text."""

from typing import Any

import numpy as np

from igr.lab.sinks.sink import Event


class LiveTable:
    """Keeps the latest loss, R_IG and best test accuracy of every network, by the label of its unit."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, np.ndarray]] = {}

    def event(self, event: Event) -> None:
        """Record the numbers of `event`; columns that it does not have keep their last value."""
        known = self._latest.setdefault(event.label, {})
        known.update({name: np.asarray(values, float) for name, values in event.numbers.items()})

    def close(self) -> None:
        """Do nothing: the display closes itself."""

    def lines(self, label: str) -> str:
        """A line for each learning rate of the unit `label`: means of loss, R_IG and best test accuracy over its
        networks.

        >>> table = LiveTable()
        >>> table.event(Event("mlp", "0f", "a unit", 1, {"learning_rate": [0.1, 0.1], "loss": [1.0, 2.0]}))
        >>> table.lines("a unit")
        'h = 0.1     E = 1.500e+00  R_IG = nan  best test accuracy = nan'
        """
        known = self._latest.get(label, {})
        rates = known.get("learning_rate", np.empty(0))
        blank = np.full(len(rates), np.nan)
        columns = [known.get(name, blank) for name in ("loss", "r_ig", "best_test_accuracy")]
        found = []
        for rate in sorted(set(rates.tolist()), reverse=True):
            loss, r_ig, top = (_mean(values[rates == rate]) for values in columns)
            found.append(f"h = {rate:<7g} E = {loss:.3e}  R_IG = {r_ig:.3e}  best test accuracy = {top:.4f}")
        return "\n".join(found)


def _mean(values: Any) -> float:
    """The mean over what is finite; NaN where nothing is."""
    good = values[np.isfinite(values)]
    return float(good.mean()) if good.size else float("nan")
