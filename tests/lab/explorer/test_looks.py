"""How the explorer looks: at any width, in light and dark, on paper."""

import browser as browsing
import pytest
from explored import STILL, picture, settle

from igr.lab.explorer import page as explorer


@pytest.mark.parametrize("width", [400, 1000, 1280])
def test_a_long_count_of_steps_stays_in_its_column(chromium, width):
    with browsing.opened(chromium, explorer(), "#loss=rosenbrock&opt=momentum", width=width, **STILL) as page:
        settle(page)
        assert len(page.locator("#count").inner_text()) > len("step 999 of 999")
        wide = page.evaluate("""() => {
            const count = document.createRange(), box = document.querySelector(".stage").getBoundingClientRect();
            count.selectNodeContents(document.getElementById("count"));
            return count.getBoundingClientRect().right - box.right;
        }""")
        assert wide < 1


@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_it_reads_at_any_width_in_light_and_dark(chromium, width):
    with browsing.opened(chromium, explorer(), width=width, color_scheme="light", **STILL) as page:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.locator(f"html[data-scheme={scheme}]").wait_for()
            assert not browsing.scrolls_sideways(page)
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
        assert browsing.unlabelled(page) == []
        plane = page.locator("#plane").bounding_box()
        assert plane["width"] == pytest.approx(1.25 * plane["height"], abs=2)
        assert plane["width"] >= 360
        box = page.locator("#strip").bounding_box()
        assert box["y"] + box["height"] < 900, "the map is on the first screen"


def test_it_follows_the_system_and_is_light_on_paper(chromium):
    with browsing.opened(chromium, explorer(), color_scheme="dark", **STILL) as page:
        settle(page)
        dark = picture(page)
        page.emulate_media(color_scheme="light")
        page.locator("html[data-scheme=light]").wait_for()
        light = picture(page)
        assert light != dark
        page.emulate_media(color_scheme="dark")
        page.locator("html[data-scheme=dark]").wait_for()
        assert picture(page) == dark
        for event, wanted in (("beforeprint", light), ("afterprint", dark)):
            page.evaluate("(name) => dispatchEvent(new Event(name))", event)
            assert picture(page) == wanted
