"""Events of a training, and the protocol of the sinks that receive them.

A sink is any object with two methods:

    class Printer:
        def event(self, event):
            print(event.label, event.step, event.numbers["test_accuracy"].mean())

        def close(self):
            pass
"""

import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np


@dataclass(frozen=True)
class Event:
    """What a unit measured at one step.

    `numbers` maps the name of each column to a number, or to one number for each network of the unit. The columns
    differ from step to step: at some steps only the test set is measured.
    """

    experiment: str
    unit: str  # the name of its folder in the store
    label: str
    step: int
    numbers: Mapping[str, Any]

    def rows(self) -> Iterator[dict[str, float]]:
        """A dictionary of plain numbers for each network.

        >>> event = Event("mlp", "0f3a", "digits mlp 6", 10, {"seed": np.array([0, 1]), "loss": np.array([0.5, 0.25])})
        >>> list(event.rows())
        [{'seed': 0, 'loss': 0.5}, {'seed': 1, 'loss': 0.25}]
        """
        columns = {name: np.atleast_1d(np.asarray(values)) for name, values in self.numbers.items()}
        for k in range(max((len(values) for values in columns.values()), default=0)):
            yield {name: values[k if len(values) > 1 else 0].item() for name, values in columns.items()}


@runtime_checkable
class Sink(Protocol):
    """What receives events. Those of one unit come in the order of their steps; units may alternate."""

    def event(self, event: Event) -> None:
        """Take an `event`. After an interruption, the steps since the last checkpoint are repeated."""
        ...

    def close(self) -> None:
        """End: there are no further events."""
        ...


class Sinks:
    """Several sinks as one, called by one thread at a time. A sink that fails is removed, with a warning."""

    def __init__(self, sinks: Iterable[Sink] = ()):
        self._sinks, self._lock = list(sinks), threading.Lock()

    def event(self, event: Event) -> None:
        """Send an event to all."""
        self._tell("event", event)

    def close(self) -> None:
        """Close all."""
        self._tell("close")

    def _tell(self, method: str, *arguments: Any) -> None:
        with self._lock:
            for sink in list(self._sinks):
                try:
                    getattr(sink, method)(*arguments)
                except Exception as error:  # a sink that fails must not stop a training
                    self._sinks.remove(sink)
                    name = type(sink).__name__
                    why = f"it raised {type(error).__name__}: {error}"
                    warnings.warn(f"{name} receives no further events: {why}", stacklevel=4)
