"""The API: docstrings as pages, each with a list of its parameters and their types as the source names them."""

import ast
import importlib.util
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from markup import restructured
from parameters import FIELDS, MEANING

API = Path(__file__).parents[1] / "api"
ENTRY = re.compile(r"^\.\. auto\w+:: (\S+)", re.MULTILINE)
ENTRIES = {name for page in API.glob("*.md") for name in ENTRY.findall(page.read_text("utf-8"))}
# Where a name that a docstring mentions is looked for if it is not that of its own module.
PLACES = ("igr", "igr.optimizers", "igr.kernel", "igr.monitoring.sinks", "igr.regimes", "igr.nnx", "igr.torch")


def public_name(mentioned: str, module: str = "igr") -> str | None:
    """The entry that is meant: `igr.flow` for `flow`, `flow(field, ...)` or `igr.flow`, and None for other code.

    What begins with `igr.` and has no entry is returned as well, so that the build fails on it; modules and the
    laboratory, of which the API has a part only, are code.
    """
    name = mentioned.split("(")[0].strip()
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    if name.startswith("igr."):
        known = name in ENTRIES or any(name.startswith(f"{entry}.") for entry in ENTRIES)
        code = name.startswith("igr.lab.") or is_module(name)
        return name if known else None if code else f"igr.{name.rpartition('.')[2]}"
    places = sorted(PLACES, key=lambda place: (not module.startswith(place), -len(place)))
    near = next((f"{place}.{name}" for place in places[:-1] if f"{place}.{name}" in ENTRIES), None)
    return near or next((entry for entry in ENTRIES if entry.endswith(f".{name}") and entry.startswith(module)), None)


def is_module(name: str) -> bool:
    """Whether it is a module, which has no entry of its own."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what stands before the last point is no package
        return False


def on_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Rewrite the text, never the source; then list the parameters."""
    module = getattr(thing, "__module__", None) or "igr"
    text = restructured("\n".join(lines), lambda mentioned: public_name(mentioned, module))
    lines[:] = text.split("\n")
    if what in ("function", "method", "class"):
        said = {line.split(":")[1].split()[-1].lstrip("*\\") for line in lines if line.startswith(":param ")}
        lines += ["", *parameters(thing, said, module), ""]


def parameters(thing: Any, said: set[str], module: str) -> list[str]:
    """Fields for the parameters of a function, or of the class that is made by calling it."""
    types, returned = annotations(thing)
    fields = []
    meaning = MEANING | FIELDS.get(getattr(thing, "__name__", ""), {})
    for name, annotation in types.items():
        if name not in said:
            fields.append(f":param {name}: {restructured(meaning.get(name, ''), lambda x: public_name(x, module))}")
        if annotation:
            fields.append(f":type {name}: ``{annotation}``")
    if returned and returned != "None":
        fields.append(f":rtype: ``{returned}``")
    return fields


def annotations(thing: Any) -> tuple[dict[str, str], str]:
    """Types as they are written: `Loss` says more than what the alias stands for."""
    thing = inspect.unwrap(thing)
    try:
        node: Any = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}, ""
    if isinstance(node, ast.ClassDef):
        made = next((each for each in node.body if getattr(each, "name", "") == "__init__"), None)
        if made is None:
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            return {ast.unparse(each.target): ast.unparse(each.annotation) for each in fields}, ""
        node = made
    args = node.args
    every = [*args.posonlyargs, *args.args, *filter(None, [args.vararg]), *args.kwonlyargs, *filter(None, [args.kwarg])]
    types = {each.arg: ast.unparse(each.annotation) if each.annotation else "" for each in every if each.arg != "self"}
    return types, ast.unparse(node.returns) if node.returns else ""


def setup(app: Any) -> dict[str, bool]:
    """After napoleon, which has made fields of the sections of a docstring."""
    app.connect("autodoc-process-docstring", on_docstring, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
