"""What pages look like: nothing sticks out, no labels overlap, every text can be read.

With 3, 10 and 50 hospitals of long names, at two widths, in light and dark.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from server_app.pages.report import COORDINATOR, PUBLIC
from tests.server_app.pages.chromium import WAIT, needs_chromium, opened
from tests.server_app.pages.made_run import hospital_names, make_run

pytestmark = [pytest.mark.slow, needs_chromium]
READABLE = 4.5  # contrast of WCAG 2.1, level AA

STICKING_OUT = """() => {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page");
  for (const box of document.querySelectorAll("section")) {
    if (box.scrollWidth > box.clientWidth) found.push(box.querySelector("h2")?.textContent);
  }
  for (const text of document.querySelectorAll("svg text")) {
    const inner = text.getBoundingClientRect();
    const outer = text.ownerSVGElement.getBoundingClientRect();
    const isOut = inner.left < outer.left - 1 || inner.right > outer.right + 1;
    if (isOut || inner.bottom > outer.bottom + 1) found.push(text.textContent);
  }
  return found;
}"""

OVERLAPPING = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const all = [...svg.querySelectorAll("text")];
    const texts = all.map((one) => [one, one.getBoundingClientRect()]);
    texts.forEach(([one, a], index) => {
      for (const [other, b] of texts.slice(index + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // Boxes have room above and below the letters.
        if (wide > 1 && tall > 0.3 * Math.min(a.height, b.height)) {
          found.push(`${one.textContent} / ${other.textContent}`);
        }
      }
    });
  }
  return found;
}"""

# A box that scrolls is opaque; text is drawn with `color`, in an SVG with `fill`.
FAINT = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((value) => value / 255)
      .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const rgb = parts(getComputedStyle(one).backgroundColor);
      if (rgb.length === 3 || rgb[3] === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    const isShown = element.getClientRects().length && !element.matches("script, noscript, title");
    if (!text || !isShown) continue;
    const style = getComputedStyle(element);
    const ink = light(parts(element instanceof SVGElement ? style.fill : style.color));
    const paper = light(ground(element));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < LIMIT) found[text.slice(0, 40)] = Math.round(100 * contrast) / 100;
  }
  return found;
}""".replace("LIMIT", str(READABLE))

Runs = Callable[[int], Path]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")

    @cache
    def made(hospitals: int) -> Path:
        names = hospital_names(hospitals)
        publishing = names if hospitals == 3 else names[:-3]
        return make_run(folder / str(hospitals), hospitals, publishing=publishing)

    return made


@pytest.mark.parametrize("name", [PUBLIC, COORDINATOR])
@pytest.mark.parametrize("hospitals", [3, 10, 50])
def test_a_page_is_readable_at_every_size(
    browser: Any, run_of: Runs, hospitals: int, name: str
) -> None:
    tab, _, errors = opened(browser, (run_of(hospitals) / name).as_uri())
    for width in (1280, 1920):
        tab.set_viewport_size({"width": width, "height": 1000})
        for scheme in ("light", "dark"):
            tab.emulate_media(color_scheme=scheme)
            tab.reload()
            tab.wait_for_selector("section.chart canvas", timeout=WAIT)
            where = f"{width} wide, {scheme}"
            assert tab.evaluate(STICKING_OUT) == [], where
            assert tab.evaluate(OVERLAPPING) == [], where
            assert tab.evaluate(FAINT) == {}, where
    assert errors == []


def test_of_many_lines_the_one_under_the_mouse_is_named(browser: Any, run_of: Runs) -> None:
    tab, _, _ = opened(browser, (run_of(50) / COORDINATOR).as_uri())
    box = tab.locator("section.chart", has_text="Loss at each hospital")
    name = box.locator("p.name")
    assert name.inner_text().startswith("50 hospitals, one line each")
    plot = box.locator(".u-over")
    plot.scroll_into_view_if_needed()
    area = plot.bounding_box()
    names = hospital_names(50)
    seen = set()
    for part in range(1, 20):  # down through all lines
        tab.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] * part / 20)
        seen.add(name.inner_text())
    assert seen & set(names)
    tab.mouse.move(0, 0)
    assert name.inner_text().startswith("50 hospitals")


def test_a_published_hospital_has_its_row_on_the_page(browser: Any, run_of: Runs) -> None:
    tab, _, _ = opened(browser, (run_of(10) / PUBLIC).as_uri())
    box = tab.locator("section", has=tab.get_by_text("Hospitals that publish their figures"))
    shown = box.inner_text()
    assert "St Mary" in shown
    assert "Hospital 04" not in shown  # one of the three that do not publish
    assert "training examples" in shown
