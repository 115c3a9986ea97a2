"""The bound beside what it should exceed: the prior itself, equal probabilities, a mean-field Gaussian."""

import json
import math
from dataclasses import replace

import pytest
import torch
from support.diagnosed_posteriors import CHEAP, Fitted, Members, affine, close, gaussian, seeded
from torch import nn

from livi.family.generators import MLP, Affine
from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import LinearGaussian
from livi.family.noise import FixedNoise, LearnedNoise
from livi.model.likelihoods import Bernoulli, Categorical, Gaussian, Weighted
from livi.model.priors import FunctionPrior, Laplace, Normal, Relevance
from livi.network import Layout, apply_many
from livi.posterior.diagnostics import Effort, Estimate, MeanFieldBound, NoiseCost, PriorBound, Skipped, diagnose
from livi.posterior.diagnostics.comparison import MEAN_FIELD, NO_LEARNING
from livi.posterior.diagnostics.mean_field import check_mean_field
from livi.posterior.diagnostics.reference import check_references
from livi.posterior.diagnostics.verdict import verdict

NOISE = 0.5  # of the observations


def design(x):
    return torch.cat([x, torch.ones(len(x), 1)], 1)  # as nn.Linear: weights, then the bias


def conjugate(layout, x, y):
    """The exact posterior of a linear model under N(0, 1), with noise all but zero, and its precision."""
    precision = torch.eye(3) + design(x).T @ design(x) / NOISE**2
    generator = Affine(3, 3)
    with torch.no_grad():
        generator.offset.copy_(torch.linalg.solve(precision, design(x).T @ y / NOISE**2))
        generator.skip.copy_(torch.linalg.cholesky(precision.inverse()))
    return ImplicitPosterior(layout, generator, FixedNoise(1e-5)), precision


def log_evidence(x, y):
    covariance = design(x) @ design(x).T + NOISE**2 * torch.eye(len(y))
    return torch.distributions.MultivariateNormal(torch.zeros(len(y)), covariance).log_prob(y).item()


def references(posterior, x, y, **options):
    arguments = {"num_data": len(y), "effort": Effort(), "strategy": None, "rng": seeded()} | options
    return check_references(posterior, x, y, **arguments)


def finding(diagnosis, topic):
    [found] = [one for one in diagnosis.findings if one.topic == topic]
    return found


# --- the numbers ----------------------------------------------------------------------------------


def test_the_bound_of_the_prior_is_its_expected_log_likelihood(linear_layout, plane):
    x, y = plane
    found = references(Fitted(affine(linear_layout)), x, y, effort=Effort(num_prior=4000, mean_field_steps=0)).prior
    squares = y.square() + design(x).square().sum(1)
    truth = (-0.5 * squares / NOISE**2 - math.log(NOISE) - 0.5 * math.log(2 * math.pi)).sum()
    assert found.num_draws == 4000
    assert close(found.bound, truth)
    assert found.worst_share < 0.02


def test_mean_field_reaches_its_best_bound_and_none_above_it(linear_layout, plane):
    x, y = plane
    posterior, precision = conjugate(linear_layout, x, y)
    best = log_evidence(x, y) - 0.5 * (precision.diagonal().log().sum() - precision.logdet()).item()
    found = references(Fitted(posterior), x, y).mean_field
    assert found.steps == Effort().mean_field_steps
    assert found.bound.value < best + 4.5 * found.bound.standard_error
    assert found.bound.value > best - 0.2 - 4.5 * found.bound.standard_error


@pytest.mark.parametrize("prior", [Laplace(1.0), FunctionPrior(lambda theta: Normal(1.0).log_prob(theta))])
def test_mean_field_under_a_prior_without_a_closed_form_is_sampled(linear_layout, plane, prior):
    found = references(Fitted(affine(linear_layout), prior=prior), *plane).mean_field
    gaussian_prior = references(Fitted(affine(linear_layout)), *plane).mean_field
    assert abs(found.bound.value - gaussian_prior.bound.value) < 6.0


def test_mean_field_on_parts_of_the_data_is_that_on_all(linear_layout):
    x = gaussian(1500, 2)
    y = x.sum(1) + NOISE * gaussian(1500, seed=3)
    posterior, precision = conjugate(linear_layout, x, y)
    best = log_evidence(x, y) - 0.5 * (precision.diagonal().log().sum() - precision.logdet()).item()
    found = references(Fitted(posterior), (x,), y).mean_field
    assert best - 1.0 < found.bound.value < best + 4.5 * found.bound.standard_error


def test_examples_that_depend_on_each_other_are_not_parted(monkeypatch):
    layout = Layout(nn.Sequential(nn.Linear(2, 3), nn.Tanh()))
    x, sizes = gaussian(700, 2), set()
    own = LinearGaussian.log_prob

    def log_prob(self, outputs, targets):
        sizes.add(len(targets))
        return own(self, outputs, targets)

    monkeypatch.setattr(LinearGaussian, "log_prob", log_prob)
    posterior = Fitted(affine(layout, 2), LinearGaussian(Gaussian(0.5)))
    assert isinstance(references(posterior, x, x.sum(1), effort=CHEAP).mean_field, MeanFieldBound)
    assert sizes == {700}
    monkeypatch.setattr("livi.posterior.diagnostics.mean_field.MAX_WHOLE", 699)
    skipped = references(posterior, x, x.sum(1), effort=CHEAP).mean_field
    assert skipped == Skipped("not affordable: 700 examples in every step, as they depend on each other")


@pytest.mark.parametrize(
    ("likelihood", "targets", "truth"),
    [
        (Categorical(), torch.arange(20) % 3, -20 * math.log(3.0)),
        (Categorical(ignore_index=2), torch.arange(20) % 3, -14 * math.log(3.0)),
        (Bernoulli(), (torch.arange(60) % 2).reshape(20, 3).double(), -60 * math.log(2.0)),
    ],
)
def test_equal_probabilities_have_an_exact_evidence(plane, likelihood, targets, truth):
    posterior = Fitted(affine(Layout(nn.Linear(2, 3))), likelihood)
    assert references(posterior, plane[0], targets, effort=CHEAP).equal == pytest.approx(truth)
    assert references(posterior, plane[0], targets, effort=CHEAP, num_data=200).equal == pytest.approx(10 * truth)


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_the_cost_of_noise_is_its_divergence_from_the_prior(deep_layout, plane, scale):
    posterior = ImplicitPosterior(deep_layout, MLP(4, 31), FixedNoise(0.05))
    found = references(Fitted(posterior, prior=Normal(scale)), *plane, effort=CHEAP).noise
    ratio = 0.05 / scale
    assert found.nats == pytest.approx(31 * (-math.log(ratio) - 0.5 + 0.5 * ratio**2), abs=0.3)
    assert found.std == pytest.approx(0.05)
    assert found.fixed
    learned = ImplicitPosterior(deep_layout, MLP(4, 31), LearnedNoise(0.05))
    assert not references(Fitted(learned), *plane, effort=CHEAP).noise.fixed


def test_batch_norm_uses_the_buffers_of_the_posterior():
    layout = Layout(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)))
    buffers = {"1.running_mean": torch.ones(3), "1.running_var": torch.full((3,), 4.0)}
    x, y, prior = gaussian(6, 2), gaussian(6), Normal()
    posterior = Fitted(affine(layout, 4), prior=prior, buffers=buffers)
    found = references(posterior, x, y, effort=replace(CHEAP, num_prior=16)).prior
    rng = seeded()
    theta = torch.cat([prior.sample(1, layout.num_params, rng) for _ in range(16)])
    truth = Gaussian(0.5).log_prob(apply_many(layout, theta, x, buffers=buffers), y).sum(1).mean()
    assert found.bound.value == pytest.approx(truth.item())


def test_nothing_that_was_learned_is_touched(linear_layout, plane):
    posterior = Fitted(affine(linear_layout), Gaussian(0.5, learned=True), Relevance.for_layout(linear_layout))
    parts = [posterior.sampler, posterior.likelihood, posterior.prior]
    before = [parameter.clone() for part in parts for parameter in part.parameters()]
    references(posterior, *plane, effort=CHEAP)
    for old, parameter in zip(before, (p for part in parts for p in part.parameters()), strict=True):
        assert torch.equal(old, parameter)
        assert parameter.grad is None


# --- what cannot be had ---------------------------------------------------------------------------


def test_what_cannot_be_compared_is_skipped_with_a_reason(deep_layout, plane):
    x, y = plane
    posterior = affine(deep_layout, 4)

    def found(effort=CHEAP, sampler=posterior, **parts):
        return references(Fitted(sampler, **parts), x, y, effort=effort)

    own = FunctionPrior(lambda theta: Normal().log_prob(theta))
    assert found(prior=own).prior == Skipped("not applicable: FunctionPrior cannot be drawn from")
    assert found(prior=None).prior == found(prior=None).mean_field
    assert found(prior=None).prior == Skipped("not applicable: the posterior carries no prior")
    assert found(replace(CHEAP, mean_field_steps=0)).mean_field == Skipped("left out by mean_field_steps=0")
    assert found(replace(CHEAP, max_mean_field=30)).mean_field == Skipped(
        "not affordable: 31 weights are above max_mean_field=30"
    )
    members = found(sampler=Members(deep_layout, gaussian(20, 31)))
    assert members.mean_field == Skipped("not applicable: Members has no bound to compare")
    assert isinstance(members.noise, Skipped)
    assert isinstance(members.prior, PriorBound)
    weighted = references(
        Fitted(affine(Layout(nn.Linear(2, 1), forward=lambda net, x: (net(x), x[:, 0]))), Weighted(Gaussian(1.0))), x, y
    )
    assert weighted.equal == Skipped("not applicable: Weighted is not one of classes or labels")


def test_a_prior_that_makes_the_data_impossible_is_skipped_with_a_reason(linear_layout, plane):
    x, y = plane
    found = references(Fitted(affine(linear_layout), prior=Normal(1e200)), x, y, effort=CHEAP)
    assert found.prior == Skipped("not finite: 16 of 16 draws from the prior give the data no probability")


def test_a_comparison_that_was_too_dear_is_a_notice(deep_layout, plane):
    found = diagnose(Fitted(affine(deep_layout, 4)), *plane, rng=seeded(), effort=replace(CHEAP, max_mean_field=30))
    assert finding(found, MEAN_FIELD).severity == "notice"
    assert "not compared (not affordable: 31 weights" in finding(found, MEAN_FIELD).text
    with pytest.raises(ValueError, match="mean_field_steps: expected at least 1, got -1"):
        Effort(mean_field_steps=-1)
    with pytest.raises(ValueError, match="num_prior: expected at least 1, got 0"):
        Effort(num_prior=0)


# --- the verdict ----------------------------------------------------------------------------------


def test_fixed_noise_on_a_large_network_is_said_to_make_the_bound_worthless():
    net = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 70), nn.ReLU(), nn.Linear(70, 4))
    layout = Layout(net)
    generator = MLP(4, layout.num_params, hidden=(8,), offset=True)
    generator.init_around(layout.flatten().detach(), 0.05)
    x = gaussian(300, 20)
    y = x[:, :4].argmax(1)
    posterior = Fitted(ImplicitPosterior(layout, generator, FixedNoise(0.05)), Categorical())
    effort = replace(CHEAP, mean_field_steps=150)
    found = diagnose(posterior, x, y, num_samples=16, rng=seeded(), effort=effort)
    guess = -300 * math.log(4.0)
    assert found.references.equal == pytest.approx(guess)
    assert found.bound.bound.value < guess - 1000.0
    worthless, beaten = finding(found, NO_LEARNING), finding(found, MEAN_FIELD)
    assert worthless.severity == beaten.severity == "warning"
    assert f"lies below {guess:.1f} of a model without weights" in worthless.text
    assert "worthless" in worthless.text
    assert "Predictions may be good all the same" in worthless.text
    assert f"fixed noise of 0.05 on {layout.num_params:,} weights would alone cost" in worthless.text
    assert "that a mean-field Gaussian reached in 150 steps" in beaten.text
    assert "livi.rivals.fit_mean_field" in beaten.text
    text = str(found)
    assert "bound of the prior itself" in text
    assert "in 150 steps, or more" in text
    stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))["references"]
    assert stored["equal"] == pytest.approx(guess)
    assert stored["mean_field"]["bound"]["value"] == found.references.mean_field.bound.value


def test_the_exact_posterior_of_a_small_model_raises_no_alarm(linear_layout, plane):
    posterior, _ = conjugate(linear_layout, *plane)
    found = diagnose(Fitted(posterior), *plane, num_samples=1000, rng=seeded())
    assert close(found.bound.bound, log_evidence(*plane))
    assert finding(found, NO_LEARNING).severity == finding(found, MEAN_FIELD).severity == "ok"
    assert "no lower than" in finding(found, NO_LEARNING).text
    assert "which has learned nothing" in finding(found, NO_LEARNING).text


@pytest.fixture(scope="module")
def diagnosis():
    x = gaussian(20, 2, seed=1).double()
    posterior = Fitted(affine(Layout(nn.Linear(2, 1).double())).double(), Gaussian(0.5).double(), Normal().double())
    return diagnose(posterior, x, x.sum(1), num_samples=32, rng=seeded(), effort=CHEAP)


def judged(diagnosis, topic, *, own=(-100.0, 1.0), components=1, **parts):
    bound = replace(diagnosis.bound, bound=Estimate(*own))
    facts = replace(diagnosis.facts, num_components=components)
    defaults = {"prior": Skipped("no"), "equal": Skipped("no"), "mean_field": Skipped("no")}
    changed = replace(diagnosis, bound=bound, facts=facts, references=replace(diagnosis.references, **defaults | parts))
    return [one for one in verdict(changed) if one.topic == topic]


def prior_at(value, error=0.5, share=0.01):
    return PriorBound(Estimate(value, error), 128, share)


@pytest.mark.parametrize(
    ("parts", "severity"),
    [
        ({"prior": prior_at(-90.0)}, "warning"),
        ({"prior": prior_at(-98.0)}, "ok"),  # within three standard errors
        ({"prior": prior_at(-99.5, 0.0), "own": (-100.0, 0.0)}, "ok"),  # half a nat
        ({"prior": prior_at(-90.0, 10.0)}, "ok"),
        ({"prior": prior_at(-90.0, share=0.6)}, "notice"),
        ({"prior": prior_at(-90.0, share=0.6), "equal": -80.0}, "warning"),
        ({"prior": prior_at(-1e6), "equal": -80.0}, "warning"),
        ({"prior": prior_at(-1e6), "equal": -120.0}, "ok"),
        ({"equal": -98.0, "own": (-100.0, 0.1)}, "warning"),
        ({"equal": -98.0, "own": (-100.0, 0.1), "components": 4}, "ok"),  # its bound may be log 4 higher
    ],
)
def test_a_bound_is_judged_by_what_is_certain(diagnosis, parts, severity):
    [found] = judged(diagnosis, NO_LEARNING, **parts)
    assert found.severity == severity
    assert ("heavy tail, of which one makes up 60%" in found.text) == (
        severity != "ok" and "prior" in parts and parts["prior"].worst_share == 0.6
    )


def test_a_bound_as_high_as_the_priors_is_said_to_be_no_higher(diagnosis):
    [level] = judged(diagnosis, NO_LEARNING, prior=replace(prior_at(-100.3), exact_layer=True))
    assert level.text.endswith("learned nothing, but for the last layer, which is exact, and not clearly higher.")
    [higher] = judged(diagnosis, NO_LEARNING, prior=prior_at(-200.0))
    assert higher.text.endswith("which has learned nothing.")


def test_only_what_was_beaten_is_named(diagnosis):
    [found] = judged(diagnosis, NO_LEARNING, prior=prior_at(-1e6), equal=-80.0)
    assert "-1,000,000" not in found.text
    assert judged(diagnosis, NO_LEARNING) == []


@pytest.mark.parametrize(
    ("reached", "severity", "words"),
    [
        (Estimate(-90.0, 0.5), "warning", "independent weights give the higher bound"),
        (Estimate(-99.0, 0.5), "ok", "not clearly higher"),
        (Estimate(-120.0, 0.5), "ok", "more steps might reach more"),
    ],
)
def test_mean_field_is_named_with_what_it_reached(diagnosis, reached, severity, words):
    [found] = judged(diagnosis, MEAN_FIELD, mean_field=MeanFieldBound(reached, 300))
    assert found.severity == severity
    assert words in found.text
    assert f"{reached.value} that a mean-field Gaussian reached in 300 steps" in found.text


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (NoiseCost(0.05, 1e6, fixed=True), "learn the noise"),
        (NoiseCost(0.05, 1e6, fixed=False), "fit for more steps or make fewer weights stochastic"),
        (NoiseCost(0.05, 1e-6, fixed=True), "fit for more steps, or make fewer weights"),
    ],
)
def test_the_remedy_depends_on_where_the_nats_went(diagnosis, noise, words):
    [found] = judged(diagnosis, NO_LEARNING, equal=-80.0, noise=noise)
    assert words in found.text


def test_a_bound_that_is_not_known_is_not_compared(diagnosis):
    assert judged(diagnosis, NO_LEARNING, own=(float("nan"), 1.0), equal=-80.0) == []


def test_mean_field_that_diverges_is_skipped_with_a_reason(linear_layout, plane):
    posterior = Fitted(affine(linear_layout), prior=FunctionPrior(lambda theta: torch.full((len(theta),), -torch.inf)))
    options = {"num_data": 20, "effort": CHEAP, "strategy": None, "rng": seeded()}
    with torch.no_grad():
        found = check_mean_field(posterior, *plane, **options)
    assert found == Skipped("not finite after 20 steps")
