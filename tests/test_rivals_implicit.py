"""Rivals that learn the entropy of a sampler, each beside an answer that is known: AVB, KIVI, SIVI and MNF."""

import copy
import math
from itertools import pairwise

import pytest
import torch
from torch import nn

import livi
from livi.family.entropy import Exact
from livi.family.family import Estimation
from livi.inference import Recipe
from livi.posterior.diagnostics import Skipped
from livi.rivals import (
    Adversarial,
    KernelImplicit,
    MultiplicativeFlow,
    SemiImplicit,
    fit_avb,
    fit_kivi,
    fit_mnf,
    fit_sivi,
)
from livi.rivals.kivi import KernelRatio
from livi.rivals.mnf import places

OBS_STD = 0.5
QUICK = Recipe(steps=300, map_steps=50, map_restarts=1, num_samples=16, affine_rate=2e-2, hyper_rate=5e-2, spread=0.2)


def standard():
    return livi.Normal(1.0)


def affine(std=0.3):
    """A Gaussian q of correlated weights as a generator with noise, and its exact entropy."""
    layout = livi.Layout(nn.Linear(2, 1, bias=False))
    generator = livi.Affine(2, 2)
    with torch.no_grad():
        generator.skip.copy_(torch.tensor([[0.8, 0.0], [0.4, 0.5]]))
        generator.offset.copy_(torch.tensor([0.3, -0.2]))
    covariance = generator.skip.detach() @ generator.skip.detach().T + std**2 * torch.eye(2)
    exact = 0.5 * float(torch.logdet(2.0 * math.pi * math.e * covariance))
    return layout, generator, livi.FixedNoise(std), exact


def entropy(family, num_samples=20_000, seed=0):
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        nats = family.entropy(family.draw(num_samples, rng), Estimation(Exact(), num_samples, rng, standard()))[0].nats
    return float(nats.mean()), float(nats.std()) / math.sqrt(len(nats))


def conjugate():
    """A linear model of two features, and the mean and covariance of its posterior under the prior N(0, I)."""
    rng = torch.Generator().manual_seed(3)
    design = 0.4 * (torch.randn(12, 2, generator=rng) + torch.randn(12, 1, generator=rng))
    targets = design @ torch.tensor([1.0, -0.5]) + OBS_STD * torch.randn(12, generator=rng)
    covariance = torch.linalg.inv(torch.eye(2) + design.T @ design / OBS_STD**2)
    return (design, targets), covariance @ design.T @ targets / OBS_STD**2, covariance


def divergence(posterior, mean, covariance):
    """KL(N(moments of the draws) || N(mean, covariance)), in nats."""
    theta = posterior.sample(20_000, torch.Generator().manual_seed(0))
    drawn = torch.distributions.MultivariateNormal(theta.mean(0), theta.T.cov())
    return float(torch.distributions.kl_divergence(drawn, torch.distributions.MultivariateNormal(mean, covariance)))


# --- semi-implicit --------------------------------------------------------------------------------


def test_the_semi_implicit_bound_tightens_with_the_number_of_mixing_draws_and_stays_below():
    layout, generator, noise, exact = affine()
    found = [entropy(SemiImplicit(layout, generator, noise, num_mixing=count)) for count in (1, 10, 100, 2000)]
    for (lower, error), (higher, other) in pairwise(found):
        assert higher > lower - 4.0 * (error + other)
    assert found[0][0] < exact - 0.1
    assert found[-1][0] == pytest.approx(exact, abs=0.05)
    assert all(value < exact + 5.0 * error + 0.02 for value, error in found)  # shared draws make it vary by more


def test_a_sampler_that_does_not_move_has_the_entropy_of_its_noise():
    layout, generator, noise, _ = affine()
    with torch.no_grad():
        generator.skip.zero_()
    value, error = entropy(SemiImplicit(layout, generator, noise, num_mixing=7))
    assert value == pytest.approx(float(math.log(0.3) * 2 + 1 + math.log(2 * math.pi)), abs=5.0 * error)


# --- density ratios -------------------------------------------------------------------------------


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_discriminator_learns_the_entropy_of_a_gaussian(adaptive):
    layout, generator, noise, exact = affine()
    family = Adversarial(layout, generator, noise, adaptive=adaptive, num_contrast=500, epochs=2)
    rng, prior = torch.Generator().manual_seed(0), standard()
    for _ in range(300):
        family.prepare_step(prior, rng)
    assert entropy(family)[0] == pytest.approx(exact, abs=0.15)  # it swings with its last draws


def test_before_it_has_learned_anything_a_discriminator_takes_q_for_its_contrast():
    layout, generator, noise, _ = affine()
    family = Adversarial(layout, generator, noise)
    theta = family.sample(1000, torch.Generator().manual_seed(0))
    with torch.no_grad():
        nats = family.entropy(livi.Draw(theta), Estimation(Exact(), 1, None, standard()))[0].nats
    torch.testing.assert_close(nats, -standard().log_prob(theta).detach())


def test_a_kernel_regression_finds_the_ratio_of_two_gaussians(rng):
    ours, theirs = torch.randn(800, 1, generator=rng), 0.5 + 0.8 * torch.randn(800, 1, generator=rng)
    ratio = KernelRatio(ours, theirs, 1e-2)
    x = torch.linspace(-1.5, 1.5, 7)[:, None]
    exact = torch.distributions.Normal(0.5, 0.8).log_prob(x) - torch.distributions.Normal(0.0, 1.0).log_prob(x)
    torch.testing.assert_close(ratio(x), exact[:, 0].exp(), rtol=0.3, atol=0.15)


def test_a_kernel_regression_solves_its_own_problem(rng):
    """Its objective is the smallest among functions of the same kernels."""
    ours, theirs = torch.randn(12, 2, generator=rng), torch.randn(9, 2, generator=rng)
    ridge = 0.1
    found = KernelRatio(ours, theirs, ridge)

    def objective(weights):
        def f(points):
            return found._kernel(points, found.centres) @ weights

        norm = weights @ found._kernel(found.centres, found.centres) @ weights
        return 0.5 * f(ours).square().mean() - f(theirs).mean() + 0.5 * ridge * norm

    best = objective(found.weights)
    for _ in range(20):
        assert objective(found.weights + 0.01 * torch.randn(21, generator=rng)) > best


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_kernel_estimate_is_near_the_entropy_of_a_gaussian(adaptive):
    layout, generator, noise, exact = affine()
    family = KernelImplicit(layout, generator, noise, adaptive=adaptive, num_contrast=1000)
    values = [entropy(family, 500, seed)[0] for seed in range(4)]
    assert sum(values) / 4 == pytest.approx(exact, abs=0.25)


@pytest.mark.parametrize("family", [Adversarial, KernelImplicit])
def test_a_contrast_with_the_prior_needs_one(family):
    layout, generator, noise, _ = affine()
    made = family(layout, generator, noise, adaptive=False)
    with pytest.raises(ValueError, match="prior: expected one"):
        made.entropy(made.draw(4), Estimation(Exact(), 4))


@pytest.mark.parametrize("name", ["num_contrast", "epochs"])
def test_zero_is_not_taken_for_a_default_of_the_discriminator(name):
    layout, generator, noise, _ = affine()
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        Adversarial(layout, generator, noise, **{name: 0})


def test_a_contrast_gives_the_scale_of_the_prior_no_gradient():
    layout, generator, noise, _ = affine()
    prior = livi.Normal(1.0, learned=True)
    made = Adversarial(layout, generator, noise)
    made.entropy(made.draw(4), Estimation(Exact(), 4, None, prior))[0].nats.sum().backward()
    assert prior.log_scale.grad is None
    assert generator.offset.grad.abs().sum() > 0


# --- multiplicative flows -------------------------------------------------------------------------


def test_noise_multiplies_inputs_of_linear_layers_and_filters_of_convolutions():
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2))
    layout = livi.Layout(net)
    convolution, linear = places(layout)
    assert (convolution.units, convolution.axis, linear.units, linear.axis) == (3, 0, 12, 1)
    z = torch.arange(1.0, 4.0)[None]
    weights = layout.unflatten(convolution.factors(z)[0].new_zeros(layout.num_params))["0.weight"]
    assert torch.equal(convolution.factors(z)[0].reshape(weights.shape)[1], torch.full((2, 2, 2), 2.0))
    theta = torch.randn(5, layout.num_params)
    assert torch.equal(linear.matrix(theta)[2, 7], layout.unflatten(theta)["3.weight"][2][:, 7])
    factors = MultiplicativeFlow(layout)._factors([z, torch.full((1, 12), 5.0)])[0]
    named = layout.unflatten(factors)
    assert (named["3.bias"] == 1).all()
    assert (named["1.weight"] == 1).all()
    assert (named["3.weight"] == 5).all()


@pytest.mark.parametrize(("spread", "gap"), [(0.05, 3.0), (0.5, 0.05)])
def test_the_entropy_of_a_multiplicative_flow_is_a_lower_bound(spread, gap):
    """One weight, whose density is known by quadrature over z; tight where a weight says little about its z."""
    layout = livi.Layout(nn.Linear(1, 1, bias=False))
    family = MultiplicativeFlow(layout, hidden=4)
    family.begin_around(torch.tensor([[1.0]]), spread)
    eps = torch.linspace(-6.0, 6.0, 2001)
    multiplier, share = family.multipliers[0], torch.softmax(-0.5 * eps.square(), 0)
    with torch.no_grad():
        z = multiplier.draw(eps[:, None])[0]
        before = multiplier.back(z)[0][:, 0]
        middle = (share * before).sum()
        multiplier.place_bias.copy_(middle)
        multiplier.width_bias.copy_((share * (before - middle).square()).sum().sqrt().log())
        for look in (multiplier.place, multiplier.width):
            look.zero_()
        grid = torch.linspace(-2.5, 4.5, 4001)
        given = torch.distributions.Normal(z[:, 0] * family.mean, family.log_std.exp())
        density = (given.log_prob(grid[:, None]).exp() * share).sum(1)
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1.0, abs=1e-4)
    exact = float(torch.trapezoid(torch.special.entr(density), grid))
    bound, error = entropy(family, 40_000)
    assert exact - gap < bound < exact + 5.0 * error


def test_the_flow_knows_its_own_density():
    """log q(z) beside the log determinant of the flow's Jacobian by autograd."""
    layout = livi.Layout(nn.Linear(4, 1))
    multiplier = MultiplicativeFlow(layout, flow_steps=3, hidden=5).multipliers[0]
    eps = torch.randn(1, 4)
    z, log_q = multiplier.draw(eps)
    jacobian = torch.autograd.functional.jacobian(lambda e: multiplier.draw(e)[0], eps)[0, :, 0]
    exact = torch.distributions.Normal(0.0, 1.0).log_prob(eps).sum() - torch.linalg.slogdet(jacobian)[1]
    torch.testing.assert_close(log_q[0], exact)
    _, volume = multiplier.back(z)
    inner = torch.autograd.functional.jacobian(lambda e: multiplier.back(e)[0], z)[0, :, 0]
    torch.testing.assert_close(volume[0], torch.linalg.slogdet(inner)[1])


# --- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fit", "options", "within"),
    [
        (fit_sivi, {}, 0.05),
        (fit_avb, {"num_contrast": 100, "epochs": 5}, 0.15),
        (fit_avb, {"num_contrast": 100, "epochs": 5, "adaptive": True}, 0.05),
        (fit_kivi, {"num_contrast": 100}, 0.15),
        (fit_mnf, {}, 0.25),
    ],
)
@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_conjugate_posterior_is_found(fit, options, within):
    data, mean, covariance = conjugate()
    net = nn.Linear(2, 1, bias=False)
    posterior = fit(net, data, livi.Gaussian(OBS_STD), prior=standard(), recipe=QUICK, progress=False, **options)
    assert divergence(posterior, mean, covariance) < within
    prior = torch.distributions.kl_divergence(
        torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)),
        torch.distributions.MultivariateNormal(mean, covariance),
    )
    assert within < 0.1 * float(prior)  # what was found is not the prior


@pytest.mark.parametrize("fit", [fit_avb, fit_kivi, fit_sivi])
def test_no_components_are_refused(fit):
    with pytest.raises(ValueError, match="components: expected at least 1, got 0"):
        fit(nn.Linear(2, 1), conjugate()[0], livi.Gaussian(OBS_STD), components=0, progress=False)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize(
    ("fit", "components"), [(fit_avb, 1), (fit_avb, 2), (fit_kivi, 1), (fit_sivi, 1), (fit_mnf, 1)]
)
def test_a_fit_goes_on_from_its_checkpoint_and_is_diagnosed(fit, components, tmp_path):
    recipe = Recipe(steps=20, map_steps=20, map_restarts=1, num_samples=8, num_entropy_samples=2)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    data = (torch.randn(10, 2), torch.randn(10))
    options = {"recipe": recipe, "progress": False} | ({"components": components} if components > 1 else {})
    whole = fit(copy.deepcopy(net), data, livi.Gaussian(0.5), **options)
    path = tmp_path / "half.livi"

    class Stop(livi.Callback):
        def on_step(self, run):
            if run.step == 12:
                raise KeyError("stopped")

    with pytest.raises(KeyError):
        fit(net, data, livi.Gaussian(0.5), checkpoint=path, checkpoint_every=5, callbacks=[Stop()], **options)
    again = fit(net, data, livi.Gaussian(0.5), checkpoint=path, checkpoint_every=5, **options)
    assert torch.equal(*(each.sample(3, torch.Generator().manual_seed(0)) for each in (whole, again)))
    found = whole.diagnose(*data, num_samples=16)
    assert not isinstance(found.bound.bound, Skipped)
    assert math.isfinite(found.bound.bound.value)
    assert whole.predict(data[0], deterministic=True).mean.shape == (10,)
    with pytest.raises(TypeError, match="expected no entropy"):
        fit(net, data, livi.Gaussian(0.5), entropy=Exact(), **options)
