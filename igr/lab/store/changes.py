"""Changes to a configuration that somebody else has made: fields by path, with values as text.

An experiment decides the shapes of its networks. `Changes` of a shape says what the user wants otherwise, in all of
them; on the command line, `--shape.width 100`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, get_type_hints

from igr.lab.store.config import Config, ConfigError, option
from igr.lab.store.text import parse


@dataclass(frozen=True)
class Changes(Config):
    """Fields of a configuration of the class `SUBJECT` and what they shall be. Subclasses name the class.

    >>> @dataclass(frozen=True)
    ... class Size(Config):
    ...     width: int = 10
    >>> @dataclass(frozen=True)
    ... class Sizes(Changes):
    ...     SUBJECT = Size
    >>> Sizes((("width", "20"),)).of(Size())
    Size(width=20)
    """

    SUBJECT: ClassVar[type[Config]] = Config

    given: tuple[tuple[str, str], ...] = option("fields and their values", ())

    def check(self) -> None:
        """Every field is there and its value can be read."""
        for path, text in self.given:
            _read(self.SUBJECT, path, text)

    def of(self, config: Any) -> Any:
        """The configuration with these changes, checked again when all are made."""
        return change(config, self.given)


def change(config: Any, given: Iterable[tuple[str, str]]) -> Any:
    """A configuration with some fields replaced, each given by its path and its value as text."""
    tree: dict[str, Any] = {}
    for path, text in given:
        *outer, name = path.split(".")
        place = tree
        for each in outer:
            place = place.setdefault(each, {})
        place[name] = _read(type(config), path, text)
    return _replaced(config, tree)


def _read(kind: Any, path: str, text: str) -> Any:
    name, _, inner = path.partition(".")
    hints = get_type_hints(kind)
    if name not in {field.name for field in fields(kind)}:
        raise ConfigError(f"{kind.__name__} has no field {name!r}.")
    return _read(hints[name], inner, text) if inner else parse(text, hints[name], path)


def _replaced(config: Any, tree: dict[str, Any]) -> Any:
    new = {name: _replaced(getattr(config, name), v) if isinstance(v, dict) else v for name, v in tree.items()}
    return config.replace(**new) if new else config
