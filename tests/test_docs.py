"""The documentation site: it builds strictly, says what it should, and needs no network to be read."""

import os
import re
import subprocess
import sys
from pathlib import Path

import browser as browsing
import pytest

import igr
from igr.lab.explorer import page as explorer

ROOT = Path(__file__).parent.parent
pytest.importorskip("mkdocs", reason="no documentation tests: mkdocs is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def pages(site):
    return sorted(path for path in site.rglob("*.html") if path.name != "explorer-page.html")


def test_every_page_of_the_issue_is_there(site):
    names = {path.relative_to(site).as_posix() for path in pages(site)}
    wanted = {"index", "use", "explorer", "theory", "benchmarks", "extending", "api", "log"}
    wanted |= {f"results/{name}" for name in ("two-parameter", "mlp", "resnet")}
    assert {f"{name}.html" for name in wanted} <= names
    assert (site / "explorer-page.html").read_text() == explorer().read_text()


def test_nothing_is_fetched_from_elsewhere(site):
    fetched = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
    for path in pages(site):
        found = [tag for tag in fetched.findall(path.read_text()) if "canonical" not in tag]
        assert found == [], path


def test_mathematics_is_markup_and_no_formula_is_left(site):
    theory = (site / "theory.html").read_text()
    assert theory.count("<math") > 80
    for path in pages(site):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
        assert not re.search(r"\$[^$\n<]*\\[a-z]+[^$\n<]*\$|arithmatex", text), path
    power = re.search(r"<msup><mrow><mo[^>]*>&#x0007C;</mo><mo>&#x02207;</mo><mi>E</mi>", theory)
    assert power, "the power of |grad E|^2 belongs to the group, not to its right bar"


def test_the_api_page_has_every_public_name(site):
    text = (site / "api.html").read_text()
    public = [name for name in vars(igr) if not name.startswith("_") and callable(getattr(igr, name))]
    assert len(public) > 20
    missing = [name for name in public if not re.search(rf'<h[34] id="igr\.[\w.]*{name}"', text)]
    assert missing == []
    assert "&gt;&gt;&gt;" in text
    assert "<blockquote>" not in text, "a doctest that was not fenced is a quotation"


@pytest.fixture(scope="module")
def chromium():
    with browsing.chromium() as browser:
        yield browser


@pytest.mark.parametrize("width", [400, 1600])
def test_pages_open_from_disk_and_ask_for_nothing(chromium, site, width):
    """Requests within the site's own folder are its style, script and pictures."""
    context = chromium.new_context(viewport={"width": width, "height": 900})
    context.set_offline(True)
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    for path in pages(site):
        page.goto(path.as_uri())
        assert not browsing.scrolls_sideways(page), path
        broken = page.evaluate("[...document.images].filter((i) => !(i.complete && i.naturalWidth)).map((i) => i.src)")
        assert broken == [], path
    inside = (site.as_uri(), "data:", "blob:")
    assert [url for url in asked if not url.startswith(inside)] == []
    page.goto((site / "explorer.html").as_uri())
    frame = page.frame_locator("iframe.explorer")
    assert frame.locator("#regime").inner_text() == "moderate"
    page.wait_for_function("document.querySelector('iframe.explorer').style.height !== ''")
    inside = frame.locator("html").evaluate("(page) => [page.scrollHeight, window.innerHeight]")
    assert inside[0] <= inside[1], "the frame does not scroll within the page"
    for name, colours in (("slate", "dark"), ("default", "light")):
        page.evaluate("(name) => document.body.setAttribute('data-md-color-scheme', name)", name)
        frame.locator(f"html[data-scheme={colours}]").wait_for()
    page.get_by_role("link", name="a ricochet").click()
    page.wait_for_function("document.getElementById('regime')?.textContent === 'ricochet'")
    context.close()


def test_the_search_works_from_disk(chromium, site):
    """Browsers refuse workers there: without the stand-in nothing is ever found."""
    context = chromium.new_context(viewport={"width": 1600, "height": 900})
    context.set_offline(True)
    page = context.new_page()
    page.goto((site / "results" / "mlp.html").as_uri())
    box = page.get_by_role("textbox", name="Search")
    hit = page.locator(".md-search-result__link", has_text="The two-parameter model").first
    for _ in range(10):  # key by key, since that is what the page listens to, and again where it did not listen yet
        box.fill("")
        box.press_sequentially("ricochet")
        page.wait_for_timeout(2000)
        if hit.count():
            break
    hit.click()
    assert page.url.startswith((site / "results" / "two-parameter.html").as_uri())
    context.close()
