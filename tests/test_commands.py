"""Every command on the pages is one that exists: the program takes its words and flags, make has its target.

What the commands do is tested beside them (test_cli, test_report, test_export, test_explorer); here no page may promise
a flag that is not there.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from igr import cli
from igr.lab.experiments import load

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *(ROOT / "docs").rglob("*.md"),
]
STAND_INS = {"NAME": "two-parameter", "DATA": ".", "TEXT": "batch 32", "OUT": "out"}


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
    return caught.value.code, capsys.readouterr().err


@pytest.mark.parametrize(("page", "command"), FOUND, ids=[f"{page}: {command}" for page, command in FOUND])
def test_the_commands_on_the_pages_exist(page, command, monkeypatch, capsys):
    program, *words = (STAND_INS.get(word, word) for word in shlex.split(command))
    if program == "igr":
        code, error = understood(words, monkeypatch, capsys)
        assert code == 0, error
        if words[0] == "run":
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
