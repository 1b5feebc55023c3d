"""The optimizers of the experiment: those with a modified field, at modest decay rates, and those without one."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import optax
from optax import contrib

MODEST: dict[str, Any] = {"b1": 0.5, "b2": 0.6, "eps": 0.1}
HISTORY = 56  # 0.6^56 is 4e-13


def _adam(make: Callable, **options: Any) -> Callable[[Any], Any]:
    return lambda h: make(h, **(MODEST | options))


SMOOTH: dict[str, Callable[[Any], Any]] = {
    "sgd": optax.sgd,
    "momentum": lambda h: optax.sgd(h, momentum=0.5),
    "nesterov": lambda h: optax.sgd(h, momentum=0.5, nesterov=True),
    "optimistic": lambda h: optax.optimistic_gradient_descent(h, alpha=1.0, beta=0.7),
    "ema": lambda h: optax.chain(optax.ema(0.5, debias=False), optax.scale_by_learning_rate(h)),
    "adam": _adam(optax.adam),
    "adam-eps-inside": _adam(optax.adam, eps=0.0, eps_root=0.1),
    "adamw": _adam(optax.adamw, weight_decay=0.5),
    "nadam": _adam(optax.nadam),
    "nadamw": _adam(optax.nadamw, weight_decay=0.5),
    "rmsprop": lambda h: optax.rmsprop(h, decay=0.6, eps=0.1),
    "rmsprop-momentum": lambda h: optax.rmsprop(h, decay=0.6, eps=0.1, momentum=0.5),
    "adabelief": _adam(optax.adabelief, eps_root=0.01),
    "adamax": _adam(optax.adamax),
    "radam": _adam(optax.radam),
    "adan": lambda h: optax.adan(h, b1=0.5, b2=0.6, b3=0.6, eps=0.1),
    "novograd": _adam(optax.novograd),
    "lamb": _adam(optax.lamb, weight_decay=0.1),
    "lars": lambda h: optax.lars(h, weight_decay=0.1, trust_coefficient=1.0, momentum=0.5),
    "lion": lambda h: optax.lion(h, b1=0.5, b2=0.6, weight_decay=0.7),
    "clip-momentum": lambda h: optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(h, momentum=0.5)),
    "muon": lambda h: contrib.muon(h, beta=0.5, adam_b1=0.5, adam_b2=0.6, adam_eps_root=0.1),
    "ademamix": lambda h: contrib.ademamix(h, b1=0.4, b2=0.6, b3=0.6, alpha=2.0, eps=0.1),
}

REFUSED: dict[str, Callable[[Any], Any]] = {
    "adagrad": optax.adagrad,
    "amsgrad": optax.amsgrad,
    "adafactor": optax.adafactor,
    "schedule-free": contrib.schedule_free_sgd,
    "yogi": optax.yogi,
    "adopt": contrib.adopt,
    "sam": lambda h: contrib.sam(optax.sgd(h), optax.sgd(0.1)),
    "multisteps": lambda h: optax.MultiSteps(optax.sgd(h), 4),
}


DRAWN: dict[str, float] = {  # those with a path in a figure, and a moderate learning rate on the two-parameter model
    "momentum": 4e-3,
    "nesterov": 6e-3,
    "rmsprop": 0.05,
    "adam": 0.05,
    "adamw": 0.03,
    "lion": 0.03,
    "muon": 0.08,
}


class InUse(NamedTuple):
    """An optimizer with the decay rates of practice: `make(h, b2, eps)`, and those of the two that it depends on."""

    make: Callable[[Any, float, float], Any]
    b1: float
    options: tuple[str, ...] = ()

    def history(self, b2: float) -> int:
        """The steps after which less than a part in 100,000 is left of a gradient."""
        slowest = max(self.b1, b2) if "b2" in self.options else self.b1
        return math.ceil(math.log(1e-5) / math.log(slowest))

    def describe(self, b2: float, eps: float) -> str:
        """The name of the optimizer, and the numbers that it depends on."""
        name = next(name for name, each in IN_PRACTICE.items() if each is self)
        values = {"b2": b2, "eps": eps}
        return ", ".join([name, *(f"{option} {values[option]:g}" for option in self.options)])


IN_PRACTICE: dict[str, InUse] = {
    "momentum": InUse(lambda h, b2, eps: optax.sgd(h, momentum=0.9), 0.9),
    "nesterov": InUse(lambda h, b2, eps: optax.sgd(h, momentum=0.9, nesterov=True), 0.9),
    "rmsprop": InUse(lambda h, b2, eps: optax.rmsprop(h, decay=b2, eps=eps, eps_in_sqrt=False), 0.0, ("b2", "eps")),
    "adamw": InUse(lambda h, b2, eps: optax.adamw(h, b2=b2, eps=eps), 0.9, ("b2", "eps")),
    "muon": InUse(lambda h, b2, eps: contrib.muon(h, beta=b2, adam_b2=b2, adam_eps_root=1e-6), 0.9, ("b2",)),
    "lion": InUse(lambda h, b2, eps: optax.lion(h, b2=b2, weight_decay=0.1), 0.0, ("b2",)),
}
