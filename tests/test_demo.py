"""The demonstration: what it writes, that the page needs nothing else, and that its words follow the numbers."""

import base64
import copy
import io
import json
import math
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from PIL import Image

from livi import cli
from livi.experiments.toy import network
from livi.experiments.toy_data import true_function
from livi.posterior.posterior import load
from livi.report import demo
from livi.report.demo_figures import FIGURES, TITLES
from livi.report.demo_page import MEANINGLESS, findings, page, table, trust

VOID = {"img", "meta"}


class Reader(HTMLParser):
    """Collects images, references and text, and complains of tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.images, self.references, self.words, self.open = [], [], [], []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.references += [named[key] for key in ("src", "href", "srcset", "action", "data") if key in named]
        if tag == "img":
            assert named["alt"]
            self.images.append(named["src"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.words.append(text)


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    where = tmp_path_factory.mktemp("demo") / "new" / "folder"
    try:
        assert cli.main(["--debug", "demo", "--quick", "--seed", "3", "--out", str(where)]) == 0
    finally:
        torch.set_default_dtype(before)
    return where


@pytest.fixture
def document(folder):
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


@pytest.fixture
def html(folder):
    return (folder / "index.html").read_text(encoding="utf-8")


def test_every_file_is_there_and_no_unfinished_one(folder):
    names = {path.name for path in folder.iterdir()}
    figures = {f"{name}.png" for name in FIGURES}
    assert names == {"index.html", "result.json"} | figures | {f"{method}.livi" for method in demo.METHODS}


def test_the_result_has_finite_numbers_and_says_how_it_was_made(document):
    assert set(document["methods"]) == {"livi", "mean_field", "ensemble-5", "nuts"}
    for method, row in document["methods"].items():
        assert all(math.isfinite(row[name]) for name in ("w2_to_nuts", "gap_std", "seconds"))
        assert (row["elbo"] is None) == (method in ("ensemble-5", "nuts"))
        assert row["elbo"] is None or math.isfinite(row["elbo"])
    assert document["config"]["seed"] == 3
    assert document["config"]["quick"] is True
    assert {"livi", "torch", "numpy", "python", "matplotlib"} <= set(document["versions"])
    assert document["machine"]["workers"] in (1, 2)
    assert document["diagnosis"]["severity"] in ("ok", "notice", "warning")


def test_the_page_needs_nothing_else(html):
    reader = read(html)
    assert reader.references
    assert all(reference.startswith("data:") for reference in reader.references)
    assert "http:" not in html
    assert "https:" not in html
    assert "url(" not in html
    assert "@import" not in html


def test_the_images_of_the_page_are_the_files_beside_it(html, folder):
    images = read(html).images
    assert len(images) == len(FIGURES)
    for source, name in zip(images, FIGURES, strict=True):
        png = base64.b64decode(source.removeprefix("data:image/png;base64,"), validate=True)
        assert png == (folder / f"{name}.png").read_bytes()
        with Image.open(io.BytesIO(png)) as image:
            image.load()
            assert image.width > 1000
            assert np.asarray(image.convert("L")).std() > 1.0  # not blank


def test_a_quick_run_says_that_it_means_nothing_and_claims_nothing(html, document, folder):
    assert html.index(MEANINGLESS) < html.index("<h1>")
    assert html.count(MEANINGLESS) == 2
    assert "a quick run that means nothing</title>" in html
    assert "Distance to NUTS" not in html
    images = {name: (folder / f"{name}.png").read_bytes() for name in FIGURES}
    slow = copy.deepcopy(document)
    slow["config"]["quick"] = False
    assert "quick run" not in page(slow, images)
    assert "Distance to NUTS" in page(slow, images)


@pytest.mark.parametrize("quick", [True, False])
def test_the_terminal_says_of_a_quick_run_that_it_means_nothing(quick, document, monkeypatch, capsys):
    monkeypatch.setattr(demo, "demo", lambda *_: document)
    assert demo.main(["--quick"] * quick) == 0
    assert capsys.readouterr().out.endswith(MEANINGLESS + "\n") == quick


def test_the_posteriors_can_be_used_again_as_the_page_says(folder, html, monkeypatch):
    torch.set_default_dtype(torch.float32)
    words = "".join(read(html).words)
    monkeypatch.chdir(folder)
    exec(words[words.index("import livi") : words.index(".epistemic_std") + len(".epistemic_std")], {})
    for method in demo.METHODS:
        posterior = load(folder / f"{method}.livi", network(3))
        assert posterior.sample(4).shape == (4, 105)


def test_a_reader_sees_the_page(folder, html, tmp_path):
    """In a browser where there is one; elsewhere as the parser of the standard library understands it."""
    words = " ".join(read(html).words)
    assert all(heading in words for heading in ("What this run shows", "How far to trust the reference", "Do it again"))
    if shutil.which("chromium") is None:
        return
    picture = tmp_path / "page.png"
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
        f"--screenshot={picture}", "--window-size=1000,1400", (folder / "index.html").as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB")).astype(float)
    assert pixels.std() > 5.0
    assert (pixels.max(2) - pixels.min(2)).max() > 50.0  # the figures' colours, not text alone


def test_the_words_follow_the_numbers(document):
    livi, field = document["methods"]["livi"], document["methods"]["mean_field"]
    livi.update(
        elbo=-90.0, elbo_standard_error=0.3, w2_to_nuts=0.2, gap_std=0.9 * document["methods"]["nuts"]["gap_std"]
    )
    field.update(elbo=-100.0, elbo_standard_error=0.4, w2_to_nuts=0.5)
    document["methods"]["ensemble-5"]["w2_to_nuts"] = 0.21
    text = " ".join(findings(document))
    assert "10.0 ± 0.5 nats above mean field's" in text
    assert "nearest to farthest: LIVI (0.200), ensemble of 5 (0.210), mean field (0.500)" in text
    assert "too close to call" in text
    assert "LIVI (90%)" in text
    livi.update(elbo=-101.0, w2_to_nuts=0.9)
    document["methods"]["ensemble-5"]["w2_to_nuts"] = 0.1
    text = " ".join(findings(document))
    assert "1.0 ± 0.5 nats below mean field's" in text
    assert "That is within its error." in text
    assert "nearest to farthest: ensemble of 5 (0.100), mean field (0.500), LIVI (0.900)" in text
    assert "too close to call" not in text


def test_an_error_of_the_entropy_is_taken_off_the_claim(document):
    document["methods"]["livi"].update(elbo=-90.0, elbo_standard_error=0.3)
    document["methods"]["mean_field"].update(elbo=-92.0, elbo_standard_error=0.3)
    document["diagnosis"]["density"]["gap"] = {"value": 5.0, "standard_error": 0.5}
    assert "5.0 ± 0.5 nats are no bound" in next(findings(document))
    assert "more than the difference" in next(findings(document))


def test_the_reference_is_trusted_as_far_as_its_chains_agree(document):
    document["reference"].update(rhat_largest=1.001)
    assert "the chains agree" in trust(document)
    document["reference"].update(rhat_largest=1.07)
    assert "have not quite mixed" in trust(document)


def test_the_table_has_a_row_for_every_method(document):
    lines = table(document).splitlines()
    assert len({len(line.rstrip()) for line in lines[:2]}) == 1
    assert [line.split("  ")[0].strip() for line in lines[2:]] == [TITLES[name] for name in document["methods"]]
    assert "(itself)" in lines[-1]


def test_what_the_page_quotes_is_escaped(document, folder):
    document["diagnosis"]["findings"] = [{"severity": "ok", "topic": "<b>", "text": "a < b & c"}]
    images = {name: (folder / f"{name}.png").read_bytes() for name in FIGURES}
    assert "a &lt; b &amp; c" in page(document, images)


def test_without_matplotlib_it_is_refused_before_the_first_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["demo", "--quick", "--out", str(tmp_path / "page")]) == 1
    out, err = capsys.readouterr()
    assert err == (
        'livi: figures: expected matplotlib, got no such package; install it with `pip install "livi[plots]"`.\n'
    )
    assert out == ""
    assert not (tmp_path / "page").exists()


def test_wrong_usage_is_refused(capsys):
    for arguments in (["--data", "C"], ["--fast"], ["--seed", "many"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(["demo", *arguments])
        assert caught.value.code == 2
    assert "livi demo" in capsys.readouterr().err


def test_the_true_function_is_a_slow_sine_on_a_and_the_papers_on_b():
    places = np.linspace(-1.0, 1.0, 5)
    np.testing.assert_allclose(true_function("A", places), np.sin(1.2 * places))
    assert true_function("B", np.zeros(1)) == 0.0
    x = np.linspace(-1.5, 1.5, 4001)  # its zeros and extrema, whatever x was divided by
    signs = np.diff(np.sign(np.diff(true_function("B", x))))
    assert (signs != 0).sum() > 8
