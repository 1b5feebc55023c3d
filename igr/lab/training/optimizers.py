"""Optimizers by name: any optax transformation. A new one is a line in `OPTIMIZERS`.

An entry is a function of the learning rate, and of further numbers by name, that returns an
`optax.GradientTransformation`. The rate is an array where replicas of a stack have rates of their own, so the function
must compute with it and not branch on it.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import optax
import optax.contrib

from igr.lab.store.config import Config, ConfigError, option
from igr.lab.store.text import SWITCH

Transformation = Callable[[Any], optax.GradientTransformation]


def momentum(learning_rate: Any, beta: float = 0.9) -> optax.GradientTransformation:
    """Heavy ball: v becomes beta v + g, and the parameters move by -h v (Polyak 1964)."""
    return optax.sgd(learning_rate, momentum=beta)


def nesterov(learning_rate: Any, beta: float = 0.9) -> optax.GradientTransformation:
    """Nesterov's momentum: v becomes beta v + g, and the parameters move by -h (beta v + g) (Sutskever et al. 2013)."""
    return optax.sgd(learning_rate, momentum=beta, nesterov=True)


OPTIMIZERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "momentum": momentum,
    "nesterov": nesterov,
    "rmsprop": optax.rmsprop,
    "adam": optax.adam,
    "adamw": optax.adamw,
    "lion": optax.lion,
    "muon": optax.contrib.muon,
}


@dataclass(frozen=True)
class Optimizer(Config):
    """An optimizer and its arguments, other than the learning rate, which every network of a stack has for itself.

    >>> Optimizer("adamw", (("weight_decay", 0.1), ("b2", 0.95)))
    Optimizer(name='adamw', arguments=(('b2', 0.95), ('weight_decay', 0.1)))
    >>> str(Optimizer.parse("adamw,b2=0.95,weight_decay=0.1"))
    'adamw,b2=0.95,weight_decay=0.1'
    """

    name: str = option("name of the optimizer", "sgd")
    arguments: tuple[tuple[str, float], ...] = option("its arguments besides the learning rate, as b2=0.95", ())

    def __post_init__(self):
        if not isinstance(self.arguments, str):
            try:
                object.__setattr__(self, "arguments", tuple(sorted(tuple(pair) for pair in self.arguments)))
            except TypeError:
                raise ConfigError(f"arguments must be pairs of a name and a number, not {self.arguments!r}.") from None
        super().__post_init__()

    def check(self) -> None:
        """The name is known, and so are those of the arguments."""
        if self.name not in OPTIMIZERS:
            raise ConfigError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, and it is {self.name!r}.")
        known = self._parameters()
        for name, _ in self.arguments:
            if name not in known:
                raise ConfigError(f"{self.name} has no argument {name!r}; it has {', '.join(known) or 'none'}.")
        if len(dict(self.arguments)) < len(self.arguments):
            raise ConfigError(f"an argument of {self.name} is given twice.")

    @classmethod
    def parse(cls, text: str) -> "Optimizer":
        """The optimizer written as on the command line: its name, then `argument=number`, separated by commas; yes, no,
        true and false are numbers too.
        """
        name, *pairs = text.replace(" ", "").split(",")
        try:
            arguments = tuple((key, _number(value)) for key, value in (pair.split("=") for pair in pairs))
        except ValueError:
            raise ConfigError(f"an optimizer is written like adamw,b2=0.95,nesterov=yes, and not {text!r}.") from None
        return cls(name, arguments)

    def __str__(self) -> str:
        return ",".join([self.name, *(f"{name}={value:.10g}" for name, value in self.arguments)])

    def transformation(self) -> Transformation | None:
        """The function from the learning rate to the transformation; None for plain descent, which needs no state."""
        if self.name == "sgd" and not self.arguments:
            return None
        make, known = OPTIMIZERS[self.name], self._parameters()
        arguments = {name: _as_declared(known[name], value) for name, value in self.arguments}
        return lambda learning_rate: make(learning_rate, **arguments)

    def _parameters(self) -> dict[str, Any]:
        """The arguments that are numbers or switches, and their defaults."""
        some = list(inspect.signature(OPTIMIZERS[self.name]).parameters.values())[1:]
        return {each.name: each.default for each in some if _is_number(each)}


def _is_number(parameter: inspect.Parameter) -> bool:
    """Whether an argument is a number or a switch, by its default; where that is None, by its annotation."""
    if parameter.default is not None:
        return parameter.default is inspect.Parameter.empty or isinstance(parameter.default, (bool, int, float))
    if parameter.annotation is inspect.Parameter.empty:
        return True
    kinds = get_args(parameter.annotation)
    return float in kinds and not any(get_origin(kind) in (Iterable, Mapping) for kind in kinds)  # no tree of numbers


def _number(text: str) -> float:
    return float(SWITCH.get(text.lower(), text))


def _as_declared(default: Any, value: float) -> Any:
    """A switch as a bool and a count as an int, where the function's default is one."""
    if isinstance(default, bool):
        return bool(value)
    return int(value) if isinstance(default, int) and value == int(value) else value
