"""Flags from configurations: a command has an option for each field, so none can be parsed and forgotten."""

import inspect
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

import typer
from typer.main import get_command

from igr.lab.config import Config


def command_of(function: Any, configs: list[type[Config]], name: str, claim: str) -> Any:
    """A command whose flags are the fields of the configurations: their names, types, defaults and help."""
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if field.default is MISSING else field.default,
            annotation=Annotated[hint, typer.Option(_flag(field.name), help=field.metadata.get("help", ""))],
        )
        for config in configs
        for field, hint in ((field, get_type_hints(config)[field.name]) for field in fields(config))
    ]
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, help=claim, short_help=claim)(function)  # a short help is not cut off
    return get_command(single)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def split(config: type[Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The configuration made from its own fields, and the values that are left."""
    names = {field.name for field in fields(config)}
    return config(**{k: v for k, v in values.items() if k in names}), {
        k: v for k, v in values.items() if k not in names
    }
