"""Python files of a user as modules, and the text that a module was made from."""

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from modulefinder import ModuleFinder
from pathlib import Path
from types import ModuleType

from igr.lab.store.config import ConfigError


def from_file(path: Path, prefix: str) -> ModuleType:
    """The module in a file, under the name PREFIX_STEM; `ConfigError` where there is no such file."""
    spec = importlib.util.spec_from_file_location(f"{prefix}_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"There is no Python file {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # where dataclasses look up their annotations
    try:
        read = getattr(spec.loader, "get_source", lambda _: None)
        module.__dict__["_igr_source"] = read(module.__name__)  # for records: the file may be changed while it runs
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def text_of(name: str) -> str:
    """The source of the module NAME, as it was when it was loaded where `from_file` or `from_text` loaded it."""
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return getattr(module, "_igr_source", None) or (Path(path).read_text("utf-8") if path else "")
    return ""


def from_text(name: str, path: str, source: str) -> None:
    """Make the module NAME from the text of its file, unless this process has it; `path` is for messages alone.

    The text must come from the user's own process, since it is executed.
    """
    if getattr(sys.modules.get(name), "_igr_source", None) == source:
        return
    module = ModuleType(name)
    module.__dict__.update(__file__=path, _igr_source=source)
    sys.modules[name] = module
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise


def beside(path: Path) -> list[tuple[str, str, str]]:
    """The modules in the folder of a Python file that it imports, and those that they import: name, path and text.

    A module of another folder that is found before one of these, such as an installed one, is not meant.
    """
    finder = ModuleFinder([str(path.parent)], excludes=["igr"])
    try:
        finder.run_script(str(path))
    except (SyntaxError, OSError, UnicodeDecodeError):  # in a file that is not imported, or was changed meanwhile
        return []
    found = ((name, getattr(module, "__file__", None)) for name, module in finder.modules.items())
    files = {name: Path(file) for name, file in found if file}
    ours = {name for name, file in files.items() if "." not in name and name != "__main__" and _is_found(name, file)}
    return [
        (name, str(file), file.read_text("utf-8")) for name, file in files.items() if name.partition(".")[0] in ours
    ]


def _is_found(name: str, path: Path) -> bool:
    """Whether `import name` finds this file."""
    module = sys.modules.get(name)
    with contextlib.suppress(ImportError, ValueError):
        spec = None if module else importlib.util.find_spec(name)
        found = getattr(module, "__file__", None) or (spec.origin if spec else None)
        return found is not None and Path(found).resolve() == path.resolve()
    return False


class _Texts(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    """Finds modules whose texts it was given, and loads them."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[str, str]] = {}  # by name: path and text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname in self.texts else None

    def is_package(self, fullname: str) -> bool:
        return Path(self.texts[fullname][0]).name == "__init__.py"

    def get_filename(self, fullname: str) -> str:
        return self.texts[fullname][0]

    def get_source(self, fullname: str) -> str:
        return self.texts[fullname][1]


_texts = _Texts()


def offer(modules: Iterable[tuple[str, str, str]], users: Iterable[str]) -> None:
    """Let modules be imported from their texts, which must come from the user's own process.

    Where a text is not the one that this process has, the modules of `users`, which import it, are forgotten as well.
    """
    texts = {name: (path, text) for name, path, text in modules}
    if any(_texts.texts.get(name) != text for name, text in texts.items()):
        for name in [*texts, *users]:
            sys.modules.pop(name, None)
        _texts.texts.update(texts)
    if _texts not in sys.meta_path:
        sys.meta_path.insert(0, _texts)
