"""The system's Chromium, driven by Playwright; nothing is downloaded."""

from typing import Any

import pytest

from benchmarks.support.chromium import CHROMIUM

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
EVIL_IS_HERE = "--host-resolver-rules=MAP evil.example 127.0.0.1"
WAIT = 120_000  # ms; a busy machine takes its time


def opened(browser: Any, address: str, **context: Any) -> tuple[Any, list[str], list[str]]:
    """Open a page; return it, the addresses it asked for, and its errors."""
    tab = browser.new_context(viewport={"width": 1280, "height": 900}, **context).new_page()
    asked: list[str] = []
    errors: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    tab.goto(address)
    return tab, asked, errors
