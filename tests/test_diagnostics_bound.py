"""Diagnostics of the bound: its terms, the log-determinant, linearised against sampled entropy."""

import math

import pytest
import torch
from scipy import stats
from support.diagnosed_posteriors import CHEAP, Fitted, Members, affine, close, covariance, gaussian, seeded
from torch import nn

from livi.family.generators.generator import Generator
from livi.family.implicit import ImplicitPosterior
from livi.family.noise import FixedNoise
from livi.model.likelihoods import Gaussian
from livi.network import Layout, apply_many
from livi.posterior.diagnostics import Effort, Estimate, Skipped, diagnose
from livi.posterior.diagnostics.entropy import check_densities
from livi.posterior.diagnostics.estimate import from_batches, jackknife
from livi.posterior.diagnostics.log_det import check_log_det, default_estimators


class Folded(Generator):
    """theta_1 = sqrt(z_1^2 + width^2), the others theta_i = z_i: two latents behind every theta."""

    def __init__(self, num_params, width=0.05):
        super().__init__(num_params, num_params)
        self.width = width
        self.unused = nn.Parameter(torch.zeros(1))

    def branch(self, z):
        return torch.cat([(z[:, :1].square() + self.width**2).sqrt(), z[:, 1:]], 1)


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


def test_terms_of_an_affine_posterior_of_a_linear_model_are_those_in_closed_form(linear_layout, plane):
    posterior = affine(linear_layout)
    x, y = plane
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


def test_a_batch_stands_for_the_whole_data_set(linear_layout, plane):
    x, y = plane
    posterior = Fitted(affine(linear_layout))
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


def test_exact_log_determinant_is_that_of_the_covariance_and_estimators_agree_within_their_error(deep_layout):
    posterior = affine(deep_layout, latent_dim=8)
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


def test_an_unaffordable_exact_value_is_said_to_be_so_and_estimates_remain(deep_layout, plane):
    found = diagnose(
        Fitted(affine(deep_layout, 8)), *plane, rng=seeded(), effort=Effort(max_exact_dim=4, max_density_dim=4)
    )
    assert "latent_dim 8 is above max_exact_dim=4" in found.log_det.reference
    assert [method.name for method in found.log_det.methods] == ["Lanczos", "SmallestSingularValue"]
    assert all(method.difference is None for method in found.log_det.methods)
    assert found.bound.estimator == "Lanczos"
    assert isinstance(found.density, Skipped)
    assert "not affordable: latent_dim 8 is above max_density_dim=4" in str(found)


def test_the_chunked_exact_value_is_the_same(deep_layout, monkeypatch):
    posterior = affine(deep_layout, latent_dim=8)
    whole = check_log_det(posterior, Effort(), (), seeded())
    monkeypatch.setattr("livi.posterior.diagnostics.log_det.DENSE_ENTRIES", 1)
    chunked = check_log_det(posterior, Effort(), (), seeded())
    assert chunked.log_det == pytest.approx(whole.log_det, rel=1e-9)


# --- linearised against sampled entropy -----------------------------------------------------------


@pytest.mark.parametrize("latent_dim", [2, 31])
def test_there_is_no_gap_for_an_affine_generator(deep_layout, latent_dim):
    posterior = affine(deep_layout, latent_dim)
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


def test_a_generator_that_folds_is_found_out(linear_layout, plane):
    posterior = ImplicitPosterior(linear_layout, Folded(3), FixedNoise(0.1))
    found = diagnose(Fitted(posterior), *plane, rng=seeded(), effort=Effort(num_densities=150))
    gap = found.density.mean.gap
    truth = fold_gap(0.05, 0.1)
    assert 0.5 < truth < math.log(2.0)
    assert close(gap, truth)
    assert gap.value > 5.0 * gap.standard_error
    assert found.density.mean.preimages > 1.7
    assert found.severity == "warning"
    [warning] = [finding for finding in found.warnings if finding.topic == "L' against the ELBO"]
    assert "no lower bound" in warning.text
    assert "folds" in warning.text


@pytest.mark.parametrize("distance", [0.0, 1.5, 40.0])
def test_the_mixture_s_entropy_above_its_components_is_their_information(linear_layout, distance):
    components = [affine(linear_layout) for _ in range(2)]
    cov = covariance(components[0])
    generators = [component.generators[0] for component in components]
    with torch.no_grad():
        generators[1].offset.add_(distance * torch.linalg.cholesky(cov)[:, 0])  # so many standard deviations apart
    posterior = ImplicitPosterior(linear_layout, generators, [component.noises[0] for component in components])
    check = check_densities(posterior, Effort(num_densities=400, num_starts=1, num_importance=32), seeded())
    x = torch.linspace(-12, 52, 20001)
    one, two = (stats.norm.pdf(x.numpy(), loc=loc) for loc in (0.0, distance))
    mix = 0.5 * (one + two)
    entropy = torch.trapezoid(torch.special.entr(torch.from_numpy(mix)), x).item()
    excess = entropy - 0.5 * (1 + math.log(2 * math.pi))
    assert abs(check.mixture.value - excess) < 4.5 * check.mixture.standard_error + 2e-3
    assert len(check.components) == 2
    assert close(check.mean.gap, 0.0)


def test_overlapping_and_separate_mixtures_get_their_finding(linear_layout, plane):
    for distance, words, severity in ((0.0, "on top of each other", "notice"), (60.0, "do not overlap", "ok")):
        pair = [affine(linear_layout), affine(linear_layout)]
        generators = [one.generators[0] for one in pair]
        with torch.no_grad():
            generators[1].offset.add_(distance)
        posterior = ImplicitPosterior(linear_layout, generators, [one.noises[0] for one in pair])
        found = diagnose(Fitted(posterior), *plane, rng=seeded(), effort=CHEAP)
        [finding] = [f for f in found.findings if f.topic == "mixture"]
        assert words in finding.text
        assert finding.severity == severity
