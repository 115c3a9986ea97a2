"""The bound against closed forms: conjugate linear regression, minibatch scaling, tempering."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

import livi
from livi import Affine, Bound, BoundTerms, DiagonalNoise, FixedNoise, Gaussian, ImplicitPosterior, Layout, Normal


class Conjugate:
    """y = w.x + b + 0.4 eps with a N(0, 1.5^2) prior on (w, b): evidence, posterior and predictive in closed form."""

    def __init__(self, num_data=40, obs_std=0.4, prior_std=1.5):
        rng = torch.Generator().manual_seed(7)
        self.obs_std, self.prior_std = obs_std, prior_std
        self.x = torch.randn(num_data, 3, generator=rng)
        self.y = self.x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3 + obs_std * torch.randn(num_data, generator=rng)
        design = self.features(self.x)
        precision = design.T @ design / obs_std**2 + torch.eye(4) / prior_std**2
        self.covariance = torch.linalg.inv(precision)
        self.mean = self.covariance @ design.T @ self.y / obs_std**2
        marginal = prior_std**2 * design @ design.T + obs_std**2 * torch.eye(num_data)
        self.log_evidence = MultivariateNormal(torch.zeros(num_data), marginal).log_prob(self.y)

    @staticmethod
    def features(x):
        return torch.cat([x, torch.ones(len(x), 1)], 1)

    def bound(self, posterior, **options):
        return Bound(posterior, Gaussian(self.obs_std), Normal(self.prior_std), num_data=len(self.x), **options)


@pytest.fixture
def problem():
    return Conjugate()


@pytest.fixture
def layout():
    return Layout(nn.Linear(3, 1))


@pytest.mark.parametrize("noise_std", [1e-3, 0.03])
def test_at_the_true_posterior_the_bound_is_the_log_evidence(problem, layout, noise_std):
    generator = Affine(4, 4)
    generator.offset.data = problem.mean
    generator.skip.data = torch.linalg.cholesky(problem.covariance - noise_std**2 * torch.eye(4))
    posterior = ImplicitPosterior(layout, generator, FixedNoise(noise_std))
    bounds = []
    for seed in range(200):
        terms = problem.bound(posterior, num_samples=64)(problem.x, problem.y, torch.Generator().manual_seed(seed))
        bounds.append(terms.bound.detach())
    bounds = torch.stack(bounds)
    assert abs(bounds.mean() - problem.log_evidence) < 4.0 * bounds.std() / 200**0.5
    assert bounds.std() / 200**0.5 < 0.05


@pytest.mark.parametrize(
    ("estimator", "noise"),
    [(livi.Exact(), FixedNoise(0.01)), (livi.Lanczos(num_probes=4, tolerance=1e-6), DiagonalNoise(4, 0.01))],
    ids=["exact", "lanczos with diagonal noise"],
)
def test_fitting_reaches_the_log_evidence_and_the_closed_form_predictive(problem, layout, estimator, noise):
    posterior = ImplicitPosterior(layout, Affine(4, 4).init_around(torch.zeros(4), 0.1), noise)
    bound = problem.bound(posterior, entropy=estimator, num_samples=16, num_entropy_samples=2)
    optimiser = torch.optim.Adam(bound.parameters(), 0.05, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 1200)
    rng = torch.Generator().manual_seed(0)
    for _ in range(1200):
        optimiser.zero_grad()
        (-bound(problem.x, problem.y, rng).bound).backward()
        optimiser.step()
        schedule.step()
    final = problem.bound(posterior, num_samples=4000, num_entropy_samples=1)
    with torch.no_grad():
        reached = torch.stack([final(problem.x, problem.y, rng).bound for _ in range(10)])
    assert problem.log_evidence - 0.05 < reached.mean() < problem.log_evidence + 4.0 * reached.std() / 10**0.5

    x_new = torch.randn(6, 3, generator=rng)
    with torch.no_grad():
        outputs = livi.apply_many(layout, posterior.sample(20_000, rng), x_new)[..., 0]
    design = problem.features(x_new)
    deviation = (design @ problem.covariance * design).sum(1).sqrt()
    assert ((outputs.mean(0) - design @ problem.mean).abs() < 0.1 * deviation).all()
    torch.testing.assert_close(outputs.std(0), deviation, rtol=0.07, atol=0.0)


def test_type_two_learning_finds_noise_and_prior_scale(problem, layout):
    posterior = ImplicitPosterior(layout, Affine(4, 4).init_around(problem.mean, 0.05), FixedNoise(0.01))
    bound = Bound(posterior, Gaussian(), Normal(1.0, learned=True), num_data=40, num_samples=16, num_entropy_samples=2)
    optimiser = torch.optim.Adam(bound.parameters(), 0.05, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 1200)
    rng = torch.Generator().manual_seed(0)
    for _ in range(1200):
        optimiser.zero_grad()
        (-bound(problem.x, problem.y, rng).bound).backward()
        optimiser.step()
        schedule.step()
    design = problem.features(problem.x)

    def log_evidence(obs_std, prior_std):
        return MultivariateNormal(
            torch.zeros(40), prior_std**2 * design @ design.T + obs_std**2 * torch.eye(40)
        ).log_prob(problem.y)

    found = log_evidence(bound.likelihood.obs_std().detach(), bound.prior.scale().detach())
    grid = torch.tensor(
        [[log_evidence(o, p) for p in torch.linspace(0.6, 3.0, 25)] for o in torch.linspace(0.25, 0.6, 36)]
    )
    assert grid.max() - found < 0.02


def test_minibatch_bound_is_unbiased(problem, layout):
    posterior = ImplicitPosterior(layout, Affine(4, 4), FixedNoise(0.1))
    bound = problem.bound(posterior, num_samples=6)
    full = bound(problem.x, problem.y, torch.Generator().manual_seed(0))
    for size in (1, 8, 20):
        parts = [
            bound(problem.x[i : i + size], problem.y[i : i + size], torch.Generator().manual_seed(0))
            for i in range(0, 40, size)
        ]
        torch.testing.assert_close(torch.stack([part.bound for part in parts]).mean(), full.bound)
        for part in parts:
            torch.testing.assert_close(part.log_prior, full.log_prior)
            torch.testing.assert_close(part.entropy, full.entropy)


def test_terms_are_those_of_a_hand_written_bound(problem, layout):
    posterior = ImplicitPosterior(layout, Affine(4, 4), FixedNoise(0.1))
    terms = problem.bound(posterior, num_samples=6)(problem.x, problem.y, torch.Generator().manual_seed(5))
    draw = posterior.draw(6, torch.Generator().manual_seed(5), latents=livi.Orthogonal())
    mean = problem.features(problem.x) @ draw.theta.T
    likelihood = torch.distributions.Normal(mean, 0.4).log_prob(problem.y[:, None]).sum(0).mean()
    prior = torch.distributions.Normal(0.0, 1.5).log_prob(draw.theta).sum(1).mean()
    skip = posterior.generators[0].skip
    entropy = MultivariateNormal(torch.zeros(4), skip @ skip.T + 0.01 * torch.eye(4)).entropy()
    torch.testing.assert_close(terms.log_likelihood, likelihood)
    torch.testing.assert_close(terms.log_prior, prior)
    torch.testing.assert_close(terms.entropy, entropy)
    torch.testing.assert_close(terms.bound, likelihood + prior + entropy)


def test_tempering_weighs_the_divergence_alone():
    terms = BoundTerms(torch.tensor(-10.0), torch.tensor(-5.0), torch.tensor(3.0))
    assert terms.tempered() == terms.bound == -12.0
    assert terms.tempered(0.5) == -11.0
    assert terms.tempered(0.0) == -10.0


def test_non_finite_terms_are_named():
    terms = BoundTerms(torch.tensor(math.nan), torch.tensor(-5.0), torch.tensor(math.inf))
    assert terms.non_finite() == ("log_likelihood", "entropy")


def test_entropy_may_use_fewer_samples_than_the_likelihood(problem, layout):
    seen = []

    class Spy(livi.Exact):
        def __call__(self, generator, z, noise_std, rng=None):
            seen.append(z.shape[0])
            return super().__call__(generator, z, noise_std, rng)

    posterior = ImplicitPosterior(layout, [Affine(4, 4) for _ in range(2)])
    problem.bound(posterior, entropy=Spy(), num_samples=16, num_entropy_samples=6)(problem.x, problem.y)
    assert seen == [3, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 3}, "multiples of the 2 mixture components"),
        ({"num_samples": 4, "num_entropy_samples": 6}, "num_entropy_samples <= num_samples"),
        ({"num_samples": 4, "num_entropy_samples": 3}, "multiples of the 2"),
        ({"num_samples": 0}, "num_samples: expected at least 1"),
    ],
)
def test_bad_sample_counts_are_errors(problem, layout, options, message):
    posterior = ImplicitPosterior(layout, [Affine(4, 4) for _ in range(2)])
    with pytest.raises(ValueError, match=message):
        problem.bound(posterior, **options)


def test_an_empty_batch_is_an_error(problem, layout):
    bound = problem.bound(ImplicitPosterior(layout, Affine(4, 4)))
    with pytest.raises(ValueError, match="batch >= 1"):
        bound(torch.empty(0, 3), torch.empty(0))


def test_inputs_of_the_wrong_length_are_an_error(problem, layout):
    bound = problem.bound(ImplicitPosterior(layout, Affine(4, 4)))
    with pytest.raises(ValueError, match="outputs: expected"):
        bound(problem.x, problem.y[:-1])


@pytest.mark.parametrize("strategy", [livi.Vmap(), livi.Loop()])
@pytest.mark.parametrize("part", ["value", "gradient", "none"])
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("flat", [False, True])
def test_accumulated_gradients_are_those_of_one_backward_pass(strategy, part, apart, flat):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double()
    layout = Layout(net)
    generators = [livi.MMNN((3, 3), layout.num_params, hidden=((4, 4),), offset=True) for _ in range(2)]
    posterior = ImplicitPosterior(layout, generators, [DiagonalNoise(layout.num_params, 0.1) for _ in generators])
    posterior.entropy_apart = apart
    likelihood = livi.HeteroscedasticGaussian()
    options = {"num_data": 50, "num_samples": 4, "strategy": strategy, "entropy": livi.Lanczos(num_probes=2)}
    prior = livi.FunctionPrior(lambda theta: torch.zeros(len(theta))) if flat else Normal(1.0, learned=True)
    bound = Bound(posterior, likelihood, prior, **options).double()
    batch = torch.randn(10, 3).double(), torch.randn(10, 1).double()

    terms = bound(*batch, torch.Generator().manual_seed(1), entropy=part)
    (-terms.tempered(0.5, 10.0) / 50).backward()
    expected = [parameter.grad.clone() for parameter in bound.parameters()]
    bound.zero_grad()
    weights = {"kl_weight": 0.5, "entropy_weight": 10.0}
    again = bound.accumulate(*batch, torch.Generator().manual_seed(1), entropy=part, **weights)

    for name in ("log_likelihood", "log_prior", "entropy"):
        torch.testing.assert_close(getattr(again, name), getattr(terms, name).detach())
        assert not getattr(again, name).requires_grad
    for parameter, gradient in zip(bound.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
