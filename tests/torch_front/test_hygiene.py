"""Who imports whom: PyTorch only by igr.torch, and nothing of JAX there."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="no tests of igr.torch: torch is not installed")

import igr

ROOT = Path(igr.__file__).parent

SCRIPT = """
import sys
import igr.torch, torch
model = torch.nn.Linear(2, 1)
closure = lambda: torch.tanh(model(torch.ones(1, 2))).square().mean()
igr.torch.backward(model, closure, mu=0.1)
igr.torch.penalty_error(model, closure)
igr.torch.Monitor(every=1).attach(torch.optim.SGD(model.parameters(), lr=0.1), model, closure)
print("jax" in sys.modules)
"""


def imported(path):
    """The first names of what a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


def test_pytorch_is_imported_by_its_front_end_alone():
    importers = {path for path in ROOT.rglob("*.py") if "torch" in imported(path)}
    assert importers
    assert all(path.parent == ROOT / "torch" for path in importers)
    assert not any("jax" in imported(path) for path in (ROOT / "torch").glob("*.py"))


def test_the_penalty_in_pytorch_does_not_even_import_jax():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.stdout.strip() == "False", done.stderr
