"""Where a number was made: the commit is that of this package, with its changes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import igr


def test_the_commit_is_that_of_the_package_and_sees_changes_in_the_core(tmp_path):
    """A copy of the package in a repository of its own, changed on the first floor; then inside a foreign one."""
    source = Path(igr.__file__).parent
    shutil.copytree(source, tmp_path / "igr", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".gitignore").write_text("__pycache__\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "igr"\n')
    code = "from igr.lab.store.provenance import surroundings; print(surroundings()['commit'])"

    def git(*arguments):
        who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    def commit(path):
        environment = os.environ | {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run([sys.executable, "-c", code], env=environment, cwd=path, capture_output=True, text=True)
        return run.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    clean = commit(tmp_path)
    assert len(clean) == 40
    with (tmp_path / "igr" / "calculus.py").open("a") as file:
        file.write("# changed\n")
    assert commit(tmp_path) == f"{clean}+"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n')  # unpacked at the top of their checkout
    assert commit(tmp_path) == "None"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "igr"\n')
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "igr").rename(tmp_path / "site-packages" / "igr")
    assert commit(tmp_path / "site-packages") == "None"
