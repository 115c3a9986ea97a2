"""Diagnostics: bound, entropy, folds, rank, correlation, shapes, the verdict."""

import json
import math
from dataclasses import dataclass, field, replace

import pytest
import torch
from scipy import stats
from torch import nn

from livi.diagnostics import (
    Diagnosis,
    Effort,
    Estimate,
    Skipped,
    cross_validated,
    diagnose,
    kernel_density,
    weight_name,
)
from livi.diagnostics.correlation import check_correlation, squared_covariances, squared_variances
from livi.diagnostics.entropy import check_densities
from livi.diagnostics.estimate import from_batches, jackknife
from livi.diagnostics.kernel import silverman
from livi.diagnostics.layers import Layers
from livi.diagnostics.log_det import check_log_det, default_estimators
from livi.diagnostics.shape import (
    bimodality,
    check_shape,
    critical_depth,
    excess_kurtosis,
    kurtosis_score,
    significant_modes,
)
from livi.diagnostics.spread import check_rank, check_spread
from livi.diagnostics.verdict import verdict
from livi.entropy import Exact
from livi.fitted import Posterior
from livi.generators import MLP, Affine, PerLayer
from livi.generators.generator import Generator
from livi.layout import Layout, apply_many
from livi.likelihoods import Gaussian, Likelihood
from livi.noise import DiagonalNoise, FixedNoise
from livi.posterior import ImplicitPosterior
from livi.priors import FunctionPrior, Laplace, Normal, Prior

CHEAP = Effort(num_densities=24, num_importance=32, num_starts=1, num_latents=2)


@dataclass
class Fitted:
    """A stand-in for what livi.fit returns."""

    sampler: object
    likelihood: Likelihood = field(default_factory=lambda: Gaussian(0.5))
    prior: Prior | None = field(default_factory=Normal)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)


class Members:
    """An ensemble: draws with replacement from fixed weight vectors."""

    def __init__(self, layout, members):
        self.layout, self.members = layout, members

    def sample(self, num_samples, rng=None):
        return self.members[torch.randint(len(self.members), (num_samples,), generator=rng)]


class Folded(Generator):
    """theta_1 = sqrt(z_1^2 + width^2), the others theta_i = z_i: two latents behind every theta."""

    def __init__(self, num_params, width=0.05):
        super().__init__(num_params, num_params)
        self.width = width
        self.unused = nn.Parameter(torch.zeros(1))

    def branch(self, z):
        return torch.cat([(z[:, :1].square() + self.width**2).sqrt(), z[:, 1:]], 1)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed))


@pytest.fixture
def layout():
    return Layout(nn.Linear(2, 1))  # 3 weights


@pytest.fixture
def deep():
    return Layout(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)))  # 31


@pytest.fixture
def data():
    x = gaussian(20, 2, seed=1)
    return x, x.sum(1) + 0.5 * gaussian(20, seed=2)


def affine(layout, latent_dim=None, noise=0.3, seed=0):
    generator = Affine(latent_dim or layout.num_params, layout.num_params)
    with torch.no_grad():
        generator.skip.copy_(0.4 * gaussian(*generator.skip.shape, seed=seed))
        generator.offset.copy_(gaussian(layout.num_params, seed=seed + 1))
    return ImplicitPosterior(layout, generator, DiagonalNoise(layout.num_params, noise))


def covariance(posterior):
    generator, noise = posterior.generators[0], posterior.noises[0]
    return (generator.skip @ generator.skip.T + torch.diag(noise.std().square())).detach()


def close(estimate, truth, errors=4.5):
    return abs(estimate.value - truth) < errors * estimate.standard_error + 1e-9


# --- estimates ------------------------------------------------------------------------------------


def test_batch_means_give_the_error_of_antithetic_draws():
    # z and -z have the same square, so an error from single draws would be too small by sqrt(2).
    rng = seeded()
    estimates = []
    for _ in range(200):
        half = torch.randn(16, 8, generator=rng)
        estimates.append(from_batches(torch.cat([half, -half], 1).square().mean(1)))
    actual = torch.tensor([e.value for e in estimates]).var()
    claimed = torch.tensor([e.standard_error for e in estimates]).square()
    assert abs(claimed.mean() / actual - 1.0) < 4.0 * (2.0 / 199) ** 0.5
    assert abs(claimed.mean() / (2.0 / 128) - 1.0) < 0.15  # as of half the draws


def test_the_jackknife_gives_the_error_of_a_mean():
    samples = gaussian(320, 1)
    value, error = jackknife(lambda rows: rows.mean(0), samples)
    torch.testing.assert_close(value, samples.mean(0))
    assert abs(error.item() / (samples.std() / 320**0.5) - 1.0) < 4.0 / 30**0.5


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(-25.3123, 0.418), "-25.31 ± 0.42"),
        (Estimate(1234.5, 56.0), "1234 ± 56"),
        (Estimate(1.0986, 1e-12), "1.0986 ± 0.0000"),
        (Estimate(2.0, float("nan")), "2.000 ± nan"),
        (Estimate(0.0, 0.0), "0.000 ± 0.000"),
    ],
)
def test_an_estimate_shows_two_digits_of_its_error(estimate, text):
    assert str(estimate) == text


# --- the bound ------------------------------------------------------------------------------------


def test_terms_of_an_affine_posterior_of_a_linear_model_are_those_in_closed_form(layout, data):
    posterior = affine(layout)
    x, y = data
    found = diagnose(Fitted(posterior), x, y, num_samples=2000, rng=seeded(), effort=CHEAP).bound
    mean, cov = posterior.generators[0].offset.detach(), covariance(posterior)
    design = torch.cat([x, torch.ones(20, 1)], 1)
    squares = (y - design @ mean).square() + ((design @ cov) * design).sum(1)
    log_likelihood = (-0.5 * squares / 0.25 - math.log(0.5) - 0.5 * math.log(2 * math.pi)).sum()
    log_prior = -0.5 * (mean @ mean + cov.trace()) - 1.5 * math.log(2 * math.pi)
    entropy = torch.distributions.MultivariateNormal(mean, cov).entropy()
    assert close(found.log_likelihood, log_likelihood)
    assert close(found.log_prior, log_prior)
    assert abs(found.entropy.value - entropy) < 1e-9
    assert close(found.bound, log_likelihood + log_prior + entropy)


def test_a_batch_stands_for_the_whole_data_set(layout, data):
    x, y = data
    posterior = Fitted(affine(layout))
    part = diagnose(posterior, x, y, num_data=200, rng=seeded(), effort=CHEAP).bound
    whole = diagnose(posterior, x.repeat(10, 1), y.repeat(10), rng=seeded(), effort=CHEAP).bound
    assert part.log_likelihood.value == pytest.approx(whole.log_likelihood.value)
    assert part.log_prior == whole.log_prior


def test_batch_norm_uses_the_buffers_of_the_posterior():
    layout = Layout(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)))
    buffers = {"1.running_mean": torch.ones(3), "1.running_var": torch.full((3,), 4.0)}
    members = gaussian(1, layout.num_params)
    x, y = gaussian(6, 2), gaussian(6)
    found = diagnose(Fitted(Members(layout, members), buffers=buffers), x, y, num_samples=4)
    expected = Gaussian(0.5).log_prob(apply_many(layout, members, x, buffers=buffers), y).sum()
    assert found.bound.log_likelihood.value == pytest.approx(expected.item())


# --- log-determinant ------------------------------------------------------------------------------


def test_exact_log_determinant_is_that_of_the_covariance_and_estimators_agree_within_their_error(deep):
    posterior = affine(deep, latent_dim=8)
    check = check_log_det(posterior, Effort(num_latents=3), default_estimators(), seeded())
    exact, lanczos, smallest = check.methods
    cov = covariance(posterior)
    truth = 0.5 * (cov.logdet() - posterior.noises[0].std().square().log().sum())
    assert check.log_det == pytest.approx(truth.item(), rel=1e-9)
    assert exact.difference == pytest.approx(0.0, abs=1e-12)
    assert abs(lanczos.difference) < 4.5 * lanczos.standard_error + lanczos.truncation
    assert lanczos.relative == pytest.approx(lanczos.difference / truth.item(), rel=1e-6)
    assert smallest.difference < 0.0
    assert all(method.converged == 1.0 for method in check.methods)


def test_an_unaffordable_exact_value_is_said_to_be_so_and_estimates_remain(deep, data):
    found = diagnose(Fitted(affine(deep, 8)), *data, rng=seeded(), effort=Effort(max_exact_dim=4, max_density_dim=4))
    assert "latent_dim 8 is above max_exact_dim=4" in found.log_det.reference
    assert [method.name for method in found.log_det.methods] == ["Lanczos", "SmallestSingularValue"]
    assert all(method.difference is None for method in found.log_det.methods)
    assert found.bound.estimator == "Lanczos"
    assert isinstance(found.density, Skipped)
    assert "not affordable: latent_dim 8 is above max_density_dim=4" in str(found)


def test_the_chunked_exact_value_is_the_same(deep, monkeypatch):
    posterior = affine(deep, latent_dim=8)
    whole = check_log_det(posterior, Effort(), (), seeded())
    monkeypatch.setattr("livi.diagnostics.log_det.DENSE_ENTRIES", 1)
    chunked = check_log_det(posterior, Effort(), (), seeded())
    assert chunked.log_det == pytest.approx(whole.log_det, rel=1e-9)


# --- linearised against sampled entropy -----------------------------------------------------------


@pytest.mark.parametrize("latent_dim", [2, 31])
def test_there_is_no_gap_for_an_affine_generator(deep, latent_dim):
    posterior = affine(deep, latent_dim)
    check = check_densities(posterior, Effort(num_densities=48), seeded()).mean
    entropy = torch.distributions.MultivariateNormal(torch.zeros(31), covariance(posterior)).entropy().item()
    assert check.linearised.value == pytest.approx(entropy, abs=1e-9)
    assert close(check.sampled, entropy)
    assert close(check.gap, 0.0)
    assert check.gap.standard_error < 0.02  # the control variates take the other 4 nats of standard deviation away
    assert check.preimages == 1.0
    assert check.effective > 0.5


def fold_gap(width, noise):
    """E_z of the linearised entropy of sqrt(z^2 + width^2) + noise eps, less its true entropy, by quadrature."""
    z = torch.linspace(-9, 9, 8001)
    prior = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    image = (z.square() + width**2).sqrt()
    theta = torch.linspace(-1, 9, 2001)
    kernel = torch.exp(-0.5 * ((theta[:, None] - image) / noise).square()) / (noise * math.sqrt(2 * math.pi))
    q = torch.trapezoid(kernel * prior, z, dim=1)
    true = torch.trapezoid(torch.special.entr(q), theta)
    slope = z / image
    linear = 0.5 * (1 + math.log(2 * math.pi)) + 0.5 * (slope.square() + noise**2).log()
    return (torch.trapezoid(linear * prior, z) - true).item()


def test_a_generator_that_folds_is_found_out(layout, data):
    posterior = ImplicitPosterior(layout, Folded(3), FixedNoise(0.1))
    found = diagnose(Fitted(posterior), *data, rng=seeded(), effort=Effort(num_densities=150))
    gap = found.density.mean.gap
    truth = fold_gap(0.05, 0.1)
    assert 0.5 < truth < math.log(2.0)
    assert close(gap, truth)
    assert gap.value > 5.0 * gap.standard_error
    assert found.density.mean.preimages > 1.7
    assert found.severity == "warning"
    [warning] = found.warnings
    assert warning.topic == "L' against the ELBO"
    assert "no lower bound" in warning.text
    assert "folds" in warning.text


@pytest.mark.parametrize("distance", [0.0, 1.5, 40.0])
def test_the_mixture_s_entropy_above_its_components_is_their_information(layout, distance):
    components = [affine(layout) for _ in range(2)]
    cov = covariance(components[0])
    generators = [component.generators[0] for component in components]
    with torch.no_grad():
        generators[1].offset.add_(distance * torch.linalg.cholesky(cov)[:, 0])  # so many standard deviations apart
    posterior = ImplicitPosterior(layout, generators, [component.noises[0] for component in components])
    check = check_densities(posterior, Effort(num_densities=400, num_starts=1, num_importance=32), seeded())
    x = torch.linspace(-12, 52, 20001)
    one, two = (stats.norm.pdf(x.numpy(), loc=loc) for loc in (0.0, distance))
    mix = 0.5 * (one + two)
    entropy = torch.trapezoid(torch.special.entr(torch.from_numpy(mix)), x).item()
    excess = entropy - 0.5 * (1 + math.log(2 * math.pi))
    assert abs(check.mixture.value - excess) < 4.5 * check.mixture.standard_error + 2e-3
    assert len(check.components) == 2
    assert close(check.mean.gap, 0.0)


def test_overlapping_and_separate_mixtures_get_their_finding(layout, data):
    for distance, words, severity in ((0.0, "on top of each other", "notice"), (60.0, "do not overlap", "ok")):
        pair = [affine(layout), affine(layout)]
        generators = [one.generators[0] for one in pair]
        with torch.no_grad():
            generators[1].offset.add_(distance)
        posterior = ImplicitPosterior(layout, generators, [one.noises[0] for one in pair])
        found = diagnose(Fitted(posterior), *data, rng=seeded(), effort=CHEAP)
        [finding] = [f for f in found.findings if f.topic == "mixture"]
        assert words in finding.text
        assert finding.severity == severity


# --- spread and rank ------------------------------------------------------------------------------


def participation(cov):
    return (cov.trace().square() / cov.square().sum()).item()


@pytest.mark.parametrize("latent_dim", [2, 31])
def test_effective_rank_is_the_participation_ratio_of_the_covariance(deep, latent_dim):
    posterior = affine(deep, latent_dim, noise=0.2)
    samples = posterior.sample(400, seeded()).detach()
    check = check_rank(samples, Layers(deep, 10_000), posterior, Effort(), seeded())
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


@pytest.mark.parametrize(("prior", "unit"), [(Normal(0.5), 0.5), (Laplace(0.5), 0.5 * math.sqrt(2)), (None, None)])
def test_spread_is_the_root_mean_square_deviation_and_relative_to_the_prior(deep, prior, unit):
    samples = gaussian(500, 31) * torch.linspace(0.1, 2.0, 31) + 3.0
    spread = check_spread(samples, Layers(deep, 10_000), prior)
    scales = torch.linspace(0.1, 2.0, 31).split(deep.group_sizes)
    assert [layer.name for layer in spread] == ["0", "2", "4"]
    for layer, scale in zip(spread, scales, strict=True):
        truth = scale.square().mean().sqrt().item()
        assert close(layer.std, truth)
        assert layer.mean == pytest.approx(3.0, rel=0.1)
        assert layer.relative is None if unit is None else close(layer.relative, truth / unit)


def test_a_prior_without_a_scale_leaves_the_relative_spread_out(deep, data):
    prior = FunctionPrior(lambda theta: -theta.square().sum(1))
    found = diagnose(Fitted(affine(deep), prior=prior), *data, rng=seeded(), effort=CHEAP)
    assert all(layer.relative is None for layer in found.spread)


@pytest.mark.parametrize(
    ("spread", "words"), [(1e-5, "collapsed"), (0.98, "as much as under the prior"), (50.0, "diverged")]
)
def test_collapsed_idle_and_runaway_layers_are_named(deep, data, spread, words):
    posterior = ImplicitPosterior(deep, Affine(31, 31).init_around(torch.zeros(31), spread), FixedNoise(1e-6))
    found = diagnose(Fitted(posterior), *data, rng=seeded(), effort=CHEAP)
    [finding] = [f for f in found.findings if f.topic == "spread"]
    assert words in finding.text
    assert finding.severity in ("notice", "warning")


# --- correlation ----------------------------------------------------------------------------------


def unbiased_hsic(one, other):
    """Song et al. (2012), equation 5, with linear kernels."""
    k, l = (x @ x.T - torch.diag((x @ x.T).diagonal()) for x in (one, other))  # noqa: E741
    n = len(k)
    value = (k * l).sum() + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2.0 / (n - 2) * (k @ l).sum()
    return value / (n * (n - 3))


@pytest.mark.parametrize("samples", [12, 40], ids=["more weights than samples", "more samples than weights"])
def test_squared_covariances_are_the_unbiased_hsic(deep, samples):
    theta = affine(deep, 3).sample(samples, seeded()).detach()
    layers = Layers(deep, 10_000)
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


def test_per_layer_generators_are_found_independent_and_a_skip_is_not(deep, data):
    parts = PerLayer([MLP(4, size, hidden=(8,), offset=True) for size in deep.group_sizes])
    parts.init_around(torch.zeros(31), 0.5)
    apart = diagnose(Fitted(ImplicitPosterior(deep, parts)), *data, rng=seeded(), effort=CHEAP)
    assert apart.correlation.strongest() is None
    assert abs(apart.correlation.across) < 5.0 * apart.correlation.across_noise
    assert (apart.correlation.rms.diagonal() > 0.2).all()
    assert any("none across layers" in finding.text for finding in apart.findings)
    joint = diagnose(Fitted(affine(deep, 4)), *data, rng=seeded(), effort=CHEAP)
    assert joint.correlation.strongest() is not None
    assert any("a factorised posterior would miss it" in finding.text for finding in joint.findings)


def test_the_correlation_of_a_skip_generator_is_the_known_one(deep):
    posterior = affine(deep, 3)
    cov = covariance(posterior)
    scale = cov.diagonal().rsqrt()
    squares = (scale[:, None] * cov * scale).square()
    layers = Layers(deep, 10_000)
    found = torch.stack(
        [check_correlation(posterior.sample(400, seeded(seed)).detach(), layers, 512).mean_square for seed in range(20)]
    )
    for i, a in enumerate(layers.slices):
        for j, b in enumerate(layers.slices):
            block = squares[a, b]
            truth = block.mean() if i != j else (block.sum() - len(block)) / (len(block) * (len(block) - 1))
            error = found[:, i, j].std() / 20**0.5
            assert abs(found[:, i, j].mean() - truth) < 4.5 * error + 0.005 * truth  # of order 1/S by the scaling


def test_the_whole_matrix_is_the_sample_correlation(deep):
    samples = affine(deep, 3).sample(50, seeded()).detach()
    check = check_correlation(samples, Layers(deep, 10_000), 512)
    torch.testing.assert_close(check.matrix, torch.corrcoef(samples.T))
    assert check_correlation(samples, Layers(deep, 10_000), 30).matrix is None


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


def test_two_modes_are_found_and_counted(layout, data):
    generators = [Affine(3, 3).init_around(torch.full((3,), centre), 0.2) for centre in (-1.0, 1.0)]
    posterior = ImplicitPosterior(layout, generators, [FixedNoise(0.05), FixedNoise(0.05)])
    found = diagnose(Fitted(posterior), *data, rng=seeded(), effort=CHEAP)
    assert len(found.shape.multimodal) == 4  # the three weights, and the first principal direction
    for density in found.shape.densities:
        assert len(density.modes) == 2
        assert density.modes[0] == pytest.approx(-1.0, abs=0.2)
        assert density.modes[1] == pytest.approx(1.0, abs=0.2)
        assert density.excess_kurtosis.value < -1.0
        assert torch.trapezoid(density.density, density.grid).item() == pytest.approx(1.0, abs=1e-3)
    one = diagnose(Fitted(affine(layout)), *data, rng=seeded(), effort=CHEAP)
    assert one.shape.multimodal == ()
    assert any(finding.topic == "modes" and "no second one" in finding.text for finding in one.findings)


def test_modes_hidden_from_every_weight_show_along_a_principal_direction():
    layout = Layout(nn.Linear(20, 9))
    sign = torch.where(torch.arange(300) % 2 == 0, 1.0, -1.0)[:, None]
    samples = gaussian(300, 189) + 0.5 * sign
    check = check_shape(samples, Layers(layout, 10_000), None, 6)
    assert all(len(density.modes) == 1 for density in check.densities)
    assert len(check.directions[0].modes) == 2


def test_heavy_tails_are_found_and_gaussian_ones_are_not(deep):
    layers = Layers(deep, 10_000)
    normal = gaussian(400, 31)
    assert check_shape(normal, layers, None, 3).heavy == 0
    scale = gaussian(400, 3, seed=1).square().mean(1, keepdim=True).sqrt()
    check = check_shape(normal / scale, layers, None, 3)  # Student's t with three degrees of freedom
    assert check.heavy > 25
    assert check.mean_excess_kurtosis.value > 2.0


def test_the_weights_that_are_asked_for_are_examined(deep, data):
    found = diagnose(Fitted(affine(deep)), *data, rng=seeded(), weights=[30, 2], effort=CHEAP)
    assert [density.index for density in found.shape.densities] == [30, 2]
    assert [density.name for density in found.shape.densities] == ["4.bias[0]", "0.weight[1, 0]"]


def test_weights_are_named_by_their_place():
    layout = Layout(nn.Conv2d(2, 3, 2))
    flat = layout.flatten()
    name = weight_name(layout, 13)
    assert name == "weight[1, 1, 0, 1]"
    assert flat[13] == layout.module.weight[1, 1, 0, 1]


# --- the whole ------------------------------------------------------------------------------------


def test_a_sampler_without_generators_gets_what_samples_tell(deep, data):
    found = diagnose(Fitted(Members(deep, gaussian(200, 31))), *data, rng=seeded())
    assert isinstance(found.log_det, Skipped)
    assert isinstance(found.density, Skipped)
    assert isinstance(found.bound.entropy, Skipped)
    assert isinstance(found.bound.bound, Skipped)
    assert isinstance(found.rank.local, Skipped)
    assert close(found.rank.covariance, 31.0)
    assert found.facts.num_distinct < found.facts.num_samples == 256
    assert "not applicable: Members has no generator" in str(found)
    assert any("fixed set" in finding.text for finding in found.findings)


@pytest.mark.parametrize("members", [1, 5])
def test_an_ensemble_of_a_few_is_told_so(deep, data, members):
    found = diagnose(Fitted(Members(deep, gaussian(members, 31))), *data, rng=seeded())
    assert found.facts.num_distinct == members
    assert isinstance(found.spread, Skipped) == (members < 3)
    for part in (found.rank, found.correlation, found.shape):
        assert part == Skipped(f"too few samples: needs 16 distinct weight vectors, got {members}")


def test_a_posterior_without_prior_has_no_bound(layout, data):
    found = diagnose(Fitted(affine(layout), prior=None), *data, rng=seeded(), effort=CHEAP)
    assert isinstance(found.bound.log_prior, Skipped)
    assert isinstance(found.bound.bound, Skipped)
    assert isinstance(found.bound.entropy, Estimate)


@pytest.fixture(scope="module")
def diagnosis():
    layout = Layout(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double())
    generators = [MLP(4, 13, hidden=(8,), skip=True, offset=True).double() for _ in range(2)]
    for k, generator in enumerate(generators):
        generator.init_around(torch.full((13,), float(k), dtype=torch.float64), 0.3)
    posterior = Fitted(ImplicitPosterior(layout, generators), Gaussian(0.5).double(), Normal().double())
    x = gaussian(20, 2, seed=1).double()
    return diagnose(posterior, x, x.sum(1), num_samples=100, rng=seeded(), effort=CHEAP)


def test_samples_are_rounded_up_to_full_batches_of_all_components(diagnosis):
    assert diagnosis.facts.num_samples == 128
    assert diagnosis.facts.num_components == 2


def test_a_diagnosis_prints_every_part_and_the_verdict_last(diagnosis):
    text = str(diagnosis)
    headings = [
        "Diagnosis of 13 weights",
        "Bound",
        "Entropy by",
        "Linearised entropy",
        "Spread",
        "Correlation",
        "Verdict",
    ]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)
    assert max(map(len, text.splitlines())) <= 120
    assert "component 1" in text
    assert all(finding.topic in text[places[-1] :] for finding in diagnosis.findings)


def test_a_diagnosis_is_json(diagnosis):
    stored = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert stored["bound"]["bound"]["value"] == diagnosis.bound.bound.value
    assert stored["severity"] == diagnosis.severity
    assert len(stored["correlation"]["matrix"]) == 13
    assert {"severity", "topic", "text"} == set(stored["findings"][0])


def test_a_fitted_posterior_diagnoses_itself(deep, data):
    posterior = Posterior(affine(deep, 4), Gaussian(0.5), Normal())
    assert posterior.diagnose(*data, rng=seeded(), effort=CHEAP).to_dict() == (
        diagnose(posterior, *data, rng=seeded(), effort=CHEAP).to_dict()
    )


def gap(value, error, effective=0.6):
    return {"gap": Estimate(value, error), "effective": effective, "bias": 0.0, "preimages": 1.0}


@pytest.mark.parametrize(
    ("measured", "severity", "words"),
    [
        (gap(0.8, 0.05), "warning", "at least 0.800 ± 0.050 nats"),
        (gap(0.8, 0.5), "ok", "no gap"),
        (gap(0.05, 0.001), "ok", "no gap"),
        (gap(-0.8, 0.05), "ok", "loose, not wrong"),
        (gap(0.0, 0.05, effective=0.02), "notice", "raise Effort.num_importance"),
    ],
)
def test_a_gap_counts_if_it_is_significant_and_not_small(diagnosis, measured, severity, words):
    density = replace(diagnosis.density, mean=replace(diagnosis.density.mean, **measured))
    [finding] = [f for f in verdict(replace(diagnosis, density=density)) if f.topic == "L' against the ELBO"]
    assert finding.severity == severity
    assert words in finding.text


@pytest.mark.parametrize(
    ("bound", "fit", "warned"),
    [
        ("Exact", "", ["Exact"]),
        ("Exact", "Lanczos", ["Exact", "Lanczos"]),
        ("Exact", "SmallestSingularValue", ["Exact", "SmallestSingularValue"]),
        ("Lanczos", "", ["Exact", "Lanczos"]),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_an_unconverged_estimator_is_a_warning_where_bound_or_fit_rest_on_it(diagnosis, bound, fit, warned, exact):
    methods = [replace(method, converged=0.5, remedy="Do this.") for method in diagnosis.log_det.methods]
    if not exact:
        methods = [replace(method, difference=None) for method in methods if method.name != "Exact"]
    found = replace(
        diagnosis,
        facts=replace(diagnosis.facts, fit_estimator=fit),
        bound=replace(diagnosis.bound, estimator=bound),
        log_det=replace(diagnosis.log_det, methods=tuple(methods)),
    )
    findings = [f for f in verdict(found) if f.topic.startswith("log-determinant")]
    assert len(findings) == len(methods)
    for finding in findings:
        name = finding.topic.removeprefix("log-determinant by ")
        assert finding.severity == ("warning" if name in warned else "ok")
        assert ("Do this." in finding.text) == (name in warned)
        assert finding.text.startswith("not used here") == (name not in warned)


def test_the_lines_of_an_estimator_that_was_not_used_say_so(deep, data):
    posterior = Posterior(affine(deep, 4), Gaussian(0.5), Normal(), plan={"entropy": "Lanczos(num_probes=1)"})
    found = posterior.diagnose(*data, rng=seeded(), effort=CHEAP)
    assert found.facts.fit_estimator == "Lanczos"
    text = str(found)
    assert "SmallestSingularValue (not used here)" in text
    assert "log-determinant by SmallestSingularValue: not used here; for comparison, -" in text
    assert "Lanczos (not used here)" not in text
    assert "log-determinant by Lanczos: converged" in text
    plain = str(diagnose(Fitted(affine(deep, 4)), *data, rng=seeded(), effort=CHEAP))
    assert "Lanczos (not used here)" in plain
    assert "Exact (not used here)" not in plain


def test_a_bound_that_is_not_finite_is_a_warning(deep, data):
    prior = FunctionPrior(lambda theta: torch.full((len(theta),), -torch.inf))
    found = diagnose(Fitted(affine(deep), prior=prior), *data, rng=seeded(), effort=CHEAP)
    assert any(f.topic == "bound" and "log_prior is not finite" in f.text for f in found.warnings)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["bound"]["log_prior"]["value"] is None


def test_an_rng_decides_everything_and_the_global_one_is_left_alone(deep, data):
    posterior = Fitted(affine(deep, 4))
    before = torch.random.get_rng_state()
    one, two = (diagnose(posterior, *data, rng=seeded(3), effort=CHEAP).to_dict() for _ in range(2))
    assert one == two
    assert torch.equal(before, torch.random.get_rng_state())
    assert one != diagnose(posterior, *data, rng=seeded(4), effort=CHEAP).to_dict()


def test_single_precision_posteriors_can_be_diagnosed(deep, data):
    posterior = ImplicitPosterior(deep, MLP(6, 31, hidden=(12,), skip=True), FixedNoise(0.05)).float()
    x, y = (tensor.float() for tensor in data)
    found = diagnose(Fitted(posterior, Gaussian(0.5).float(), Normal().float()), x, y, rng=seeded(), effort=CHEAP)
    assert isinstance(found, Diagnosis)
    assert found.density.mean.gap.value < 0.1 + 4.0 * found.density.mean.gap.standard_error
    exact = Exact()(posterior.generators[0], gaussian(64, 6).float(), posterior.noises[0].std()).nats
    assert abs(found.bound.entropy.value - exact.mean()) < 5.0 * exact.std() / 4.0  # 16 latents


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"posterior": 3}, TypeError, "expected what livi.fit returns, got int without sampler, likelihood"),
        ({"targets": "train.csv"}, TypeError, "targets: expected a tensor, an array or a list of numbers, got str"),
        ({"targets": torch.zeros(())}, ValueError, "targets: expected at least one example"),
        ({"inputs": torch.zeros(3, 2)}, ValueError, r"inputs: expected a tensor with the targets' 20 rows.*\(3, 2\)"),
        ({"num_data": 5}, ValueError, "num_data: expected at least the 20 examples given, got 5"),
        ({"num_samples": 0}, ValueError, "num_samples: expected at least 1"),
        ({"weights": [31]}, ValueError, "weights: expected places in theta, 0 to 30, got 31"),
        ({"effort": "much"}, TypeError, "effort: expected a livi.diagnostics.Effort, got str"),
    ],
)
def test_bad_input_is_a_clear_error(deep, data, change, error, message):
    arguments = {"posterior": Fitted(affine(deep)), "inputs": data[0], "targets": data[1]} | change
    with pytest.raises(error, match=message):
        diagnose(**arguments)


def test_bad_effort_and_bad_draws_are_clear_errors(deep, data):
    with pytest.raises(ValueError, match="num_starts: expected at least 1, got 0"):
        Effort(num_starts=0)
    members = gaussian(40, 31)
    members[3, 4] = float("nan")
    with pytest.raises(ValueError, match="expected finite weights, got NaN or inf"):
        diagnose(Fitted(Members(deep, members)), *data, rng=seeded())
    with pytest.raises(ValueError, match=r"expected samples of shape \(16, 31\), got \(16, 30\)"):
        diagnose(Fitted(Members(deep, members[:, 1:])), *data, rng=seeded())
    members[3, 4] = 0.0
    members[:, 7] = 1.0
    with pytest.raises(ValueError, match=r"weights: expected ones that vary, got 0.weight\[3, 1\], which is constant"):
        diagnose(Fitted(Members(deep, members)), *data, rng=seeded(), weights=[7])
    with pytest.raises(ValueError, match="expected numbers that differ"):
        kernel_density(torch.ones(5))
    with pytest.raises(ValueError, match="expected at least 2 numbers on one axis"):
        kernel_density(torch.ones(5, 2))
