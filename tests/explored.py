"""What tests of the explorer ask its page."""

STILL = {"reduced_motion": "reduce"}  # the page does not play by itself


def settle(page):
    """The page draws in the next frame."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("({ ...igrExplorer, step: igrExplorer.step(), playing: igrExplorer.playing() })")


def picture(page):
    return page.evaluate("document.getElementById('picture').toDataURL()")
