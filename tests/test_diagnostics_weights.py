"""Diagnostics of the weights: spread, rank, correlation, shapes."""

import math

import pytest
import torch
from scipy import stats
from support.diagnosed_posteriors import CHEAP, Fitted, affine, close, covariance, gaussian, seeded
from torch import nn

from livi.family.generators import MLP, Affine, PerLayer
from livi.family.implicit import ImplicitPosterior
from livi.family.noise import FixedNoise
from livi.model.priors import FunctionPrior, Laplace, Normal, Relevance
from livi.network import Layout
from livi.posterior.diagnostics import Effort, cross_validated, diagnose, kernel_density, weight_name
from livi.posterior.diagnostics.correlation import check_correlation, squared_covariances, squared_variances
from livi.posterior.diagnostics.kernel import silverman
from livi.posterior.diagnostics.layers import Layers
from livi.posterior.diagnostics.shape import (
    bimodality,
    check_shape,
    critical_depth,
    excess_kurtosis,
    kurtosis_score,
    significant_modes,
)
from livi.posterior.diagnostics.spread import check_rank, check_spread

# --- spread and rank ------------------------------------------------------------------------------


def participation(cov):
    return (cov.trace().square() / cov.square().sum()).item()


@pytest.mark.parametrize("latent_dim", [2, 31])
def test_effective_rank_is_the_participation_ratio_of_the_covariance(deep_layout, latent_dim):
    posterior = affine(deep_layout, latent_dim, noise=0.2)
    samples = posterior.sample(400, seeded()).detach()
    check = check_rank(samples, Layers(deep_layout, 10_000), posterior, Effort(), seeded())
    cov = covariance(posterior)
    scale = cov.diagonal().rsqrt()
    assert close(check.covariance, participation(cov))
    assert close(check.correlation, participation(scale[:, None] * cov * scale))
    assert check.local.value == pytest.approx(participation(cov), rel=1e-9)
    shares = posterior.noises[0].std().square() / cov.diagonal()
    assert check.noise_share == pytest.approx(shares.mean().item(), rel=0.15)


def test_rank_and_correlation_of_many_weights_come_from_some_of_them():
    layout = Layout(nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 40)))  # 630 and 1,240 weights
    layers = Layers(layout, max_weights=300)
    assert layers.kept == [101, 199]
    assert not layers.complete
    common, own = gaussian(300, 1), gaussian(300, 1870, seed=1)
    samples = (0.3 * common + own)[:, layers.columns]
    cov = torch.full((1870, 1870), 0.09) + torch.eye(1870)
    assert close(check_rank(samples, layers, None, Effort(), None).covariance, participation(cov))
    check = check_correlation(samples, layers, 512)
    assert check.matrix is None
    assert check.across**0.5 == pytest.approx(0.09 / 1.09, rel=0.2)


def test_chosen_weights_are_kept_of_many():
    layers = Layers(Layout(nn.Linear(50, 50)), max_weights=100, also=[7, 2549])
    assert {7, 2549} <= set(layers.columns.tolist())


@pytest.mark.parametrize(
    ("prior", "unit"),
    [
        (Normal(0.5), 0.5),
        (Laplace(0.5), 0.5 * math.sqrt(2)),
        (Relevance(torch.arange(31) % 2, torch.full((2,), 0.5)), 0.5),
        (None, None),
    ],
)
def test_spread_is_the_root_mean_square_deviation_and_relative_to_the_prior(deep_layout, prior, unit):
    samples = gaussian(500, 31) * torch.linspace(0.1, 2.0, 31) + 3.0
    spread = check_spread(samples, Layers(deep_layout, 10_000), prior)
    scales = torch.linspace(0.1, 2.0, 31).split(deep_layout.group_sizes)
    assert [layer.name for layer in spread] == ["0", "2", "4"]
    for layer, scale in zip(spread, scales, strict=True):
        truth = scale.square().mean().sqrt().item()
        assert close(layer.std, truth)
        assert layer.mean == pytest.approx(3.0, rel=0.1)
        assert layer.relative is None if unit is None else close(layer.relative, truth / unit)


def test_a_prior_without_a_scale_leaves_the_relative_spread_out(deep_layout, plane):
    prior = FunctionPrior(lambda theta: -theta.square().sum(1))
    found = diagnose(Fitted(affine(deep_layout), prior=prior), *plane, rng=seeded(), effort=CHEAP)
    assert all(layer.relative is None for layer in found.spread)


@pytest.mark.parametrize(
    ("spread", "words"), [(1e-5, "collapsed"), (0.98, "as much as under the prior"), (50.0, "diverged")]
)
def test_collapsed_idle_and_runaway_layers_are_named(deep_layout, plane, spread, words):
    posterior = ImplicitPosterior(deep_layout, Affine(31, 31).init_around(torch.zeros(31), spread), FixedNoise(1e-6))
    found = diagnose(Fitted(posterior), *plane, rng=seeded(), effort=CHEAP)
    [finding] = [f for f in found.findings if f.topic == "spread"]
    assert words in finding.text
    assert "the weights of layers 0, 2" in finding.text
    assert finding.severity in ("notice", "warning")


# --- correlation ----------------------------------------------------------------------------------


def unbiased_hsic(one, other):
    """Song et al. (2012), equation 5, with linear kernels."""
    k, l = (x @ x.T - torch.diag((x @ x.T).diagonal()) for x in (one, other))  # noqa: E741
    n = len(k)
    value = (k * l).sum() + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2.0 / (n - 2) * (k @ l).sum()
    return value / (n * (n - 3))


@pytest.mark.parametrize("samples", [12, 40], ids=["more weights than samples", "more samples than weights"])
def test_squared_covariances_are_the_unbiased_hsic(deep_layout, samples):
    theta = affine(deep_layout, 3).sample(samples, seeded()).detach()
    layers = Layers(deep_layout, 10_000)
    found = squared_covariances(theta, layers)
    expected = torch.stack(
        [torch.stack([unbiased_hsic(theta[:, a], theta[:, b]) for b in layers.slices]) for a in layers.slices]
    )
    torch.testing.assert_close(found, expected)
    own = torch.stack([unbiased_hsic(column, column) for column in theta.T[..., None]])
    torch.testing.assert_close(squared_variances(theta), own)


def test_independent_layers_show_no_correlation_within_its_noise():
    layout = Layout(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)))
    layers = Layers(layout, 10_000)
    ratios = []
    for seed in range(60):
        theta = torch.cat([gaussian(100, 3, seed=seed) @ gaussian(3, 25), gaussian(100, 12, seed=seed + 999)], 1)
        check = check_correlation(theta, layers, 512)
        ratios.append(check.mean_square[0, 1] / check.noise[0, 1])
    ratios = torch.stack(ratios)
    assert abs(ratios.mean()) < 4.0 / 60**0.5
    assert 0.7 < ratios.std() < 1.4  # so that `noise` is the right size


def test_per_layer_generators_are_found_independent_and_a_skip_is_not(deep_layout, plane):
    parts = PerLayer([MLP(4, size, hidden=(8,), offset=True) for size in deep_layout.group_sizes])
    parts.init_around(torch.zeros(31), 0.5)
    apart = diagnose(Fitted(ImplicitPosterior(deep_layout, parts)), *plane, rng=seeded(), effort=CHEAP)
    assert apart.correlation.strongest() is None
    assert abs(apart.correlation.across) < 5.0 * apart.correlation.across_noise
    assert (apart.correlation.rms.diagonal() > 0.2).all()
    assert any("none across layers" in finding.text for finding in apart.findings)
    joint = diagnose(Fitted(affine(deep_layout, 4)), *plane, rng=seeded(), effort=CHEAP)
    assert joint.correlation.strongest() is not None
    assert any("a factorised posterior would miss it" in finding.text for finding in joint.findings)


def test_the_correlation_of_a_skip_generator_is_the_known_one(deep_layout):
    posterior = affine(deep_layout, 3)
    cov = covariance(posterior)
    scale = cov.diagonal().rsqrt()
    squares = (scale[:, None] * cov * scale).square()
    layers = Layers(deep_layout, 10_000)
    found = torch.stack(
        [check_correlation(posterior.sample(400, seeded(seed)).detach(), layers, 512).mean_square for seed in range(20)]
    )
    for i, a in enumerate(layers.slices):
        for j, b in enumerate(layers.slices):
            block = squares[a, b]
            truth = block.mean() if i != j else (block.sum() - len(block)) / (len(block) * (len(block) - 1))
            error = found[:, i, j].std() / 20**0.5
            assert abs(found[:, i, j].mean() - truth) < 4.5 * error + 0.005 * truth  # of order 1/S by the scaling


def test_the_whole_matrix_is_the_sample_correlation(deep_layout):
    samples = affine(deep_layout, 3).sample(50, seeded()).detach()
    check = check_correlation(samples, Layers(deep_layout, 10_000), 512)
    torch.testing.assert_close(check.matrix, torch.corrcoef(samples.T))
    assert check_correlation(samples, Layers(deep_layout, 10_000), 30).matrix is None


def test_a_layer_of_one_weight_and_constant_weights_do_no_harm():
    layout = Layout(nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 3)))
    samples = gaussian(64, 7)
    samples[:, 3] = 2.5
    check = check_correlation(samples, Layers(layout, 100), 512)
    assert check.mean_square[0, 0].isnan()
    assert check.mean_square[1, 1].isfinite()
    assert (check.matrix[3] == 0.0).all()


# --- shapes ---------------------------------------------------------------------------------------


def test_kernel_density_is_that_of_scipy():
    values = gaussian(200)
    width = silverman(values)
    grid, density, used = kernel_density(values)
    reference = stats.gaussian_kde(values.numpy(), bw_method=width / values.std().item())
    assert used == width
    torch.testing.assert_close(density, torch.from_numpy(reference(grid.numpy())), rtol=1e-9, atol=1e-12)
    assert width == pytest.approx(0.9 * 200**-0.2, rel=0.15)


def test_cross_validation_keeps_separate_modes_narrow():
    values = torch.cat([gaussian(300), 50.0 + gaussian(300, seed=1)])
    assert cross_validated(values) < 0.25 * silverman(values)
    ratio = cross_validated(gaussian(600, seed=2)) / silverman(gaussian(600, seed=2))
    assert ratio > 0.3


def test_kurtosis_and_its_score_are_those_of_scipy():
    samples = gaussian(80, 4).exp()
    expected = stats.kurtosis(samples.numpy(), bias=False)
    torch.testing.assert_close(excess_kurtosis(samples), torch.from_numpy(expected))
    score = stats.kurtosistest(samples.numpy()).statistic
    torch.testing.assert_close(kurtosis_score(samples), torch.from_numpy(score))


@pytest.mark.parametrize("draw", [torch.randn, torch.rand], ids=["normal", "uniform"])
def test_a_second_mode_is_rarely_found_where_there_is_none(draw):
    # The six most bimodal-looking of 50 weights, in 100 posteriors.
    rng, wrong = seeded(), 0
    for _ in range(100):
        samples = draw(200, 50, generator=rng)
        for column in bimodality(samples).topk(6).indices:
            _, density, width = kernel_density(samples[:, column], points=128)
            wrong += len(significant_modes(density, 200, width, critical_depth(50))) > 1
    assert wrong <= 5


def test_two_modes_are_found_and_counted(linear_layout, plane):
    generators = [Affine(3, 3).init_around(torch.full((3,), centre), 0.2) for centre in (-1.0, 1.0)]
    posterior = ImplicitPosterior(linear_layout, generators, [FixedNoise(0.05), FixedNoise(0.05)])
    found = diagnose(Fitted(posterior), *plane, rng=seeded(), effort=CHEAP)
    assert len(found.shape.multimodal) == 4  # the three weights, and the first principal direction
    for density in found.shape.densities:
        assert len(density.modes) == 2
        assert density.modes[0] == pytest.approx(-1.0, abs=0.2)
        assert density.modes[1] == pytest.approx(1.0, abs=0.2)
        assert density.excess_kurtosis.value < -1.0
        assert torch.trapezoid(density.density, density.grid).item() == pytest.approx(1.0, abs=1e-3)
    one = diagnose(Fitted(affine(linear_layout)), *plane, rng=seeded(), effort=CHEAP)
    assert one.shape.multimodal == ()
    assert any(finding.topic == "modes" and "no second one" in finding.text for finding in one.findings)


def test_modes_hidden_from_every_weight_show_along_a_principal_direction():
    layout = Layout(nn.Linear(20, 9))
    sign = torch.where(torch.arange(300) % 2 == 0, 1.0, -1.0)[:, None]
    samples = gaussian(300, 189) + 0.5 * sign
    check = check_shape(samples, Layers(layout, 10_000), None, 6)
    assert all(len(density.modes) == 1 for density in check.densities)
    assert len(check.directions[0].modes) == 2


def test_heavy_tails_are_found_and_gaussian_ones_are_not(deep_layout):
    layers = Layers(deep_layout, 10_000)
    normal = gaussian(400, 31)
    assert check_shape(normal, layers, None, 3).heavy == 0
    scale = gaussian(400, 3, seed=1).square().mean(1, keepdim=True).sqrt()
    check = check_shape(normal / scale, layers, None, 3)  # Student's t with three degrees of freedom
    assert check.heavy > 25
    assert check.mean_excess_kurtosis.value > 2.0


def test_the_weights_that_are_asked_for_are_examined(deep_layout, plane):
    found = diagnose(Fitted(affine(deep_layout)), *plane, rng=seeded(), weights=[30, 2], effort=CHEAP)
    assert [density.index for density in found.shape.densities] == [30, 2]
    assert [density.name for density in found.shape.densities] == ["4.bias[0]", "0.weight[1, 0]"]


def test_weights_are_named_by_their_place():
    layout = Layout(nn.Conv2d(2, 3, 2))
    flat = layout.flatten()
    name = weight_name(layout, 13)
    assert name == "weight[1, 1, 0, 1]"
    assert flat[13] == layout.module.weight[1, 1, 0, 1]
