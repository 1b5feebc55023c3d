"""The documentation site: it builds strictly, says what it should, and needs no network to be read."""

import functools
import html.parser
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import browser as browsing
import pytest
from filelock import FileLock

import igr
from igr.lab.explorer import page as explorer

ROOT = Path(__file__).parent.parent
# PyTorch, since the tutorial on it is run and the API of igr.torch is read while the site is built.
NEEDED = ("sphinx", "myst_nb", "pydata_sphinx_theme", "sphinx_design", "sphinx_copybutton", "latex2mathml", "torch")
for package in NEEDED:
    pytest.importorskip(package, reason=f"no documentation tests: {package} is not installed")
EXPLORER = "explorer-page.html"
pytestmark = pytest.mark.xdist_group("site")  # a second process would wait until the first has built it


COMMAND = ["-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2", "docs"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built once, also where several workers test and groups are split."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # under xdist each worker has a folder of its own
    folder = shared / "site"
    with FileLock(shared / "site.lock"):
        if not (folder / "objects.inv").exists():
            quick = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # tutorials compile more than they compute
            words = [sys.executable, *COMMAND, str(folder)]
            done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=quick)
            assert done.returncode == 0, done.stderr
            assert "WARNING: " not in done.stderr
    return folder


def test_the_site_is_built_as_make_docs_does():
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    said = subprocess.run(["make", "--dry-run", "docs"], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert f"/python {' '.join(COMMAND)} site\n" in said


def pages(site):
    ours = (path for path in site.rglob("*.html") if "_static" not in path.parts)
    return sorted(path for path in ours if path.name not in (EXPLORER, "genindex.html", "search.html"))


@functools.cache
def seen(path):
    """The ids of a page and where it leads: (tag, attribute, address)."""
    ids, links = set(), []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            given = dict(attrs)
            ids.update(filter(None, (given.get("id"), given.get("name") if tag == "a" else None)))
            links.extend((tag, name, given[name]) for name in ("href", "src") if given.get(name))

    Reader().feed(path.read_text())
    return ids, links


def test_every_page_of_the_issue_is_there(site):
    names = {path.relative_to(site).as_posix() for path in pages(site)}
    wanted = {
        "first_steps",
        "index",
        "understand",
        "apply",
        "research",
        "install",
        "faq",
        "glossary",
        "comparison",
        "changelog",
    }
    wanted |= {"contributing", "citing", "use", "how_much_mu", "torch", "optimizers", "regime", "monitor", "explorer"}
    wanted |= {"theory", "benchmarks", "extending", "reliability", "scale", "log", "api/index"}
    tutorials = "theorem optax equinox flax pytorch adam rate experiment sweep"
    wanted |= {f"tutorials/{name}" for name in tutorials.split()}
    wanted |= {f"howto/{name}" for name in ("method", "batch_norm", "mixed_precision", "sharding", "logging")}
    results = ("claims", "theorem", "two-parameter", "mlp", "resnet", "optimizers", "regime")
    wanted |= {f"results/{name}" for name in results} | {"scale"}
    assert {f"{name}.html" for name in wanted} <= names
    assert (site / EXPLORER).read_text() == explorer().read_text()


def test_tutorials_were_run(site):
    for path in pages(site):
        if path.parent.name == "tutorials" and (path.stem != "pytorch" or importlib.util.find_spec("torch")):
            text = path.read_text()
            assert text.count('class="cell docutils') >= 3, path
            assert 'class="output' in text, path
            assert "Traceback" not in text, path


def test_every_link_and_anchor_leads_somewhere(site):
    broken, inside = [], 0
    for path in [*pages(site), site / "search.html"]:
        for tag, _, address in seen(path)[1]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            inside += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                broken.append((path.name, address))
            elif tag == "a" and parts.fragment and target.suffix == ".html" and target.name != EXPLORER:
                broken += [(path.name, address)] * (unquote(parts.fragment) not in seen(target)[0])
    assert inside > 1000
    assert broken == []


def test_nothing_is_fetched_from_elsewhere(site):
    for path in pages(site):
        for tag, name, address in seen(path)[1]:
            if tag in ("script", "link", "img", "iframe", "source"):
                assert not address.startswith(("http:", "https:", "//")), (path, tag, name, address)


def test_mathematics_is_markup_and_no_formula_is_left(site):
    theory = (site / "theory.html").read_text()
    assert theory.count("<math") > 80
    for path in pages(site):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
        assert not re.search(r"\$[^$\n<]*\\[a-z]+[^$\n<]*\$", text), path
    power = re.search(r"<msup><mrow><mo[^>]*>&#x0007C;</mo><mo>&#x02207;</mo><mi>E</mi>", theory)
    assert power, "the power of |grad E|^2 belongs to the group, not to its right bar"


def public():
    """Every public name, as a user writes it."""
    modules = ["igr", "igr.optimizers", "igr.nnx", "igr.kernel", "igr.monitoring.sinks"]
    modules += ["igr.torch"] * bool(importlib.util.find_spec("torch"))
    for module in map(importlib.import_module, modules):
        names = [name for name in dir(module) if not name.startswith("_")]
        for name in names:
            thing = getattr(module, name)
            if not (inspect.isfunction(thing) or inspect.isclass(thing)):
                continue
            home = thing.__module__
            if module is igr or home == module.__name__ or module.__name__ in ("igr.optimizers", "igr.torch"):
                yield f"{module.__name__}.{name}", thing


def test_the_api_has_every_public_name_with_its_parameters(site):
    entries = {path: path.read_text() for path in (site / "api").glob("*.html")}
    names = dict(public())
    assert len(names) > 60
    missing = [
        name
        for name in names
        if not any(f'<dt class="sig sig-object py" id="{name}"' in text for text in entries.values())
    ]
    assert missing == [] or missing == ["igr.monitoring.sinks.Closing"]
    everything = " ".join(entries.values())
    assert "&gt;&gt;&gt;" in everything
    assert everything.count('class="field-list') > 50
    undescribed = re.findall(r"<strong>(\w+)</strong> \(<code[^>]*>(?:(?!</p>).)*</code>\)(?: – )?</p>", everything)
    assert undescribed == [], "say what the parameter is in the docstring, or in docs/extensions/parameters.py"


@pytest.fixture(scope="module")
def chromium():
    with browsing.chromium() as browser:
        yield browser


@pytest.fixture
def opened(chromium, site):
    """A page without a network. At the end it must have complained of nothing, and asked for the site's files alone."""
    context = chromium.new_context(viewport={"width": 1600, "height": 900}, color_scheme="light")
    context.set_offline(True)
    context.set_default_timeout(10_000)
    page, trouble = context.new_page(), []
    own = (site.as_uri(), "data:", "blob:")

    def heard(message):
        if message.type in ("error", "warning"):  # the theme also tells its log what it does
            trouble.append(f"{page.url} {message.type}: {message.text}")

    page.on("console", heard)
    page.on("pageerror", lambda error: trouble.append(f"{page.url} {error}"))
    page.on("request", lambda request: None if request.url.startswith(own) else trouble.append(request.url))
    yield page
    context.close()
    assert trouble == []


LOOK = """() => {
    const shown = (e) => e.getClientRects().length && getComputedStyle(e).visibility !== 'hidden';
    const first = [...document.querySelectorAll('article img, article pre, article iframe, article svg')].filter(
        (e) => shown(e) && e.getBoundingClientRect().top < 900 && e.getBoundingClientRect().width > 150);
    const broken = [...document.images].filter((i) => !(i.complete && i.naturalWidth)).map((i) => i.src);
    return [document.documentElement.scrollWidth - innerWidth, first.length, broken];
}"""
# How far the text lies under the lists beside it, or one of these outside of the window, where all three are shown.
UNDER = """() => {
    const [text, left, right] = ['article', '.bd-sidebar-primary', '.bd-sidebar-secondary'].map(
        (name) => document.querySelector(name)?.getBoundingClientRect());
    return Math.max(left?.width ? left.right - text.left : 0, right?.width ? text.right - right.left : 0,
                    right?.width ? right.right - innerWidth : 0, text.right - innerWidth);
}"""
CONTRAST = """() => {
    const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const light = (colour) => parse(colour).slice(0, 3).reduce(
        (sum, v, i) => sum + linear(v / 255) * [.2126, .7152, .0722][i], 0);
    const ground = (e) => {
        for (; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if (parse(colour).length < 4 || parse(colour)[3] > .9) return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    const poor = [];
    for (const e of document.querySelectorAll('article :is(p, td, li, a, code, h1, h2, dt, pre span)')) {
        if (!e.textContent.trim() || !e.getClientRects().length || e.closest('.headerlink')) continue;
        const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4) poor.push([ratio.toFixed(1), e.outerHTML.slice(0, 90)]);
    }
    return [light(ground(document.querySelector('article'))), poor.slice(0, 3)];
}"""


def test_pages_at_any_width_in_light_and_dark(opened, site):
    """No page scrolls sideways, each shows a picture or code at once, and its text can be read in both schemes."""
    trouble = []
    for path in pages(site):
        opened.set_viewport_size({"width": 1600, "height": 900})
        opened.goto(path.as_uri())
        for width in (1600, 1400, 1000, 400):
            opened.set_viewport_size({"width": width, "height": 900})
            over, shown, broken = opened.evaluate(LOOK)
            trouble += [(path.name, width, "sideways", over)] * (over > 0)
            trouble += [(path.name, width, "under a list")] * (width > 1200 and opened.evaluate(UNDER) > 1)
            trouble += [(path.name, width, "first screen")] * (not shown) + [(path.name, src) for src in broken]
        for scheme in ("light", "dark"):
            opened.evaluate("(name) => document.documentElement.dataset.theme = name", scheme)
            ground, poor = opened.evaluate(CONTRAST)
            trouble += [(path.name, scheme, *each) for each in poor]
            trouble += [(path.name, scheme, ground)] * ((ground > 0.5) != (scheme == "light"))
    assert trouble == []


def test_the_explorer_lies_in_its_page(opened, site):
    opened.goto((site / "explorer.html").as_uri())
    frame = opened.frame_locator("iframe.explorer")
    assert frame.locator("#regime").inner_text() == "moderate"
    opened.wait_for_function("document.querySelector('iframe.explorer').style.height !== ''")
    inside = frame.locator("html").evaluate("(page) => [page.scrollHeight, window.innerHeight]")
    assert inside[0] <= inside[1], "the frame does not scroll within the page"
    for scheme in ("dark", "light"):
        opened.evaluate("(name) => document.documentElement.dataset.theme = name", scheme)
        frame.locator(f"html[data-scheme={scheme}]").wait_for()
    opened.get_by_role("link", name="ricochet").click()
    opened.wait_for_function("document.getElementById('regime')?.textContent === 'ricochet'")


SEARCHES = {
    "Adam": "tutorials/adam.html", "sharpness": "glossary.html", "cite": "citing.html", "install": "install.html",
    "SAM": "comparison.html", "sharding": "howto/sharding.html", "notebook": "tutorials/theorem.html",
    "ricochet": "results/two-parameter.html",
}  # fmt: skip


@pytest.mark.parametrize("word", SEARCHES)
def test_the_search_finds_it_from_disk(opened, site, word):
    opened.goto((site / "search.html").as_uri() + f"?q={word}")
    hits = opened.locator("#search-results li a")
    hits.first.wait_for()
    opened.locator("#search-results .search-summary", has_text="found").wait_for()
    found = [hits.nth(i).get_attribute("href").partition("#")[0].partition("?")[0] for i in range(hits.count())]
    assert any(each.endswith(SEARCHES[word]) for each in found), found
