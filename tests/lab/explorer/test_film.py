"""The film that the explorer plays: one at a time, and cheap."""

import browser as browsing
from explored import settle

from igr.lab.explorer import page as explorer


def test_another_choice_while_it_plays_begins_no_second_film_beside_the_first(chromium):
    """Each change of the optimizer begins the film anew; the count of steps is then drawn once in each frame."""
    with browsing.opened(chromium, explorer()) as page:
        for name in ("momentum", "sam", "gd"):
            page.locator("#opt").select_option(name)
        assert settle(page)["playing"]
        drawn, frames = page.evaluate("""async () => {
            await Strip.wholly();
            let drawn = 0, frames = 0;
            const own = Chart.move;
            Chart.move = (n) => { drawn++; own(n); };
            await new Promise((done) => {
                const count = () => { ++frames < 20 ? requestAnimationFrame(count) : done(); };
                requestAnimationFrame(count);
            });
            return [drawn, frames];
        }""")
        assert 0 < drawn <= frames + 1


def test_a_frame_of_the_film_computes_no_path_and_builds_no_table(page):
    """What keeps it at the screen's pace: all of that is done once, when the state changes."""
    playing, changed, steps = page.evaluate("""async () => {
        const count = {}, parts = [[Dynamics, "run"], [Chart, "draw"], [Numbers, "heads"], [Numbers, "words"]];
        const began = parts.map(([part, name]) => part[name]);
        parts.forEach(([part, name], i) => { part[name] = (...all) => {
            count[name] = (count[name] ?? 0) + 1;
            return began[i](...all);
        }; });
        await Strip.wholly();
        for (const name of Object.keys(count)) delete count[name];
        document.getElementById("first").click();
        document.getElementById("play").click();
        await new Promise((done) => setTimeout(done, 1200));
        document.getElementById("play").click();
        const steps = igrExplorer.step(), playing = { ...count };
        const rate = document.getElementById("h-number");
        rate.value = "0.03"; rate.dispatchEvent(new Event("input")); rate.dispatchEvent(new Event("change"));
        await new Promise((done) => setTimeout(done, 300));
        parts.forEach(([part, name], i) => { part[name] = began[i]; });
        return [playing, count, steps];
    }""")
    assert steps > 0
    assert playing == {}
    assert set(changed) == {"run", "draw", "heads", "words"}
