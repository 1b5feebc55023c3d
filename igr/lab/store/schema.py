"""What the store's JSON files must look like. Only `Damaged` and `ConfigError` come out, whatever goes in.

A file whose shape is wrong is `Damaged`. One of another format is a `ConfigError`: a newer version of igr wrote it, and
it is left alone. Fields that are not known here are kept.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from igr.lab.store.config import Config, ConfigError, shown
from igr.lab.store.files import Damaged

FORMAT = 1
NAME = re.compile(r"[0-9a-f]{16}")  # of a unit's folder
OTHER = "was stored by another version of igr"
INDEX = {"format", "units", "scale", "options", "sha256"}
RECORD: dict[str, Any] = {
    "experiment": str,
    "kind": str,
    "config": dict,
    "digest": str,
    "precision": str,
    "device": str,
}
LATER: dict[str, Any] = {  # what some versions or some units leave out
    "seed": (int, type(None)),
    "commit": (str, type(None)),
    "created": str,
    "versions": dict,
    "seconds": (int, float),
    "bytes": dict,
    "conditions": dict,
    "resumed": list,
    "code": str,
}


def encode(value: Any) -> bytes:
    """JSON for people: sorted, a field a line."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def parse(data: bytes, path: Path) -> dict[str, Any]:
    """A JSON object, or `Damaged`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: it is not JSON ({type(error).__name__}).") from None
    if not isinstance(value, dict):
        raise Damaged(f"{path} is damaged: it holds no object.")
    return value


def record(data: bytes, path: Path) -> dict[str, Any]:
    """The record of a unit, `config.json`."""
    found = parse(data, path)
    _known_format(found, path)
    for name, kind in {**RECORD, **LATER}.items():
        if name in found and (not isinstance(found[name], kind) or isinstance(found[name], bool)):
            raise Damaged(f"{path} is damaged: its {name} is {shown(found[name])}.")
        if name in RECORD and name not in found:
            raise Damaged(f"{path} is damaged: it has no {name}.")
    if not 0 <= found.get("seconds", 0) <= 1e12:
        raise Damaged(f"{path} is damaged: its seconds are {shown(found['seconds'])}.")
    return found


def bound(found: Mapping[str, Any], folder: Path) -> None:
    """`Damaged` where a record is not that of the unit whose folder it lies in."""
    if found["digest"][:16] != folder.name or found["experiment"] != folder.parent.name:
        which = shown(f"{found['experiment']}/{found['digest'][:16]}")
        raise Damaged(f"{folder} is damaged: it holds the unit {which}, which is another one.")


def config_of(found: Mapping[str, Any], folder: Path) -> Config:
    """The configuration in a record, whose digest must be the record's; else another version of igr wrote it."""
    try:
        config = Config.from_dict_of_kind(found["kind"], found["config"])
    except ConfigError as error:
        raise ConfigError(f"{folder} {OTHER}: {error}") from None
    if config.digest() != found["digest"]:
        raise ConfigError(
            f"{folder} {OTHER}: its configuration means another thing here, since its digest was "
            f"{found['digest'][:16]} and is {config.digest()[:16]}."
        )
    return config


def index_bytes(units: list[str], about: Mapping[str, Any]) -> bytes:
    """The index of an experiment, with the checksum of its own content."""
    content = {"format": FORMAT, "units": units, **about}
    return encode({**content, "sha256": _sum(content)})


def index(data: bytes, path: Path) -> dict[str, Any]:
    """The index of an experiment: which units the last run asked for, at which scale, with which options."""
    found = parse(data, path)
    _known_format(found, path)
    content = {name: value for name, value in found.items() if name != "sha256"}
    units, scale, options = found.get("units"), found.get("scale", ""), found.get("options", {})
    flags, source = found.get("flags", []), found.get("source", "")
    # a version that wrote no checksum wrote nothing but the fields it had
    if not (found["sha256"] == _sum(content) if "sha256" in found else set(found) <= INDEX):
        raise Damaged(f"{path} is damaged: its checksum is not that of its content.")
    if not isinstance(units, list) or not all(isinstance(unit, str) and NAME.fullmatch(unit) for unit in units):
        raise Damaged(f"{path} is damaged: its units are no list of digests.")
    if len(set(units)) < len(units):  # each would count twice in the findings
        raise Damaged(f"{path} is damaged: it names a unit twice.")
    if not isinstance(scale, str) or len(scale) > 100 or not isinstance(options, dict):
        raise Damaged(f"{path} is damaged: its scale or its options are invalid.")
    if not isinstance(flags, list) or not all(isinstance(each, str) for each in (*flags, source)):
        raise Damaged(f"{path} is damaged: its flags or its source are invalid.")
    return found


def sums(data: bytes, path: Path) -> dict[str, str]:
    """The checksums by file name."""
    try:
        lines = [line.partition("  ") for line in data.decode("ascii").splitlines()]
    except UnicodeDecodeError:
        raise Damaged(f"{path} is damaged: it is no list of checksums.") from None
    expected = {name: checksum for checksum, _, name in lines}
    for name in ("config.json", "metrics.npz"):
        if name not in expected:
            raise Damaged(f"{path} is damaged: it has no sum for {name}.")
    return expected


def _known_format(found: Mapping[str, Any], path: Path) -> None:
    value = found.get("format")
    if isinstance(value, bool) or value != FORMAT:
        raise ConfigError(
            f"{path.parent} {OTHER}: it has format {shown(value)}, and this version reads format {FORMAT}. "
            "Read it with the version that wrote it."
        )


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
