"""What travels to the workers of a cluster beside the units: settings, versions, modules that they cannot import."""

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
from ray import cloudpickle

from igr.lab.runs.unit import Unit
from igr.lab.runs.worker import versions
from igr.lab.store.modules import beside
from igr.lab.store.provenance import code

SETTING = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
)


def luggage(units: Iterable[Unit]) -> dict[str, Any]:
    """The part of a parcel that all units of a run share; see `igr.lab.runs.away`.

    A class of a notebook or of the script that runs travels by cloudpickle. A module that is one file outside the
    installed packages, such as one that was given to `igr run`, travels as its text. So do those modules of
    its folder, or of the script's, that it imports. All others are imported there.
    """
    sources, pickled, near = dict[str, tuple[str, str, str]](), list[bytes](), dict[str, tuple[str, str, str]]()
    for kind in {type(unit.config) for unit in units}:
        name = kind.__module__
        path = getattr(sys.modules.get(name), "__file__", None)
        if name == "__main__" or path is None:
            pickled.append(cloudpickle.dumps(kind))  # pyright: ignore[reportPrivateImportUsage]
        elif _is_own(name, path):
            sources[name] = (name, path, Path(path).read_text("utf-8"))
        if path is not None and _is_own(name, path):
            near |= {each[0]: each for each in beside(Path(path)) if _is_own(each[0].partition(".")[0], each[1])}
    setting = {name: getattr(jax.config, name) for name in SETTING}
    about = {"versions": versions(), "code": code(), "setting": setting}
    return about | {"beside": list(near.values()), "sources": list(sources.values()), "pickled": pickled}


def _is_own(name: str, path: str) -> bool:
    """Whether a module is a single file of the user's."""
    installed = [sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")]
    return "." not in name and path.endswith(".py") and not any(Path(path).is_relative_to(root) for root in installed)
