"""The report in a real browser: own runs beside the repository's, hostile words and all."""

import base64
import csv
import dataclasses
import io
import shutil
import sys
from pathlib import Path
from types import ModuleType

import browser as browsing
import numpy as np
import pytest
from PIL import Image

from igr.lab import experiments
from igr.lab.analysis.findings import Finding, Verdict
from igr.lab.experiments.predictions import PREDICTIONS
from igr.lab.plots.captions import Caption
from igr.lab.plots.style import axes_grid
from igr.lab.report import build as report
from igr.lab.store.config import Config
from igr.lab.store.store import Store

RESULTS = Path(__file__).parents[3] / "results"
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\" & <b>bold</b>"
CLAIMS = 21  # of the two-parameter model
THEOREM = dataclasses.replace(  # its headline is one of the two-parameter model here, the fixture's only experiment
    PREDICTIONS["theorem"],
    paper="two-parameter.closer-to-modified-flow.start-i.largest",
    figure="two-parameter-distances",
)


@dataclasses.dataclass(frozen=True)
class Words(Config):
    """A configuration with anything in it."""

    text: str = "plain"
    label = HOSTILE


def hostile_experiment():
    """An experiment all of whose words try to leave their place."""
    module = ModuleType("hostile_experiment")

    def figures(runs):
        figure, axes = axes_grid()
        axes.plot(runs[0].metrics["loss"])
        return {"hostile": figure}

    numbers = (3.0, -20.0, None, 100.0)
    found = [Finding(f"{HOSTILE} {k}", HOSTILE, HOSTILE, value, k, Verdict.FAILS, (-1.0, 1.0), HOSTILE)
             for k, value in enumerate(numbers)]  # fmt: skip
    module.CLAIM, module.figures, module.findings = HOSTILE, figures, lambda runs: found
    module.CAPTIONS = {"hostile": Caption(HOSTILE, HOSTILE, (found[0].id,))}
    return module


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The repository's runs as if they were the user's, one hostile run with them, and the repository's beside."""
    root, beside = tmp_path_factory.mktemp("report"), tmp_path_factory.mktemp("beside")
    for each in (root, beside):  # of one experiment, so that the counts below stay true as others are added
        shutil.copytree(RESULTS / "two-parameter", each / "two-parameter")
    store = Store(root)
    store.write_index("hostile", [Words(HOSTILE)], scale=HOSTILE, options={"text": HOSTILE})
    store.folder("hostile", Words(HOSTILE)).write({"loss": np.array([1.0, 0.5])}, seconds=0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "hostile_experiment", hostile_experiment())
        patch.setitem(experiments.REGISTRY, "hostile", "hostile_experiment")
        patch.setitem(PREDICTIONS, "theorem", THEOREM)
        report.build(store, Store(beside))
    return root / "index.html"


@pytest.fixture(scope="module")
def chromium():
    with browsing.chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium, built):
    with browsing.opened(chromium, built) as page:
        yield page


def column(page, number):
    return page.eval_on_selector_all("#table tbody tr", f"rows => rows.map((row) => row.cells[{number}].dataset.sort)")


def test_every_picture_loads_and_has_words(page):
    sizes = page.evaluate("[...document.images].map((image) => image.complete && image.naturalWidth)")
    assert len(sizes) == 1 + 6 + 1, "the card of the theorem, six figures that both have, and the hostile one"
    assert min(sizes) > 250
    words = page.evaluate("[...document.images].map((image) => image.alt)")
    shared = next(word for word in words if word.startswith("Figure 1a"))
    assert "these runs" in shared
    assert "the repository's runs" in shared
    assert "the same picture" in page.locator("figure").first.inner_text()


def test_both_sources_stand_side_by_side(page):
    rows = page.locator("#table tbody tr")
    assert rows.count() == CLAIMS + 4
    cells = rows.nth(0).locator("td").all_inner_texts()
    assert cells[1:4] == cells[4:7]
    assert cells[1] == "holds"
    assert rows.nth(CLAIMS).locator("td.empty").count() == 3, "only one source has the hostile claims"


def test_a_picture_grows_and_shrinks_by_mouse_and_by_keyboard(page):
    picture = page.locator("figure").first.locator(".picture").first
    before = picture.bounding_box()["width"]
    button = picture.locator("button")
    button.click()
    assert picture.bounding_box()["width"] >= 1.4 * before
    assert button.get_attribute("aria-pressed") == "true"
    button.press("Enter")
    assert picture.bounding_box()["width"] == pytest.approx(before, abs=1)
    assert button.get_attribute("aria-pressed") == "false"
    picture.locator("img").click()
    assert picture.bounding_box()["width"] >= 1.4 * before


def test_the_table_sorts_by_mouse_and_by_keyboard(page):
    before = column(page, 2)
    head = page.get_by_role("button", name="Sort by number, these runs")
    head.click()
    ascending = column(page, 2)
    numbers = [float(text) for text in ascending if text]
    assert numbers == sorted(numbers)
    assert numbers[0] == -20
    assert numbers[-1] == 100, "as numbers, not as words"
    assert ascending[-1] == "", "what has no number comes last"
    assert page.locator("th[aria-sort=ascending]").get_attribute("data-name") == "number, these runs"
    assert page.locator("#table-sorted").inner_text() == "Sorted by number, these runs, ascending."
    head.press("Enter")
    descending = [float(text) for text in column(page, 2) if text]
    assert descending == numbers[::-1]
    assert column(page, 2)[-1] == ""
    head.press("Enter")
    assert column(page, 2) == before
    page.get_by_role("button", name="Sort by verdict, these runs").click()
    assert page.locator("#table tbody tr").nth(0).locator("td").nth(1).inner_text() == "holds"


def test_words_from_configurations_stay_words(page):
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main b, main img[src=x]").count() == 0
    text = page.locator("main").inner_text()
    for place in ("#table", "#left-out", "#runs", "figure"):
        assert page.locator(place).count()
    assert text.count("<b>bold</b>") >= 12
    assert "window.hacked = 1" in page.locator("section[aria-labelledby=runs] pre").nth(21).inner_text()


def test_data_and_configurations_are_within_reach(page, built):
    links = page.eval_on_selector_all("a[href$='.csv']", "links => links.map((link) => link.getAttribute('href'))")
    assert len(links) == 20 + 1 + 20
    for link in links:
        rows = list(csv.reader(io.StringIO((built.parent / link).read_text())))
        assert len(rows) > 2
        assert all(len(row) == len(rows[0]) for row in rows)
    assert page.locator("section.long details details").count() == len(links)
    whole = page.locator("a[download]").get_attribute("href").partition("base64,")[2]
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(whole).decode())))
    assert len(rows) == 2 * CLAIMS + 4
    assert {row["source"] for row in rows} == {"these runs", "the repository's runs"}
    assert rows[CLAIMS]["note"] == HOSTILE


def test_what_speaks_against_the_paper_is_there(page):
    against = page.locator("section[aria-labelledby=negative]").inner_text()
    assert "h_Euler is small enough to follow the explicit flow from start II" in against
    left = page.locator("section[aria-labelledby=left-out]").inner_text()
    assert "377 diverged, of 960" in left
    figures = page.locator("section[aria-labelledby=experiment-two-parameter]")
    assert "igr run two-parameter --scale paper" in figures.inner_text()


def test_it_prints_on_few_pages_without_its_controls(page):
    assert page.pdf().count(b"/Type /Page\n") <= 10
    page.emulate_media(media="print")
    assert not page.locator("form.tools").is_visible()
    assert not page.locator("section.long").is_visible()
    assert page.locator("#table").is_visible()


def test_the_first_screen_is_the_answer(page):
    cards = page.locator("article.card")
    assert cards.count() == 5
    for box in (each.bounding_box() for each in cards.all()):
        assert box["y"] + box["height"] <= 900
    theorem = cards.nth(0).inner_text()
    for words in ("The theorem", "holds", "0.4411", "n = 101", "these runs", "The repository's runs"):
        assert words.lower() in theorem.lower(), words
    assert cards.nth(0).locator("img").count() == 1
    assert "igr run mlp" in cards.nth(1).inner_text(), "what is not stored says how to get it"


def rows_shown(page):
    return page.locator("#table tbody tr:visible").count()


def test_the_table_is_filtered_by_words_by_verdict_by_claim_and_by_a_card(page):
    everything = CLAIMS + 4
    assert rows_shown(page) == everything
    page.get_by_label("Search").fill("closer MODIFIED flow")
    some = rows_shown(page)
    assert 2 <= some < CLAIMS
    assert page.locator("#table-shown").inner_text() == f"{some} of {everything} claims."
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function(f"document.querySelectorAll('#table tbody tr:not([hidden])').length === {everything}")
    page.locator("select[name=verdict]").select_option("fails")
    assert rows_shown(page) >= 4 + 1
    page.locator("select[name=experiment]").select_option("two-parameter")
    assert 1 <= rows_shown(page) < CLAIMS
    page.locator("article.card").nth(0).locator("a[data-claim]").click()
    page.wait_for_function("document.querySelector('select[name=claim]').value === 'theorem'")
    assert page.locator("select[name=verdict]").input_value() == ""
    assert 1 <= rows_shown(page) < CLAIMS


def test_the_head_of_the_table_stays_in_sight(page):
    page.locator("#table tbody tr").nth(12).scroll_into_view_if_needed()
    page.evaluate(
        "document.querySelectorAll('#table tbody tr')[12].scrollIntoView({block: 'center', behavior: 'instant'})"
    )
    box = page.locator("#table thead").bounding_box()
    assert 0 <= box["y"] < 5


def test_every_anchor_leads_somewhere(page):
    broken = page.evaluate("""[...document.querySelectorAll('a[href^="#"]')].map((a) => a.getAttribute('href').slice(1))
        .filter((id) => !document.getElementById(id))""")
    assert broken == []


def test_figures_are_dark_in_the_dark(chromium, built):
    means = {}
    for scheme in ("light", "dark"):
        with browsing.opened(chromium, built, color_scheme=scheme) as page:
            shot = Image.open(io.BytesIO(page.locator("article.card img").first.screenshot())).convert("L")
            means[scheme] = float(np.asarray(shot).mean())
    assert means["light"] > 200
    assert means["dark"] < 90


def test_heads_of_a_printed_table_are_words_and_not_buttons(page):
    """Browsers print no button where a head is repeated on the next page."""
    page.emulate_media(media="print")
    heads = "[...document.querySelectorAll('#table thead tr:last-child th')]"
    printed = page.evaluate(f"{heads}.map((head) => getComputedStyle(head, '::before').content.slice(1, -1))")
    assert printed == ["claim", *2 * ["verdict", "number", "n"]]
    assert not page.locator("#table th button").first.is_visible()


@pytest.mark.parametrize("width", [400, 1000, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_at_any_width_in_light_and_dark(chromium, built, width, scheme):
    with browsing.opened(chromium, built, width=width, color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert not browsing.scrolls_sideways(page)
        assert browsing.unlabelled(page) == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
        claim = page.locator("#table tbody td.claim").first.bounding_box()
        assert claim["width"] >= 300, "the words of the claim have room"
        if width == 400:  # the heads are out of sight there
            page.locator("select[name=sort]").select_option(label="number, these runs")
            numbers = [float(text) for text in column(page, 2) if text]
            assert numbers == sorted(numbers)
