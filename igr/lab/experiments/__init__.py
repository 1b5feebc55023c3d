"""The experiments: one module for each family of figures, and the list of them.

A module has four names, and nothing else knows about it but this list:

    CLAIM                      what the paper says, in a sentence
    trials(scale)              the units of work, `list[Unit]`
    figures(runs)              name -> matplotlib figure, from stored runs alone
    findings(runs)             claims beside measured numbers, from stored runs alone

and may have an `Options` dataclass, whose fields become flags of `igr run` and the second argument of `trials`,
`CAPTIONS`, a `Caption` for each figure's name, and

    follow_up(scale, options, runs)    units that finished trials decide, such as other seeds of the best of them

which gets the stored runs of the trials alone, and is asked again as more of them finish. `options` may be None.
"""

import difflib
import importlib
from types import ModuleType

from igr.lab.config import ConfigError

REGISTRY = {
    "two-parameter": "igr.lab.experiments.two_parameter",
    "mlp": "igr.lab.experiments.mlp",
    "resnet": "igr.lab.experiments.resnet",
}


def load(name: str) -> ModuleType:
    """The module of an experiment; an unknown name gets the nearest known one.

    >>> load("two-parametre")
    Traceback (most recent call last):
    igr.lab.config.ConfigError: There is no experiment 'two-parametre'; did you mean 'two-parameter'?
    """
    if name not in REGISTRY:
        near = difflib.get_close_matches(name, REGISTRY, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"`igr list` shows them: {', '.join(REGISTRY)}."
        raise ConfigError(f"There is no experiment {name!r}; {hint}")
    return importlib.import_module(REGISTRY[name])
