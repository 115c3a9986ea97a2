"""`livi.compare`: every method on the same examples with the same budget, and what fails says why."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from support.browser import Browser, find_chromium
from torch import nn

import livi
from livi.comparison.comparing import gradients_of
from livi.comparison.result import comparison_of
from livi.report.compared import Compared, ranked
from livi.report.comparison_page import headline
from livi.report.results import joined

NET = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))


@pytest.fixture(scope="module")
def numbers():
    torch.set_default_dtype(torch.float64)
    x = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
    y = x[:, :1] * x[:, 1:] + 0.1 * torch.randn(120, 1, generator=torch.Generator().manual_seed(1))
    methods = {
        "livi": {},
        "ensemble": {},
        "two members": {"method": "ensemble", "members": 2},
        "mine": lambda net, data, likelihood, **options: livi.rivals.fit_map(net, data, likelihood, **options),
        "mc_dropout": {},  # which this network has none of
        "map": {"recipe": livi.Recipe(map_steps=1, map_restarts=1)},
    }
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    recipe = livi.Recipe(map_steps=60, map_restarts=2)
    found = livi.compare(net, (x, y), methods=methods, gradients=1_500, progress=False, recipe=recipe)
    torch.set_default_dtype(torch.float32)
    return found


def test_rows_come_best_first_and_failures_last_with_their_reason(numbers):
    scores = [row.scores["nll"] for row in numbers.rows if not row.trouble]
    assert scores == sorted(scores)
    assert [row.name for row in numbers.rows if row.trouble] == ["mc_dropout"]
    assert "expected nn.Dropout with p > 0" in str(numbers)
    assert numbers.rows[-1].name == "mc_dropout"
    assert numbers.posteriors.keys() == {row.name for row in numbers.rows[:-1]}
    assert (numbers.num_train, numbers.num_held_out) == (96, 24)


def test_scores_are_those_of_the_posteriors_on_the_held_out_examples(numbers):
    found = numbers.to_dict()["methods"]["ensemble"]
    row = next(row for row in numbers.rows if row.name == "ensemble")
    assert found["nll"] == pytest.approx(-row.log_prob.mean())
    assert found["nll_standard_error"] == pytest.approx(row.log_prob.std(ddof=1) / 24**0.5)
    assert found["nll_behind"] == pytest.approx(np.mean(numbers.rows[0].log_prob - row.log_prob))
    assert 0.0 <= found["coverage"] <= 1.0


def test_budgets_are_spent_unless_options_say_otherwise(numbers):
    spent = {row.name: row.gradients for row in numbers.rows if not row.trouble}
    assert spent["livi"] == pytest.approx(1_500, rel=0.1)
    assert spent["ensemble"] == pytest.approx(1_500, rel=0.1)
    assert spent["map"] == 1
    assert numbers.posteriors["two members"].sampler.num_members == 2
    assert gradients_of(numbers.posteriors["mine"]) == 120


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_chains_spend_as_much_as_others():
    x = torch.linspace(-1, 1, 50, dtype=torch.float32)[:, None]
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)).float()
    budget = {"methods": ["livi", "langevin"], "gradients": 20_000, "progress": False}
    found = livi.compare(net, (x, torch.sin(3 * x)), livi.HeteroscedasticGaussian(), **budget)
    assert "polish" in found.posteriors["livi"].plan
    assert {row.name: row.gradients for row in found.rows} == pytest.approx(
        {"livi": 20_000, "langevin": 20_000}, rel=0.15
    )


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_gradients_on_all_data_count_as_many_as_there_are_batches():
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    budget = {"methods": ["map", "langevin"], "gradients": 6_000, "progress": False}
    found = livi.compare(NET, (x, x[:, :1]), livi.Gaussian(), batch_size=10, **budget)
    plan = found.posteriors["langevin"].plan
    assert plan["steps_per_epoch"] == 8
    taken = plan["gradients"] + 8 * 8 * plan["polish"]["gradients"]  # by eight chains
    row = next(row for row in found.rows if row.name == "langevin")
    assert row.gradients == taken == pytest.approx(6_000, rel=0.15)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_nuts_counts_its_gradients_by_batches():
    pytest.importorskip("numpyro")
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    data, net = (x, x[:, :1]), nn.Linear(2, 1)
    brief = {"chains": 1, "warmup": 5, "draws": 5, "max_tree_depth": 3, "recipe": livi.Recipe(map_steps=7)}
    for batch_size, batches in ((None, 1), (10, 3)):
        posterior = livi.rivals.fit_nuts(net, data, livi.Gaussian(0.5), batch_size=batch_size, **brief)
        trajectories = 10 * livi.rivals.NutsReport.of(posterior).leapfrog_steps
        assert gradients_of(posterior) == 7 + round(batches * trajectories)


def test_a_method_without_finite_predictions_is_no_winner(tmp_path):
    x = torch.linspace(-1, 1, 30)[:, None].double()
    net = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1)).double()

    def lost(net, data, likelihood, **options):
        posterior = livi.rivals.fit_map(net, data, likelihood, **options)
        posterior.sampler.theta.fill_(float("nan"))
        return posterior

    brief = {"method": "map", "recipe": livi.Recipe(map_steps=20, map_restarts=1)}
    found = livi.compare(net, (x, x**2), methods={"lost": lost, "map": brief}, gradients=20, progress=False)
    assert [row.name for row in found.rows] == ["map", "lost"]
    assert "expected finite predictions" in found.rows[1].trouble
    found.save(tmp_path / "found.json")


def test_the_table_has_every_form(numbers, tmp_path):
    lines = list(csv.DictReader(io.StringIO(numbers.to_csv())))
    assert [line["name"] for line in lines] == [row.name for row in numbers.rows]
    assert float(lines[0]["nll"]) == pytest.approx(numbers.rows[0].scores["nll"])
    assert json.loads(json.dumps(numbers.to_dict(), allow_nan=False))["gradients"] == 1_500
    markdown = numbers.to_markdown().splitlines()
    assert markdown[1].startswith("| --- | ---: |")
    assert len(markdown) == 2 + len(numbers.posteriors)
    for name in ("table.csv", "table.md", "figure.svg", "figure.png"):
        numbers.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 100
    numbers.save(tmp_path / "table.json")
    [result] = joined([tmp_path])
    assert {row["method"]: row.get("nll") for row in result.rows} == {
        row.name: row.scores.get("nll") for row in numbers.rows
    }
    with pytest.raises(ValueError, match=r"path: expected a name that ends in one of .html, .csv"):
        numbers.save(tmp_path / "table.xlsx")


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium")
def test_the_page_asks_for_nothing_and_says_nothing(numbers, tmp_path):
    numbers.save(tmp_path / "page.html")
    with Browser(tmp_path) as browser:
        browser.visit(tmp_path / "page.html")
        assert browser.errors == []
        assert [url.partition(":")[0] for url in browser.requests] == ["file", "data"]
        assert browser.run("document.querySelectorAll('tbody tr').length") == len(numbers.posteriors)
        assert browser.run("document.querySelector('img').naturalWidth") > 1000
        browser.visit(tmp_path / "page.html", width=400)
        assert browser.run("document.documentElement.scrollWidth") <= 400


def test_classes_are_found_by_their_targets_and_have_a_reliability_curve():
    x = torch.randn(80, 2)
    data = (x, (x[:, 0] * x[:, 1] > 0).long())
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2))
    found = livi.compare(net, data, methods=["map", "ensemble"], gradients=400, validation=0.5, progress=False)
    assert type(found.posteriors["map"].likelihood) is livi.Categorical
    assert {"accuracy", "brier", "ece"} <= found.to_dict()["methods"]["map"].keys()
    confidence, right = found.rows[0].curve
    assert len(confidence) == 10
    assert (np.diff(confidence) >= 0).all()
    assert (right <= 1).all()
    assert "coverage" not in str(found)
    found.figure()


def test_labels_that_are_ignored_are_in_no_score_and_no_curve():
    x = torch.randn(80, 2)
    labels = (x[:, 0] > 0).long()
    held = (x, labels.where(torch.arange(80) % 2 == 0, -100))
    options = {"methods": ["map"], "gradients": 400, "progress": False}
    row = livi.compare(nn.Linear(2, 2), (x, labels), validation=held, **options).rows[0]
    assert len(row.log_prob) == 40
    assert row.scores["nll"] == pytest.approx(-row.log_prob.mean())
    assert row.curve[1].mean() == pytest.approx(row.scores["accuracy"])


def test_labels_between_yes_and_no_have_their_nll_and_no_curve():
    x = torch.randn(80, 2)
    data = (x, torch.sigmoid(2.0 * x[:, 0]))
    found = livi.compare(nn.Linear(2, 1), data, livi.Bernoulli(), methods=["map"], gradients=400, progress=False)
    assert found.rows[0].scores.keys() == {"nll"}
    assert found.rows[0].curve is None
    found.figure()


def test_held_out_data_may_be_given_and_scores_be_in_the_users_units():
    net = nn.Linear(2, 1)
    x = torch.randn(60, 2)
    y = x.sum(1) + 0.1 * torch.randn(60)
    options = {"methods": ["map"], "gradients": 300, "progress": False}
    plain = livi.compare(net, (x[:40], y[:40]), validation=(x[40:], y[40:]), **options)
    scaled = livi.compare(net, (x[:40], y[:40]), validation=(x[40:], y[40:]), units=(7.0, 10.0), **options)
    one, other = (each.rows[0].scores for each in (plain, scaled))
    assert other["rmse"] == pytest.approx(10 * one["rmse"])
    assert other["nll"] == pytest.approx(one["nll"] + np.log(10))
    assert plain.num_held_out == 20


def test_what_cannot_be_compared_is_refused():
    data = (torch.randn(20, 2), torch.randn(20))
    with pytest.raises(ValueError, match=r"method: expected one of livi, .* got 'swagg'; did you mean 'swag'"):
        livi.compare(NET, data, methods=["swagg"], progress=False)
    with pytest.raises(TypeError, match="methods: expected names in a list, got the text 'swag'"):
        livi.compare(NET, data, methods="swag", progress=False)
    with pytest.raises(ValueError, match=r"compare: expected one method with a result, got none. MC dropout: "):
        livi.compare(NET.double(), data, methods=["mc_dropout"], gradients=50, progress=False)


def test_the_headline_says_who_is_not_clearly_behind():
    good, close, far = (
        Compared(name, name, {"nll": float(shift)}, log_prob=np.array([0.0, 1.0, 2.0, 3.0]) - shift + wobble)
        for name, shift, wobble in (
            ("A", 0, 0),
            ("B", 0.01, np.array([0.1, -0.1, 0.1, -0.1])),
            ("C", 1, 0),
        )
    )
    rows = ranked([far, close, Compared("D", "D", trouble="no"), good])
    assert [row.name for row in rows] == ["A", "B", "C", "D"]
    assert headline(rows) == "A has the best score; not clearly behind: B"
    assert headline(ranked([good, far])) == "A has the best score, by more than two standard errors"
    assert headline(ranked([good, close])) == "A has the best score, and none is clearly behind"


def test_livi_with_options_of_its_own_has_the_same_budget():
    x = torch.linspace(-1, 1, 30)[:, None].float()
    net = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1)).float()
    sampled = {"method": "livi", "last_layer": "sampled"}
    methods = {"one": sampled, "two": sampled | {"components": 2}, "fixed": sampled | {"steps": 10}}
    found = livi.compare(net, (x, x**2), methods=methods, gradients=3_000, progress=False)
    spent = {row.name: row.gradients for row in found.rows}
    assert spent["one"] == pytest.approx(3_000, rel=0.05)
    assert spent["two"] == pytest.approx(3_000, rel=0.05)
    assert spent["fixed"] < 2_000


def test_one_held_out_example_is_compared_and_written():
    x = torch.linspace(-1, 1, 30)[:, None].float()
    net = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1)).float()
    options = {"methods": ["map", "ensemble"], "gradients": 100, "progress": False}
    found = livi.compare(net, (x, x**2), validation=(x[:1], x[:1] ** 2), **options)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["methods"]["map"]["nll_standard_error"] == 0.0
    assert all(row.as_good_as(found.rows[0]) for row in found.rows)


def test_a_recipe_is_everybodys_and_the_budget_stays_equal():
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    recipe = livi.Recipe(num_samples=2, map_restarts=2, map_rate=1e-4)
    methods = ["map", "mean_field", "swag"]
    found = livi.compare(NET, (x, x[:, :1]), methods=methods, gradients=600, recipe=recipe, progress=False)
    for name in methods:
        kept = found.posteriors[name].plan["recipe"]
        assert kept["map_rate"] == 1e-4
        assert gradients_of(found.posteriors[name]) == pytest.approx(600, rel=0.35), name


def test_what_a_method_of_ones_own_raises_is_told_beside_the_others():
    def broken(net, data, likelihood, **options):
        raise KeyError("scale")

    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    found = livi.compare(NET, (x, x[:, :1]), methods={"map": {}, "mine": broken}, gradients=200, progress=False)
    assert {row.name: row.trouble for row in found.rows} == {"map": "", "mine": "missing key 'scale'"}


def test_a_validation_loader_that_drops_examples_is_named():
    x = torch.randn(60, 2)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :1]), 8, drop_last=True)
    with pytest.raises(ValueError, match=r"validation: expected each example once.*drop_last=False"):
        livi.compare(NET, (x, x[:, :1]), methods=["map"], validation=loader, gradients=200, progress=False)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"steps": 10}, r"got 'steps', but methods have equal budgets in gradients: pass gradients="),
        ({"budget": "1 min"}, r"got 'budget', but methods have equal budgets in gradients"),
        ({"batchsize": 5}, r"compare: got 'batchsize'; did you mean 'batch_size'\?"),
    ],
)
def test_options_that_there_are_not_are_named_with_a_remedy(option, said):
    x = torch.linspace(-1, 1, 20)[:, None]
    with pytest.raises(TypeError, match=said):
        livi.compare(nn.Linear(1, 1), (x, x), methods=["map"], progress=False, **option)


def compared(name, log_prob, gradients=100):
    return Compared(name, name, {"nll": float(-np.mean(log_prob))}, log_prob=np.array(log_prob), gradients=gradients)


def test_a_star_beside_a_large_error_is_said_to_mean_little():
    usual = np.linspace(-1.0, 1.0, 20)
    good, close, far = compared("A", usual), compared("B", usual - 0.01), compared("C", usual - 3.0)
    close.log_prob[::2] += 0.015
    spoiled = compared("D", [*(usual[:-1] - 0.01), -200.0])  # by one example: behind by 10 ± 10
    assert spoiled.as_good_as(good)
    table = str(comparison_of([good, close, far, spoiled], {}, 100, 80, 20, 0))
    assert "D *" in table
    assert "C *" not in table
    assert "Of D the error is so large that these examples cannot tell." in table
    assert "none is clearly the best" not in table
    assert "all of them: none is clearly the best." in str(comparison_of([good, close], {}, 100, 80, 20, 0))
    plain = str(comparison_of([good, far], {}, 100, 80, 20, 0))
    assert "cannot tell" not in plain
    assert "none is clearly" not in plain


def test_who_took_more_than_the_budget_is_named():
    rows = [compared("A", [0.0, 1.0], 105), compared("B", [0.0, 1.5], 230), compared("C", [0.0, 0.5], None)]
    assert "are in the table. More than the budget took: B 2.3 times as many." in str(
        comparison_of(rows, {}, 100, 80, 2, 0)
    )
    assert "More than the budget" not in str(comparison_of(rows[::2], {}, 100, 80, 2, 0))
