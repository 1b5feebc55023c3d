"""Configurations: frozen dataclasses that check themselves, travel as JSON and have a stable name.

A configuration is everything that decides a result, and nothing else: the same configuration is the same unit of work
in every process, on every machine. Command-line flags are made from the fields, so no flag can be parsed and forgotten.
"""

import dataclasses
import functools
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Own = TypeVar("Own", bound="Config")  # the class itself; not `Self`, which beartype cannot check a method at a time


# By name, then by module. Not an attribute of the class: a pickled data class would take all the others along.
_kinds: dict[str, dict[str, type["Config"]]] = {}


class ConfigError(ValueError):
    """Invalid configuration. The message is one sentence."""


class Scale(StrEnum):
    """How much to compute: `smoke` shows that it runs, `quick` fits a laptop, `paper` is what the paper did.

    >>> Scale("quick").value
    'quick'
    """

    SMOKE = "smoke"
    QUICK = "quick"
    PAPER = "paper"


def option(help: str, default: Any = dataclasses.MISSING, later: bool = False, **field: Any) -> Any:
    """A field with its help text, which is also the help of its command-line flag.

    `later` marks a field that joined after runs had been stored: at its default it is no part of the digest, so that
    these runs keep their names. Its default must then mean what the code did before there was the field.
    """
    return dataclasses.field(default=default, metadata={"help": help, "later": later}, **field)


@dataclasses.dataclass(frozen=True)
class Config:
    """Base of all configurations: values coerced to the annotated types, checked, hashed and written as JSON.

    Subclasses are frozen dataclasses of plain values (bool, int, float, str, enumerations, tuples and optionals of
    these) and put their own rules into `check`, raising `ConfigError` with one sentence. A float given as an integer
    or as a NumPy number becomes a float, so equal meanings have equal hashes.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Descent(Config):
    ...     learning_rate: float = 0.1
    ...     seed: int = 0
    ...     def check(self):
    ...         if self.learning_rate <= 0:
    ...             raise ConfigError(f"learning_rate must be positive, and it is {self.learning_rate}.")
    >>> Descent(1).digest() == Descent(learning_rate=1.0).digest() != Descent(2).digest()
    True
    >>> Descent.from_json(Descent(0.5).to_json())
    Descent(learning_rate=0.5, seed=0)
    >>> Descent(-1)
    Traceback (most recent call last):
    igr.lab.store.config.ConfigError: learning_rate must be positive, and it is -1.0.
    """

    def __init_subclass__(cls, **kwargs: Any):
        """Remember the class under its name, by which a stored configuration is read back."""
        super().__init_subclass__(**kwargs)
        _kinds.setdefault(cls.__name__, {})[cls.__module__] = cls

    def __post_init__(self):
        hints = _hints(type(self))
        for field in dataclasses.fields(self):
            value = _coerce(getattr(self, field.name), hints[field.name], field.name)
            object.__setattr__(self, field.name, value)
        self.check()

    def check(self) -> None:
        """Raise `ConfigError` where the values are invalid."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return self._values()

    def _values(self, named: bool = False) -> dict[str, Any]:
        """The fields as plain JSON values; `named` leaves out the later ones at their defaults."""
        fields = [field for field in dataclasses.fields(self) if not (named and self._left_out(field))]
        return {field.name: _plain(getattr(self, field.name), named) for field in fields}

    def _left_out(self, field: dataclasses.Field) -> bool:
        if not field.metadata.get("later"):
            return False
        missing = field.default_factory is dataclasses.MISSING
        default = field.default if missing else field.default_factory()  # pyright: ignore[reportCallIssue]
        return getattr(self, field.name) == default

    @classmethod
    def from_dict(cls: type[Own], values: Mapping[str, Any]) -> Own:
        """The configuration with these values; missing fields take their defaults, unknown ones are refused."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ConfigError(f"{cls.__name__} has no field {shown(name)}; it has {', '.join(known)}.")
        try:
            return cls(**values)
        except ConfigError:
            raise
        except Exception as error:  # a check may divide by what it is given, or compare what cannot be compared
            words = f"{type(error).__name__}: {error}"[:200]
            raise ConfigError(f"{cls.__name__} cannot be made from {shown(sorted(values))}: {words}.") from None

    @classmethod
    def kind(cls) -> str:
        """The full name of the class, `module:name`."""
        return f"{cls.__module__}:{cls.__name__}"

    def to_json(self) -> str:
        """JSON from which `from_json` makes an equal configuration."""
        return json.dumps({"kind": self.kind(), **self.to_dict()}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> "Config":
        """The inverse of `to_json`, for the classes that have been imported.

        A class is found by its name, so it may move to another module; the module only tells two of one name apart.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"A configuration is not JSON: {type(error).__name__}.") from None
        if not isinstance(values, dict):
            raise ConfigError("A configuration is a JSON object.")
        return Config.from_dict_of_kind(str(values.pop("kind", None)), values)

    @staticmethod
    def from_dict_of_kind(kind: str, values: Mapping[str, Any]) -> "Config":
        """The configuration of the class that `kind` names, with these values."""
        module, _, name = kind.rpartition(":")
        known = _kinds.get(name, {})
        if module not in known and len(known) != 1:
            hint = f"{name} is defined in {', '.join(known)}" if known else "import the module that defines it"
            if not known and module.startswith("igr_experiment_"):
                hint = "load its file first, igr.lab.experiments.load('FILE.py')"
            raise ConfigError(f"No configuration of kind {shown(kind)} is known here: {hint}.")
        return (known.get(module) or next(iter(known.values()))).from_dict(values)

    @staticmethod
    def is_known(kind: str) -> bool:
        """Whether the class that `kind` names has been imported, under just this name.

        >>> Config.is_known("igr.lab.store.changes:Absent")
        False
        """
        module, _, name = kind.rpartition(":")
        return module in _kinds.get(name, {})

    def digest(self) -> str:
        """SHA-256 of canonical JSON: equal in every process, whatever the order of the fields and the module.

        A field added `later` (see `option`) counts only where it is not at its default.
        """
        if "_digest" not in self.__dict__:  # a store of ten thousand units asks for each of them several times
            values = {"kind": type(self).__name__, **self._values(named=True)}
            text = json.dumps(values, sort_keys=True, separators=(",", ":"))
            object.__setattr__(self, "_digest", hashlib.sha256(text.encode()).hexdigest())
        return self.__dict__["_digest"]

    def replace(self: Own, **changes: Any) -> Own:
        """A copy with some fields changed, checked again."""
        return dataclasses.replace(self, **changes)


def in_words(kind: Any) -> str:
    """A type as messages name it.

    >>> in_words(int), in_words(Config)
    ('a whole number', 'a Config')
    """
    words = {bool: "yes or no", int: "a whole number", float: "a number", str: "text"}
    return words.get(kind) or f"a {getattr(kind, '__name__', kind)}"


def shown(value: Any) -> str:
    """A value in a message: as in Python, and never so long that it hides the sentence around it.

    >>> shown("x" * 1000)[-10:], shown(10**10_000)
    ('xxxxxxx...', 'a very large number')
    """
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**18 else "a very large number"
    return text if len(text) <= 200 else f"{text[:197]}..."


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _plain(value: Any, named: bool) -> Any:
    if isinstance(value, tuple):
        return [_plain(item, named) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    return value._values(named) if isinstance(value, Config) else value


def _coerce(value: Any, hint: Any, name: str) -> Any:
    """The value as the annotated type, or one sentence that names the field."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _coerce(value, next(kind for kind in inner if kind is not type(None)), name)
    if origin is tuple:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise ConfigError(f"{name} must be a sequence, and it is {shown(value)}.")
        items = tuple(value)
        hints = (inner[0],) * len(items) if len(inner) == 2 and inner[1] is Ellipsis else inner
        if len(hints) != len(items):
            raise ConfigError(f"{name} must have {len(hints)} values, and it has {len(items)}.")
        return tuple(_coerce(item, kind, name) for item, kind in zip(items, hints, strict=True))
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a NumPy or JAX number
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if value not in list(hint):
            raise ConfigError(f"{name} must be one of {', '.join(hint)}, and it is {shown(value)}.")
        return hint(value)
    if isinstance(hint, type) and issubclass(hint, Config):
        value = hint.from_dict(value) if isinstance(value, Mapping) else value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            raise ConfigError(f"{name} must be finite, and it has {value.bit_length()} bits.") from None
    if hint is int and isinstance(value, bool):
        raise ConfigError(f"{name} must be a whole number, and it is {value}.")
    if not isinstance(value, hint):
        raise ConfigError(f"{name} must be {in_words(hint)}, and it is {shown(value)}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, and it is {value}.")
    return value + 0.0 if isinstance(value, float) else value  # -0.0 and 0.0 mean the same, so they hash the same
