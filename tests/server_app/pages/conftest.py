"""A browser for all tests of a file."""

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.support.chromium import CHROMIUM, FLAGS
from tests.server_app.pages.chromium import EVIL_IS_HERE


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, EVIL_IS_HERE])
        yield browser
        browser.close()
