"""Text: values of a configuration as on the command line, and words that a terminal may be shown."""

import types
import typing
from typing import Any, get_args, get_origin

from igr.lab.store.config import ConfigError, in_words

SWITCH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse(text: str, hint: Any, name: str) -> Any:
    """The value of a field `name` with the annotation `hint`; sequences are separated by commas.

    A class that has a method `parse` reads its own text.

    >>> parse("1,3,9", tuple[int, ...], "epochs"), parse("0.5", float, "width"), parse("yes", bool, "augment")
    ((1, 3, 9), 0.5, True)
    >>> parse("wide", int, "width")
    Traceback (most recent call last):
    igr.lab.store.config.ConfigError: width must be a whole number, and it is 'wide'.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return parse(text, next(kind for kind in inner if kind is not type(None)), name)
    if origin is tuple:
        return tuple(parse(part.strip(), inner[0], name) for part in text.split(",") if part.strip())
    try:
        if hasattr(hint, "parse"):
            return hint.parse(text)
        return SWITCH[text.lower()] if hint is bool else hint(text)
    except ConfigError:
        raise
    except (KeyError, ValueError):
        raise ConfigError(f"{name} must be {in_words(hint)}, and it is {text!r}.") from None


def plain(words: Any) -> str:
    r"""Words in which nothing steers a terminal: a store, a file name and an error may bring control characters.

    >>> plain("a" + chr(27) + "[31mb" + chr(10) + "c")
    'a\\x1b[31mb c'
    """
    parts = (" " if each in "\n\r\t" else each if each.isprintable() else repr(each)[1:-1] for each in str(words))
    return "".join(parts)
