"""One browser for all tests of the explorer in a file."""

import browser as browsing
import pytest
from explored import STILL

from igr.lab.explorer import page as explorer


@pytest.fixture(scope="module")
def chromium():
    with browsing.chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium):
    with browsing.opened(chromium, explorer(), **STILL) as page:
        yield page
