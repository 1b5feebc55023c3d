"""The documentation site, made by Sphinx: `make docs` builds it into site/.

It needs no network, neither to build nor to read: no fonts and no scripts from elsewhere, mathematics as MathML, and a
search that works from disk. Tutorials are run while the site is built, and run again only if their code or the package
changes.
"""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "extensions"))

import igr  # noqa: E402


def code_of_igr() -> str:
    """A digest of the package: what tutorials print is kept as long as neither their code nor this changes."""
    files = sorted((ROOT / "igr").rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


# Tutorials run as a reader would run them, and print no warning about a missing GPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

project = "igr"
author = "The igr developers"
copyright = author
release = version = igr.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design", "sphinx_copybutton"]
extensions += ["mathematics", "docstrings", "pages", "notebooks"]  # ours, in docs/extensions
exclude_patterns = ["extensions", "static"]

# A missing page, anchor, name or formula fails the build. A reference into another library is written as code.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!igr\.).*"), (r"py:.*", r"igr\._typing\..*")]

# Pages
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / ".cache" / "docs" / code_of_igr())
nb_execution_timeout = 600  # a cell takes seconds, but the machine may be busy
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
missing = [name for name in ("torch", "lightning", "transformers") if importlib.util.find_spec(name) is None]
nb_execution_excludepatterns = ["tutorials/pytorch.md"] if "torch" in missing else []

# The API, from docstrings
autodoc_mock_imports = sorted({*missing, "lightning", "transformers"})  # these take long to import
autodoc_typehints = "none"  # docstrings.py lists the types as the source names them
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = True
toc_object_entries_show_parents = "hide"
napoleon_numpy_docstring = False

# The look
html_theme = "pydata_sphinx_theme"
html_title = "igr"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_js_files = ["pages.js"]
html_math_renderer = "mathml"
html_context = {"default_mode": "auto"}  # without it the theme complains on the console of each page
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_sidebars = {"index": []}
pygments_style = "a11y-high-contrast-light"
html_theme_options = {
    "logo": {"text": "igr", "alt_text": "igr: the first page"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "footer_start": [],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "show_toc_level": 2,
    "show_nav_level": 1,
    "search_bar_text": "Search",
    "back_to_top_button": False,
    "secondary_sidebar_items": ["page-toc"],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
