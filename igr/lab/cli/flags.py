"""Flags from configurations: a command has an option for each field, so none can be parsed and forgotten.

The fields of a configuration within a configuration are flags too, `--schedule.every 2`. A field that is a `Changes` of
a configuration, such as `shape`, gives a flag for each field that may be changed, `--shape.width 100`.
"""

import functools
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.main import get_command

from igr.lab.store.changes import Changes, change
from igr.lab.store.config import Config
from igr.lab.store.text import parse

SIMPLE = (bool, int, float, str)
NESTED = "__"  # between the names of a path, where Python wants an identifier


def command_of(function: Any, configs: list[type[Config]], name: str, claim: str) -> Any:
    """A command whose flags are the fields of the configurations: their names, types, defaults and help."""
    parameters = [each for config in configs for each in _parameters(config)]
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=claim, short_help=claim)(function)  # a short help is not cut off
    return get_command(single)


def _parameters(config: type[Config]) -> Iterator[inspect.Parameter]:
    for field, hint in _typed(config):
        if _simple(hint):
            default = None if field.default is MISSING else field.default
            help = field.metadata.get("help", "")
            yield _parameter(field.name, default, Annotated[hint, typer.Option(_flag(field.name), help=help)])
        else:
            yield from (_text(*each) for each in leaves(config, field, hint))


def leaves(config: type[Config], field: Field, hint: Any) -> Iterator[tuple[str, Field, Any, Any]]:
    """What a field holds that can be written as text: path, field, annotation and default of each."""
    if not isinstance(hint, type) or not issubclass(hint, Config) or hasattr(hint, "parse"):
        yield field.name, field, hint, _default(field)
        return
    changes = issubclass(hint, Changes)
    inside = hint.SUBJECT if changes else hint
    for each, inner in _typed(inside):
        for path, leaf, kind, default in leaves(inside, each, inner):
            yield f"{field.name}.{path}", leaf, kind, None if changes else default


def _text(path: str, field: Field, hint: Any, default: Any) -> inspect.Parameter:
    """A flag whose text is parsed by the annotation; None means that it was not given."""
    help = field.metadata.get("help", "")
    if default is not None and default != ():
        help = f"{help} [default: {_written(default)}]"
    kind = typer.Option(_flag(path), help=help, metavar=_metavar(hint))
    text = list[str] if get_origin(hint) is tuple else str  # several values: by commas, or one for each flag
    return _parameter(path.replace(".", NESTED), None, Annotated[text | None, kind])


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _metavar(hint: Any) -> str:
    names = {bool: "yes|no", int: "<int>", float: "<float>"}
    if get_origin(hint) is tuple:
        return f"{names.get(get_args(hint)[0], '<str>')},..."
    return names.get(hint, "<str>")


def _typed(config: type[Config]) -> list[tuple[Field, Any]]:
    hints = get_type_hints(config)
    return [(field, hints[field.name]) for field in fields(config)]


def _default(field: Field) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _flag(path: str) -> str:
    return "--" + path.replace("_", "-")


def split(config: type[Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The configuration made from its own fields, and the values that are left."""
    mine, rest = dict[str, Any](), dict(values)
    for field, hint in _typed(config):
        if _simple(hint):
            if field.name in rest:
                mine[field.name] = rest.pop(field.name)
            continue
        texts = {path: _joined(rest.pop(path.replace(".", NESTED), None)) for path, *_ in leaves(config, field, hint)}
        given = {path.partition(".")[2]: text for path, text in texts.items() if text is not None}
        if given:
            mine[field.name] = _value(field, hint, given)
    return config(**mine), rest


def _joined(texts: list[str] | str | None) -> str | None:
    """The text of a flag; of one that was given several times, all of them."""
    return (",".join(texts) if texts else None) if isinstance(texts, list) else texts


def _value(field: Field, hint: Any, given: dict[str, str]) -> Any:
    """The value of a field from what was given of it, by path; the path of the field itself is empty."""
    if "" in given:
        return parse(given[""], hint, field.name)
    return hint(tuple(given.items())) if issubclass(hint, Changes) else change(_default(field), given.items())


def _simple(hint: Any) -> bool:
    """Whether typer reads it by itself."""
    return isinstance(hint, type) and issubclass(hint, SIMPLE)


def words(options: Config) -> list[str]:
    """The words of the command line that give these options, without those at their defaults."""
    found: list[str] = []
    for field, hint in _typed(type(options)):
        value = getattr(options, field.name)
        if isinstance(value, Changes):
            found += [word for path, text in value.given for word in (_flag(f"{field.name}.{path}"), text)]
        elif isinstance(value, bool) and _simple(hint):
            found += [] if value == field.default else [_flag(field.name if value else f"no-{field.name}")]
        else:
            for path, *_, default in leaves(type(options), field, hint):
                now = functools.reduce(getattr, path.split("."), options)
                found += [] if now == default else [_flag(path), _written(now)]
    return found


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
