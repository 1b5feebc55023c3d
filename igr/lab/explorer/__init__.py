"""The explorer: a page on which start, step size and optimizer are set by hand, and the animation of the README.

The page is one file that needs no network and no server: `page.html` with the style and the scripts of this folder put
into it. It computes its paths itself; `tests/lab/explorer` compares them with those of the library.
"""

from importlib.resources import files
from pathlib import Path

SCRIPTS = ("losses", "optimizers", "dynamics", "plane", "charts", "strip", "numbers", "export", "page")


def html() -> str:
    """The page as one self-contained document.

    >>> html().startswith("<!doctype html>")
    True
    """
    from jinja2 import Environment

    folder = files(__name__)
    scripts = [(folder / "scripts" / f"{name}.js").read_text("utf-8") for name in SCRIPTS]
    style = (folder / "style.css").read_text("utf-8")
    template = (folder / "page.html").read_text("utf-8")
    return Environment(autoescape=False).from_string(template).render(style=style, scripts=scripts)


def page() -> Path:
    """The path of a file with the page, in the folder where data sets are kept; written again where it has changed.

    >>> page().name
    'explorer.html'
    """
    import pooch

    from igr.lab.store.files import write_atomically

    path, text = Path(pooch.os_cache("igr")) / "explorer.html", html().encode()
    if not path.is_file() or path.read_bytes() != text:
        write_atomically(path, text)
    return path
