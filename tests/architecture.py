"""The packages of the repository and what imports what, read from the source: for the tests and for the drawing."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "igr"

# The laboratory from the top to the bottom. A package imports from those below it, and within a level from those after
# it.
LEVELS = (
    ("cli",),
    ("explorer", "report"),
    ("experiments",),
    ("plots", "analysis", "training"),
    ("models", "data", "runs", "sinks"),
    ("store",),
)
ORDER = [name for level in LEVELS for name in level]


def modules() -> Iterator[tuple[str, ast.Module]]:
    """The full name and the syntax tree of every module of `igr`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["igr", *path.relative_to(PACKAGE).with_suffix("").parts]
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[str]:
    """The full names that a module imports anywhere in it, inside functions and under conditions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import of {node.module}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(name: str) -> str:
    """The package of the laboratory that a module is in, or "igr" for the first floor.

    >>> room("igr.lab.store.config.Config"), room("igr.penalty.radius"), room("igr.lab")
    ('store', 'igr', 'lab')
    """
    parts = name.split(".")
    return "igr" if parts[:2] != ["igr", "lab"] else parts[2] if len(parts) > 2 else "lab"


def edges() -> dict[tuple[str, str], list[str]]:
    """Which package imports which, and where: {(from, to): ["module -> imported name", ...]}."""
    found: dict[tuple[str, str], list[str]] = {}
    for module, tree in modules():
        for name in imported(tree):
            if name.split(".")[0] == "igr" and room(module) != room(name):
                found.setdefault((room(module), room(name)), []).append(f"{module} -> {name}")
    return found


def allowed(above: str, below: str) -> bool:
    """Whether a package may import from another one."""
    if below == "igr":
        return True
    if above == "igr":
        return False
    return above in ORDER and below in ORDER and ORDER.index(above) < ORDER.index(below)


def drawing() -> str:
    """The packages as text, level by level, with what each imports of the others: what CONTRIBUTING.md shows."""
    found, lines = edges(), []
    for level in LEVELS:
        for name in level:
            below = [each for each in [*ORDER, "igr"] if (name, each) in found]
            lines.append(f"    {name:12}-> {', '.join(below)}".rstrip(" ->"))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(drawing(), end="")
