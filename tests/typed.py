"""Print the files whose types can be checked where PyTorch is not installed; nothing where it is, for all of them."""

import re
from importlib.util import find_spec
from pathlib import Path

FOLDERS = ("igr", "tests", "benchmarks", "examples")  # as in pyproject.toml
TORCH = re.compile(r"^\s*(?:import|from) (?:torch|lightning|transformers|accelerate|igr\.torch)\b", re.MULTILINE)


def without_torch(root: Path) -> list[str]:
    """The Python files that import neither PyTorch nor what is built on it, relative to `root`."""
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    names = [path.relative_to(root).as_posix() for path in files if not TORCH.search(path.read_text())]
    return [name for name in names if not name.startswith("igr/torch/")]


if __name__ == "__main__":
    print(*([] if find_spec("torch") else without_torch(Path(__file__).parents[1])))
