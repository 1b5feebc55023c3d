"""Modules beside a user's file: which ones are meant, and that they are made from their texts on another machine."""

import subprocess
import sys
from pathlib import Path

import igr
from igr.lab.store.modules import beside

READS = """
import sys
from igr.lab.store.modules import from_text, offer
texts = [("my_helper", "/nowhere/my_helper.py", "from my_package.deep import number"),
         ("my_package", "/nowhere/my_package/__init__.py", ""),
         ("my_package.deep", "/nowhere/my_package/deep.py", "number = 1")]
main = ("my_main", "/nowhere/my_main.py", "from my_helper import number")
for number in (1, 1, 2):
    texts[2] = (*texts[2][:2], f"number = {number}")
    offer(texts, ["my_main"])
    from_text(*main)
    assert sys.modules["my_main"].number == number
    assert sys.modules["my_package.deep"].__file__ == "/nowhere/my_package/deep.py"
assert sys.meta_path[0] is not sys.meta_path[1]
print("read")
"""


def test_modules_are_made_from_their_texts_and_again_when_one_changes():
    root = Path(igr.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", READS], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "read", done.stderr


def test_what_lies_beside_a_file_and_is_imported_is_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_main.py").write_text("import json, numpy, igr, my_one\ndef f():\n    from my_package import two\n")
    (tmp_path / "my_one.py").write_text("import yaml_that_is_missing\n")
    (tmp_path / "my_other.py").write_text("nobody imports this\n")
    (tmp_path / "numpy.py").write_text("is not meant: numpy is imported already\n")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (tmp_path / "my_package" / "two.py").write_text("from . import three\n")
    (tmp_path / "my_package" / "three.py").write_text("")
    found = {name: text for name, _, text in beside(tmp_path / "my_main.py")}
    assert found.keys() == {"my_one", "my_package", "my_package.two", "my_package.three"}
    (tmp_path / "my_one.py").write_text("no Python\n")
    assert {name for name, _, _ in beside(tmp_path / "my_main.py")} == found.keys() - {"my_one"}
