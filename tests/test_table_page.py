"""The report on a table model: its words and figures, that it is safe, and that a real browser draws it."""

import json
import os
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from browser import Browser, find_chromium
from table_contents import FINDINGS, classification, history, regression, unvalidated

from livi.report import table_figures as draw
from livi.report.elements import clipped, number
from livi.report.interactive import MOST_POINTS, label, padded, sample, shortened
from livi.report.table_page import page, write_report
from livi.storage import StorageError
from livi.tables.content import ColumnFacts, Finding, Metric, UnsureRow
from livi.tables.evaluation import ENOUGH_ROWS

TEN = tuple(f"class number {i}" for i in range(10))
HUNDRED = tuple(f"label {i}" for i in range(100))
CONTENTS = {
    "regression": regression,
    "constant noise": lambda: regression(400, 1.6, constant_noise=True),
    "many rows": lambda: regression(100_000),
    "one row": lambda: regression(1),
    "nothing held out": unvalidated,
    "two classes": classification,
    "ten classes": lambda: classification(600, TEN),
    "a hundred classes": lambda: classification(900, HUNDRED, 3.0),
    "one row of two classes": lambda: classification(1),
    "bare": lambda: unvalidated(history=(), findings=(), columns=(), notes=(), facts={}),
}
SECTIONS = [
    "Predictions against the truth",
    "Calibration",
    "Where the model is unsure",
    "What was fitted",
    "The course of the fit",
    "Diagnosis of the posterior",
]
VOID = {"meta"}


class Reader(HTMLParser):
    """Elements and words of a page; complains of tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.headings, self.words, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if "script" in self.open or "style" in self.open:
            return
        self.words.append(text)
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            self.headings.append((self.open[-1], text))

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def figures_of(text):
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1], parse_constant=lambda name: pytest.fail(f"{name} in the figures"))


@pytest.fixture(scope="module", params=CONTENTS)
def content(request):
    return CONTENTS[request.param]()


# --- the page as text -----------------------------------------------------------------------------


def test_every_page_has_every_section_and_a_sound_outline(content):
    reader = Reader(page(content))
    assert [words for tag, words in reader.headings if tag == "h2"] == SECTIONS
    levels = [int(tag[1]) for tag, _ in reader.headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert reader.all("html") == [{"lang": "en-GB"}]
    assert len(reader.all("title")) == 1


def test_every_figure_has_a_place_and_a_description_and_every_link_a_target(content):
    text = page(content)
    reader = Reader(text)
    places = {one["id"]: one for tag, one in reader.elements if one.get("class") == "drawing"}
    assert places.keys() == figures_of(text).keys()
    assert all(place["role"] == "img" and len(place["aria-label"]) > 20 for place in places.values())
    names = [one["id"] for _, one in reader.elements if "id" in one]
    assert len(set(names)) == len(names)
    assert {link["href"] for link in reader.all("a")} <= {f"#{name}" for name in names}


def test_the_page_refers_to_nothing_outside_itself(content):
    reader = Reader(page(content))
    for _, attributes in reader.elements:
        assert not attributes.keys() & {"src", "srcset", "action", "data", "poster"}
        assert attributes.get("href", "#").startswith("#")
    [policy] = [meta["content"] for meta in reader.all("meta") if "http-equiv" in meta]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_the_words_of_the_content_are_on_the_page():
    content = regression()
    text = Reader(page(content)).text
    for words in (content.headline, *content.notes, *content.verdict, *content.facts, *content.facts.values()):
        assert words in text
    for metric in content.metrics:
        assert f"{metric.name} {metric.text}".replace("-", "−") in text
    for finding in content.findings:
        assert f"{finding.topic} : {finding.text}".replace("-6", "−6").replace("`", "").split(";")[0] in text
    for column in content.columns:
        assert f"{column.name} {column.kind} {column.note}".rstrip() in text


def test_warnings_come_first_and_decide_the_summary():
    text = Reader(page(regression())).text
    assert text.index("warns") < text.index("warning spread") < text.index("notice density") < text.index("ok bound")
    assert "Nothing to complain of" in Reader(page(regression(findings=FINDINGS[:1]))).text


def test_a_page_without_held_out_rows_says_so_in_each_section():
    text = page(unvalidated())
    assert text.count("No rows were held out") == 3
    assert "livi evaluate" in text
    assert set(figures_of(text)) == {f"course-{name}" for name in draw.TERMS}


def test_a_bare_page_says_what_is_missing():
    text = Reader(page(CONTENTS["bare"]())).text
    assert "No course was recorded." in text
    assert "No diagnosis was made." in text


def test_few_rows_are_not_drawn_as_calibration():
    for one in (regression(1), classification(1)):
        text = page(one)
        assert "One row is too few" in text
        assert not figures_of(text).keys() & {"coverage", "pit", "reliability", "kept"}
    for few in (regression(ENOUGH_ROWS - 1), classification(ENOUGH_ROWS - 1)):  # as in the verdict
        assert not figures_of(page(few)).keys() & {"coverage", "pit", "reliability"}
    assert "coverage" in figures_of(page(regression(ENOUGH_ROWS)))


def test_many_rows_are_sampled_and_the_page_says_so():
    text = page(regression(100_000))
    figures = figures_of(text)
    assert text.count(f"Shown are {MOST_POINTS:,} of the 100,000 rows") == 2
    drawn = [trace for trace in figures["predictions"]["data"] if trace["mode"] == "markers"]
    assert sum(len(trace["x"]) for trace in drawn) == 4 * MOST_POINTS  # once for each level
    assert len(text) < 6_500_000


def test_listed_rows_are_drawn_even_where_rows_are_sampled():
    chosen = sample(50_000, np.array([3, 49_999]))
    assert {3, 49_999} <= set(chosen.tolist())
    assert len(chosen) <= MOST_POINTS + 2
    assert (np.diff(chosen) > 0).all()


# --- words from the user's file -------------------------------------------------------------------

HOSTILE = (
    "<script>window.owned = 1</script>",
    "</script><img src=x onerror='window.owned = 1'>",
    '"><svg onload="window.owned = 1">',
    "<a href='https://example.org'>here</a> & <b>bold</b>",
    "%{x} %{customdata[0]} $\\alpha$ ‮مرحبا 🏠 \u2028\x00 'quoted'",
)


def hostile(kind):
    a, b, c, d, e = HOSTILE
    given = {
        "title": f"{a} from {b}.csv",
        "target": c,
        "headline": " ".join(HOSTILE),
        "source": b,
        "facts": dict.fromkeys(HOSTILE, d) | {"odd": e},
        "columns": tuple(ColumnFacts(name, "dropped", name) for name in HOSTILE),
        "notes": HOSTILE,
        "metrics": tuple(Metric(name, name, 1.0, name, name) for name in HOSTILE),
        "verdict": HOSTILE,
        "findings": tuple(Finding("ok", name, f"`{name}` {name}") for name in HOSTILE),
        "unsure": (UnsureRow(0, 2, {name: name for name in HOSTILE}),),
    }
    return classification(60, HOSTILE, **given) if kind == "classes" else regression(60, **given)


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_hostile_words_are_shown_and_never_obeyed(kind):
    text = page(hostile(kind))
    reader = Reader(text)
    assert not reader.all("img") + reader.all("svg") + reader.all("b onclick")
    assert len(reader.all("script")) == 3
    assert all(link["href"].startswith("#") for link in reader.all("a"))
    assert not any(name.startswith("on") for _, attributes in reader.elements for name in attributes)
    assert HOSTILE[0] in reader.text
    raw = re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1]
    assert not set("<>&\u2028") & set(raw)
    for found in re.findall(r'"(?:text|title|name|hovertemplate)": ?"([^"]*)"', json.dumps(figures_of(text))):
        assert not re.search(r"<(?!br>|extra>|/extra>)", found)


def test_long_words_are_shortened_and_kept_in_the_title():
    long = "a very long label that goes on and on, far beyond what any table or axis has room for: 17"
    shown = clipped(long)
    assert f'title="{long}"' in shown
    assert len(re.sub("<[^>]*>", "", shown)) == 48
    assert len(shortened(long, 20)) == 20
    assert shortened(long, 20).endswith(": 17")
    assert clipped("short & plain") == "short &amp; plain"
    assert "missing" in clipped(" ")
    assert label("<i>\n x") == "&lt;i&gt; x"


# --- the numbers behind the figures ---------------------------------------------------------------


def test_the_coverage_curve_is_the_share_of_targets_inside():
    rows = regression(200).rows
    curve = draw.coverage_curve(rows).data[-1]
    for level, share, low, high in zip(curve["x"], curve["y"], rows.lower, rows.upper, strict=True):
        inside = sum(a <= y <= b for a, y, b in zip(low, rows.target, high, strict=True))
        assert share == pytest.approx(inside / 200)
        assert 0 < level < 1


def test_pit_bars_have_area_one_and_the_count_of_rows():
    bars = draw.pit_histogram(regression(157).rows).data[0]
    assert sum(bars["customdata"]) == 157
    assert np.mean(bars["y"]) == pytest.approx(1.0, rel=1e-4)


def test_points_beyond_the_interval_are_marked():
    rows = regression(300).rows
    figure = draw.predictions(rows, "price", [9, 17], 17)
    shown = [trace for trace in figure.data if trace["mode"] == "markers" and trace["visible"]]
    assert [trace["name"] for trace in shown] == ["truth inside the interval", "truth outside the interval"]
    outside = int(((rows.target < rows.lower[17]) | (rows.target > rows.upper[17])).sum())
    assert [len(trace["x"]) for trace in shown] == [300 - outside, outside]
    assert 0 < outside < 300
    assert figure.chosen == "90% intervals"
    assert [trace.get("visible", True) for trace in figure.data] == figure.choices["90% intervals"]


def test_the_confusion_counts_rows_by_true_and_predicted_class():
    rows = classification(300, TEN).rows
    counts = np.array(draw.confusion(rows).data[0]["text"])
    predicted = rows.probabilities.argmax(1)
    for true in range(10):
        for given in range(10):
            assert counts[true, given] == np.sum((rows.target == true) & (predicted == given))


def test_reliability_groups_all_rows_and_finds_a_model_that_is_too_sure():
    rows = classification(2000, sharp=1.0).rows
    points = [trace for trace in draw.reliability(rows).data if trace.get("mode") == "markers"]
    assert sum(sum(trace["customdata"]) for trace in points) == 2000
    assert sum(len(trace["x"]) for trace in points if trace["name"] == "outside") <= 3
    odds = (rows.probabilities[:, 1] / rows.probabilities[:, 0]) ** 4
    sure = np.stack([1 / (1 + odds), odds / (1 + odds)], 1)
    wrong = draw.reliability(type(rows)(rows.target, rows.classes, sure, rows.entropy, rows.mutual_information))
    outside = [trace for trace in wrong.data if trace["name"] == "outside"]
    assert len(outside[0]["x"]) >= 5


def test_errors_of_the_surest_rows():
    unsure, errors = np.arange(40.0), np.repeat([1.0, -3.0], 20)
    shares, values = draw.surest_first(unsure[::-1], errors[::-1], root=True)
    assert shares[-1] == 1.0
    assert values[-1] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert values[shares <= 0.5] == pytest.approx(1.0)
    alike, _ = draw.surest_first(np.ones(40), errors, root=True)
    assert len(alike) == 1
    assert len(draw.surest_first(np.ones(4), errors[:4], root=True)[0]) == 0


def test_no_share_is_drawn_beyond_one():
    shares = np.array([0.5, 1.0])
    for values in (np.ones(2), np.zeros(2), np.array([0.8, 0.7])):
        low, high = draw.set_aside(shares, values, "accuracy", share=True).layout["yaxis"]["range"]
        assert 0.0 <= low <= values.min()
        assert values.max() <= high < 1.01


def test_constant_predictions_are_drawn_with_ranges_that_are_not_empty():
    rows = regression(50).rows
    same = type(rows)(
        *(np.full_like(getattr(rows, name), 3.0) for name in ("target", "mean")),
        *(np.full(50, value) for value in (0.0, 2.0, 2.0, 0.5)),
        rows.levels,
        np.full_like(rows.lower, 1.0),
        np.full_like(rows.upper, 5.0),
    )
    figures = figures_of(page(regression(rows=same, unsure=())))
    assert "kept" not in figures
    for name in ("predictions", "unsure"):
        for axis in ("xaxis", "yaxis"):
            low, high = figures[name]["layout"][axis]["range"]
            assert high > low
    assert padded(np.zeros(3)) == [-1.0, 1.0]


def test_terms_that_are_not_finite_or_missing_are_left_out_of_the_course():
    rows = [dict(row) for row in history(100)]
    rows[3]["bound"] = float("nan")
    for row in rows:
        del row["entropy"]
    curves = {figure.name: figure for figure in draw.learning_curves(rows)}
    assert list(curves) == ["course-bound", "course-log_likelihood", "course-log_prior"]
    assert len(curves["course-bound"].data[0]["x"]) == len(rows) - 1
    assert draw.learning_curves(rows[:1])[0].data[0]["mode"] == "markers"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-1234.5, "−1,234"), (12.3456, "12.35"), (3e-7, "3e−07"), (2.5e12, "2.5e+12"), (0.99999, "1.0000")],
)
def test_numbers_have_four_digits(value, text):
    assert number(value) == text


# --- writing --------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="disk full"):
        write_report(path, unvalidated())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    write_report(str(path), unvalidated())
    assert path.read_text(encoding="utf-8") == page(unvalidated())
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(StorageError, match="expected a"):
        write_report(tmp_path / "nowhere" / "report.html", unvalidated())


def test_without_plotly_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r'pip install "livi\[tables\]"'):
        write_report(tmp_path / "report.html", unvalidated())
    assert list(tmp_path.iterdir()) == []


# --- in a browser ---------------------------------------------------------------------------------

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
def test_a_browser_draws_every_figure_without_errors_or_requests(browser, content, tmp_path, width):
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
    path.write_text(text.replace('"mode":"lines"', '"mode":"none"'), encoding="utf-8")
    browser.visit(path)
    assert [one["shapes"] for one in browser.run(DRAWN)] == [0, 0, 0, 0]
