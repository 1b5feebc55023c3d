"""The sources of the documentation: every name is known, messages are those of the code, tutorials are kept safely."""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent


def extension(name):
    """One of our extensions of Sphinx."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "extensions" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries():
    """What the API has an entry for, by the name in its page."""
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for name in re.findall(r"^\.\. auto\w+:: (\S+)", page.read_text(), re.MULTILINE):
            module, _, last = name.rpartition(".")
            with contextlib.suppress(ImportError):  # an extra that is not installed
                yield name, getattr(importlib.import_module(module), last)


def defined():
    """The functions and classes that the first floor's modules define."""
    for path in (ROOT / "igr").rglob("*.py"):
        if "lab" not in path.relative_to(ROOT / "igr").parts:
            nodes = ast.parse(path.read_text()).body
            yield from (node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef))


def test_every_name_that_a_docstring_mentions_is_in_the_api():
    """Names of parameters and of attributes may be those of functions elsewhere."""
    known, missing = dict(entries()), []
    assert len(known) > 60
    ours = set(defined()) - {name.rpartition(".")[2] for name in known}
    ours -= {name for thing in known.values() if inspect.isclass(thing) for name in dir(thing)}
    assert "full_batch" not in ours
    for name, thing in known.items():
        for mentioned in re.findall(r"`([A-Za-z][\w.]*)[(`]", inspect.getdoc(thing) or ""):
            if mentioned.rpartition(".")[2] in ours - set(inspect.signature(thing).parameters):
                missing.append((name, mentioned))
    assert missing == []


def sentences():
    """All texts in the source, with something else in place of what is filled in."""
    for path in (ROOT / "igr").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_fields_of_a_record_have_meanings_of_their_own():
    """A field of what is returned is no parameter, although it may have the name of one."""
    parameters = extension("parameters")
    records = {thing.__name__: thing for _, thing in entries() if hasattr(thing, "_fields")}
    assert len(records) >= 9
    for name, thing in records.items():
        assert set(thing._fields) == set(parameters.FIELDS[name]), name


def test_the_messages_that_the_faq_explains_are_those_of_the_code():
    text = (ROOT / "docs" / "faq.md").read_text()
    ours = text[text.index("## Messages of the library") : text.index("## Messages of JAX")]
    messages = re.findall(r"^### `(.+)`$", ours, re.MULTILINE)
    known = list(sentences())
    assert len(messages) > 15
    assert [message for message in messages if not any(message in each for each in known)] == []


def test_a_tutorial_that_another_process_is_storing_stays(tmp_path, monkeypatch):
    """jupyter-cache takes it for one too many if it appears between its two looks at the data base."""
    main = pytest.importorskip("jupyter_cache.cache.main", reason="jupyter-cache is not installed")
    from jupyter_cache.base import CacheBundleIn
    from nbformat.v4 import new_code_cell, new_notebook

    monkeypatch.setattr(main.JupyterCacheBase, "truncate_caches", main.JupyterCacheBase.truncate_caches)
    cache = main.JupyterCacheBase(tmp_path)
    beside = main.NbCacheRecord.create_record(uri="beside.md", hashkey="its file follows", db=cache.db)
    monkeypatch.setattr(main.NbCacheRecord, "records_to_delete", lambda limit, db: [beside.pk])

    def store(name):
        notebook = new_notebook(cells=[new_code_cell(name)])
        return cache.cache_notebook_bundle(CacheBundleIn(notebook, f"{name}.md"), check_validity=False)

    with pytest.raises(KeyError, match="Notebook file does not exist"):
        store("before")
    extension("notebooks").prepare(None, SimpleNamespace(nb_execution_cache_path=str(tmp_path)))
    assert cache.get_cache_bundle(store("after").pk).nb.cells[0].source == "after"
    assert beside.pk in [record.pk for record in cache.list_cache_records()]
