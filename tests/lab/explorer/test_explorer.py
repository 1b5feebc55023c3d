"""The explorer as a person uses it, in a real browser; `test_paths` compares its numbers with the library's."""

import io
import sys
import webbrowser

import browser as browsing
import pytest
from explored import STILL, picture, settle
from PIL import Image

from igr.lab.cli import app as cli
from igr.lab.explorer import page as explorer


def test_it_opens_playing_on_a_state_in_which_the_flows_part(chromium):
    with browsing.opened(chromium, explorer()) as page:
        seen = settle(page)
        assert seen["playing"]
        assert seen["step"] < 20
        ends = {
            name: path["end"][0] for name, path in seen["result"].items() if name in ("descent", "plain", "modified")
        }
        assert ends["descent"] > 0.99, "in the flat valley"
        assert ends["modified"] > 0.99
        assert ends["plain"] < -0.99, "in the sharp one"
        assert page.locator("#regime").inner_text() == "moderate"
        before = picture(page)
        page.wait_for_function("(step) => igrExplorer.step() > step + 0.5", arg=seen["step"])
        assert picture(page) != before


def test_play_pause_and_steps_by_mouse_and_by_keyboard(page):
    assert settle(page)["playing"] is False, "reduced motion: it shows the end at once"
    page.get_by_role("button", name="Back to the start").click()
    assert settle(page)["step"] == 0
    page.get_by_role("button", name="One step forward").click()
    assert settle(page)["step"] == 1
    assert page.locator("#at").inner_text() == "at step 1"
    page.locator("h1").click()
    page.keyboard.press(".")
    page.keyboard.press(".")
    page.keyboard.press(",")
    assert settle(page)["step"] == 2
    page.keyboard.press("Space")
    assert settle(page)["playing"]
    page.wait_for_function("igrExplorer.step() > 2.2")
    page.get_by_role("button", name="Pause").click()
    step = settle(page)["step"]
    assert settle(page)["step"] == step
    page.get_by_role("button", name="To the end").click()
    seen = settle(page)
    assert seen["step"] == seen["shown"]
    page.get_by_role("slider", name="step", exact=True).focus()
    page.keyboard.press("Home")
    assert settle(page)["step"] == 0


def test_the_table_has_the_numbers_of_the_paths(page):
    result = settle(page)["result"]
    for name in ("descent", "plain", "modified"):
        shown = page.locator(f"td[data-path={name}]").all_inner_texts()
        end = result[name]["end"]
        assert [float(text.replace("−", "-")) for text in shown[:2]] == pytest.approx(end, abs=6e-5)


def test_a_choice_has_its_paths_its_knob_and_its_words(page):
    for name, words, knob in (
        ("adam", "no loss: a field of its own", "momentum β"),
        ("sam", "about E + ρ|∇E|", "radius ρ"),
        ("penalty", "P = E + μ|∇E|²", "penalty μ"),
    ):
        page.locator("#opt").select_option(name)
        seen = settle(page)
        assert "gradient" in seen["result"], "its plain flow is another one than the gradient flow"
        assert words in page.locator("#formulas").inner_text()
        assert page.locator("#knob-name").inner_text() == knob
        assert page.locator("#legend li").count() == 4
    page.get_by_role("slider", name="penalty μ").focus()
    before = settle(page)["state"]["mu"]
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert settle(page)["state"]["mu"] > before
    page.locator("#opt").select_option("gd")
    assert not page.locator("#knob-row").is_visible()


def test_the_network_shows_what_it_computes_and_its_r_ig_at_each_step(page):
    page.locator("#loss").select_option("network")
    settle(page)
    assert page.locator("#fit circle").count() == 5
    row = page.locator("tbody tr", has_text="R_IG").locator("td").first
    end = row.inner_text(), page.locator("#fit path").last.get_attribute("d")
    page.get_by_role("button", name="Back to the start").click()
    settle(page)
    assert (row.inner_text(), page.locator("#fit path").last.get_attribute("d")) != end
    assert float(row.inner_text()) > 0.01


def test_the_start_moves_by_mouse_and_by_keyboard(page):
    box = page.locator("#start .mark").bounding_box()
    centre = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*centre)
    page.mouse.down()
    page.mouse.move(centre[0] - 90, centre[1] + 60, steps=4)
    page.mouse.up()
    moved = settle(page)["state"]
    assert moved["a"] < -0.5
    assert moved["b"] < 1.4
    page.mouse.move(*centre)  # released: it does not follow any longer
    assert settle(page)["state"] == moved
    page.locator("#start").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    again = settle(page)["state"]
    assert again["a"] == pytest.approx(moved["a"] + 0.1)
    assert again["b"] == pytest.approx(moved["b"] - 0.01)
    assert f"a = {again['a']:g}" in page.locator("#start").get_attribute("aria-label")


def test_the_map_of_step_sizes_is_scrubbed_by_mouse_and_by_keyboard(page):
    page.evaluate("Strip.wholly()")
    words = page.locator("#strip .word").all_text_contents()
    assert "moderate" in words
    assert "ricochet" in words
    box = page.locator("#strip").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    page.mouse.down()
    small = settle(page)["state"]["h"]
    page.mouse.move(box["x"] + box["width"] - 15, box["y"] + 40, steps=3)
    page.mouse.up()
    large = settle(page)["state"]["h"]
    assert small < 0.005
    assert large > 0.3
    assert page.locator("#regime").inner_text() == "ricochet"
    strip = page.get_by_role("slider", name="step size h")
    strip.focus()
    page.keyboard.press("Home")
    assert settle(page)["state"]["h"] == pytest.approx(0.002)
    page.keyboard.press("PageUp")
    assert settle(page)["state"]["h"] > 0.0022
    assert float(strip.get_attribute("aria-valuenow")) == settle(page)["state"]["h"]
    assert "moderate" in strip.get_attribute("aria-valuetext") or "lazy" in strip.get_attribute("aria-valuetext")


def test_on_a_telephone_the_start_moves_by_touch_and_the_page_still_scrolls(chromium):
    with browsing.opened(chromium, explorer(), width=400, has_touch=True, is_mobile=True, **STILL) as page:
        tool = page.context.new_cdp_session(page)

        def drag(x, y, dx, dy):
            tool.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
            for k in range(1, 5):
                point = {"x": x + dx * k / 4, "y": y + dy * k / 4}
                tool.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
            tool.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        first = settle(page)["state"]
        box = page.locator("#start .mark").bounding_box()
        drag(box["x"] + 6, box["y"] + 6, -60, 30)
        moved = settle(page)["state"]
        assert moved["a"] < first["a"] - 0.2
        assert moved["b"] < first["b"] - 0.1
        assert page.evaluate("scrollY") == 0
        for control in ("#play", "#strip", "#h-number"):
            box = page.locator(control).bounding_box()
            assert box["y"] + box["height"] < 900, "beside the picture, on the first screen"
        plane = page.locator("#plane").bounding_box()
        drag(plane["x"] + plane["width"] - 20, plane["y"] + plane["height"] - 20, 0, -120)
        assert settle(page)["state"] == moved
        page.wait_for_function("scrollY > 20")


def test_a_link_reproduces_the_state(chromium, page):
    page.locator("#loss").select_option("product")
    page.locator("#opt").select_option("penalty")
    page.locator("#a").fill("-1.25")
    page.locator("#b").fill("2.5")
    page.locator("#h-number").fill("0.07")
    page.locator("#knob-number").fill("0.04")
    first = settle(page)
    wanted = {"loss": "product", "opt": "penalty", "a": -1.25, "b": 2.5, "h": 0.07, "mu": 0.04, "whole": 1}
    assert wanted.items() <= first["state"].items()
    link = page.evaluate("location.href")
    with browsing.opened(chromium, explorer(), "#" + link.partition("#")[2], **STILL) as other:
        assert settle(other)["state"] == first["state"]
        assert settle(other)["result"]["modified"]["end"] == first["result"]["modified"]["end"]
        assert other.locator("#h-number").input_value() == "0.07"
        other.evaluate("location.hash = '#a=3&b=1&h=0.18'")  # as of version 0.1
        other.wait_for_function("igrExplorer.state.h === 0.18 && igrExplorer.state.loss === 'product'")


def test_a_broken_link_is_no_trouble(chromium):
    broken = "#loss=<b>&opt=nothing&a=nonsense&b=&h=1e9&mu=-3&x=<b>"
    with browsing.opened(chromium, explorer(), broken, **STILL) as page:
        state = settle(page)["state"]
        assert (state["loss"], state["opt"], state["a"], state["h"], state["mu"]) == ("valleys", "gd", -0.375, 0.4, 0)


def test_the_saddle_is_told_apart_from_a_divergence(chromium):
    with browsing.opened(chromium, explorer(), "#loss=product&opt=gd&a=0&b=0", **STILL) as page:
        assert settle(page)["result"]["regime"] == "unfinished"
        assert "saddle" in page.locator("#summary").inner_text()


def test_a_path_of_sam_that_ends_before_the_minimum_says_why(chromium):
    with browsing.opened(chromium, explorer(), "#loss=network&opt=sam", **STILL) as page:
        assert settle(page)["result"]["descent"]["outcome"] == "converged"
        assert "SAM's paths end where the slope falls below 0.02" in page.locator("#summary").inner_text()
        page.locator("#opt").select_option("gd")
        settle(page)
        assert "SAM" not in page.locator("#summary").inner_text()


def test_every_quantity_has_a_chart(page):
    drawn = set()
    names = page.locator("#quantity option").evaluate_all("options => options.map((each) => each.value)")
    for name in names:
        page.locator("#quantity").select_option(name)
        drawn.add(page.locator("#chart").inner_html())
        assert "NaN" not in page.locator("#chart").inner_html()
        assert page.locator("#chart path").count() >= 2
    assert len(drawn) == len(names) >= 5


def saved(page, button):
    with page.expect_download(timeout=120_000) as caught:
        page.get_by_role("button", name=button).click()
    return caught.value.suggested_filename, Image.open(io.BytesIO(caught.value.path().read_bytes()))


def test_a_picture_and_an_animation_can_be_taken_away(page):
    page.locator("#loss").select_option("product")  # a short film
    page.locator("#h-number").fill("0.12")
    settle(page)
    name, still = saved(page, "Save picture")
    assert name == "igr-product-gd.png"
    assert still.width >= 1000
    assert len(still.convert("RGB").getcolors(1 << 24)) > 50
    name, film = saved(page, "Save animation")
    assert name == "igr-product-gd.gif"
    assert film.n_frames >= 10
    assert film.info["loop"] == 0
    frames = []
    for n in (0, film.n_frames - 1):
        film.seek(n)
        frames.append(film.convert("RGB").tobytes())
    assert frames[0] != frames[1]


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
