"""Pages that live elsewhere in the repository: the explorer, which the package ships, and the benchmarks' own page."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add them, so that nothing is written twice."""
    explorer = ROOT / "igr" / "lab" / "explorer" / "explorer.html"
    files.append(File.generated(config, "explorer-page.html", content=explorer.read_text("utf-8")))
    benchmarks = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    files.append(File.generated(config, "benchmarks.md", content=benchmarks))
    return files


def on_post_template(output: str, template_name: str, **_: Any) -> str:
    """Leave out the page for missing pages, which finds its style only at the root of a server."""
    return "" if template_name == "404.html" else output
