"""The explorer in a real browser, its paths beside the library's."""

import sys
import webbrowser

import browser as browsing
import jax.numpy as jnp
import numpy as np
import pytest

from igr import cli
from igr.lab.experiments.two_parameter_model import advance, flow_path
from igr.lab.experiments.two_parameter_scans import HORIZON, RateScan
from igr.lab.experiments.two_parameter_views import regimes
from igr.lab.explorer import page as explorer
from igr.lab.store import Run
from igr.lab.work import Session


@pytest.fixture(scope="module")
def chromium():
    with browsing.chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium):
    with browsing.opened(chromium, explorer()) as page:
        yield page


def settle(page):
    """The page draws in the next frame."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("igrExplorer")


def library_ends(state):
    """Where the package's paths end; `mu` of its two-parameter model multiplies R_IG, so it is twice the page's."""
    start = (float(state["a"]), float(state["b"]))
    zero = jnp.zeros((), int)
    (a, b), _ = advance(tuple(map(jnp.asarray, start)), zero, 1_000_000, state["h"], 0.0, 1.0, 0.6, 1e-12)
    amounts = {"gradient": 0.0, "modified": state["h"] / 2, "explicit": 2 * state["mu"]}
    times = np.array([0.0, HORIZON])
    flows = {name: flow_path(start, times, mu, 1.0, 0.6, 1e-11, 1e-13) for name, mu in amounts.items()}
    return {"descent": (float(a), float(b))} | {name: (float(p[0][-1]), float(p[1][-1])) for name, p in flows.items()}


def compare(page):
    """Ends to four digits, in the page's numbers and in what its table shows; returns the state they belong to."""
    seen = settle(page)
    for name, end in library_ends(seen["state"]).items():
        assert seen["result"][name]["end"] == pytest.approx(end, rel=1e-4, abs=5e-6), name
        shown = page.locator(f"td[data-path={name}]").all_inner_texts()
        assert [float(text) for text in shown[:3]] == pytest.approx([*end, np.hypot(*end)], abs=6e-5), name
        assert float(shown[3]) == pytest.approx(end[0] ** 2 + end[1] ** 2, abs=3e-4), name
    return seen["state"]


def test_it_opens_on_the_papers_first_run(page):
    assert compare(page) == {"a": 2.8, "b": 3.5, "h": 0.025, "mu": 0.25, "whole": 0}
    assert page.locator("#regime").inner_text() == "moderate"
    assert "0.0271 from the modified flow's end and 0.0964" in page.locator("#summary").inner_text()
    assert page.locator("#paths path[data-path]").count() == 4


def test_sliders_move_the_ends_as_the_library_says(page):
    before = compare(page)
    page.get_by_role("slider", name="step size h").focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    page.get_by_role("slider", name="explicit rate").focus()
    for _ in range(150):
        page.keyboard.press("ArrowLeft")
    after = compare(page)
    assert after["h"] > 1.5 * before["h"]
    assert after["mu"] < 0.6 * before["mu"]
    assert page.locator("#h").get_attribute("aria-valuetext") == f"{after['h']:g}"


def test_the_start_moves_by_mouse_and_by_keyboard(page):
    box = page.locator("#start .mark").bounding_box()
    centre = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*centre)
    page.mouse.down()
    page.mouse.move(centre[0] - 150, centre[1] + 40, steps=4)
    page.mouse.up()
    moved = compare(page)
    assert moved["a"] < 2.0
    assert moved["b"] < 3.4
    page.mouse.move(*centre)  # released: it does not follow any longer
    assert settle(page)["state"] == moved
    page.locator("#start").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    again = compare(page)
    assert again["a"] == pytest.approx(moved["a"] + 0.1)
    assert again["b"] == pytest.approx(moved["b"] - 0.01)


def test_the_start_moves_by_touch_and_the_page_still_scrolls(chromium):
    with browsing.opened(chromium, explorer(), width=400, has_touch=True, is_mobile=True) as page:
        tool = page.context.new_cdp_session(page)

        def drag(x, y, dx, dy):
            tool.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
            for k in range(1, 5):
                point = {"x": x + dx * k / 4, "y": y + dy * k / 4}
                tool.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
            tool.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        box = page.locator("#start .mark").bounding_box()
        drag(box["x"] + 6, box["y"] + 6, -60, 30)
        moved = settle(page)["state"]
        assert moved["a"] < 2.3
        assert moved["b"] < 3.3
        assert page.evaluate("scrollY") == 0
        plane = page.locator("#plane").bounding_box()
        drag(plane["x"] + plane["width"] - 20, plane["y"] + plane["height"] - 20, 0, -120)
        assert settle(page)["state"] == moved
        page.wait_for_function("scrollY > 20")


def test_a_link_reproduces_the_state(chromium, page):
    page.locator("#a").fill("-1.25")
    page.locator("#b").fill("2.5")
    page.locator("#h-number").fill("0.07")
    page.locator("#mu-number").fill("0.02")
    state = compare(page)
    assert state == {"a": -1.25, "b": 2.5, "h": 0.07, "mu": 0.02, "whole": 1}
    link = page.evaluate("location.href")
    ends = settle(page)["result"]
    with browsing.opened(chromium, explorer(), "#" + link.partition("#")[2]) as other:
        assert settle(other)["state"] == state
        assert settle(other)["result"]["explicit"]["end"] == ends["explicit"]["end"]
        assert other.locator("#h-number").input_value() == "0.07"
        other.evaluate("location.hash = '#a=3&b=1&h=0.18&mu=0.1'")
        other.wait_for_function("igrExplorer.state.h === 0.18")
        compare(other)


def test_a_broken_link_is_no_trouble(chromium):
    with browsing.opened(chromium, explorer(), "#a=nonsense&b=&h=1e9&mu=-3&x=<b>") as page:
        assert settle(page)["state"] == {"a": 2.8, "b": 3.5, "h": 0.4, "mu": 0, "whole": 0}
        assert page.locator("#regime").inner_text() == "divergent"


def test_regimes_are_the_librarys_at_every_rate(page):
    """The same scan as the phases' figure, coarser; each of the four words occurs."""
    scan = RateScan(lowest=1e-3, highest=0.3, count=60)
    expected = regimes(Run(scan, dict(scan.compute(Session())), {})).names.tolist()
    rates = scan.rates().tolist()
    seen = page.evaluate("(rates) => rates.map((h) => Dynamics.all({ a: 2.8, b: 3.5, h, mu: 0 }).regime)", rates)
    assert seen == expected
    assert set(seen) == {"lazy", "moderate", "ricochet", "divergent"}


def test_the_saddle_is_told_apart_from_a_divergence(chromium):
    with browsing.opened(chromium, explorer(), "#a=0&b=0") as page:
        assert settle(page)["result"]["regime"] == "unfinished"
        assert "saddle" in page.locator("#summary").inner_text()


def test_every_quantity_has_a_chart(page):
    drawn = set()
    for name in ("E", "ratio", "slope", "norm"):
        page.locator("#quantity").select_option(name)
        drawn.add(page.locator("#chart path").first.get_attribute("d"))
        assert "NaN" not in page.locator("#chart").inner_html()
    assert len(drawn) == 4


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_at_any_width_in_light_and_dark(chromium, width, scheme):
    with browsing.opened(chromium, explorer(), width=width, color_scheme=scheme) as page:
        assert not browsing.scrolls_sideways(page)
        assert browsing.unlabelled(page) == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
        plane = page.locator("#plane").bounding_box()
        assert plane["width"] == pytest.approx(plane["height"], abs=1)
        assert plane["width"] >= 360


def test_it_follows_the_system_and_is_light_on_paper(chromium):
    with browsing.opened(chromium, explorer(), color_scheme="dark") as page:
        landscape = "document.querySelector('#plane canvas').toDataURL()"
        dark = page.evaluate(landscape)
        page.emulate_media(color_scheme="light")
        page.locator("html[data-scheme=light]").wait_for()
        light = page.evaluate(landscape)
        assert light != dark
        page.emulate_media(color_scheme="dark")
        page.locator("html[data-scheme=dark]").wait_for()
        assert page.evaluate(landscape) == dark
        for event, expected in (("beforeprint", light), ("afterprint", dark)):
            page.evaluate("(name) => dispatchEvent(new Event(name))", event)
            assert page.evaluate(landscape) == expected


def test_the_command_prints_the_path_and_opens_it(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(webbrowser, "open", lambda url: shown.append(url) or True)
    for arguments in ([], ["--no-open"]):
        monkeypatch.setattr(sys, "argv", ["igr", "explore", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert caught.value.code == 0
        assert capsys.readouterr().out.strip() == str(explorer())
    assert shown == [explorer().as_uri()]
