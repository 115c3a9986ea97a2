"""`livi report`: result folders joined into one page, and the project's own results as it is in docs/results.md."""

import base64
import json
import re
import shlex
from pathlib import Path

import pytest
from test_uci_bench import ROWS

from livi import cli
from livi.report.results import KINDS, command_of, joined
from livi.report.results_figure import results_figure
from livi.report.results_page import further_names, html, picture_names, write_report
from livi.report.results_text import page, table

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = {"livi": "0.1.0", "torch": "2.13.0"}


def written(path, experiment, rows, notes=(), **config):
    document = {"experiment": experiment, "config": config, "versions": VERSIONS, "rows": rows, "jobs": 2}
    document["notes"] = list(notes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document | {"machine": {"cpu": "a processor", "cores": 4}}), encoding="utf-8")
    return path


def toy(method, seed, w2):
    row = {"data": "A", "method": method, "seed": seed, "w2_to_nuts": w2, "elbo": None, "gap_std": 0.5, "seconds": 2.0}
    return row | {"warnings": []}


def test_the_projects_results_page_is_what_the_command_makes_of_its_results():
    results = joined([ROOT / "results"])
    names = picture_names(results, "results")
    further = further_names(results, names)
    made = page(results, names, further)
    told = "docs/results.md is not what the results give; run: livi report results --out docs/results"
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == made, told
    for name in [*names.values(), *(name for found in further.values() for name in found.values())]:
        assert (ROOT / "docs" / name).read_bytes().startswith(b"\x89PNG")


def test_rows_with_a_function_to_draw_are_joined_like_any_other(tmp_path):
    rows = [toy("livi", 0, 0.2) | {"curve": {"mean": [0.0], "std": [1.0]}}, toy("livi", 1, 0.4) | {"curve": None}]
    written(tmp_path / "toy.json", "toy", rows, quick=False)
    [result] = joined([tmp_path])
    assert "| A | LIVI | 2 | **0.300** ± 0.100 |" in table(result, "")


def test_files_of_one_experiment_and_setting_are_one_table_wherever_they_were_made(tmp_path):
    written(tmp_path / "one" / "toy.json", "toy", [toy("livi", 0, 0.2), toy("map", 0, 0.6)], quick=False, seeds=1)
    written(tmp_path / "two" / "deep" / "toy.json", "toy", [toy("livi", 1, 0.3), toy("map", 1, 0.5)], quick=False)
    written(tmp_path / "two" / "again.json", "toy", [toy("map", 0, 0.7)], quick=False)
    (tmp_path / "two" / "other.json").write_text("[1, 2]")
    (tmp_path / "two" / "broken.json").write_text("{")
    [result] = joined([tmp_path / "one", tmp_path / "two"])
    lines = table(result, "").splitlines()
    assert lines[0] == "| data | method | seeds | W2 to NUTS | std in the gap | s |"
    assert lines[2] == "| A | LIVI | 2 | **0.250** ± 0.050 | 0.50 ± 0.00 | 2.0 ± 0.0 |"
    assert lines[3].startswith("| A | MAP | 2 | 0.600 ± 0.100 |")  # the later file's 0.7 in place of 0.6


def test_other_settings_are_another_table(tmp_path):
    written(tmp_path / "a.json", "toy", [toy("livi", 0, 0.2)], quick=False)
    written(tmp_path / "b.json", "toy", [toy("livi", 0, 0.9)], quick=True)
    results = joined([tmp_path])
    assert len(results) == 2
    assert picture_names(results, "r") == {0: "r-toy.png", 1: "r-toy-1.png"}


def test_the_command_writes_markdown_html_and_pictures_that_hold_the_same(tmp_path, capsys):
    written(tmp_path / "in" / "toy.json", "toy", [toy("livi", 0, 0.2), toy("map", 0, 0.6)], data=["A"], seeds=1)
    written(tmp_path / "in" / "uci.json", "uci", ROWS, steps=1000, search_rows=2000)
    assert cli.main(["report", str(tmp_path / "in"), "--out", str(tmp_path / "out" / "all.html")]) == 0
    assert capsys.readouterr().out.count("written: ") == 4
    text = (tmp_path / "out" / "all.md").read_text(encoding="utf-8")
    web = (tmp_path / "out" / "all.html").read_text(encoding="utf-8")
    assert "![UCI regression sets](all-uci.png)" in text
    assert "    livi bench toy --data A --seeds 1 --jobs 2" in text
    command = "livi bench uci --sets yacht,boston --methods livi,map,ensemble --first-split 0 --splits 3 --steps 1000"
    assert command in text
    assert command in web
    assert "On a processor, 4 cores, livi 0.1.0, torch 2.13.0." in text
    assert "<b>−1.10</b> ± 0.06" in web
    pictures = [base64.b64decode(code) for code in re.findall(r"data:image/png;base64,([^\"]+)", web)]
    assert pictures == [(tmp_path / "out" / f"all-{name}.png").read_bytes() for name in ("uci", "toy")]
    assert not re.search(r"https?://", web.replace("http-equiv", ""))


def test_failures_are_listed_and_words_cannot_become_markup(tmp_path):
    failed = toy("map", 1, None) | {"error": "ValueError: <script>\nmore"}
    written(tmp_path / "toy.json", "toy", [toy("livi", 0, 0.2), failed], data=["A"])
    write_report([tmp_path], tmp_path / "all")
    assert "- Failed: A, map: ValueError: <script>\n" in (tmp_path / "all.md").read_text(encoding="utf-8")
    assert "<script>" not in (tmp_path / "all.html").read_text(encoding="utf-8")


def test_nothing_to_report_is_said(tmp_path, capsys):
    assert cli.main(["report", str(tmp_path / "missing")]) == 1
    assert "expected a folder with results" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path)]) == 1
    assert "expected results of livi bench" in capsys.readouterr().err


@pytest.mark.parametrize("experiment", [name for name in KINDS if name not in ("uci", "compare", "entropy")])
def test_every_kind_of_result_has_a_section_with_its_command(tmp_path, experiment):
    kind = KINDS[experiment]
    task = next(iter(kind.columns))
    rows = [
        {kind.place: "somewhere", "method": "livi", kind.repeat: seed, "task": task, "error": None, "problem": "mnist"}
        | {column.name: 0.5 + 0.1 * seed for column in kind.columns[task]}
        | {kind.place: "somewhere", "seed": seed}
        for seed in (0, 1)
    ]
    written(tmp_path / "some.json", experiment, rows)
    [result] = joined([tmp_path])
    text = page([result], {})
    assert f"## {kind.title}" in text
    assert "| somewhere | LIVI | 2 |" in text
    command = command_of({"experiment": experiment, "config": {}, "rows": rows})
    assert command.startswith(f"livi bench {experiment.replace(' ', ' --')}")


def test_a_command_names_the_splits_and_methods_that_its_rows_are_of():
    rows = [{"data": "wine", "method": name, "split": split} for split in (206, 205) for name in ("ridge", "livi")]
    command = command_of({"experiment": "tables", "config": {"max_rows": 300}, "rows": rows})
    assert command == ("livi bench tables --data wine --methods ridge,livi --first-split 205 --splits 2 --max-rows 300")


def test_a_curve_of_errors_is_a_row_for_each_method(tmp_path):
    curve = [
        {"epoch": epoch, "elbo": 1.0, "importance": {"nats": 1.0, "seconds": 1.0}}
        | {"exact": {"nats": 1.0, "error_nats": error, "seconds": 0.002}}
        for epoch, error in enumerate((-0.5, 0.25))
    ]
    written(tmp_path / "e.json", "entropy", [{"data": "digits", "seed": 500, "curve": curve, "error": None}])
    [result] = joined([tmp_path])
    assert table(result, "").splitlines()[-1] == "| digits | exact | 1 | **0.250** | **0.500** | 2.0 |"


def test_markdown_becomes_the_html_that_says_the_same():
    made = html(
        "# A\n\ntext *with* `code`\n\n- one\n- **two**\n\n| a | b |\n| --- | --- |\n| x | -1 |\n\n    livi x", {}
    )
    for part in (
        "<h1>A</h1>",
        "<i>with</i> <code>code</code>",
        "<li><b>two</b></li>",
        "−1</td>",
        "<code>livi x</code>",
    ):
        assert part in made


def test_commands_of_the_results_that_are_kept_are_commands():
    commands = [command for result in joined([ROOT / "results", ROOT / "docs"]) for command in result.commands]
    assert len(commands) > 5
    for command in commands:
        _, rest = cli._parser().parse_known_args(shlex.split(command)[1:])
        assert rest == [], command


def test_a_method_that_another_file_has_is_not_left_out(tmp_path):
    row = {"target": "banana", "seed": 0, "kl": 0.1, "w2": 0.1, "w2_floor": 0.1, "seconds": 1.0, "error": None}
    written(tmp_path / "one.json", "densities", [row | {"method": "livi"}], notes=["Left out: sivi.", "Left out: hmc."])
    written(tmp_path / "two.json", "densities", [row | {"method": "sivi"}])
    text = page(joined([tmp_path]), {})
    assert "Left out: hmc." in text
    assert "Left out: sivi." not in text


def test_images_have_every_score_and_ood_sets_one_by_one(tmp_path):
    told = {"confidence": 0.5, "auroc": 0.95, "fpr95": 0.25}
    scores = {"nll": 0.2, "accuracy": 0.9, "ece": 0.01, "brier": 0.15, "seconds": 3.0, "shifts": {}, "entropy": {}}
    row = {"problem": "mnist", "method": "map", "seed": 0, "error": None, "others": {"kmnist": told}} | scores
    written(tmp_path / "mnist.json", "mnist", [row | {"others_mean": told}, row | {"seed": 1, "others_mean": told}])
    text = page(joined([tmp_path]), {})
    assert "| ECE, % | Brier | OOD: confidence, % | AUROC, % | FPR95, % | s |" in text
    assert "| **0.1500** ± 0.0000 | **50.0** ± 0.0 | **95.00** ± 0.00 | **25.0** ± 0.0 |" in text
    assert "| method | kmnist |\n| --- | --- |\n| MAP | 50.00 / 95.00 / 25.00 |" in text


def test_the_figure_has_every_place_and_no_method_without_a_score(tmp_path):
    rows = [
        {"data": "houses", "method": "livi", "task": "regression", "log_score": -1.0},
        {"data": "houses", "method": "boosting", "task": "regression", "log_score": None},
        {"data": "flowers", "method": "livi", "task": "classification", "log_score": -0.1},
    ]
    written(tmp_path / "some.json", "tables", [row | {"split": 0, "error": None} for row in rows])
    [result] = joined([tmp_path])
    first, second = results_figure(result).axes[:2]
    assert (first.get_title(), second.get_title()) == ("houses", "flowers")
    assert [label.get_text() for label in first.get_yticklabels()] == ["LIVI"]


def test_a_mean_hardly_farther_away_than_the_next_is_no_arrow(tmp_path):
    nlls = {"a": 1.0, "b": 1.05, "c": 1.1, "d": 1.12, "e": 1.47, "f": 1.49, "g": 9.0}
    rows = [{"problem": "mnist", "method": name, "seed": 0, "nll": nll, "error": None} for name, nll in nlls.items()]
    written(tmp_path / "some.json", "mnist", rows)
    [result] = joined([tmp_path])
    [ax] = results_figure(result).axes
    assert [note.get_text() for note in ax.texts] == ["9"]
