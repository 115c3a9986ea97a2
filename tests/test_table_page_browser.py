"""The report on a table model in a real browser: it draws everything and obeys nothing."""

import re

import pytest
from support.browser import Browser, find_chromium
from support.table_contents import CONTENTS, content_of, figures_of, hostile, regression, unvalidated

from livi.report.table_page import packed, page, unpacked, write_report

DRAWN = """
[...document.querySelectorAll('.drawing')].map(place => ({
  name: place.id,
  shapes: [...place.querySelectorAll(".scatterlayer path, .barlayer path, .heatmaplayer image")].filter(
    shape => shape.getBoundingClientRect().width + shape.getBoundingClientRect().height > 0).length,
  right: place.querySelector("svg.main-svg").getBoundingClientRect().right,
}))
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find_chromium() is None:
        pytest.skip("no Chromium on the PATH; install one or name it in the environment variable CHROMIUM")
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


def outward(browser):
    return [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))]


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("kind", CONTENTS)
def test_a_browser_draws_every_figure_without_errors_or_requests(browser, tmp_path, kind, width):
    content = content_of(kind)
    path = tmp_path / "report.html"
    write_report(path, content)
    browser.visit(path, width)
    assert browser.errors == []
    assert outward(browser) == []
    drawn = browser.run(DRAWN)
    assert {one["name"] for one in drawn} == figures_of(page(content)).keys()
    assert all(one["shapes"] > 0 for one in drawn), drawn
    assert all(one["right"] <= width for one in drawn), drawn
    assert browser.run("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_a_browser_obeys_no_hostile_words(browser, tmp_path, kind):
    path = tmp_path / "report.html"
    write_report(path, hostile(kind))
    browser.visit(path)
    assert browser.errors == []
    assert browser.run("typeof window.owned") == "undefined"
    assert browser.run("document.querySelectorAll('.drawing a, .drawing img').length") == 0
    if kind == "classes":
        ticks = browser.run("document.querySelector('#confusion .yaxislayer-above').textContent")
        assert "<scrip" in ticks


def test_buttons_choose_the_level_of_the_intervals(browser, tmp_path):
    path = tmp_path / "report.html"
    write_report(path, regression(200))
    browser.visit(path)
    count = "document.querySelectorAll('#predictions .scatterlayer .trace:nth-child(n) .point').length"
    outside = """document.getElementById("predictions").data.filter(trace => trace.visible &&
      trace.name === "truth outside the interval" && trace.mode === "markers").map(trace => trace.x.length)"""
    assert browser.run(count) == 200
    [before] = browser.run(outside)
    browser.run("document.querySelector('.choices button').click()")  # the lowest level
    browser.paint()
    assert browser.run(count) == 200
    [after] = browser.run(outside)
    assert after > before
    pressed = "[...document.querySelectorAll('.choices button')].map(one => one.getAttribute('aria-pressed')).join()"
    assert browser.run(pressed) == "true,false,false,false"
    assert browser.errors == []


def test_pointing_at_a_row_shows_its_numbers(browser, tmp_path):
    content = regression(200)
    path = tmp_path / "report.html"
    write_report(path, content)
    browser.visit(path)
    browser.run("Plotly.Fx.hover('unsure', [{curveNumber: 3, pointNumber: 0}])")
    browser.paint()
    words = browser.run("document.querySelector('#unsure .hoverlayer').textContent")
    assert re.search(r"epistemic \d+\.\d+.*line [\d,]+ of the file", words), words


def test_on_paper_figures_fit_and_come_back_afterwards(browser, tmp_path):
    path = tmp_path / "report.html"
    write_report(path, regression())
    browser.visit(path)
    widths = "[...document.querySelectorAll('.drawing')].map(one => one.querySelector('svg').clientWidth)"
    before = browser.run(widths)
    assert browser.pdf().startswith(b"%PDF")
    browser.paint()
    assert browser.run(widths) == before
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert max(browser.run(widths)) == 660
    assert browser.errors == []


@pytest.mark.parametrize(
    "fault",
    [
        "console.error('on purpose')",
        "throw new Error('on purpose')",
        "Promise.reject(new Error('on purpose'))",
        "fetch('https://example.org/on purpose')",
        "document.body.appendChild(Object.assign(new Image(), {src: 'https://example.org/on purpose'}))",
    ],
)
def test_a_fault_in_a_page_is_noticed(browser, tmp_path, fault):
    path = tmp_path / "report.html"
    path.write_text(page(unvalidated()).replace("</body>", f"<script>{fault}</script></body>"), encoding="utf-8")
    browser.visit(path)
    assert any("on purpose" in error or "Content Security Policy" in error for error in browser.errors)


def test_a_request_is_noticed(browser, tmp_path):
    path = tmp_path / "open.html"
    path.write_text('<!doctype html><img src="https://example.org/picture.png">', encoding="utf-8")
    browser.visit(path)
    assert outward(browser) == ["https://example.org/picture.png"]
    assert browser.errors


def test_a_figure_that_was_not_drawn_is_noticed(browser, tmp_path):
    path = tmp_path / "report.html"
    text = page(unvalidated())
    before = re.search(r'id="figures">(.*?)</script>', text)[1]
    after = packed(unpacked(before).replace('"mode":"lines"', '"mode":"none"'))
    path.write_text(text.replace(before, after), encoding="utf-8")
    browser.visit(path)
    assert [one["shapes"] for one in browser.run(DRAWN)] == [0, 0, 0, 0]
