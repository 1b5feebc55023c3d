"""What pages need beside their text: pictures that open at full size, and the explorer as a page of its own."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

from igr.lab.explorer import page as explorer

EXPLORER = "explorer-page.html"
PICTURE = re.compile(r'<img (?![^>]*class="[^"]*logo)[^>]*?src="([^"]+)"[^>]*>')
MARK = re.compile(r'(<span class="whole">(?:(?!</span>).)*)</span>([,.;:!?)]+)', re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)  # the marks of numbers that come from stored runs
HYPHENATED = re.compile(r'<span class="pre">([^<]*-[^<]*)</span>')


def on_page(app: Any, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Make pictures links to themselves; keep a mark with its formula, and words with hyphens, as flags are, whole."""
    if "body" in context:
        body = PICTURE.sub(r'<a class="picture" href="\1">\g<0></a>', COMMENT.sub("", context["body"]))
        body = HYPHENATED.sub(r'<span class="pre whole">\1</span>', body)
        context["body"] = MARK.sub(r"\1\2</span>", body)


def on_read(app: Any, tree: nodes.document) -> None:
    """Let links go to the explorer, which is no document, with the state that they carry."""
    for node in list(tree.findall(addnodes.pending_xref)):
        if node.get("reftarget", "").startswith(EXPLORER):
            node.replace_self(nodes.reference("", "", *node.children, refuri=node["reftarget"]))


def on_finish(app: Any, trouble: Exception | None) -> None:
    """Add the explorer, which the package ships, so that nothing is written twice."""
    if trouble is None and app.builder.format == "html":
        (Path(app.outdir) / EXPLORER).write_text(explorer().read_text("utf-8"), "utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Listen to Sphinx."""
    app.connect("doctree-read", on_read)
    app.connect("html-page-context", on_page)
    app.connect("build-finished", on_finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
