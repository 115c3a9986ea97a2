"""The plain benchmark: problems, ordinary training, methods that fail, and the table that says where livi is worse."""

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from livi import cli
from livi.experiments import plain_methods, plain_problems
from livi.experiments.plain_bench import Config, bench, fit_row, notes
from livi.experiments.plain_methods import METHODS, Answer, scores
from livi.experiments.plain_problems import PROBLEMS, Parts, Rows, available, build_network
from livi.experiments.plain_text import KIND, messages, task_table, text, verdicts, worse
from livi.experiments.plain_training import PlainNetwork, Training, predict_plain, train
from livi.inference import FitError, FitWarning
from livi.model.likelihoods import Categorical, FunctionLikelihood, Gaussian, HeteroscedasticGaussian
from livi.posterior.prediction import RegressionPrediction

NLL, ACCURACY, _, _ = KIND.columns["classification"]
COVERAGE = KIND.columns["regression"][2]


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def write_uci(folder: Path) -> None:
    """Boston and energy of 60 made-up rows each, in the published layout, with two splits."""
    for name, features in (("boston", 13), ("energy", 8)):
        home = folder / name / "data"
        home.mkdir(parents=True)
        numbers = 3.0 + 5.0 * np.random.default_rng(0).normal(size=(60, features + 1))
        numbers[:, 2] = 7.0  # a constant column
        np.savetxt(home / "data.txt", numbers)
        np.savetxt(home / "index_features.txt", range(features), fmt="%d")
        np.savetxt(home / "index_target.txt", [features], fmt="%d")
        for split in range(2):
            order = np.random.default_rng(split).permutation(60)
            np.savetxt(home / f"index_train_{split}.txt", order[6:], fmt="%d")
            np.savetxt(home / f"index_test_{split}.txt", order[:6], fmt="%d")


# --- problems -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_follows_from_its_seed_and_fits_its_network(name, tmp_path):
    write_uci(tmp_path)
    problem, state = PROBLEMS[name], torch.random.get_rng_state()
    parts, again, other = (problem.draw(seed, tmp_path) for seed in (4, 4, 5))
    assert torch.equal(parts.train.inputs, again.train.inputs)
    assert not torch.equal(parts.train.inputs, other.train.inputs)
    net, same = build_network(problem, 4), build_network(problem, 4)
    assert all(torch.equal(one, two) for one, two in zip(net.parameters(), same.parameters(), strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)
    for rows in (parts.train, parts.validation, parts.test):
        assert rows.inputs.dtype == torch.float32
        log_prob = problem.likelihood().log_prob(net(rows.inputs)[None], rows.targets)
        assert log_prob.shape == (1, len(rows.targets))
        assert torch.isfinite(log_prob).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_row_is_in_two_parts(name, tmp_path):
    write_uci(tmp_path)
    parts = PROBLEMS[name].draw(1, tmp_path)
    rows = torch.cat([part.inputs.flatten(1) for part in (parts.train, parts.validation, parts.test)])
    assert len(rows.unique(dim=0)) == len(rows)


def test_uci_rows_are_those_of_the_published_split_and_go_back_to_their_units(tmp_path):
    write_uci(tmp_path)
    numbers = np.loadtxt(tmp_path / "boston" / "data" / "data.txt")
    published = np.loadtxt(tmp_path / "boston" / "data" / "index_test_1.txt").astype(int)
    parts = PROBLEMS["boston"].draw(301, tmp_path)  # of two splits number 301 is number 1
    back = parts.shift + parts.scale * parts.test.targets.double()
    np.testing.assert_allclose(back, numbers[published, 13], rtol=1e-5)
    assert [len(part.targets) for part in (parts.train, parts.validation, parts.test)] == [49, 5, 6]
    assert float(parts.train.targets.mean()) == pytest.approx(0.0, abs=1e-6)


def test_problems_without_data_are_left_out_and_told(monkeypatch, tmp_path):
    monkeypatch.setattr(plain_problems, "find_spec", lambda _: None)
    assert available(None) == ("moons", "heteroscedastic", "three-outputs")
    said = notes(Config(("moons",)), None)
    assert any("Left out: boston, no data; copy" in note and "LIVI_DATA_DIR" in note for note in said)
    assert any("Left out: digits-cnn, no data; install scikit-learn" in note for note in said)
    with pytest.raises(FileNotFoundError, match="energy: expected its data, got none; copy"):
        bench(Config(("energy",)), tmp_path, None)


# --- ordinary training ----------------------------------------------------------------------------


def test_plain_training_finds_the_noise_of_every_output():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 2, generator=rng)
    noise = torch.tensor([0.1, 1.0])
    y = x + noise * torch.randn(2000, 2, generator=rng)
    net = nn.Linear(2, 2)
    before = net.weight.detach().clone()
    found = train(net, x, y, Gaussian(), Training(rate=3e-2, epochs=20), seed=0)
    assert torch.equal(net.weight, before)
    assert found.log_std is not None
    # The standard error of a log standard deviation is 1 / sqrt(2 n); weight decay adds to it a little.
    assert ((found.log_std - noise.log()).abs() < 4.0 / math.sqrt(2 * 2000)).all()
    assert not found.net.training


def test_plain_training_follows_from_its_seed():
    problem = PROBLEMS["moons"]
    rows = problem.draw(0, None).train
    one, same, other = (
        train(build_network(problem, 0), *rows, Categorical(), replace(problem.training, epochs=2), seed=seed)
        for seed in (0, 0, 1)
    )
    weights = [torch.cat([part.flatten() for part in found.net.parameters()]) for found in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    torch.testing.assert_close(weights[0], weights[2], rtol=1e-3, atol=1e-4)  # all rows are one batch, in another order


def test_an_ensemble_is_the_mixture_of_its_members():
    members = [PlainNetwork(build_network(PROBLEMS["heteroscedastic"], seed), None) for seed in range(3)]
    x, y = torch.randn(4, 1), torch.randn(4)
    likelihood = HeteroscedasticGaussian()
    together = predict_plain(members, x, likelihood).log_prob(y)
    apart = torch.stack([predict_plain([member], x, likelihood).log_prob(y) for member in members])
    torch.testing.assert_close(together.exp(), apart.exp().mean(0))
    with pytest.raises(TypeError, match="likelihood: expected Categorical, Gaussian"):
        predict_plain(members, x, FunctionLikelihood(lambda outputs, _: outputs[..., 0]))


# --- scores ---------------------------------------------------------------------------------------


def test_scores_are_in_the_units_of_the_targets():
    prediction = RegressionPrediction(torch.zeros(1, 2, 1), torch.ones(1, 2, 1))
    rows = Rows(torch.zeros(2, 1), torch.tensor([0.0, 3.0]))
    found = scores(prediction, rows, Parts(rows, rows, rows, shift=5.0, scale=10.0))
    assert found["rmse"] == pytest.approx(10.0 * math.sqrt(4.5))
    assert found["nll"] == pytest.approx(0.5 * math.log(2 * math.pi) + math.log(10.0) + 2.25)
    assert found["coverage"] == 0.5
    assert found["outputs"] is None


def test_several_outputs_are_scored_together_and_apart():
    prediction = RegressionPrediction(torch.zeros(1, 2, 2), torch.tensor([1.0, 2.0]))
    rows = Rows(torch.zeros(2, 1), torch.tensor([[0.0, 9.0], [1.0, 9.0]]))
    found = scores(prediction, rows, Parts(rows, rows, rows))
    assert [output["coverage"] for output in found["outputs"]] == [1.0, 0.0]
    assert sum(output["nll"] for output in found["outputs"]) == pytest.approx(found["nll"])


# --- runs -----------------------------------------------------------------------------------------


def test_the_command_runs_every_method_and_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("LIVI_DATA_DIR", raising=False)
    arguments = ["bench", "plain", "--steps", "20", "--seeds", "3,4", "--part", "validation", "--out", str(tmp_path)]
    arguments += ["--only", "moons,three-outputs", "--methods", "plain,ensemble,livi"]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert "At most 20 steps instead of fits. The numbers mean nothing." in out
    assert "Scored on validation rows" in out
    assert "Left out: boston, no data" in out
    assert "| moons | plain | 2 |" in out
    assert "| three-outputs, output 3 | livi | 2 |" in out
    assert "livi is at least as good as plain in NLL on" in out
    assert "12 of 12: three-outputs livi seed 4" in err
    document = json.loads((tmp_path / "plain-validation.json").read_text())
    assert [row["error"] for row in document["rows"]] == [None] * 12
    assert document["machine"]["cpu"]
    assert text(document) + "\n" == out
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out == out  # nothing was fitted again, seconds included
    assert cli.main([*arguments, "--steps", "21"]) == 1
    assert "choose another folder" in capsys.readouterr().err


def test_the_part_decides_which_rows_are_scored_and_not_what_is_fitted(monkeypatch):
    seen = []

    def spy(task):
        seen.append(task)
        return METHODS["plain"](task)

    monkeypatch.setitem(METHODS, "ensemble", spy)
    for part in ("validation", "test"):
        fit_row(("moons", "ensemble", 0), Config(("moons",), part=part, steps=1), None)
    parts = PROBLEMS["moons"].draw(0, None)
    assert torch.equal(seen[0].inputs, parts.validation.inputs)
    assert torch.equal(seen[1].inputs, parts.test.inputs)
    assert torch.equal(seen[0].parts.train.inputs, seen[1].parts.train.inputs)


def test_livi_is_fitted_without_options_and_from_the_trained_network(monkeypatch):
    seen = []

    def spy(net, data, likelihood, **options):
        seen.append((net, options))
        raise FitError("seen enough")

    monkeypatch.setattr(plain_methods, "fit", spy)
    config = Config(("moons",))
    rows = [fit_row(("moons", method, 7), config, None) for method in ("livi", "livi-net")]
    assert [options for _, options in seen] == [
        {"seed": 7, "progress": False},
        {"seed": 7, "progress": False, "start": "net"},
    ]
    fresh = build_network(PROBLEMS["moons"], 7000)
    assert torch.equal(seen[0][0][0].weight, fresh[0].weight)
    assert not torch.equal(seen[1][0][0].weight, fresh[0].weight)
    assert [row["error"] for row in rows] == ["FitError: seen enough"] * 2


def test_a_method_that_fails_is_a_row_and_is_tried_again(tmp_path, monkeypatch):
    config = Config(("moons",), ("plain", "livi"), (0,), steps=2)
    with monkeypatch.context() as broken:

        def failing(task):
            raise FitError("no luck")

        broken.setitem(METHODS, "livi", failing)
        document = bench(config, tmp_path, None, say=lambda _: None)
    plain, livi = document["rows"]
    assert (plain["error"], livi["error"]) == (None, "FitError: no luck")
    assert livi["nll"] is livi["seconds"] is None
    assert "| moons | livi | 0, 1 failed | – | – | – | – | – |" in text(document)
    assert "- livi on moons (0): failed: FitError: no luck" in text(document)
    document = bench(config, tmp_path, None, say=lambda _: None)
    assert [row["error"] for row in document["rows"]] == [None, None]
    assert json.loads((tmp_path / "plain.json").read_text()) == document


def test_warnings_of_a_fit_are_kept_with_its_row(monkeypatch):
    def warned(task):
        warnings.warn("too wide", FitWarning, stacklevel=1)
        return Answer(METHODS["plain"](task).prediction, 1.0)

    monkeypatch.setitem(METHODS, "livi", warned)
    row = fit_row(("moons", "livi", 0), Config(("moons",), steps=1), None)
    assert row["warnings"] == ["FitWarning: too wide"]
    assert messages([row]) == ["livi on moons (0): FitWarning: too wide"]


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path):
    config = Config(("moons", "heteroscedastic"), ("plain",), (0,), steps=3)
    one, two = (bench(config, tmp_path / str(jobs), None, jobs=jobs, say=lambda _: None)["rows"] for jobs in (1, 2))
    timed = {"seconds": None, "whole_seconds": None}
    assert [row | timed for row in one] == [row | timed for row in two]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "iris"], "problems: expected some of digits-mlp"),
        (["--only", "moons,moons"], "different names"),
        (["--methods", "swag"], "methods: expected some of plain, ensemble, livi, livi-net"),
        (["--seeds", "1,1"], "seeds: expected different numbers"),
        (["--seeds", "one"], "--seeds"),
        (["--seeds", ""], "seeds: expected different numbers from 0 on, got none"),
        (["--part", "train"], "--part"),
        (["--steps", "0"], "--steps"),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_wrong_usage_is_said_in_words(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", "plain", *arguments])
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


# --- what is printed ------------------------------------------------------------------------------


def made_up(problem, method, values, *, coverage=None, accuracy=0.9, seconds=2.0, error=None):
    regression = coverage is not None
    scored = {"rmse": 1.0, "coverage": coverage} if regression else {"accuracy": accuracy, "ece": 0.01}
    return [
        {
            "problem": problem,
            "method": method,
            "seed": seed,
            "task": "regression" if regression else "classification",
            "nll": value,
            **scored,
            "seconds": seconds,
            "outputs": None,
            "warnings": [],
            "error": error,
        }
        for seed, value in enumerate(values)
    ]


ROWS = [
    *made_up("won", "plain", [0.50, 0.60, 0.70]),
    *made_up("won", "livi", [0.40, 0.50, 0.60], seconds=30.0),
    *made_up("level", "plain", [0.50, 0.60, 0.70]),
    *made_up("level", "livi", [0.40, 0.73, 0.70], accuracy=0.8),
    *made_up("lost", "plain", [0.50, 0.60, 0.70]),
    *made_up("lost", "livi", [0.51, 0.62, 0.70]),
    *made_up("failed", "plain", [0.50]),
    *made_up("failed", "livi", [None], error="FitError: no luck"),
]


def test_the_table_has_means_and_standard_errors_and_seconds_in_those_of_plain():
    lines = {
        tuple(cell.strip() for cell in line.split("|")[1:3]): line
        for line in task_table(ROWS, "classification").splitlines()
    }
    accuracy, ece = "**90.00** ± 0.00", "**1.00** ± 0.00"
    assert f"| 3 | 0.600 ± 0.058 | {accuracy} | {ece} | 2.0 ± 0.0 | 1.0 ± 0.0 |" in lines["won", "plain"]
    assert f"| 3 | **0.500** ± 0.058 | {accuracy} | {ece} | 30.0 ± 0.0 | 15.0 ± 0.0 |" in lines["won", "livi"]
    assert "| **0.610** ± 0.105 | 80.00 ± 0.00 |" in lines["level", "livi"]
    assert f"| 0.610 ± 0.055 | {accuracy} |" in lines["lost", "livi"]
    assert "| 0, 1 failed | – | – | – | – | – |" in lines["failed", "livi"]


def test_livi_is_worse_than_plain_beyond_one_standard_error_of_the_difference():
    def methods(problem):
        some = [row for row in ROWS if row["problem"] == problem]
        return {name: [row for row in some if row["method"] == name] for name in ("plain", "livi")}

    found = {name: [worse(methods(name), "livi", column) for column in (NLL, ACCURACY)] for name in ("won", "level")}
    assert found == {"won": [False, False], "level": [False, True]}
    assert worse(methods("lost"), "livi", NLL)


def test_the_verdict_counts_and_names_the_problems():
    nll, accuracy, calibration = verdicts(ROWS)
    assert nll == "livi is at least as good as plain in NLL on 2 of 4 problems; worse on lost; no result on failed."
    assert "accuracy or RMSE on 2 of 4 problems; worse on level; no result on failed." in accuracy
    assert "ECE or coverage on 3 of 4 problems; no result on failed." in calibration
    some = [*made_up("part", "plain", [1.0, 1.0]), *made_up("part", "livi", [0.5])]
    some += [row | {"seed": 1} for row in made_up("part", "livi", [None], error="FitError: no luck")]
    assert verdicts(some)[0].endswith("on 1 of 1 problems; some seeds failed on part.")
    assert verdicts(made_up("alone", "livi", [1.0])) == []


def test_coverage_is_worse_the_farther_it_is_from_its_level():
    for share, expected in ((0.8, True), (0.97, True), (0.86, False), (0.9, False)):
        methods = {
            "plain": made_up("p", "plain", [1.0], coverage=0.95),
            "livi": made_up("p", "livi", [1.0], coverage=share),
        }
        assert worse(methods, "livi", COVERAGE) == expected


def test_a_score_that_is_not_finite_is_worse_and_told():
    rows = [*made_up("p", "plain", [1.0, 1.0]), *made_up("p", "livi", [0.5, None])]
    assert worse({"plain": rows[:2], "livi": rows[2:]}, "livi", NLL)
    assert not worse({"plain": rows[:2], "livi": rows[2:]}, "livi", ACCURACY)
    assert messages(rows) == ["livi on p (1): not finite: NLL"]
    assert KIND.summary(rows)[1]["nll"]["mean"] == 0.5
