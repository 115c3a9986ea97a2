"""What a report says beside the scores: baselines, what predictions depend on, and advice that can be followed."""

import ast
import inspect
import json
import re

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from support.table_commands import SMALL, failed

import livi
from livi import cli
from livi.inference import alarms
from livi.posterior.diagnostics import comparison, spread, verdict
from livi.posterior.diagnostics.layers import Layers
from livi.tables.baselines import Baselines
from livi.tables.content import Finding, Metric
from livi.tables.drivers import drivers, effects
from livi.tables.evaluation import shown
from livi.tables.model import LOW_BOUND, TableModel
from livi.tables.schema import Column, Schema
from livi.tables.wording import in_options

RNG = np.random.default_rng(0)
X = np.stack([RNG.normal(100.0, 20.0, 300), RNG.uniform(size=300), np.zeros(300)], 1)
Y = 5.0 * X[:, 0] - 300.0 * X[:, 1] + RNG.normal(0.0, 10.0, 300)
LABELS = (np.median(Y) < Y).astype(np.int64)


def metrics(*keys):
    return tuple(Metric(key, key, 0.0, "") for key in keys)


def beside(baselines, keys, features, targets):
    found = baselines.beside(metrics(*keys), features, targets)
    return {one.key: [other.value for other in one.baselines] for one in found}


# --- baselines ------------------------------------------------------------------------------------


def test_the_baselines_of_numbers_are_the_mean_and_a_linear_model():
    baselines = Baselines.of_numbers(X[:200], Y[:200])
    found = beside(baselines, ("rmse", "mae", "r2", "log_score", "crps", "pit_distance"), X[200:], Y[200:])
    linear = LinearRegression().fit(X[:200], Y[:200]).predict(X[200:])
    rmse = float(np.sqrt(np.mean((linear - Y[200:]) ** 2)))
    mean = float(np.sqrt(np.mean((Y[:200].mean() - Y[200:]) ** 2)))
    assert found["rmse"] == pytest.approx([mean, rmse], rel=0.01)
    assert found["r2"][0] == pytest.approx(0.0, abs=0.05)
    assert found["r2"][1] > 0.98
    residual = Y[:200] - LinearRegression().fit(X[:200], Y[:200]).predict(X[:200])
    variance = np.square(residual).sum() / (200 - 4)
    log_score = -0.5 * np.log(2 * np.pi * variance) - 0.5 * rmse**2 / variance
    assert found["log_score"][1] == pytest.approx(log_score, rel=0.01)
    assert found["crps"][1] == pytest.approx(rmse / np.sqrt(np.pi), rel=0.1)  # of a calibrated Gaussian
    assert found["pit_distance"] == []


@pytest.mark.parametrize("count", [2, 3])
def test_the_baselines_of_classes_are_their_shares_and_a_linear_model(count):
    labels = np.digitize(Y, np.quantile(Y, np.arange(1, count) / count))
    baselines = Baselines.of_classes(X[:200], labels[:200], count)
    found = beside(baselines, ("accuracy", "nll", "auroc", "ece"), X[200:], labels[200:])
    units = (X - X[:200].mean(0)) / np.where(X[:200].std(0) > 0, X[:200].std(0), 1.0)
    model = LogisticRegression(max_iter=500).fit(units[:200], labels[:200])
    assert found["accuracy"][1] == pytest.approx(model.score(units[200:], labels[200:]), abs=1e-9)
    chances = model.predict_proba(units[200:])[np.arange(100), labels[200:]]
    assert found["nll"][1] == pytest.approx(-np.log(chances).mean(), rel=1e-3)
    shares = np.bincount(labels[:200]) / 200
    assert found["nll"][0] == pytest.approx(-np.log(shares[labels[200:]]).mean())
    assert bool(found["auroc"]) == (count == 2)


def test_baselines_come_back_from_a_file_and_others_are_refused():
    baselines = Baselines.of_numbers(X, Y)
    again = Baselines.from_facts(baselines.facts(), 3, 0)
    assert beside(again, ("rmse",), X, Y) == beside(baselines, ("rmse",), X, Y)
    with pytest.raises(ValueError, match="of other sizes"):
        Baselines.from_facts(baselines.facts(), 4, 0)


# --- drivers --------------------------------------------------------------------------------------


class Known:
    """An estimator whose networks are lines with slopes 1 and 3, times the first feature."""

    class Prediction:
        def __init__(self, X):
            first = torch.from_numpy(X[:, 0])
            self.means = torch.stack([first, 3.0 * first])
            self.mean = 2.0 * first

    def read_predictive(self, X, what, **_):
        return [part.numpy() for part in what(self.Prediction(X), slice(None))]


SCHEMA = Schema("y", "regression", (Column("a", "numeric"), Column("b", "numeric", missing=1), Column("c", "numeric")))


def test_the_column_that_matters_comes_first_and_others_cost_nothing():
    features = np.concatenate([X[:, :2], X[:, 1:]], 1)
    first, *others = drivers(Known(), SCHEMA, features, 2.0 * X[:, 0])
    assert first.name == "a"
    assert first.error == 0.0
    assert first.without == pytest.approx(2.0 * np.sqrt(2.0) * 20.0, rel=0.1)  # of independent pairs
    assert all(one.without == 0.0 for one in others)


def test_an_effect_is_the_average_along_a_column_with_the_networks_range():
    features = np.concatenate([X[:, :2], X[:, 1:]], 1)
    one, other = effects(Known(), SCHEMA, features, ("a", "b"))
    values = np.array(one.values)
    np.testing.assert_allclose(one.mean, 2.0 * values)
    np.testing.assert_allclose(one.low, 1.1 * values)  # the 5 % quantile of two networks
    np.testing.assert_allclose(one.high, 2.9 * values)
    assert np.ptp(other.mean) == pytest.approx(0.0, abs=1e-9)


def test_the_curve_of_an_effect_has_no_room_for_codes():
    features = np.concatenate([X[:, :2], X[:, 1:]], 1)
    features[::50, 0] = 99999.0
    coded, _ = effects(Known(), SCHEMA, features, ("a", "b"))
    assert max(coded.values) <= X[:, 0].max()


# --- words ----------------------------------------------------------------------------------------

PYTHON = re.compile(r"Recipe|Effort|latent_dim|num_samples|num_data|max_iterations|include=|livi\.\w|generator of")
ADVISERS = [verdict, comparison, alarms]


def sentences(module):
    """Every text in a module's source, with what is put into it left out."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith("."):
            yield node.value


@pytest.mark.parametrize("module", ADVISERS, ids=lambda module: module.__name__)
def test_no_advice_of_a_report_is_about_what_the_command_line_lacks(module):
    documented = {inspect.getdoc(module), *(inspect.getdoc(part) for part in vars(module).values())}
    found = [text for text in sentences(module) if text not in documented and PYTHON.search(in_options(text))]
    assert found == []


@pytest.mark.parametrize(
    ("said", "advised"),
    [
        ("3.6 per weight: fit for more steps, or make fewer weights stochastic (include=).", "weight: raise --steps."),
        ("no promise, fit for more steps or make fewer weights stochastic (include=).", "promise, raise --steps."),
        (
            "no promise, learn the noise (noise=livi.LearnedNoise()) or make fewer weights stochastic (include=).",
            "promise, lower --hidden.",
        ),
        ("worth. Fit for more steps, or use livi.rivals.fit_mean_field where the bound matters.", "Raise --steps."),
        ("unknown weights. Raise steps, or start from a better fit.", "weights. Raise --steps."),
        ("Variances will be off; raise steps, or start from a better fit.", "off; raise --steps."),
    ],
)
def test_advice_is_that_of_the_command_line(said, advised):
    assert in_options(said).endswith(advised)


def test_a_low_bound_is_one_sentence_where_predictions_were_judged_by_rows():
    low = Finding("warning", comparison.MEAN_FIELD, "-9 nats lies below -3.")
    other = Finding("warning", "spread", "wide.")
    fine = Finding("ok", comparison.NO_LEARNING, "fine.")
    judged = TableModel(None, None, {}, findings=(low, other, fine), validation=object())
    assert judged.warnings() == ["warning, spread: wide.", LOW_BOUND]
    unjudged = TableModel(None, None, {}, findings=(low, fine))
    assert unjudged.warnings() == [f"warning, {low.topic}: {low.text}"]


def test_a_part_of_a_variance_is_no_more_than_all_of_it():
    layout = livi.Layout(torch.nn.Linear(3, 2))
    generator = livi.Affine(2, layout.num_params)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter.zero_()
    posterior = livi.ImplicitPosterior(layout, generator, livi.FixedNoise(0.1))
    samples = posterior.sample(30, torch.Generator().manual_seed(0)).detach()
    assert spread._noise_share(samples, Layers(layout, 100), posterior) <= 1.0


# --- the commands ---------------------------------------------------------------------------------


def test_a_report_that_is_no_page_is_refused_before_any_work(here, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["fit", "houses.csv", "--target", "price", "--out", "m.livi", "--report", "r.pdf"])
    assert stopped.value.code == 2
    assert "ends in .html, got 'r.pdf'; a browser prints the page to a PDF" in capsys.readouterr().err


def test_an_evaluation_is_titled_by_its_own_file_and_has_baselines(model, here, capsys):
    (here / "later.csv").write_bytes((here / "houses.csv").read_bytes())
    assert cli.main(["evaluate", "houses.livi", "later.csv", "--report", "r.html", "--json", "r.json"]) == 0
    text = (here / "r.html").read_text()
    assert "<title>price in later.csv – livi report</title>" in text
    assert '"linear"' in (here / "r.json").read_text()
    found = json.loads((here / "r.json").read_text())["baselines"]["rmse"]
    expected = f"\nFor comparison, RMSE: the average for every row {shown(found['constant'])}, a linear model "
    assert expected + shown(found["linear"]) in capsys.readouterr().out
    assert "What the predictions depend on" in text
    assert len(text) < 2_000_000


def test_a_column_dropped_by_the_user_is_ignored_in_silence_later(here, capsys):
    fit = ["fit", "houses.csv", "--target", "price", "--out", "m.livi", "--drop", "town", *SMALL]
    assert cli.main(fit) == 0
    assert cli.main(["evaluate", "m.livi", "houses.csv"]) == 0
    assert "ignored" not in capsys.readouterr().err


def test_a_model_without_rows_answers_alike(here, capsys):
    fit = ["fit", "houses.csv", "--target", "price", *SMALL]
    assert cli.main([*fit, "--out", "whole.livi"]) == 0
    assert "whole.livi holds the rows it was fitted to" in capsys.readouterr().err
    assert cli.main([*fit, "--out", "bare.livi", "--rowless"]) == 0
    assert "holds the rows" not in capsys.readouterr().err
    for name in ("whole", "bare"):
        assert cli.main(["predict", f"{name}.livi", "houses.csv", "--out", f"{name}.csv"]) == 0
    numbers = [np.genfromtxt(here / f"{name}.csv", delimiter=",", names=True)["mean"] for name in ("whole", "bare")]
    np.testing.assert_allclose(*numbers, rtol=1e-6)
    assert failed(capsys, "predict", "missing.livi", "houses.csv", "--out", "x.csv")
