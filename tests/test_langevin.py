"""Langevin ensembles: stacked weights against what they promise, and chains that lead where short fits do not."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import livi
from livi.family.ensemble import Ensemble
from livi.inference import FitWarning
from livi.model.likelihoods import HeteroscedasticGaussian
from livi.rivals import fit_ensemble, fit_langevin
from livi.sampling.stacking import left_out_scores, picked, stacked
from livi.tables.estimators import LIVIRegressor, load
from livi.tables.fitting import fit_table
from livi.tables.options import FitOptions
from livi.tables.reading import Table, TableError

QUICK = {"chains": 4, "draws": 64, "steps": 60, "map_steps": 20, "progress": False}
quietly = pytest.mark.filterwarnings("ignore::livi.inference.FitWarning")


def score(scores, weights):
    return float((scores + weights.log()[:, None]).logsumexp(0).mean())


# --- stacking -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_stacked_mixture_is_never_worse_than_its_best_component(seed):
    rng = torch.Generator().manual_seed(seed)
    quality = 3.0 * torch.randn(6, 1, generator=rng)
    scores = quality + torch.randn(6, 80, generator=rng, dtype=torch.float64)
    weights = stacked(scores, least=0.0)
    assert float(weights.sum()) == pytest.approx(1.0)
    alone = scores.mean(1).max()
    equal = score(scores, torch.full((6,), 1 / 6, dtype=torch.float64))
    assert score(scores, weights) >= max(float(alone), equal) - 1e-6


def test_a_component_that_knows_nothing_gets_no_more_than_it_is_credited_with():
    scores = torch.zeros(3, 1000, dtype=torch.float64)
    scores[1] -= 50.0
    weights = stacked(scores)
    assert float(weights[1]) == pytest.approx(0.01 / 1.03, rel=1e-6)
    assert float(weights[0]) == pytest.approx(float(weights[2]))


def test_components_that_complement_each_other_share_the_weight():
    scores = torch.full((2, 100), -5.0, dtype=torch.float64)
    scores[0, :70] = 0.0
    scores[1, 70:] = 0.0
    assert stacked(scores, least=0.0).tolist() == pytest.approx([0.7, 0.3], abs=0.01)


def test_a_point_that_counts_three_times_is_three_points(rng):
    scores = torch.randn(4, 30, generator=rng)
    counts = torch.ones(30)
    counts[:10] = 3.0
    repeated = torch.cat([scores, scores[:, :10], scores[:, :10]], 1)
    torch.testing.assert_close(stacked(scores, counts), stacked(repeated))


def test_scores_of_points_left_out_are_those_of_a_conjugate_mean():
    """y_i ~ N(theta, 1) under a flat prior: without y_i, theta ~ N(mean of the others, 1 / (n - 1))."""
    rng = torch.Generator().manual_seed(0)
    y = torch.randn(12, generator=rng, dtype=torch.float64)
    theta = y.mean() + torch.randn(40_000, 1, 1, generator=rng, dtype=torch.float64) / math.sqrt(12)
    found = left_out_scores(torch.distributions.Normal(theta, 1.0).log_prob(y))
    others = (y.sum() - y) / 11
    expected = torch.distributions.Normal(others, math.sqrt(1 + 1 / 11)).log_prob(y)
    torch.testing.assert_close(found[0], expected, rtol=0, atol=0.01)


def test_draws_are_kept_in_shares_and_never_twice():
    rows = picked(torch.tensor([0.05, 0.15, 0.8]), draws=40, each=30)
    assert [len(some) for some in rows] == [2, 6, 30]
    assert all(len(set(some)) == len(some) and max(some) < 30 for some in rows)


# --- chains ---------------------------------------------------------------------------------------


def steps_of_noise(count=160):
    """A wave whose noise grows, and is known."""
    rng = torch.Generator().manual_seed(1)
    x = 4.0 * torch.rand(count, 1, generator=rng) - 2.0
    std = 0.05 + 0.2 * (x > 0)
    return (x, torch.sin(3.0 * x) + std * torch.randn(count, 1, generator=rng)), std


def network():
    return nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2))


@quietly
def test_chains_predict_better_than_the_members_that_they_start_from():
    torch.manual_seed(0)
    train, _ = steps_of_noise()
    rng = torch.Generator().manual_seed(2)
    x = 4.0 * torch.rand(400, 1, generator=rng) - 2.0
    y = torch.sin(3.0 * x) + (0.05 + 0.2 * (x > 0)) * torch.randn(400, 1, generator=rng)
    likelihood, net = HeteroscedasticGaussian(), network()
    members = fit_ensemble(net, train, likelihood, members=4, steps=100)
    chains = fit_langevin(net, train, likelihood, chains=4, steps=500, map_steps=100, progress=False)
    before, after = (float(livi.metrics.nll(each.predict(x), y)) for each in (members, chains))
    assert after < before - 0.1
    report = livi.PolishReport.of(chains)
    assert sum(report.weights) == pytest.approx(1.0)
    assert "stacked, worth" in str(report)
    assert chains.sampler.num_members == report.draws


@quietly
def test_smaller_energy_errors_take_shorter_steps():
    train, _ = steps_of_noise(30)
    warm, cold = (
        livi.PolishReport.of(
            fit_langevin(network(), train, HeteroscedasticGaussian(), **QUICK | {"steps": 200}, energy_error=error)
        )
        for error in (0.1, 1e-3)
    )
    assert cold.step_size < warm.step_size
    assert cold.energy_error < warm.energy_error


@quietly
def test_a_budget_shortens_the_chains():
    train, _ = steps_of_noise(30)
    posterior = fit_langevin(network(), train, HeteroscedasticGaussian(), **QUICK | {"steps": 5000}, budget=0.01)
    assert livi.PolishReport.of(posterior).steps < 100


def test_ctrl_c_keeps_the_members_that_the_chains_start_from(monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("livi.rivals.langevin.polish", interrupted)
    with pytest.warns(FitWarning, match="interrupted while sampling"):
        posterior = fit_langevin(network(), steps_of_noise(30)[0], HeteroscedasticGaussian(), **QUICK)
    assert posterior.sampler.num_members == 4
    assert posterior.plan["interrupted_at"] == 0


# --- the estimator --------------------------------------------------------------------------------


def table(rows=80):
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, 3))
    return X, 100.0 + 10.0 * X[:, 0] + random.normal(size=rows) * np.where(X[:, 1] > 0, 5.0, 0.5)


@quietly
@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2.0, 80)], ids=["alike", "weighted"])
def test_a_network_that_gives_the_noise_answers_in_units_and_from_its_file(tmp_path, weights):
    X, y = table()
    model = LIVIRegressor(noise="network", target_scale="plain", steps=200, random_state=0).fit(X, y, weights)
    assert isinstance(model.posterior_.sampler, Ensemble)
    mean, std = model.predict(X, return_std=True)
    assert np.corrcoef(mean, y)[0, 1] > 0.85
    assert 1.0 < np.median(std) < 8.0
    assert std[X[:, 1] > 0.5].mean() > 1.1 * std[X[:, 1] < -0.5].mean()
    model.save(tmp_path / "m.livi")
    again = load(tmp_path / "m.livi")
    np.testing.assert_array_equal(again.predict(X), mean)
    assert str(again.model_) == "the target as it is with the network's own noise"


@quietly
def test_whole_numbers_are_not_credited_with_being_whole():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 2))
    y = np.round(3.0 + X[:, 0])
    model = LIVIRegressor(noise="network", target_scale="plain", steps=60, random_state=0).fit(X, y)
    assert model.predict(X, return_std=True)[1].min() > 12**-0.5


def test_a_prior_that_chains_cannot_have_is_refused():
    with pytest.raises(ValueError, match="expected a number for noise='network', got 'learned'"):
        LIVIRegressor(noise="network", prior_scale="learned").fit(*table())


def test_chains_that_cannot_go_on_from_a_checkpoint_say_so(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = table(20)
    frame = Table.from_frame(pandas.DataFrame(X, columns=list("abc")).assign(y=y))
    options = FitOptions(noise="network", checkpoint=tmp_path / "part")
    with pytest.raises(TableError, match="expected no --checkpoint with --noise network"):
        fit_table(frame, "y", options, lambda _: None)


@quietly
def test_a_table_is_fitted_by_chains_and_examined(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = table()
    frame = Table.from_frame(pandas.DataFrame(X, columns=list("abc")).assign(y=y))
    model = fit_table(frame, "y", FitOptions(noise="network", steps=60), lambda _: None)
    assert model.facts["Network"] == "3 - 16 - 16 - 2, gelu"
    assert model.validation is not None
