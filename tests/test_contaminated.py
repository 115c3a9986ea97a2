"""Gaussian noise of which a few rows have ten times as much: its density, its predictions, what it is worth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from torch import distributions, nn
from torch.nn import functional as F

import livi
from livi.model.likelihoods import ContaminatedGaussian, HeteroscedasticGaussian
from livi.posterior.prediction import LogNormalPrediction, RegressionPrediction, prediction_of
from livi.posterior.prediction.shapes import NoiseShape
from livi.rivals import fit_langevin

S, B = 5, 4


def mixture(mean, scale, share, width):
    """That of torch, of numbers with the same shape as the mean."""
    weights = torch.tensor([1.0 - share, share], dtype=mean.dtype).expand(*mean.shape, 2)
    scales = torch.stack([scale, width * scale], -1)
    parts = distributions.Normal(mean[..., None].expand_as(scales), scales)
    return distributions.MixtureSameFamily(distributions.Categorical(weights), parts)


@pytest.fixture
def predicted():
    """Outputs, the mixture that they mean, and the prediction, where networks disagree and where they do not."""
    torch.manual_seed(0)
    outputs = torch.randn(S, B, 2, dtype=torch.float64) * torch.tensor([0.1, 1.0, 3.0, 0.01])[:, None]
    likelihood = ContaminatedGaussian(0.05, 8.0, floor=0.1)
    mean, scale = outputs[..., 0], 0.1 + F.softplus(outputs[..., 1])
    return mixture(mean, scale, 0.05, 8.0), prediction_of(likelihood, outputs)


# --- the density ----------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [1, 3])
def test_the_density_is_that_of_torchs_mixture(event):
    outputs, targets = torch.randn(S, B, 2 * event).double(), 5.0 * torch.randn(B, event).double()
    mean, raw = outputs.chunk(2, -1)
    expected = mixture(2.0 + 3.0 * mean, 0.1 + 3.0 * F.softplus(raw), 0.02, 7.0).log_prob(targets).sum(-1)
    likelihood = ContaminatedGaussian(0.02, 7.0, floor=0.1, centre=2.0, unit=3.0).double()
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), expected)


@pytest.mark.parametrize("residual", [0.0, 1.0, 3.0, 4.2, 5.0, 30.0, 1e4])
def test_the_gradient_is_that_of_autograd_near_and_far(residual):
    likelihood = ContaminatedGaussian(0.01, 10.0, floor=0.2, learned=True, unit=2.0).double()
    outputs, targets = torch.randn(S, B, 2).double(), torch.full((B, 1), residual).double()
    leaf = outputs.clone().requires_grad_()
    values = likelihood.log_prob(leaf, targets)
    (expected,) = torch.autograd.grad(values.sum(), leaf)
    with torch.no_grad():
        found, gradient = likelihood.log_prob_with_gradient(outputs, targets)
    torch.testing.assert_close(found, values.detach())
    torch.testing.assert_close(gradient, expected)


def test_no_target_costs_more_than_the_share_and_a_far_one_hardly_anything():
    outputs, targets = torch.zeros(1, 200, 2).double(), torch.linspace(0.0, 40.0, 200).double()[:, None]
    gain = ContaminatedGaussian(0.001).log_prob(outputs, targets) - HeteroscedasticGaussian().log_prob(outputs, targets)
    assert float(gain.min()) >= math.log1p(-0.001) - 1e-12
    assert float(gain.max()) > 1000.0


def test_moments_are_those_of_the_mixture():
    outputs = torch.randn(S, B, 2).double()
    mean, std = ContaminatedGaussian(0.1, 4.0, floor=0.1).moments(outputs)
    expected = mixture(outputs[..., 0], 0.1 + F.softplus(outputs[..., 1]), 0.1, 4.0)
    torch.testing.assert_close(mean[..., 0], expected.mean)
    torch.testing.assert_close(std[..., 0], expected.stddev)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"share": 0.0}, "share"),
        ({"share": 0.5}, "less than 0.5, got 0.5; outliers are the fewer"),
        ({"width": 1.0}, "more than 1, got 1.0; outliers have the wider"),
    ],
)
def test_shares_and_widths_that_make_no_outliers_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        ContaminatedGaussian(**arguments)


def test_in_other_units_it_is_the_same_noise():
    likelihood = ContaminatedGaussian(0.03, 5.0, learned=True)
    likelihood.log_level.data.fill_(0.7)
    moved = likelihood.standardised(torch.tensor([100.0, 300.0, 500.0]))
    assert type(moved) is ContaminatedGaussian
    assert (moved.share, moved.width, moved.log_level.item()) == (0.03, 5.0, pytest.approx(0.7))
    outputs, targets = torch.randn(S, B, 2).double(), torch.randn(B, 1).double()
    unit = float(moved.unit())
    inside = likelihood.double().log_prob(outputs, targets)
    torch.testing.assert_close(moved.double().log_prob(outputs, 300.0 + unit * targets) + math.log(unit), inside)


def test_it_can_be_put_in_place_of_the_noise_of_a_fit():
    noise = HeteroscedasticGaussian(0.3, learned=True, centre=[1.0, 2.0], unit=[3.0, 0.5])
    noise.log_level.data.fill_(-0.4)
    found = ContaminatedGaussian.like(noise, 0.01, 5.0)
    outputs = torch.randn(S, B, 4)
    mean, std = noise.moments(outputs)
    torch.testing.assert_close(found.moments(outputs), (mean, found.inflation() * std))


# --- predictions ----------------------------------------------------------------------------------


def test_a_prediction_has_the_moments_and_the_density_of_the_mixture(predicted):
    expected, prediction = predicted
    assert isinstance(prediction, RegressionPrediction)
    torch.testing.assert_close(prediction.mean, expected.mean.mean(0))
    torch.testing.assert_close(prediction.aleatoric_std, expected.variance.mean(0).sqrt())
    for targets in (torch.zeros(B), torch.full((B,), 30.0)):
        y = targets.double()
        density = expected.log_prob(y).logsumexp(0) - math.log(S)
        torch.testing.assert_close(prediction.log_prob(y), density)
        torch.testing.assert_close(prediction.cdf(y), expected.cdf(y).mean(0))


@pytest.mark.parametrize("q", [1e-6, 0.003, 0.05, 0.5, 0.9, 0.999, 1 - 1e-6])
def test_a_quantile_is_where_the_distribution_function_says(predicted, q):
    expected, prediction = predicted
    found = prediction.quantile(q)
    for row in range(B):

        def excess(y, row=row):
            return float(expected.cdf(torch.tensor(y, dtype=torch.float64).expand(S, B)).mean(0)[row]) - q

        root = optimize.brentq(excess, -1e3, 1e3, xtol=1e-10)
        assert float(found[row]) == pytest.approx(root, abs=1e-5 * float(prediction.total_std[row]))


def test_drawn_targets_are_inside_the_intervals_as_often_as_they_should_be(predicted, rng):
    _, prediction = predicted
    lower, upper = prediction.interval(0.9)
    drawn = prediction.sample(20_000, rng)
    held = ((lower <= drawn) & (drawn <= upper)).double().mean(0)
    assert float((held - 0.9).abs().max()) < 4.0 * math.sqrt(0.09 / 20_000)
    assert float(drawn.std(0)[0] / prediction.total_std[0]) == pytest.approx(1.0, abs=0.05)


def test_the_mass_of_a_cell_and_the_crps_are_those_of_the_distribution_function(predicted):
    _, prediction = predicted
    low, high = torch.full((B,), 0.2).double(), torch.full((B,), 3.0).double()
    torch.testing.assert_close(prediction.log_mass(low, high).exp(), prediction.cdf(high) - prediction.cdf(low))
    target = torch.full((B,), 0.7).double()

    def squared(t, row):
        below = float(prediction.cdf(torch.full((B,), t).double())[row])
        return (below - (t >= 0.7)) ** 2

    scores = [
        sum(integrate.quad(squared, *ends, args=(row,), limit=200)[0] for ends in ((-80.0, 0.7), (0.7, 80.0)))
        for row in range(B)
    ]
    assert livi.metrics.crps(prediction, target) == pytest.approx(np.mean(scores), rel=1e-5)


def test_units_and_single_outputs_keep_the_shape_of_the_noise():
    prediction = prediction_of(ContaminatedGaussian(0.05, 8.0), torch.randn(S, B, 4))
    assert {part.noise_shape for part in prediction.outputs} == {prediction.noise_shape} != {NoiseShape()}
    assert prediction.outputs[0].rescaled(1.0, 2.0).noise_shape == prediction.noise_shape


def test_the_shape_of_one_normal_distribution_is_scipys():
    units = torch.linspace(-6.0, 6.0, 13).double()
    torch.testing.assert_close(NoiseShape().below(units).numpy(), stats.norm.cdf(units.numpy()))
    assert NoiseShape().quantile(0.01) == pytest.approx(stats.norm.ppf(0.01))


def test_exponentials_of_outliers_are_refused(predicted):
    with pytest.raises(ValueError, match="expected normal noise, got a mixture of 2"):
        LogNormalPrediction(predicted[1])


# --- fits -----------------------------------------------------------------------------------------


def network():
    return nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))


def wave(count, seed, outliers=0.05):
    rng = torch.Generator().manual_seed(seed)
    x = 4.0 * torch.rand(count, 1, generator=rng) - 2.0
    far = (torch.rand(count, 1, generator=rng) < outliers).float()
    return x, torch.sin(2.0 * x) + 0.1 * (1.0 + 14.0 * far) * torch.randn(count, 1, generator=rng)


def test_livi_polishes_it_as_other_noise_that_a_network_gives():
    x, y = wave(60, 0)
    assert livi.plan(network(), (x, y), livi.ContaminatedGaussian()).chains is not None


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_fit_to_rows_with_outliers_predicts_better_than_gaussian_noise():
    torch.manual_seed(0)
    train, test = wave(120, 1), wave(2000, 2)
    options = {"prior": livi.Normal(1.0), "steps": 600, "chains": 4, "draws": 64, "progress": False}
    found = [
        fit_langevin(network(), train, likelihood, **options).predict(test[0], num_samples=64)
        for likelihood in (livi.HeteroscedasticGaussian(0.02), livi.ContaminatedGaussian(0.02, floor=0.02))
    ]
    gaussian, contaminated = (livi.metrics.nll(prediction, test[1]) for prediction in found)
    assert contaminated < gaussian - 0.1
