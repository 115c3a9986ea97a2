"""The report on a table model: its words, that it is safe, and how it is written."""

import json
import os
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from support.table_contents import (
    CONTENTS,
    FINDINGS,
    HOSTILE,
    classification,
    content_of,
    figures_of,
    hostile,
    regression,
    unvalidated,
)

from livi.posterior.storage import StorageError
from livi.report import table_figures as draw
from livi.report.elements import clipped
from livi.report.interactive import MOST_POINTS, label, sample, shortened
from livi.report.table_page import page, write_report
from livi.report.table_plain import SCORES, first_words
from livi.tables.evaluation import MIN_JUDGED_ROWS
from livi.tables.parts import parts_of


def sections_of(content):
    """The headings of a page, in their order."""
    sure = "ranges" if content.task == "regression" else "probabilities"
    return [
        *(["What the predictions depend on"] if content.drivers else []),
        "Predictions against the truth",
        f"Can its {sure} be trusted?",
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


# --- the page as text -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CONTENTS)
def test_every_page_has_every_section_and_a_sound_outline(kind):
    reader = Reader(page(content_of(kind)))
    headings = [words for tag, words in reader.headings if tag == "h2"]
    assert headings == sections_of(content_of(kind))
    levels = [int(tag[1]) for tag, _ in reader.headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert reader.all("html") == [{"lang": "en-GB"}]
    assert len(reader.all("title")) == 1


@pytest.mark.parametrize("kind", CONTENTS)
def test_every_figure_has_a_place_and_a_description_and_every_link_a_target(kind):
    text = page(content_of(kind))
    reader = Reader(text)
    places = {one["id"]: one for tag, one in reader.elements if one.get("class") == "drawing"}
    assert places.keys() == figures_of(text).keys()
    assert all(place["role"] == "img" and len(place["aria-label"]) > 20 for place in places.values())
    names = [one["id"] for _, one in reader.elements if "id" in one]
    assert len(set(names)) == len(names)
    assert {link["href"] for link in reader.all("a")} <= {f"#{name}" for name in names}


@pytest.mark.parametrize("kind", CONTENTS)
def test_the_page_refers_to_nothing_outside_itself(kind):
    reader = Reader(page(content_of(kind)))
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
        assert words.replace(" ", "") in text.replace(" ", "")  # explanations are elements of their own
    for metric in content.metrics:
        assert metric.name in text
        for one in metric.baselines:
            assert SCORES[metric.key].say(one.value).replace("-", "−") in text
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
    for few in (regression(MIN_JUDGED_ROWS - 1), classification(MIN_JUDGED_ROWS - 1)):  # as in the verdict
        assert not figures_of(page(few)).keys() & {"coverage", "pit", "reliability"}
    assert "coverage" in figures_of(page(regression(MIN_JUDGED_ROWS)))


def test_many_rows_are_sampled_and_the_page_says_so():
    text = page(regression(100_000))
    figures = figures_of(text)
    assert text.count(f"Shown are {MOST_POINTS:,} of the 100,000 rows") == 2
    drawn = [trace for trace in figures["predictions"]["data"] if trace["mode"] == "markers"]
    assert sum(len(trace["x"]) for trace in drawn) == 4 * MOST_POINTS  # once for each level
    assert len(text.encode()) < 2_000_000


def test_listed_rows_are_drawn_even_where_rows_are_sampled():
    chosen = sample(50_000, np.array([3, 49_999]))
    assert {3, 49_999} <= set(chosen.tolist())
    assert len(chosen) <= MOST_POINTS + 2
    assert (np.diff(chosen) > 0).all()


# --- words from the user's file -------------------------------------------------------------------


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
    assert not set("<&\u2028") & set(raw)
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


def test_fifths_of_a_target_with_a_long_name_are_told_apart():
    content = regression(200)
    parts = parts_of(content.rows, {}, "the price of a house in thousands of kroner, before tax")
    text = Reader(page(replace(content, parts=parts))).text
    for name in ("lowest", "second lowest", "middle", "second highest", "highest"):
        assert f"the fifth with the {name} p" in text


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


# --- the first screen -----------------------------------------------------------------------------


def test_the_first_words_are_plain_and_compare():
    [misses, compared, promise] = first_words(regression())
    assert misses.startswith("For 128 rows whose price the model had not seen, its predictions were off by ")
    assert compared == "The average for every row would be off by 74.00, a linear model by 31.00."
    assert re.fullmatch(
        r"The model's 90% ranges held the true value in [\d.]+% of them: as many as promised, .*", promise
    )
    [right, compared] = first_words(classification())
    assert "its answer was right in" in right
    assert compared == "The most frequent class would be right in 52.0%, a linear model in 61.0%."
    assert first_words(unvalidated()) == []


def test_ranges_that_hold_too_little_are_not_praised():
    assert "fewer than promised: these ranges are too narrow" in first_words(regression(400, 1.6))[-1]
    assert "more than promised" in first_words(regression(400, 0.5))[-1]


def test_a_model_worse_than_the_mean_is_warned_of_first():
    words = "Worse than the mean: RMSE 9, against 7 by predicting their mean for all rows."
    text = Reader(page(regression(verdict=(words,)))).text
    assert text.index("Not to be used as it is.") < text.index("Typical error")


def test_terms_of_the_trade_are_explained_where_they_first_stand():
    reader = Reader(page(regression()))
    titles = [one["title"] for one in reader.all("abbr")]
    assert any("more data would take this part" in title for title in titles)
    assert any("root of the mean squared error" in title.lower() for title in titles)


def test_effects_have_one_vertical_range_and_dates_are_dates():
    figures = figures_of(page(regression()))
    ranges = {tuple(figures[f"effect-{i}"]["layout"]["yaxis"]["range"]) for i in range(3)}
    assert len(ranges) == 1
    assert figures["effect-1"]["data"][1]["x"][0] == "2019-04-14"
    assert figures["drivers"]["data"][0]["x"][-1] == 60.0  # the most important one is on top
