"""`livi bench uci` in miniature: the search, every cheap rival, going on, what is printed, and the test behind it."""

import json
import math
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from support.uci_files import write_uci

from benchmarks import uci_tables
from livi import cli
from livi.experiments.deadlines import Deadline
from livi.experiments.scoreboard import Column, best_of, cells, mean_ranks
from livi.experiments.spreading import run_all
from livi.experiments.uci import bench as uci_bench
from livi.experiments.uci import methods as uci_methods
from livi.experiments.uci import search
from livi.experiments.uci import text as uci_text
from livi.experiments.uci.bench import Config, bench, default_sets, fit_row
from livi.experiments.uci.data import Split
from livi.experiments.uci.methods import METHODS, Candidate, available_methods, default_methods
from livi.experiments.uci.published import FIGURES, SETS
from livi.experiments.uci.significance import corrected_difference
from livi.experiments.uci.text import KIND, against_rivals, table, text, verdicts
from livi.model.priors import Normal, Relevance
from livi.network import Layout
from livi.posterior.prediction import RegressionPrediction
from livi.sampling import polish

CHEAP = [name for name in available_methods() if name not in ("nuts", "full_rank")]

RESULTS = Path(__file__).parent.parent / "results" / "uci"


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def folder(tmp_path):
    write_uci(tmp_path / "uci", features=6)  # as many weights as the real ones have: more than 300
    return tmp_path / "uci"


def quick(*methods, **more):
    return Config(**{"sets": ("yacht",), "methods": methods, "splits": 2, "steps": 6} | more)


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", CHEAP)
def test_every_cheap_method_chooses_fits_and_scores(folder, method, monkeypatch):
    monkeypatch.setattr(uci_methods, "polish", partial(polish, steps=40))
    row = fit_row(("yacht", method, 1), quick(method), folder)
    assert row["error"] is None
    assert set(row["validation"]) <= {str(candidate) for candidate in METHODS[method].candidates}
    assert row["chosen"] == max(row["validation"], key=row["validation"].get)
    assert math.isfinite(row["log_score"])
    assert row["rmse"] > 0.0
    assert 0.0 <= row["coverage"] <= 1.0
    assert row["seconds"] >= row["fit_seconds"] > 0.0
    assert row["memory"] is None or row["memory"] > 50.0
    exact = method in ("livi", "livi-mixture", "livi-lanczos", "livi-smallest")  # chains leave networks
    assert row["last_layer"] == ("exact" if exact else "sampled")
    json.dumps(row, allow_nan=False)


def test_the_command_runs_prints_and_goes_on_where_it_was(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LIVI_DATA_DIR", str(folder.parent))
    out = tmp_path / "out"
    command = ["bench", "uci", "--sets", "yacht", "--steps", "5", "--out", str(out)]
    assert cli.main([*command, "--methods", "livi,map", "--splits", "1"]) == 0
    assert cli.main([*command, "--methods", "livi,map,mean_field", "--splits", "2"]) == 0
    said = capsys.readouterr()
    for words in ("## Test log likelihood", "| LIVI (L') |", "*MC dropout* [2]", "best rival", "What validation chose"):
        assert words in said.out
    assert "going on after 2 of 6 fits" in said.err
    assert " left" in said.err
    document = json.loads((out / "uci.json").read_text(encoding="utf-8"))
    assert [(row["method"], row["split"]) for row in document["rows"]] == [
        (method, split) for split in (0, 1) for method in ("livi", "map", "mean_field")
    ]
    assert document["config"] == {"steps": 5, "search_rows": 2000}
    assert {"livi", "torch"} <= document["versions"].keys()
    with pytest.raises(ValueError, match="choose another folder"):
        bench(quick("map"), out, folder, say=lambda _: None)


def test_a_run_stops_in_time_and_the_next_goes_on(folder, tmp_path):
    heard = []
    document = bench(quick("map"), tmp_path / "out", folder, minutes=0.0, say=heard.append)
    assert document["rows"] == []
    assert "0 minutes are over" in heard[-1]
    assert len(bench(quick("map"), tmp_path / "out", folder, say=heard.append)["rows"]) == 2


def slow(job):
    time.sleep(60.0 if job else 0.0)
    return {"job": job}


def test_fits_of_processes_are_given_up_when_the_time_is_over():
    assert list(run_all(slow, [1, 1], 2, Deadline.after(0.1))) == []
    assert list(run_all(slow, [0], 2)) == [{"job": 0}]


def test_a_failure_is_a_row_and_the_others_are_had(folder, monkeypatch):
    def no_luck(*args, **options):
        raise ArithmeticError("no luck")

    monkeypatch.setattr(uci_bench, "choose", no_luck)
    row = fit_row(("yacht", "map", 0), quick("map"), folder)
    assert row["error"] == "ArithmeticError: no luck"
    assert row["log_score"] is None


def test_missing_data_are_said_with_the_remedy(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("LIVI_DATA_DIR", raising=False)
    assert cli.main(["bench", "uci", "--out", str(tmp_path)]) == 1
    assert "LIVI_DATA_DIR" in capsys.readouterr().err


# --- the search -----------------------------------------------------------------------------------


def test_validation_rows_are_training_rows_and_test_rows_have_no_part(folder):
    split = Split.read(folder, "yacht", 0, search_rows=20)
    assert len(split.whole.targets) == 35
    assert len(split.search.scored_targets) == 7
    assert len(split.search.targets) == 20
    assert not np.isin(split.search.scored_targets, split.whole.scored_targets).any()
    torch.testing.assert_close(split.whole.inputs.mean(0), torch.zeros(6), atol=1e-5, rtol=0)
    in_own_units = split.search.centre + split.search.unit * split.search.targets.double().numpy()
    assert not np.isclose(in_own_units[:, None], split.search.scored_targets).any()


def test_the_candidate_with_the_best_validation_score_is_chosen_and_failures_are_passed_over(folder, monkeypatch):
    split = Split.read(folder, "yacht", 0, search_rows=2000)
    scores = {"gain 1.5": -2.0, "gain 3": -1.0}

    def fitted(method, candidate, fold, **options):
        if str(candidate) not in scores:
            raise ValueError("cannot be fitted")
        return str(candidate)

    monkeypatch.setattr(search, "fitted", fitted)
    monkeypatch.setattr(search, "_validated_noise", lambda *_, **__: None)
    monkeypatch.setattr(search, "predicted", lambda posterior, *_: posterior)
    monkeypatch.setattr(search, "log_score", lambda prediction, _: scores[prediction])
    choice = search.choose(METHODS["avb"], split, steps=1, seed=0)
    assert (choice.candidate, choice.noise, choice.scores) == (Candidate(3.0), None, scores)
    scores.clear()
    with pytest.raises(ArithmeticError, match="cannot be fitted"):
        search.choose(METHODS["avb"], split, steps=1, seed=0)


def test_the_validated_noise_is_the_root_mean_square_residual_of_one_network(folder):
    fold = Split.read(folder, "yacht", 0, search_rows=2000).search
    means = torch.full((1, len(fold.scored_targets)), fold.centre, dtype=torch.float64)
    residual = float(np.sqrt(np.mean((fold.scored_targets - fold.centre) ** 2))) / fold.unit
    noise = search.best_noise(RegressionPrediction(means, torch.tensor(1.0)), fold)
    assert noise == pytest.approx(residual, rel=0.07)  # the grid is that coarse


def test_a_learned_noise_stays_unless_validation_rows_clearly_ask_for_another(folder):
    split = Split.read(folder, "yacht", 0, search_rows=2000)
    means = torch.full((1, len(split.search.scored_targets)), split.search.centre, dtype=torch.float64)
    suits, narrow = (RegressionPrediction(means, torch.tensor(std * split.search.unit)) for std in (1.0, 0.05))
    assert search._validated_noise(suits, split, "either") is None
    assert search._validated_noise(suits, split, "validated") == search.best_noise(suits, split.search)
    assert search._validated_noise(narrow, split, "either") == search.best_noise(narrow, split.search)
    apart = torch.cat([means - 5.0 * split.search.unit, means + 5.0 * split.search.unit])
    unsure = RegressionPrediction(apart, torch.tensor(0.05 * split.search.unit))
    of_mean = search._validated_noise(unsure, split, "mean")
    assert of_mean == search.best_noise(suits, split.search)  # whatever the networks are unsure of
    assert of_mean != search._validated_noise(unsure, split, "validated")
    part = Split.read(folder, "yacht", 0, search_rows=20)
    assert search._validated_noise(narrow, part, "validated") is None


def test_priors_are_as_wide_as_their_gain_says_and_learned_ones_begin_there():
    layout = Layout(Candidate().network(9, 0))
    fixed = Candidate(3.0).prior(layout)
    learned = Candidate(3.0, learned=True).prior(layout)
    assert isinstance(fixed, Normal)
    assert isinstance(learned, Relevance)
    torch.testing.assert_close(fixed.scale(), learned.scale().detach())
    by_slot = [float(fixed.scale()[slot.start]) for slot in layout.slots]
    assert by_slot == pytest.approx([1.0, 3.0, 3.0 / math.sqrt(50), 3.0 / math.sqrt(50)])


# --- what is printed ------------------------------------------------------------------------------


def made_up(data, method, log_scores, error=None):
    return [
        {
            "data": data,
            "method": method,
            "split": split,
            "train_rows": 90,
            "test_rows": 10,
            "log_score": value,
            "rmse": 2.0 + split,
            "crps": 1.0,
            "coverage": 0.9,
            "noise": 1.0,
            "seconds": 3.0,
            "memory": 300.0,
            "fit_seconds": 1.0,
            "chosen": "gain 1.5",
            "error": error,
        }
        for split, value in enumerate(log_scores)
    ]


ROWS = [
    *made_up("yacht", "livi", [-1.0, -1.1, -1.2]),
    *made_up("yacht", "map", [-2.0, -2.2, -2.1]),
    *made_up("boston", "map", [-2.0, -2.1, -2.3]),
    *made_up("boston", "livi", [-2.6, -2.5, -2.4]),
    *made_up("boston", "ensemble", [-2.5, -2.5, -2.5]),
]


def test_tables_have_the_best_in_bold_ranks_and_published_figures():
    lines = table(ROWS, Column("log_score", "", "higher", 2)).splitlines()
    assert lines[0] == "|  | boston (3) | yacht (3) | rank |"
    assert lines[2] == "| LIVI (L') | -2.50 ± 0.06 | **-1.10** ± 0.06 | 1.5 |"
    assert lines[3] == "| MAP | **-2.13** ± 0.09 | -2.10 ± 0.06 | 1.5 |"
    assert lines[4] == "| Deep ensemble | -2.50 ± 0.00 | – | – |"
    assert "| *MC dropout* [2] | -2.40 ± 0.04 | -1.25 ± 0.02 |  |" in lines


def test_wins_and_losses_are_told_by_name():
    told = " ".join(verdicts(ROWS))
    assert "LIVI (L'): log likelihood at least that of MAP here on 1 of 2 sets; behind on boston." in told
    assert "at least that of Deep ensemble here on 1 of 1 sets." in told
    assert "at least that of MC dropout as published [2] on 1 of 2 sets; behind on boston." in told
    assert "| boston | LIVI (L') | MAP | 3 | -0.367 ±" in against_rivals(ROWS)
    chained = [*ROWS, *made_up("boston", "livi-polished", [-1.9, -2.0, -2.1])]
    assert "| boston | LIVI (L'), then chains | MAP | 3 | +0.133 ±" in against_rivals(chained)
    assert "LIVI (L'), then chains: log likelihood at least that of MAP here on 1 of 1 sets." in text(
        {"rows": chained, "notes": []}
    )
    whole = text({"rows": [*ROWS, *made_up("yacht", "swag", [0.0], error="ValueError: no luck")], "notes": ["A note."]})
    assert "- A note.\n- yacht swag split 0: ValueError: no luck" in whole


def test_the_test_of_a_difference_is_students_with_the_variance_of_overlapping_splits():
    differences = [0.1, 0.3, 0.2, 0.4]
    found = corrected_difference(differences, 90, 10)
    plain = stats.ttest_1samp(differences, 0.0)
    statistic = plain.statistic * math.sqrt((1 / 4) / (1 / 4 + 1 / 9))
    assert found.p_value == pytest.approx(2 * stats.t.sf(statistic, 3))
    assert found.p_value > plain.pvalue
    assert found.mean == pytest.approx(0.25)
    assert corrected_difference([1.0], 90, 10).p_value is None
    assert corrected_difference([0.5, 0.5], 90, 10).p_value == 0.0


def test_means_are_tied_by_the_standard_error_of_their_difference():
    methods = {"a": {0: 1.0, 1: 5.0}, "b": {0: 0.9, 1: 4.9}, "c": {0: 1.2, 1: 4.6}}
    assert best_of(methods, "higher") == ("a", {"c"})
    assert best_of(methods, None) == (None, set())
    assert cells({"a": {0: 0.01234}}, Column("x", "", "lower"))["a"] == "**0.0123**"
    ranks = mean_ranks(
        {"x": {"a": {0: 1.0}, "b": {0: 2.0}, "c": {0: 2.0}}, "y": {"a": {0: 1.0}, "b": {0: 0.5}}}, "lower"
    )
    assert ranks == {"a": 1.5, "b": 1.5}
    assert KIND.board([{"data": "x", "method": "a", "split": 1, "rmse": None}], "rmse") == {}


def test_published_figures_are_of_known_sets_and_say_where_they_are_from():
    for one in FIGURES:
        assert one.source
        assert one.log_score.keys() | one.rmse.keys() <= set(SETS)


def test_defaults_leave_out_what_takes_hours():
    assert "nuts" not in default_methods()
    assert {"livi", "livi-lanczos", "livi-smallest", "livi-sampled", "ensemble", "mc_dropout"} <= set(default_methods())


def test_sets_of_fewer_splits_than_the_first_are_left_out(folder):
    write_uci(folder, "wine-red")
    for kind in ("train", "test"):
        (folder / "wine-red" / "data" / f"index_{kind}_1.txt").unlink()
    config = Config(sets=("wine-red", "yacht"), methods=("map",), splits=1, first_split=1, steps=5)
    found = bench(config, folder.parent / "out", folder, say=lambda _: None)
    assert [(row["data"], row["split"], row["error"]) for row in found["rows"]] == [("yacht", 1, None)]


def test_sets_without_a_common_split_say_nothing_of_who_is_ahead():
    board = {"yacht": {"livi": {0: -5.0}, "nuts": {7: -1.0}}, "boston": {"livi": {0: -2.0}, "nuts": {0: -1.0}}}
    assert uci_text._at_least(board, "livi", "nuts", "NUTS") == (
        "LIVI (L'): log likelihood at least that of NUTS on 0 of 1 sets; behind on boston."
    )


def test_methods_with_few_splits_are_shown_and_not_compared():
    few = [*ROWS, *made_up("boston", "nuts", [-1.0])]
    lines = table(few, Column("log_score", "", "higher", 2)).splitlines()
    assert lines[3] == "| MAP | **-2.13** ± 0.09 | -2.10 ± 0.06 | 1.5 |"
    assert any(line.startswith("| NUTS | -1.00 (1) | – |") for line in lines)


def test_a_folder_without_uci_sets_is_told_what_is_missing(tmp_path):
    assert default_sets(tmp_path) == default_sets(None)
    assert "yacht" in default_sets(None)


def test_methods_are_compared_on_the_splits_that_both_have():
    found = {
        "yacht": {"livi-polished": {0: -1.0, 1: -2.0}, "map": {0: -1.5, 1: -2.7, 2: -9.0}},
        "boston": {"map": {0: -3.0}},
    }
    means = uci_tables.means_table(found, ("boston", "yacht")).splitlines()
    assert means[2:] == ["| LIVI (L'), then chains |  | -1.50 ± 0.50 (2) |", "| MAP | -3.00 | -4.40 ± 2.33 |"]
    apart = uci_tables.differences_table(found, ("boston", "yacht")).splitlines()
    assert apart[2:] == ["| MAP |  | 0.600 ± 0.100 |"]


def test_committed_results_are_read_split_by_split():
    found = uci_tables.scores([RESULTS], splits=(0, 1))
    assert set(found["yacht"]["livi-polished"]) == {0, 1}
    assert len(uci_tables.scores([RESULTS])["yacht"]["ensemble"]) == 20
