"""What a reader can copy runs: the examples, and every block of Python in the README and the docs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [(page, n) for page in PAGES for n, _ in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))]


def run(code_or_file: list[str]) -> str:
    """In a process of its own: the reader's session has neither float64 nor our strictness."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, *code_or_file], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_minimal_example_shows_the_two_orders():
    source = (ROOT / "examples" / "minimal.py").read_text()
    assert "import igr" not in source
    assert len(source.splitlines()) <= 75
    out = run([str(ROOT / "examples" / "minimal.py")])
    assert "0.2965, 2.0235" in out
    ratios = [float(x) for x in re.findall(r"divides the error by ([\d.]+)", out)]
    assert ratios == pytest.approx([4, 8], rel=0.03)
    distances = [float(x) for x in re.findall(r"([\d.]+) away", out)]
    assert distances == pytest.approx([0.0964, 0.0271], abs=1e-4)


def test_a_late_penalty_throws_networks_out_beyond_the_limit_of_stability_and_not_below():
    lines = run([str(ROOT / "examples" / "late_penalty.py"), "1"]).splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["tanh", "gelu"]
    for line in lines:
        growth = [float(x) for x in re.findall(r"(\S+) \(", line)]
        assert len(growth) == 6
        assert all(0 < x < 1 for x in growth[:3]), "0.5, 0.8 and 0.95 times the critical mu"
        assert not any(x < 100 for x in growth[4:]), "1.25 and 2 times: E grows or is no longer finite"


@pytest.mark.parametrize(("page", "n"), BLOCKS, ids=[f"{page.stem}-{n}" for page, n in BLOCKS])
def test_the_python_on_the_pages_runs(page, n):
    """A page's blocks build on each other, so each is run after those before it."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    run(["-c", "\n".join(blocks[: n + 1])])


def test_the_readme_has_code():
    assert any(page.name == "README.md" for page, _ in BLOCKS)
