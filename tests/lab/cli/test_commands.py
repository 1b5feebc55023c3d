"""Every command on the pages is one that exists: the program takes its words and flags, make has its target.

What the commands do is tested beside them (test_cli, test_report, test_export, test_explorer); here no page may promise
a flag that is not there. Those of the README are run too, in a copy of the working tree: as they stand where CI can
afford it, else changed as the table `SMALLER` says.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import browser as browsing
import pytest

from igr.lab.cli import app as cli
from igr.lab.experiments import load

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *(ROOT / "docs").rglob("*.md"),
]
SMALLER = [  # the command, what is run instead, and why
    ("make reproduce", "make reproduce SCALE=smoke", "quick scale takes minutes"),
    ("igr report --out results", "igr report --out out", "make reproduce has drawn the stored runs beside its own"),
    ("make docs", "make --dry-run docs", "test_docs builds the site with the same command, and runs the tutorials"),
    ("make test", "make --dry-run test", "this test is a part of it, and CI runs nothing else"),
    (r"igr run (?!two-parameter )(\S+) --scale paper", r"igr run \1 --scale smoke", "paper scale takes a GPU and data"),
    (r"python benchmarks/penalty\.py", r"\g<0> --only MLP --rounds 1", "ResNet-18 in seven ways compiles for a minute"),
    (r"pip install (\S+)(?: optax)?", r"pip install --no-deps --no-build-isolation \1", "a test asks no registry"),
]
LEFT_BEHIND = {"make reproduce": "out/index.html", "igr report": "out/index.html"}
STAND_INS = {"NAME": "two-parameter", "DATA": ".", "TEXT": "batch 32", "OUT": "out"}
STAND_INS |= dict.fromkeys(("my_experiment.py", "my_sweep.py"), "two-parameter")  # files that the pages write


def commands(text: str) -> list[str]:
    """The commands of a page: in lines of code, and in code within a sentence; without comments and output."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines = re.findall(r"^ {4}(?:\S+/)?((?:igr|make|python) [^#\n]+)", text, re.MULTILINE)
    spans = re.findall(r"`((?:igr|make|python) [^`\n]+)`", text)
    return [line.strip() for line in lines + spans if "|" not in line and "PYTHON=" not in line]


FOUND = sorted(
    {(page.relative_to(ROOT).as_posix(), command) for page in PAGES for command in commands(page.read_text())}
)


def understood(words: list[str], monkeypatch, capsys) -> tuple[int, str]:
    """Whether the program takes these words: asked for help with them, it complains of those it does not know."""
    monkeypatch.setattr(sys, "argv", ["igr", *words, "--help"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize(("page", "command"), FOUND, ids=[f"{page}: {command}" for page, command in FOUND])
def test_the_commands_on_the_pages_exist(page, command, monkeypatch, capsys):
    program, *words = (STAND_INS.get(word, word) for word in shlex.split(command))
    if program == "igr":
        code, error = understood(words, monkeypatch, capsys)
        assert code == 0, error
        if words[0] == "run" and len(words) > 1:
            load(words[1])
        if "--scale" in words:
            assert words[words.index("--scale") + 1] in ("smoke", "quick", "paper")
    elif program == "make":
        if shutil.which("make") is None:
            pytest.skip("there is no make here")
        done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    else:
        script = ROOT / words[0]
        assert script.exists()
        for flag in (word for word in words if word.startswith("--")):
            assert f'"{flag}"' in script.read_text(), f"{script.name} has no {flag}"


def test_pages_have_commands_and_a_wrong_one_is_found(monkeypatch, capsys):
    assert ("README.md", "make reproduce") in FOUND
    assert len(FOUND) > 20
    assert understood(["report", "--colour", "red"], monkeypatch, capsys)[0] == 2
    assert understood(["repotr"], monkeypatch, capsys)[0] == 2
    assert understood(["run", "two-paramter"], monkeypatch, capsys)[0] == 2


def readme_commands() -> list[str]:
    """All lines of code that are not Python, whatever they begin with, and commands within sentences."""
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    lines = re.findall(r"^ {4}(\S[^#\n]*)", text, re.MULTILINE)
    spans = re.findall(r"`((?:igr|make|python|pip) [^`\n]+)`", text)
    return list(dict.fromkeys(line.strip() for line in lines + spans))


def smaller(command: str) -> str:
    changed = [re.sub(pattern, instead, command) for pattern, instead, _ in SMALLER if re.fullmatch(pattern, command)]
    return changed[0] if changed else command


def argv(command: str, fresh: Path) -> list[str]:
    """The words as this interpreter's programs; make takes this environment as it is, pip the fresh one."""
    program, *words = shlex.split(command)
    if program == "make":
        stamps = [f"--old-file={sys.prefix}/{name}" for name in (".lab", ".ready")]
        return ["make", *words, f"VENV={sys.prefix}", *stamps]
    if program == "pip":
        words = [word.replace("git+ADDRESS", f"git+file://{fresh.parent / 'clone'}") for word in words]
        return [sys.executable, "-m", "pip", "--python", str(fresh / "bin" / "python"), *words]
    if program not in ("igr", "python"):
        raise ValueError(f"the README has a command that this test cannot run: {command!r}; teach it here.")
    return [str(Path(sys.executable).with_name(program)), *words]


@pytest.fixture
def copy(tmp_path):
    """What a clone has: the tracked files, and those that will be."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        target = tmp_path / "clone" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    for words in (["init"], ["add", "--all"], ["-c", "user.name=x", "-c", "user.email=x", "commit", "-m", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path / "clone", check=True, capture_output=True)
    return tmp_path / "clone"


@pytest.fixture
def fresh(tmp_path):
    """An environment without igr, which finds what igr depends on in this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "fresh")], check=True)
    (packages,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return tmp_path / "fresh"


def test_every_command_of_the_readme_runs(copy, fresh):
    """One after the other, as a reader would: what the first stored the later ones find."""
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg", "BROWSER": "true"}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # most of the time at smoke scale is compilation
    wrong = {}
    for command in readme_commands():
        words = argv(smaller(command), fresh)
        done = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True)
        left = next((path for begin, path in LEFT_BEHIND.items() if command.startswith(begin)), ".")
        if done.returncode or not (copy / left).exists():
            wrong[command] = f"exit code {done.returncode}, {left}: {done.stdout[-500:]} {done.stderr[-2000:]}"
    assert wrong == {}
    page = copy / "out" / "index.html"
    assert page.stat().st_size < 4_000_000
    with contextlib.suppress(pytest.skip.Exception), browsing.chromium() as browser:
        printed = browser.new_page()
        printed.goto(page.as_uri())
        assert printed.pdf().count(b"/Type /Page\n") < 20
    program = "import igr.lab.explorer as explorer; print(explorer.__file__); print(explorer.page())"
    installed = [str(fresh / "bin" / "python"), "-c", program]
    where, page = subprocess.run(installed, cwd=fresh, capture_output=True, text=True, check=True).stdout.splitlines()
    assert where.startswith(str(fresh)), "what is imported is what pip installed, not the working tree"
    assert Path(page).exists()
    listed = subprocess.run([str(fresh / "bin" / "igr"), "list"], cwd=fresh, capture_output=True, text=True, check=True)
    assert "two-parameter" in listed.stdout


def test_the_readme_has_commands_and_one_without_a_way_to_run_it_is_an_error(tmp_path):
    assert {"make reproduce", "igr explore", "pip install ."} <= set(readme_commands())
    assert smaller("igr run two-parameter --scale paper") == "igr run two-parameter --scale paper"
    assert smaller("igr run resnet --scale paper") == "igr run resnet --scale smoke"
    with pytest.raises(ValueError, match="cannot run: 'conda install igr'"):
        argv(smaller("conda install igr"), tmp_path)
