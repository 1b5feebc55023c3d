"""The two floors and the rooms of the second: igr alone is light, and imports point one way."""

import ast
import re
import subprocess
import sys
import tomllib

import architecture
import pytest

import igr

LABORATORY = {"matplotlib", "typer", "rich", "pooch", "sklearn", "scipy", "optax", "igr.lab"}
HEAVY = LABORATORY | {"torch", "ray", "flax", "igr.torch"}
INTERNALS = ("jax.core", "jax.extend", "jax.experimental", "jax.interpreters", "jax._src")


def loaded(code):
    command = [sys.executable, "-c", f"import sys; {code}; print(*sorted(sys.modules))"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_import_igr_brings_nothing_of_the_laboratory():
    modules = loaded("import igr; [getattr(igr, name) for name in dir(igr)]")
    assert {"igr", "jax", "diffrax"} <= modules
    # diffrax and jax bring what they need themselves: ours is what they alone do not bring
    assert not HEAVY & (modules - loaded("import jax, diffrax"))


def test_a_public_name_is_imported_when_it_is_asked_for():
    """Importing JAX takes a second; `igr --help` answers before, and Ctrl-C is heard from the first moment."""
    assert "jax" not in loaded("import igr; igr.__version__")
    assert "jax" not in loaded("import igr.lab.cli.main")
    assert {"jax", "igr.calculus"} <= loaded("import igr; igr.hvp")
    assert {"jax", "igr.calculus"} <= loaded("import igr; igr.calculus")


@pytest.mark.parametrize("words", [["--help"], ["list"], ["list", "--json"], ["run", "--help"], ["run", "mpl"]])
def test_the_commands_of_the_first_minute_do_not_even_import_jax(words):
    code = (
        f"sys.argv = ['igr', *{words!r}]; from igr.lab.cli.main import main; import contextlib, io\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main()\n"
    )
    found = loaded(code + "pass")
    assert "typer" in found
    assert "jax" not in found


def test_the_help_of_an_experiment_imports_nothing_that_draws_or_analyses():
    """Its flags need the fields of a network, and these JAX and optax."""
    code = (
        "sys.argv = ['igr', 'run', 'mlp', '--help']; from igr.lab.cli.main import main; import contextlib, io\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main()\n"
    )
    found = loaded(code + "pass")
    assert "igr.lab.experiments.mlp.grid" in found
    assert not found & {"matplotlib", "scipy", "sklearn", "pandas"}


def test_type_checkers_see_the_names_that_there_are():
    (tree,) = (tree for module, tree in architecture.modules() if module == "igr")
    seen = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == {*igr._WHERE, "kernel", "optimizers"}


def test_the_first_floor_does_not_import_the_second():
    wrong = {pair: where for pair, where in architecture.edges().items() if pair[0] == "igr"}
    assert not wrong, wrong


def test_imports_between_the_rooms_point_one_way():
    wrong = {pair: where for pair, where in architecture.edges().items() if not architecture.allowed(*pair)}
    assert not wrong, wrong


def test_every_room_has_its_place():
    rooms = {architecture.room(module) for module, _ in architecture.modules()}
    assert rooms == {"igr", "lab", *architecture.ORDER}


def test_the_rule_refuses_what_points_upwards():
    assert architecture.allowed("cli", "store")
    assert architecture.allowed("plots", "analysis")
    for pair in (("store", "cli"), ("analysis", "plots"), ("igr", "store"), ("data", "cli"), ("report", "explorer")):
        assert not architecture.allowed(*pair), pair


def test_no_cycle_between_modules_inside_a_room():
    """Also none that an import inside a function hides."""
    graph = {}
    names = [module for module, _ in architecture.modules()]
    for module, tree in architecture.modules():
        targets = set()
        for name in architecture.imported(tree):
            while name and name not in names:
                name = name.rpartition(".")[0]
            if name and name != module:
                targets.add(name)
        graph[module] = targets
    # a package's own __init__ may gather what its modules offer
    done, path = set(), []

    def visit(module):
        if module in path:
            cycle = [*path[path.index(module) :], module]
            raise AssertionError(" -> ".join(cycle))
        if module in done:
            return
        path.append(module)
        for target in sorted(graph[module]):
            if target != "igr" and not module.startswith(f"{target}."):
                visit(target)
        path.pop()
        done.add(module)

    for module in names:
        visit(module)


def test_one_file_touches_what_jax_does_not_promise():
    for module, tree in architecture.modules():
        if module in ("igr._jax", "igr.torch") or module.startswith("igr.torch."):
            continue
        touched = [name for name in architecture.imported(tree) if name.startswith(INTERNALS)]
        used = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        touched += [name for name in used if name.startswith(INTERNALS)]
        assert not touched, (module, touched)


def test_import_igr_survives_the_loss_of_jet():
    """Without Taylor mode the coefficients are the same, from nested differentiation."""
    code = (
        "sys.modules['jax.experimental.jet'] = None; "
        "import igr, jax; jax.config.update('jax_enable_x64', True); "
        "terms = igr.modified_terms(lambda x: x**3, 2); "
        "assert [round(float(t(1.0)), 12) for t in terms] == [1.0, -1.5, 3.5]"
    )
    assert "igr" in loaded(code)


def test_no_module_hides_behind_a_function_of_its_name():
    names = {module for module, _ in architecture.modules()}
    for module, tree in architecture.modules():
        public = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        public |= {name.rpartition(".")[2] for name in architecture.imported(tree) if name not in names}
        hidden = [name for name in public if f"{module}.{name}" in names]
        assert not hidden, (module, hidden)


def test_classes_of_one_name_are_one_class():
    """But for `Options`, a name that experiments share by contract, and for the PyTorch front end, the core's twin."""
    where = {}
    for module, tree in architecture.modules():
        for node in tree.body if not module.startswith("igr.torch") else []:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(module)
    twice = {name: modules for name, modules in where.items() if len(modules) > 1 and name != "Options"}
    assert not twice, twice


# Module names that occur in several packages, and what each means wherever it does.
SAME = {
    "batches": "means over batches", "captions": "words under figures", "cards": "small figures of predictions",
    "care": "igr verify and igr gc", "checkpoint": "what a unit keeps to be resumed",
    "claims": "claims of an experiment, as findings", "steps": "functions of one step of an optimizer",
    "tables": "tables as text", "config": "configurations",
    "curves": "what is measured against the step", "figures": "figures of an experiment", "findings": "claims, numbers",
    "grid": "the four names of an experiment", "mlp": "the MLPs of the paper", "model": "a function with parameters",
    "monitoring": "the monitor", "optimizers": "optimizers", "paths": "what happens along a training",
    "penalty": "the explicit penalty", "predictions": "what theory says beforehand",
    "quantities": "what the monitor measures", "radius": "the radius of differences",
    "regimes": "is this learning rate inside the theory", "registry": "things by name", "report": "igr report",
    "runs": "units and their runs", "sinks": "where readings go", "store": "the store", "training": "trainings",
    "views": "what figures and findings share of the stored runs",
}  # fmt: skip


def test_modules_of_one_name_mean_the_same():
    """A new module of a name that is taken fails here: give it another, or say what both are."""
    where = {}
    for module, _ in architecture.modules():
        where.setdefault(module.rpartition(".")[2], []).append(module)
    twice = {name for name, modules in where.items() if len(modules) > 1}
    assert twice == set(SAME), {name: where.get(name) for name in twice ^ set(SAME)}


def test_every_public_name_is_documented_with_a_doctest():
    for name in dir(igr):
        value = getattr(igr, name)
        if name.startswith("_") or not callable(value):
            continue
        assert value.__doc__, name
        assert ">>>" in value.__doc__, name


def test_the_drawing_in_contributing_is_that_of_the_imports():
    text = (architecture.ROOT / "CONTRIBUTING.md").read_text()
    assert architecture.drawing() in text, "run `python tests/architecture.py` and put its lines into CONTRIBUTING.md"


def test_the_version_is_in_one_place():
    """The package says it; the project's file takes it from there, and what repeats it agrees: citations, with the date
    of the release, and the images of the page on clusters.
    """
    project = tomllib.loads((architecture.ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "igr/__init__.py"
    citation = (architecture.ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {igr.__version__}\n" in citation
    repeated = {
        "README.md": r"  version = {(.*)},",
        "docs/citing.md": r"  version = {(.*)},",
        "docs/scale.md": r"/igr-ray:(\S+)",
    }
    for page, pattern in repeated.items():
        assert set(re.findall(pattern, (architecture.ROOT / page).read_text())) == {igr.__version__}, page
    (date,) = re.findall(r"^date-released: (\S+)$", citation, re.MULTILINE)
    assert f"\n## {igr.__version__} - {date}\n" in (architecture.ROOT / "CHANGELOG.md").read_text()
