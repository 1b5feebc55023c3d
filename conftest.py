"""Float64, strict promotion, and random keys from one fixture: the tests state mathematics, not luck."""

import inspect
import os
from importlib.util import find_spec

import jax
import jaxtyping
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Most of the suite's time is compilation, and a quarter of that is optimizing programs that run once. What tests start
# as processes of their own is optimized as usual, but for the README's commands; IGR_TEST_OPTIMIZED=1 has it here too.
jax.config.update("jax_disable_most_optimizations", os.environ.get("IGR_TEST_OPTIMIZED") != "1")

# Beartype checks the annotations of these parts of the core at every call while the tests run. Never add igr.torch:
# torch.compile reads the code of its functions, and would read the checks too.
CHECKED = "_checks _jax batches calculus compilation flows geometry kernel modified nnx optimizers penalty regimes"
CHECKED += " regularization"
if find_spec("beartype"):
    jaxtyping.install_import_hook([f"igr.{name}" for name in CHECKED.split()], "beartype.beartype")

# The doctests of igr.torch need torch, which the tests install for Python 3.11 only; so do its two integrations.
NEED_TORCH = ["igr/torch/*", "tests/torch_models.py", "tests/torch_front/worker.py"]
collect_ignore_glob = [] if find_spec("torch") else NEED_TORCH
collect_ignore = [
    f"igr/torch/{name}.py" for name in ("lightning", "transformers") if find_spec("torch") and not find_spec(name)
]


@pytest.fixture
def getkey():
    """A function that gives a new key at each call, the same sequence in every run."""
    keys = iter(jax.random.split(jax.random.key(2009_11162), 1000))
    return lambda: next(keys)


@pytest.fixture(autouse=True)
def annotations(request):
    """Annotations are checked, except in tests that expect an error: they hand over what annotations forbid."""
    function = getattr(request.node, "obj", None)
    code = inspect.getsource(function) if function else request.node.dtest.docstring or ""
    jaxtyping.config.update("jaxtyping_disable", "raises(" in code or "Traceback" in code)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# Files with tests of a minute and more: first, so that no worker has one of them left at the end.
LONG = ("test_docs", "cli/test_commands", "test_ray", "test_sharding", "test_examples", "cli/test_app", "test_euler")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """A file is for one worker: what its tests share, such as a report or compiled programs, is then made once."""
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0].removesuffix(".py")))
    items.sort(key=lambda item: next((i for i, name in enumerate(LONG) if name in item.nodeid), len(LONG)))
