"""What starts fast: commands that draw and compute nothing import none of what that needs."""

import subprocess
import sys

HEAVY = {"matplotlib", "scipy", "sklearn", "jinja2", "pandas"}
COMMANDS = (
    ["list"],
    ["--help"],
    ["run", "mlp", "--help"],
    ["run", "resnet", "--help"],
    ["run", "two-parameter", "--help"],
    ["run", "regime", "--help"],
    ["run", "optimizers", "--help"],
)
RUN = """
import sys
from igr.lab.cli import app
for words in {commands!r}:
    sys.argv = ["igr", *words]
    try:
        app.main()
    except SystemExit as end:
        assert not end.code, words
"""


def loaded(code):
    """The names of the top-level packages that a new process has imported at its end."""
    ending = "\nprint('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code + ending], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_commands_that_only_tell_import_nothing_heavy():
    names = loaded(RUN.format(commands=COMMANDS))
    assert {"igr", "typer"} <= names
    assert not HEAVY & names


def test_what_is_heavy_comes_with_what_needs_it():
    code = "import sys\nfrom igr.lab.experiments import load\nmodule = load('mlp')\nbefore = set(sys.modules)\n"
    names = loaded(code + "assert module.figures([]) == {}\nassert 'matplotlib' not in before")
    assert "matplotlib" in names


def test_a_chapter_without_figures_needs_neither_templates_nor_matplotlib():
    """What `igr run` shows at its end: a machine that only computes has no need of them."""
    code = (
        "import sys\nfor name in ('jinja2', 'matplotlib', 'pandas'):\n    sys.modules[name] = None\n"
        "from igr.lab.report.build import chapter\nfrom igr.lab.store.store import shipped\n"
        "assert len(chapter(shipped(), 'two-parameter', draw=False).findings) > 10\n"
        "for name in ('jinja2', 'matplotlib', 'pandas'):\n    del sys.modules[name]"
    )
    assert not {"jinja2", "matplotlib", "pandas"} & loaded(code)
