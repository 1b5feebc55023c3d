"""What is installed and run by machines is what this repository names."""

import os
import re
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def pins(name: str) -> set[tuple[str, str]]:
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {(package.lower().replace("_", "-"), version) for package, version in found}


def test_the_hashes_are_of_the_versions_of_the_constraints():
    hashed = pins("constraints-hashes.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]  # without isolation
    assert {re.split(r"[<>=\[]", each)[0].lower() for each in asked + build} <= {name for name, _ in hashed}
    assert hashed <= pins("constraints.txt")
    lines = [line for line in (ROOT / "constraints-hashes.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.search(r"( --hash=sha256:[0-9a-f]{64})+$", line)] == []


def test_actions_are_pinned_by_commit_and_may_only_read():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text()
        used = re.findall(r"uses: (\S+)", text)
        assert used
        assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []
        assert "permissions:\n  contents: read\n" in text


def simple(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(asked: list[str], extras: dict[str, list[str]]) -> set[str]:
    """The packages that these requirements bring, by what the installed ones require."""
    found, waiting = dict[str, set[str]](), [Requirement(each) for each in asked]
    while waiting:
        each = waiting.pop()
        name, wanted = simple(each.name), {"", *each.extras}
        if each.marker and not each.marker.evaluate({"extra": ""}):
            continue
        if name == "igr":
            waiting += [Requirement(inner) for extra in each.extras for inner in extras[extra]]
        elif not wanted <= found.get(name, set()):
            found[name] = wanted | found.get(name, set())
            for inner in map(Requirement, requires(each.name) or []):
                if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in found[name]):
                    inner.marker = None
                    waiting.append(inner)
    return set(found)


@pytest.mark.skipif(sys.platform != "linux" or sys.version_info[:2] != (3, 11), reason="the lists are of this system")
def test_the_lists_of_what_is_installed_are_complete():
    text = (ROOT / "SECURITY.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    brings = {"core": installed(project["dependencies"], extras)}
    brings |= {extra: installed(asked, extras) for extra, asked in extras.items()}
    lab = brings["core"] | brings["lab"]
    beside = {"core": set(), "lab": brings["core"], "ray": lab, "torch": brings["core"], "docs": lab}
    beside["dev"] = set().union(*(brings[name] for name in beside))
    for name, others in beside.items():
        (words,) = re.findall(rf"^- \*\*{name}\*\*: (.*?)\.\n(?=- |\n)", text, re.MULTILINE | re.DOTALL)
        listed = {simple(each) for each in re.sub(r"\s+", " ", words).split(", ")}
        family = {each for each in brings[name] - others if each.startswith("sphinxcontrib-")}
        if family:
            listed = listed - {"six sphinxcontrib packages"} | family
            assert len(family) == 6
        assert listed == brings[name] - others, name
        (count,) = re.findall(rf"^\| `?(?:igr\[)?{name}\]?`?[^|]*\| (\d+) \|", text, re.MULTILINE)
        assert int(count) == len(listed), name


@pytest.mark.xdist_group("alone")
def test_groups_of_tests_stay_together(request):
    """Tests that share a cluster must run in one process: pytest 9.2 and pytest-xdist 3.8 together split them."""
    if "PYTEST_XDIST_WORKER" in os.environ and request.config.getvalue("loadgroup"):
        assert request.node.nodeid.endswith("@alone")
