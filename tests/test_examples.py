"""What a reader can copy runs: the examples, and every block of Python in the README and the docs."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "```python\n" in page.read_text()]
IMPORTED = {"scikit-learn": "sklearn"}  # packages that are imported under another name


def run(code_or_file: list[str], **variables: str) -> str:
    """In a process of its own: the reader's session has neither float64 nor our strictness."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg"} | variables
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


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_python_on_the_pages_runs(page):
    """A page's blocks build on each other, so they are run in their order; the error names the line of the block.

    Those of the README are run by the test of its install lines. A page compiles more than it computes.
    """
    run(["-c", "\n".join(blocks(page.read_text()))], JAX_DISABLE_MOST_OPTIMIZATIONS="1")


def package(requirement: str) -> str:
    name = re.split(r"[^\w-]", requirement)[0].lower()
    return IMPORTED.get(name, name)


def installed_by(line: str) -> set[str]:
    """What `pip install` brings for these words, as far as an extra of this package or the words themselves name it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = set()
    for word in re.findall(r"[^\s']+", line.partition("#")[0])[2:]:
        extra = re.fullmatch(r"\.\[(\w+)\]", word)
        found |= {package(each) for each in extras[extra[1]]} if extra else {package(word)}
    return found


HIDING = """
import sys
class Hiding:
    hidden = set({})
    def find_spec(self, name, *_):
        if name in self.hidden:
            raise ModuleNotFoundError(f"{{name}} is not installed by the lines above")
sys.meta_path.insert(0, Hiding())
"""


def under_its_install_line(text: str) -> str:
    """The page's Python, in which each block finds only what the install lines above it bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {package(each) for each in project["dependencies"]}
    core |= {package(each) for name in core for each in requires(name) or () if "extra" not in each}
    extras = {package(each) for some in project["optional-dependencies"].values() for each in some}
    hidden = extras - core - {"igr", ""}
    code = [HIDING.format(sorted(hidden))]
    for line, block in re.findall(r"^ {4}(pip install [^\n]*)$|```python\n(.*?)```", text, re.M | re.S):
        code.append(f"Hiding.hidden -= set({sorted(installed_by(line))})" if line else block)
    return "\n".join(code)


def test_the_code_of_the_readme_needs_nothing_but_what_its_install_lines_bring():
    text = README.read_text()
    run(["-c", under_its_install_line(text)])
    without = text.replace("    pip install . optax\n", "")
    with pytest.raises(AssertionError, match="optax is not installed by the lines above"):
        run(["-c", under_its_install_line(without)])


def test_the_readme_has_code_and_cites_what_the_page_about_citing_does():
    text = README.read_text()
    assert len(blocks(text)) >= 4
    (entries,) = re.findall(r"```bibtex\n.*?```", text, re.S)
    assert entries in (ROOT / "docs" / "citing.md").read_text()


def test_each_first_step_is_ten_lines():
    """The sweep of that page is the tutorial's file, which is run by two processes while the site is built."""
    page, tutorial = ((ROOT / "docs" / name).read_text() for name in ("first_steps.md", "tutorials/sweep.md"))
    steps = re.findall(r"```py(?:thon)?\n(.*?)```", page, re.S)
    assert len(steps) == 7
    assert max(len([line for line in step.splitlines() if line.strip()]) for step in steps) <= 10
    assert f"%%writefile my_sweep.py\n{steps[-1]}```" in tutorial
