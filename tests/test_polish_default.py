"""`livi.fit` follows a fit by chains where the rules say so, or the user does."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import livi
from livi.family.ensemble import Ensemble
from livi.family.implicit import ImplicitPosterior
from livi.sampling import LANGEVIN_ENSEMBLE, ChainSettings


def network(hidden=20, outputs=2):
    torch.manual_seed(0)
    layers = [nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, outputs)]
    return nn.Sequential(*layers)


def rows(count=40):
    x = torch.linspace(-1, 1, count)[:, None]
    noise = torch.randn(count, generator=torch.Generator().manual_seed(0))
    return x, torch.sin(3 * x[:, 0]) + (0.05 + 0.1 * (x[:, 0] > 0)) * noise


def plan(net=None, data=None, likelihood=None, **options):
    return livi.plan(net or network(), data or rows(), likelihood or livi.HeteroscedasticGaussian(), **options)


def test_a_mean_and_a_noise_of_a_middle_sized_network_are_polished():
    made = plan()
    assert made.chains == ChainSettings()
    assert made.recipe.steps < plan(polish=False).recipe.steps
    assert f"{ChainSettings().chains} Markov chains of {ChainSettings().steps:,} steps" in str(made)
    assert "Markov" not in str(plan(polish=False))


def test_fits_with_weights_are_polished_like_others(tmp_path):
    (x, y), likelihood = rows(), livi.Weighted(livi.HeteroscedasticGaussian())
    options = {"forward": livi.pass_weights, "steps": 20}
    weighted = ((x, torch.arange(40.0)), y)
    assert plan(data=weighted, likelihood=likelihood, **options).chains == plan(steps=20).chains
    posterior = livi.fit(network(), weighted, likelihood, progress=False, **options)
    assert isinstance(posterior.sampler, Ensemble)
    posterior.save(tmp_path / "p.livi")
    again = livi.load(tmp_path / "p.livi", network())
    torch.testing.assert_close(again.predict(x).log_prob(y), posterior.predict(x).log_prob(y))


@pytest.mark.parametrize(
    "options",
    [
        {"net": network(4)},  # small
        {"net": network(outputs=1), "likelihood": livi.Gaussian()},  # its last layer is exact
        {"batch_size": 10},
        {"recipe": livi.Recipe(num_samples=8)},
        {"generator": livi.MLP.for_layout},
        {"components": 2},
        {"polish": False},
    ],
    ids=str,
)
def test_other_fits_are_not(options):
    assert plan(**options).chains is None


def test_a_fit_that_is_shortened_has_shorter_chains():
    made = plan(steps=60)
    assert made.recipe.steps == 60
    assert made.chains.steps == ChainSettings().steps * 60 // plan().recipe.steps
    assert plan(steps=1).chains.steps == 100
    assert plan(steps=100_000).chains.steps == ChainSettings().steps


@pytest.mark.filterwarnings("ignore:Chains disagree")  # they are short
def test_what_comes_back_are_the_chains_draws_and_a_report(tmp_path):
    posterior = livi.fit(network(), rows(), livi.HeteroscedasticGaussian(), steps=30, progress=False)
    assert isinstance(posterior.sampler, Ensemble)
    assert posterior.sampler.num_members == ChainSettings().draws
    report = livi.PolishReport.of(posterior)
    assert report.chains == ChainSettings().chains
    posterior.save(tmp_path / "q.livi")
    again = livi.load(tmp_path / "q.livi", network())
    torch.testing.assert_close(again.predict(rows()[0]).mean, posterior.predict(rows()[0]).mean)
    assert livi.PolishReport.of(again) == report


def test_polishing_can_be_asked_for_and_be_done_without():
    plain = livi.fit(network(), rows(), livi.HeteroscedasticGaussian(), steps=20, polish=False, progress=False)
    assert isinstance(plain.sampler, ImplicitPosterior)
    x, y = rows()
    asked = livi.fit(network(4), (x, (y > 0).long()), livi.Categorical(), steps=20, polish=True, progress=False)
    assert isinstance(asked.sampler, Ensemble)


def test_ctrl_c_keeps_the_fit_that_the_chains_started_from(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("livi.inference.fitting.polish", interrupted)
    with pytest.warns(livi.FitWarning, match="interrupted while polishing: keeping what the chains started from"):
        posterior = livi.fit(network(), rows(), livi.HeteroscedasticGaussian(), steps=20, progress=False)
    assert isinstance(posterior.sampler, ImplicitPosterior)


@pytest.mark.filterwarnings("ignore::livi.inference.FitWarning")
def test_chains_start_at_short_map_fits_where_the_fit_before_them_fails(monkeypatch):
    data, brief = rows(), livi.Recipe(steps=10, map_steps=300, map_restarts=2)
    monkeypatch.setattr("livi.inference.fitting.lost_likelihood", lambda *_: "lost")
    monkeypatch.setattr("livi.inference.fitting.LANGEVIN_ENSEMBLE", replace(LANGEVIN_ENSEMBLE, steps=300))
    options = {"recipe": brief, "progress": False}
    posterior = livi.fit(network(), data, livi.HeteroscedasticGaussian(), polish=True, **options)
    assert isinstance(posterior.sampler, Ensemble)
    assert posterior.plan["failed"] == "lost"
    assert posterior.plan["polish"]["chains"] <= 8 < posterior.sampler.num_members
    assert livi.metrics.rmse(posterior.predict(data[0]), data[1]) < 0.4  # of targets that vary by 0.7
    with pytest.raises(livi.FitError, match="lost"):
        livi.fit(network(), data, livi.HeteroscedasticGaussian(), polish=False, **options)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_where_a_last_layer_is_exact_a_fit_that_fails_is_started_again(monkeypatch):
    said = iter(["lost", ""])
    monkeypatch.setattr("livi.inference.fitting.lost_likelihood", lambda *_: next(said))
    found = livi.fit(network(outputs=1), rows(), livi.Gaussian(), polish=True, steps=20, progress=False)
    assert isinstance(found.sampler, Ensemble)
    assert "failed" not in found.plan


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize("options", [{}, {"polish": True}], ids=str)
def test_a_fit_goes_on_from_its_checkpoint_to_the_same_chains(tmp_path, options):
    def fitted(**more):
        common = {"steps": 20, "progress": False, "checkpoint": tmp_path / "part.ckpt"}
        return livi.fit(network(), rows(), livi.HeteroscedasticGaussian(), **common, **options | more)

    first, again = fitted(), fitted()
    torch.testing.assert_close(again.sampler.theta, first.sampler.theta)
    with pytest.raises(ValueError, match="expected polish=True as before, got False"):
        fitted(polish=False)


def test_chains_are_planned_for_where_there_is_no_start_and_by_the_batch():
    made = plan(start="net", polish=True)
    assert made.seconds > made.recipe.steps * made.seconds_per_step
    whole, batches = plan(polish=True), plan(polish=True, batch_size=10)
    assert batches.gradients_of_chains == 4 * whole.gradients_of_chains  # of 40 examples
