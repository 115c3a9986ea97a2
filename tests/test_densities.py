"""`livi.fit_density` beside densities whose draws and normaliser are known."""

import math
import warnings
from dataclasses import replace

import pytest
import torch

import livi
from livi.experiments import density_bench
from livi.experiments.density_targets import TARGETS
from livi.family.entropy import Exact, Oriented
from livi.inference import Recipe
from livi.posterior.diagnostics import Estimate
from livi.posterior.pareto import pareto_shape
from livi.rivals import SemiImplicit

QUICK = Recipe(steps=400, num_samples=64, num_entropy_samples=64)
SHIFT = 3.0  # log of the normaliser


def gaussian():
    """Correlated, unnormalised: log Z is known."""
    root = torch.tensor([[1.0, 0.0], [0.8, 0.4]])
    exact = torch.distributions.MultivariateNormal(torch.tensor([1.0, -1.0]), root @ root.T)
    return exact, lambda x: exact.log_prob(x) + SHIFT


def banana(x):
    first = torch.distributions.Normal(0.0, 1.0).log_prob(x[:, 0])
    return first + torch.distributions.Normal(x[:, 0].square(), 0.5).log_prob(x[:, 1]) + SHIFT


def fit(log_prob, dim=2, **options):
    return livi.fit_density(log_prob, dim, **({"recipe": QUICK, "progress": False, "dtype": torch.float64} | options))


@pytest.fixture(scope="module")
def bent():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield fit(banana, steps=800)
    torch.set_default_dtype(before)


def test_a_gaussian_is_found_with_its_normaliser():
    exact, log_prob = gaussian()
    q = fit(log_prob)
    points = q.sample(20_000, torch.Generator().manual_seed(0))
    found = torch.distributions.MultivariateNormal(points.mean(0), points.T.cov())
    assert torch.distributions.kl_divergence(found, exact) < 0.02
    assert q.bound.value == pytest.approx(SHIFT, abs=5.0 * q.bound.standard_error + 0.05)


def test_a_banana_is_found_by_an_implicit_density_and_not_by_a_gaussian(bent):
    straight = fit(banana, generator=livi.Affine.for_layout)
    assert bent.bound.value == pytest.approx(SHIFT, abs=0.1)
    assert straight.bound.value < bent.bound.value - 0.3
    points = bent.sample(4000, torch.Generator().manual_seed(0))
    slope = torch.corrcoef(torch.stack([points[:, 0].square(), points[:, 1]]))[0, 1]
    assert slope > 0.8


def test_its_log_prob_integrates_to_one_and_agrees_with_the_target(bent):
    side = torch.linspace(-6.0, 6.0, 49)
    grid = torch.cartesian_prod(side, side + 3.0)
    estimate = bent.log_prob(grid, num_importance=64, rng=torch.Generator().manual_seed(0))
    assert float(estimate.log_prob.exp().sum()) * 0.25**2 == pytest.approx(1.0, abs=0.08)
    middle = torch.tensor([[0.0, 0.0], [1.0, 1.0], [-1.0, 1.2]])
    log_q = bent.log_prob(middle, rng=torch.Generator().manual_seed(1)).log_prob
    torch.testing.assert_close(log_q, banana(middle) - SHIFT, rtol=0, atol=0.3)


def test_the_diagnosis_knows_a_good_fit_and_its_normaliser(bent):
    found = bent.diagnose(256, num_importance=64, rng=torch.Generator().manual_seed(0))
    assert found.log_normaliser.value == pytest.approx(SHIFT, abs=0.15)
    assert found.elbo.value <= found.log_normaliser.value
    assert found.effective > 0.5
    assert found.reliable
    assert "close to p" in str(found)


def test_the_diagnosis_says_what_it_cannot_know(bent):
    found = bent.diagnose(64, num_importance=16, rng=torch.Generator().manual_seed(0))
    impossible = replace(found, elbo=Estimate(-math.inf, math.nan))
    assert "impossible under p" in impossible.verdict()
    assert "Too few draws" in replace(found, pareto_shape=math.nan).verdict()


def test_the_diagnosis_finds_a_bound_that_is_none(bent):
    found = bent.diagnose(64, num_importance=16, rng=torch.Generator().manual_seed(0))
    above = replace(found, bound=Estimate(found.elbo.value + 1.0, 0.01))
    assert "above the ELBO" in above.verdict()
    assert "no usable mean" in replace(found, bound=found.elbo, pareto_shape=0.9, effective=0.5).verdict()


def test_the_diagnosis_judges_weights_by_their_number_and_by_what_they_leave(bent):
    found = bent.diagnose(100, num_importance=16, rng=torch.Generator().manual_seed(0))
    uneven = replace(found, bound=found.elbo, effective=0.5)
    assert found.samples == 100
    assert replace(uneven, pareto_shape=0.45).reliable
    heavy = replace(uneven, pareto_shape=0.6)  # which would do for many draws
    assert not heavy.reliable
    assert "the mean of 100 is of use up to 0.50" in heavy.verdict()
    assert replace(heavy, samples=10_000).reliable
    assert "leave 15.0 effective draws of 100" in replace(uneven, effective=0.15).verdict()
    assert replace(found, pareto_shape=0.9, effective=0.98).reliable  # all but equal weights


def test_a_generator_that_folds_has_that_counted_against_it():
    z, noise = torch.tensor([[0.7, 0.1], [-0.7, 0.1]]), torch.tensor(0.1)

    def folded(z):  # det J = 4 z_1: the left half is turned over
        return torch.stack([z[:, 0].square(), 2.0 * z[:, 1]], 1)

    plain, oriented = Exact()(folded, z, noise).nats, Oriented()(folded, z, noise).nats
    assert plain[0] == plain[1] == oriented[0]
    assert float(plain[1] - oriented[1]) == pytest.approx(math.log1p((1.4 / 0.1) ** 2))
    straight = livi.Affine(2, 2)
    with torch.no_grad():
        straight.skip.copy_(torch.tensor([[1.0, 0.2], [0.0, 0.5]]))
    torch.testing.assert_close(Oriented()(straight, z, noise).nats, Exact()(straight, z, noise).nats)
    with pytest.raises(ValueError, match="as many latents as dimensions"):
        Oriented()(livi.Affine(3, 2), torch.zeros(1, 3), noise)


def test_a_density_comes_back_from_a_file(bent, tmp_path):
    bent.save(tmp_path / "banana.livi")
    again = livi.load_density(tmp_path / "banana.livi")
    assert torch.equal(*(q.sample(5, torch.Generator().manual_seed(0)) for q in (bent, again)))
    assert again.bound == bent.bound
    assert again.history == bent.history
    assert repr(again) == repr(bent)
    with pytest.raises(ValueError, match=r"log_prob: expected the target.*load_density"):
        again.diagnose()
    target = livi.load_density(tmp_path / "banana.livi", banana)
    assert math.isfinite(target.diagnose(32, num_importance=8).elbo.value)


def test_densities_and_posteriors_of_networks_are_told_apart_in_files(bent, tmp_path):
    bent.save(tmp_path / "density.livi")
    with pytest.raises(livi.StorageError, match=r"expected a posterior of a network, got a density; livi.load_density"):
        livi.load(tmp_path / "density.livi", torch.nn.Linear(2, 1))
    net = torch.nn.Linear(1, 1)
    data = torch.randn(8, 1), torch.randn(8)
    posterior = livi.rivals.fit_map(net, data, livi.Gaussian(1.0), steps=2)
    posterior.save(tmp_path / "posterior.livi")
    with pytest.raises(livi.StorageError, match=r"expected a density, got a posterior of a network; livi.load reads"):
        livi.load_density(tmp_path / "posterior.livi")


def test_a_rival_can_be_the_family_and_a_seed_decides_everything():
    def semi(layout):
        generator = livi.MLP(2, layout.num_params, hidden=(16,), skip=True, offset=True)
        return SemiImplicit(layout, generator, livi.DiagonalNoise(layout.num_params, 0.3), num_mixing=30)

    first, second = (fit(banana, family=semi, steps=30, seed=4) for _ in range(2))
    assert torch.equal(*(q.sample(3, torch.Generator().manual_seed(0)) for q in (first, second)))
    assert first.plan["family"] == "SIVI"


def test_two_components_find_two_modes():
    modes = torch.tensor([[-4.0, 0.0], [4.0, 0.0]])

    def pair(x):
        return torch.logsumexp(-0.5 * (x[:, None] - modes).square().sum(-1), 1)

    q = fit(pair, spread=3.0, components=2, seed=1)
    share = float((q.sample(1000, torch.Generator().manual_seed(0))[:, 0] > 0).double().mean())
    assert 0.4 < share < 0.6


def test_what_the_user_passes_is_copied_and_each_component_has_its_own():
    def quick(**options):
        return livi.fit_density(lambda x: -0.5 * x.square().sum(1), 2, steps=3, progress=False, **options)

    generator = livi.MLP(2, 2, hidden=(4,))
    before = [parameter.clone() for parameter in generator.parameters()]
    quick(generator=generator)
    assert all(torch.equal(*pair) for pair in zip(before, generator.parameters(), strict=True))
    assert all(parameter.requires_grad for parameter in generator.parameters())
    with pytest.raises(ValueError, match="got one object for several"):
        quick(generator=generator, components=2)
    with pytest.raises(TypeError, match="expected no generator, noise or components beside it"):
        quick(family=SemiImplicit, components=2)


def test_a_function_that_cannot_be_fitted_is_refused_at_once():
    with pytest.raises(ValueError, match="one value for each"):
        fit(lambda x: x)
    with pytest.raises(ValueError, match=r"finite values where the fit begins.*start="):
        fit(lambda x: x.sum(1).log() * float("nan"))
    with pytest.raises(ValueError, match=r"got NaN or inf at \d+ of 64 draws.*logarithm of what is positive"):
        fit(lambda x: banana(x) + torch.where(x[:, 0] < 1.0, 0.0, -math.inf))
    with pytest.raises(ValueError, match="torch can differentiate, got values without a gradient"):
        fit(lambda x: banana(x.detach()))
    with pytest.raises(ValueError, match="start"):
        fit(banana, start=torch.zeros(3))
    with pytest.raises(ValueError, match="dim: expected at least 1"):
        fit(banana, 0)


@pytest.mark.parametrize(("shape", "low", "high"), [(0.2, -0.1, 0.5), (0.9, 0.6, 1.2)])
def test_the_tail_of_pareto_weights_has_their_shape(shape, low, high, rng):
    uniform = torch.rand(4000, generator=rng)
    assert low < pareto_shape(-shape * uniform.log()) < high
    assert pareto_shape(torch.zeros(100)) == 0.0


def test_the_benchmark_scores_every_method_on_a_target(tmp_path):
    config = density_bench.Config(("banana",), seeds=(0,), steps=5)
    document = density_bench.bench(config, tmp_path, say=lambda _: None)
    assert [row["error"] for row in document["rows"]] == [None] * 4
    assert {row["method"] for row in document["rows"]} == set(density_bench.METHODS)
    assert all(math.isfinite(row["kl"]) and row["w2"] > row["w2_floor"] for row in document["rows"])
    assert density_bench.text(document).partition("\n\n")[0].count("\n") == 5
    with pytest.raises(ValueError, match="targets"):
        density_bench.Config(("bananas",))


@pytest.mark.parametrize("name", ["banana", "x", "mixture", "funnel"])
def test_a_target_has_the_density_of_its_draws(name, rng):
    """The overlap of p with a Gaussian is the same by draws of the one and the density of the other."""
    target = TARGETS[name]
    points = target.sample(40_000, rng).double()
    assert torch.isfinite(target.log_prob(points)).all()
    window = torch.distributions.MultivariateNormal(points[0], torch.eye(target.dim))
    by_draws = window.log_prob(points).exp().mean()
    by_density = target.log_prob(window.sample((40_000,))).exp().mean()
    assert float(by_draws) == pytest.approx(float(by_density), rel=0.15)


def test_a_density_that_ends_somewhere_is_said_to_need_another_scale():
    def exponential(x):
        return torch.where((x > 0.0).all(1), -x.sum(1), -math.inf)

    with pytest.raises(
        livi.FitError, match=r"fit_density: log_prob became non-finite.*logarithm of what is pos"
    ) as told:
        livi.fit_density(exponential, 2, start=torch.ones(2), spread=0.2, steps=200, progress=False)
    assert "Standardise" not in str(told.value)


def test_a_target_that_is_not_reached_is_said():
    def narrow(x):
        return torch.distributions.Normal(1000.0, 0.01).log_prob(x).sum(1)

    with pytest.warns(livi.FitWarning, match=r"rose by [\d,]+ nats in the last steps: q has not reached the target"):
        livi.fit_density(narrow, 2, steps=200, progress=False)
    with warnings.catch_warnings(action="error"):
        livi.fit_density(narrow, 2, start=torch.full((2,), 1000.0), spread=0.02, steps=200, progress=False)


def test_a_density_that_cannot_be_normalised_is_suspected():
    with pytest.warns(livi.FitWarning, match="Check the sign of log_prob, which is neither a loss nor an energy"):
        livi.fit_density(lambda x: 0.5 * x.square().sum(1), 2, steps=400, progress=False)
    livi.fit_density(lambda x: 500.0 - 0.5 * x.square().sum(1), 2, steps=400, progress=False)  # only not normalised yet
