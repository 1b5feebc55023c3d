"""The two floors: igr alone is light, and the laboratory uses it, never the reverse."""

import ast
import subprocess
import sys
from pathlib import Path

import igr

ROOT = Path(igr.__file__).parent
HEAVY = {"matplotlib", "typer", "rich", "pooch", "sklearn", "igr.lab", "igr.cli"}


def test_import_igr_brings_nothing_of_the_laboratory():
    code = "import igr, sys; print(*sorted(sys.modules))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert {"igr", "jax", "diffrax"} <= loaded
    assert not HEAVY & loaded


def test_the_first_floor_does_not_import_the_second():
    for path in ROOT.glob("*.py"):
        if path.stem in ("cli", "__main__"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[:2] == ["igr", "lab"] or name.split(".")[0] in HEAVY for name in names), path


def test_every_public_name_is_documented_with_a_doctest():
    for name in dir(igr):
        value = getattr(igr, name)
        if name.startswith("_") or not callable(value):
            continue
        assert value.__doc__, name
        assert ">>>" in value.__doc__, name
