"""A real browser for the tests of pages: an installed Chromium, or the one Playwright downloads.

Pages are opened from disk with the network switched off. Whatever a page complains of or asks the network for is kept,
and a test that uses `opened` fails on it.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A running browser; the tests that need one are skipped, and say why, where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="no browser tests: the playwright package is not installed")
    with api.sync_playwright() as playwright:
        paths = [*map(shutil.which, NAMES), playwright.chromium.executable_path]
        path = next((path for path in paths if path and os.path.exists(path)), None)
        if path is None:
            pytest.skip("no browser tests: there is no Chromium (`playwright install chromium` gets one)")
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(browser: Any, path: Path, fragment: str = "", width: int = 1600, **options: Any) -> Iterator[Any]:
    """A page from disk; at the end it must have neither complained nor asked for anything outside itself."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    context.set_offline(True)
    context.set_default_timeout(10_000)
    page, trouble = context.new_page(), list[str]()
    page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: trouble.append(request.url) if outside(request.url, path) else None)
    try:
        page.goto(path.as_uri() + fragment)
        yield page
    finally:
        context.close()
    assert trouble == []


def outside(url: str, path: Path) -> bool:
    """Whether a request is for something else than the page itself."""
    return not url.startswith(("data:", "blob:")) and url.partition("#")[0] != path.as_uri()


def unlabelled(page: Any) -> list[str]:
    """Controls without a name for a screen reader, images without words, tables without heads."""
    return page.evaluate("""() => {
        const named = (e) => e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.labels?.length
            || (['BUTTON', 'A', 'SUMMARY'].includes(e.tagName) && e.textContent.trim());
        const controls = document.querySelectorAll('input, select, button, a, summary, [tabindex], [role=img]');
        const bare = [...controls].filter((e) => !named(e));
        const silent = [...document.images].filter((e) => !e.alt.trim());
        const headless = [...document.querySelectorAll('table')].filter((e) => !e.querySelector('th[scope=col]'));
        return [...bare, ...silent, ...headless].map((e) => e.outerHTML.slice(0, 80));
    }""")


def scrolls_sideways(page: Any) -> bool:
    """Whether something sticks out to the right of the window."""
    return page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
