"""The experiments by name: the paper's, those of installed packages, and a Python file of your own.

An experiment is a module with four names, and nothing else knows about it but this list:

    CLAIM                      what it asks or what the paper says, in a sentence
    trials(scale)              the units of work, `list[Unit]`
    figures(runs)              name -> matplotlib figure, from stored runs alone
    findings(runs)             claims beside measured numbers, from stored runs alone

and may have an `Options` dataclass, whose fields become flags of `igr run` and the second argument of `trials`,
`CAPTIONS`, a `Caption` for each figure's name, and

    views(runs)                        Markdown tables of its runs by name, for pages: see `igr.lab.report.pages`
    cards(runs)                        small figures of the predictions whose headlines it has: see `.predictions`
    follow_up(scale, options, runs)    units that finished trials decide, such as other seeds of the best of them

The last one gets the stored runs of the trials alone, and is asked again as more of them finish. `options` may be None.

`REGISTRY` holds the experiments of the paper, which `igr reproduce` runs, and `TOOLS` those that ask what the user
wants. A package adds its own by entry points of the group `igr.experiments`. A file needs no registration:
`igr run my_experiment.py` runs it under the name `my-experiment`, and the store remembers where it was. A file needs
`trials` alone: without `CLAIM` its claim is the first line of its docstring, and without `figures` or `findings` it has
none.
"""

import ast
import contextlib
import difflib
import importlib
import importlib.util
import os
import sys
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from igr.lab.store import trusted
from igr.lab.store.config import ConfigError
from igr.lab.store.modules import from_file
from igr.lab.store.store import Store

REGISTRY = {
    "two-parameter": "igr.lab.experiments.two_parameter.grid",
    "theorem": "igr.lab.experiments.theorem.grid",
    "mlp": "igr.lab.experiments.mlp.grid",
    "resnet": "igr.lab.experiments.resnet.grid",
    "regime": "igr.lab.experiments.regime.grid",
    "optimizers": "igr.lab.experiments.optimizers.grid",
}
TOOLS = {"train": "igr.lab.experiments.train"}
GROUP = "igr.experiments"
_FILES: dict[str, Path] = {}  # experiments in files that this process was told of, by name


def names() -> list[str]:
    """All that can be named: the paper's, the tools, and those of installed packages.

    >>> names()[:3]
    ['two-parameter', 'theorem', 'mlp']
    """
    return list(dict.fromkeys([*REGISTRY, *TOOLS, *sorted(_installed())]))


def load(name: str) -> ModuleType:
    """The module of an experiment, by its name or its file; an unknown name gets the nearest known one.

    >>> load("two-parametre")
    Traceback (most recent call last):
    igr.lab.store.config.ConfigError: There is no experiment 'two-parametre'; did you mean 'two-parameter'?
    """
    name = name_of(name)
    if name in _FILES:
        return _from_file(_FILES[name])
    for table in (REGISTRY, TOOLS, _installed()):
        if name in table:
            return importlib.import_module(table[name])
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"`igr list` shows them: {', '.join(names())}."
    raise ConfigError(f"There is no experiment {name!r}; {hint}")


def claim_of(name: str) -> str:
    """The claim of an experiment. It is read from the source where it stands there as a constant, so that `igr list`
    imports neither the experiments nor JAX.

    >>> claim_of("train")[:29]
    'Networks of your choice: any '
    """
    for table in (REGISTRY, TOOLS, _installed()):
        spec = _spec(table[name]) if name in table else None
        for node in ast.parse(Path(spec.origin).read_text()).body if spec and spec.origin else []:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CLAIM":
                with contextlib.suppress(ValueError):
                    return ast.literal_eval(node.value)
    return load(name).CLAIM


def _spec(module: str) -> ModuleSpec | None:
    with contextlib.suppress(ImportError):
        return importlib.util.find_spec(module)
    return None


def name_of(name: str) -> str:
    """The name under which runs are stored: of a file its stem, by which `load` knows it from there on.

    >>> name_of("mlp")
    'mlp'
    """
    if not name.endswith(".py"):
        return name
    path = Path(name).resolve()
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.")
    short = path.stem.replace("_", "-")
    if short in names() or _FILES.get(short, path) != path:
        raise ConfigError(f"{path} would be stored as {short!r}, which is another experiment: rename the file.")
    _FILES[short] = path
    trusted.remember(path)
    return short


def source_of(name: str) -> str:
    """The file of an experiment that is not installed; empty for others. The store keeps it beside the runs."""
    return str(_FILES.get(name, ""))


def stored(store: Store) -> list[str]:
    """The experiments of a store that can be loaded here, the paper's first; those in files where the file still is."""
    here = store.experiments()
    for name in here:
        source = str((store.read_index(name) or {}).get("source", ""))
        # a store may come from somebody else: only what the user has run here is executed for its sake
        if source and os.path.isfile(source) and name not in names() and trusted.is_trusted(Path(source)):
            _FILES.setdefault(name, Path(source))
    return [name for name in dict.fromkeys([*names(), *_FILES]) if name in here]


def _installed() -> dict[str, str]:
    """The experiments of installed packages: their entry points of the group `igr.experiments`."""
    return {each.name: each.value for each in entry_points(group=GROUP)}


@cache
def _from_file(path: Path) -> ModuleType:
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # its own modules may lie beside it; installed ones come first
    module = from_file(path, "igr_experiment")
    if not hasattr(module, "trials"):
        raise ConfigError(f"{path} is no experiment: it needs a function trials(scale) that returns the trials.")
    claim = (module.__doc__ or f"The trials of {path.name}.").strip().splitlines()[0]
    for name, default in (("CLAIM", claim), ("figures", lambda runs: {}), ("findings", lambda runs: [])):
        vars(module).setdefault(name, default)
    return module
