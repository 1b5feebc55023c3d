"""The verdict in words, from numbers, with thresholds that can be changed."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import PyTree

from igr._jax import is_traced


class Thresholds(NamedTuple):
    r"""Where one verdict ends and the next begins.

    `inside` and `marginal` bound $\max(q_2, q_3)$: below 0.3 one step of gradient descent on a quadratic mode is within
    2.7 % of the modified flow, at 0.7 within 12.7 %. `edge` and `divergent` bound $h\lambda_{\max}$, normalized so that
    2 is the optimizer's own stability limit; between 2 and 4 networks usually fall into flatter regions or hover,
    beyond 4 they usually diverge (Lewkowycz et al., The Large Learning Rate Phase of Deep Learning, 2020). `signal` is
    the share of the squared gradient that is not noise, below which quantities of single batches are not believed.
    """

    inside: float = 0.3
    marginal: float = 0.7
    edge: float = 2.0
    divergent: float = 4.0
    signal: float = 0.5


class Judgement(NamedTuple):
    """One of seven words and one sentence of what to do."""

    word: str
    advice: str

    def __str__(self) -> str:
        return f"{self.word}: {self.advice}"


ADVICE = {
    "inside": "The steps follow the modified equation closely (for descent: the loss E + (h/4)|grad E|^2); the theory "
    "applies.",
    "marginal": "The modified loss holds to about ten percent a step; add the second correction or take a smaller h.",
    "outside": "The modified loss does not describe these steps; divide the learning rate by about {factor:.1f} "
    "to bring it inside.",
    "edge of stability": "The sharpness is past the stability limit, where steps overshoot along the sharpest "
    "direction; take a smaller h, or describe the training by a central flow.",
    "divergent": "The steps grow or are not finite; take a learning rate at least {factor:.1f} times smaller.",
    "unknown": "Neither q2 nor the cosine is known yet: a monitor has them from its second step on.",
    "noisy": "Gradient noise hides what single batches say; measure q2 on one batch (every, grad_fn) or enlarge it.",
}


JUDGED = ("q2", "q3", "cosine", "h_lambda", "slope", "update_norm", "signal", "q2_batch", "cosine_batch", "cosine_mean")


def verdict(quantities: PyTree, thresholds: Thresholds = Thresholds()) -> Judgement:  # noqa: B008 (immutable)
    r"""The verdict on a learning rate: inside, marginal, outside, edge of stability, divergent, noisy or unknown.

    `quantities` is what `regime` returns, or the dictionary of `readings`; of these it looks at q2, q3, the cosine,
    `h_lambda`, and of a monitor's also at the versions that survive noise, which it prefers. What is missing (NaN) is
    not judged by. `thresholds` are explained in `igr.regimes.verdicts.Thresholds`. Computed on the host, so it cannot
    be called inside `jax.jit`.

    >>> verdict({"q2": 0.02, "cosine": 0.99, "h_lambda": 0.4}).word
    'inside'
    >>> verdict({"q2": 0.02, "cosine": 0.99, "h_lambda": 2.1}).word
    'edge of stability'
    """
    numbers = _numbers(quantities)

    def known(*names: str) -> float:
        return next((numbers[n] for n in names if np.isfinite(numbers.get(n, np.nan))), np.nan)

    noisy = numbers.get("signal", 1.0) < thresholds.signal
    q2 = known("q2_batch", *(() if noisy else ("q2",)))
    q3 = np.nan if noisy else known("q3")
    cosine = known("cosine_batch", "cosine_mean" if noisy else "cosine")
    sharp, size = known("h_lambda"), np.fmax(q2, q3)
    # A monitor's q2 and cosine are not known before its second step; those of a regime always are.
    never = ("slope", "update_norm") if isinstance(quantities, Mapping) else ("q2", "cosine")
    broken = any(not np.isfinite(numbers.get(name, 0.0)) for name in never)
    if broken or sharp >= thresholds.divergent:
        return _say("divergent", sharp / thresholds.edge)
    if sharp >= thresholds.edge:
        return _say("edge of stability")
    if not np.isfinite(size):
        return _say("noisy" if noisy else "outside" if cosine < 0 else "unknown")
    if size < thresholds.inside and not cosine < 0:
        return _say("inside")
    if size < thresholds.marginal and not cosine < 0:
        return _say("marginal")
    return _say("outside", size / thresholds.inside)


def _numbers(quantities: PyTree) -> dict[str, float]:
    if not isinstance(quantities, Mapping) and not hasattr(quantities, "_asdict"):
        raise TypeError(
            f"a verdict needs what igr.regime or igr.readings returns, but this is a {type(quantities).__name__}."
        )
    items = dict(quantities) if isinstance(quantities, Mapping) else quantities._asdict()
    items = {name: items[name] for name in JUDGED if name in items}
    if not items:
        raise ValueError("a verdict needs q2, the cosine or h_lambda, and none of them is there.")
    if any(is_traced(value) for value in items.values()):
        raise TypeError(
            "a verdict is computed on the host: return the quantities from the jitted function, then judge."
        )
    if any(np.ndim(value) for value in items.values()):
        raise ValueError(
            "a verdict is on one point: take one of many by jax.tree.map(lambda leaf: leaf[i], quantities)."
        )
    return {name: float(value) for name, value in items.items()}


def _say(word: str, factor: float = 2.0) -> Judgement:
    factor = max(factor, 2.0) if np.isfinite(factor) else 2.0
    return Judgement(word, ADVICE[word].format(factor=factor))
