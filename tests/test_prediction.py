"""The posterior predictive: against closed forms, in any chunks, and what the results say about themselves."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import nn
from torch.distributions import Categorical as Choice
from torch.distributions import MixtureSameFamily
from torch.distributions import Normal as Gauss

from livi import (
    MLP,
    Bernoulli,
    Categorical,
    FunctionLikelihood,
    Gaussian,
    HeteroscedasticGaussian,
    ImplicitPosterior,
    Layout,
    Loop,
    Multilabel,
    Vmap,
    apply_many,
    estimate_statistics,
)
from livi.likelihoods import ClassificationLikelihood
from livi.metrics import score
from livi.prediction import (
    ClassificationPrediction,
    FunctionDraws,
    RegressionPrediction,
    SampledOutputs,
    WeightSampler,
    evaluate,
    predict,
)
from livi.prediction import chunks as chunking

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@dataclass
class Draws:
    """A sampler that returns the first of the rows it was given."""

    layout: Layout
    theta: torch.Tensor

    def sample(self, num_samples, rng=None):  # noqa: ARG002
        return self.theta[:num_samples]


def sampler_for(module, num_samples=6, seed=0):
    layout = Layout(module)
    noise = torch.randn(num_samples, layout.num_params, generator=torch.Generator().manual_seed(seed))
    return Draws(layout, layout.flatten() + 0.3 * noise.to(layout.device, layout.dtype))


class Coupled(nn.Module):
    """Every output depends on the whole batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x - x.mean(0))


class Recurrent(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.cell = nn.LSTM(3, 4, batch_first=batch_first)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.cell(x)[0])


class Similarity(nn.Module):
    """Of each x to each row of a table, or to its own row."""

    def __init__(self, paired):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.paired = paired

    def forward(self, x, table):
        return (self.layer(x) * table) if self.paired else self.layer(x) @ table.T


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, *, scale, power=1):
        return self.layer(x) * scale[:, None] ** power


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
    )


def x_for(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


CASES = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), lambda: x_for(11, 3)),
    "convolutional": (convolutional, lambda: x_for(11, 1, 6, 6)),
    "recurrent": (Recurrent, lambda: x_for(11, 5, 3)),
    "time first": (lambda: Recurrent(batch_first=False), lambda: x_for(11, 5, 3)),
    "coupled": (Coupled, lambda: x_for(11, 3)),
    "keywords": (Keywords, lambda: {"x": x_for(11, 3), "scale": x_for(11).exp(), "power": 2}),
    "positional": (lambda: Similarity(paired=True), lambda: (x_for(11, 3), x_for(11, 2))),
    "two leading sizes": (lambda: Similarity(paired=False), lambda: (x_for(11, 3), x_for(7, 2))),
    "one leading size by chance": (lambda: Similarity(paired=False), lambda: (x_for(11, 3), x_for(11, 2))),
}


# --- oracles --------------------------------------------------------------------------------------


def test_prediction_matches_conjugate_bayesian_linear_regression(rng):
    num_samples, noise, scale = 20_000, 0.4, 1.5
    net = nn.Linear(2, 1)
    x = torch.randn(12, 2, generator=rng)
    design = torch.cat([x, torch.ones(12, 1)], 1)  # the layout's order: weights, then bias
    y = design @ torch.tensor([1.0, -2.0, 0.5]) + noise * torch.randn(12, generator=rng)
    covariance = torch.linalg.inv(design.T @ design / noise**2 + torch.eye(3) / scale**2)
    centre = covariance @ design.T @ y / noise**2
    theta = centre + torch.randn(num_samples, 3, generator=rng) @ torch.linalg.cholesky(covariance).T

    new = torch.randn(9, 2, generator=rng)
    prediction = predict(Draws(Layout(net), theta), Gaussian(noise), new, num_samples=num_samples)
    features = torch.cat([new, torch.ones(9, 1)], 1)
    mean = features @ centre
    epistemic = (features @ covariance * features).sum(1).sqrt()
    total = (epistemic**2 + noise**2).sqrt()
    assert isinstance(prediction, RegressionPrediction)
    assert prediction.mean.shape == (9,)
    error = epistemic / num_samples**0.5
    assert ((prediction.mean - mean).abs() < 5 * error).all()
    assert ((prediction.epistemic_std - epistemic).abs() < 5 * error / 2**0.5).all()
    assert ((prediction.total_std - total).abs() < 5 * error * (epistemic / total) / 2**0.5).all()
    torch.testing.assert_close(prediction.aleatoric_std, torch.full((9,), noise))
    # The distribution is Gaussian here, so its quantiles are known too: standard error sqrt(q (1 - q) / S) / density.
    exact = Gauss(mean, total)
    for q in (0.05, 0.5, 0.9):
        at = exact.icdf(torch.tensor(q))
        error = math.sqrt(q * (1 - q) / num_samples) / exact.log_prob(at).exp()
        assert ((prediction.quantile(q) - at).abs() < 5 * error).all()


@pytest.fixture
def mixture(rng):
    means = torch.randn(7, 5, 3, generator=rng) * torch.tensor([0.1, 1.0, 10.0])
    stds = torch.rand(7, 5, 3, generator=rng) + 0.05
    return RegressionPrediction(means, stds)


def reference(prediction):
    weights = Choice(torch.ones(prediction.num_samples))
    components = Gauss(prediction.means.movedim(0, -1), prediction.stds.movedim(0, -1))
    return MixtureSameFamily(Choice(weights.probs.expand(*prediction.means.shape[1:], -1)), components)


def test_moments_and_cdf_are_those_of_the_mixture(mixture):
    expected = reference(mixture)
    torch.testing.assert_close(mixture.mean, expected.mean)
    torch.testing.assert_close(mixture.total_std, expected.stddev)
    y = torch.linspace(-3, 3, 15).reshape(5, 3)
    torch.testing.assert_close(mixture.cdf(y), expected.cdf(y))


def test_total_variance_is_epistemic_plus_aleatoric(mixture):
    torch.testing.assert_close(mixture.total_std**2, mixture.epistemic_std**2 + mixture.aleatoric_std**2)


def test_log_prob_of_one_target_is_that_of_the_mixture(mixture):
    single = RegressionPrediction(mixture.means[..., :1], mixture.stds[..., :1])
    y = torch.linspace(-3, 3, 5)
    torch.testing.assert_close(single.log_prob(y), reference(single).log_prob(y))


def test_log_prob_sums_an_example_within_each_sample(mixture):
    y = torch.linspace(-3, 3, 15).reshape(5, 3)
    joint = torch.distributions.Independent(Gauss(mixture.means.movedim(0, 1), mixture.stds.movedim(0, 1)), 1)
    expected = MixtureSameFamily(Choice(torch.ones(5, 7)), joint)
    torch.testing.assert_close(mixture.log_prob(y), expected.log_prob(y))


@pytest.mark.parametrize("q", [1e-9, 0.025, 0.3, 0.5, 0.8, 1 - 1e-9])
def test_quantile_is_the_root_of_the_mixture_distribution(mixture, q):
    found = mixture.quantile(q)
    for b, k in [(0, 0), (1, 1), (4, 2)]:
        means, stds = mixture.means[:, b, k].numpy(), mixture.stds[:, b, k].numpy()

        def excess(y, means=means, stds=stds):  # the smaller tail, so that rounding does not move the root
            below, above = stats.norm.cdf(y, means, stds).mean(), stats.norm.sf(y, means, stds).mean()
            return below - q if q < 0.5 else (1 - q) - above

        root = optimize.brentq(excess, means.min() - 8, means.max() + 8, xtol=1e-13)
        assert abs(found[b, k].item() - root) < 1e-6 * mixture.total_std[b, k].item()


def test_quantile_in_float32_is_relative_to_the_spread_not_to_the_mean():
    means = 1e4 + torch.tensor([[[-1.0]], [[1.0]]], dtype=torch.float32)
    prediction = RegressionPrediction(means, torch.tensor(0.5))
    assert prediction.mean.dtype == torch.float32
    expected = RegressionPrediction(means.double(), torch.tensor(0.5)).quantile(0.9)
    assert abs(prediction.quantile(0.9).double() - expected).item() < 2e-3  # two float32 steps at 1e4


def test_far_quantiles_in_float32_are_as_good_above_as_below():
    prediction = RegressionPrediction(torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float32), torch.tensor(0.5))
    for tail in (1e-3, 1e-6, 1e-9):
        exact = RegressionPrediction(prediction.means.double(), torch.tensor(0.5)).quantile(tail)
        torch.testing.assert_close(prediction.quantile(tail).double(), exact, rtol=1e-6, atol=0)
        torch.testing.assert_close(prediction.quantile(1 - tail).double(), -exact, rtol=1e-6, atol=0)


def test_quantile_of_one_sample_is_the_gaussian_quantile():
    prediction = RegressionPrediction(torch.tensor([[1.0, 2.0]]), torch.tensor(0.5))
    torch.testing.assert_close(prediction.quantile(0.8), torch.tensor([1.0, 2.0]) + 0.5 * stats.norm.ppf(0.8))


def test_interval_holds_its_level_in_equal_tails(mixture):
    lower, upper = mixture.interval(0.8)
    torch.testing.assert_close(mixture.cdf(lower), torch.full((5, 3), 0.1), rtol=0, atol=1e-6)
    torch.testing.assert_close(mixture.cdf(upper), torch.full((5, 3), 0.9), rtol=0, atol=1e-6)


def test_several_quantiles_are_stacked_in_front(mixture):
    several = mixture.quantile([0.1, 0.5])
    assert several.shape == (2, 5, 3)
    torch.testing.assert_close(several[1], mixture.quantile(0.5))


@pytest.mark.parametrize("q", [0.01, 0.25, 0.5, 0.999])
def test_function_quantile_is_that_of_the_means(mixture, q):
    torch.testing.assert_close(mixture.function_quantile(q), torch.quantile(mixture.means, q, 0))
    torch.testing.assert_close(mixture.function_quantile([q, 0.5])[0], mixture.function_quantile(q))


def test_sampled_targets_have_the_distribution_of_the_mixture(mixture, rng):
    draws = mixture.sample(20_000, rng)
    assert draws.shape == (20_000, 5, 3)
    error = mixture.total_std / 20_000**0.5
    assert ((draws.mean(0) - mixture.mean).abs() < 5 * error).all()
    for q in (0.1, 0.7):
        share = (draws <= mixture.quantile(q)).double().mean(0)
        assert ((share - q).abs() < 5 * math.sqrt(q * (1 - q) / 20_000)).all()


def test_a_sampled_draw_takes_one_weight_sample_for_all_examples(rng):
    prediction = RegressionPrediction(torch.tensor([[-5.0, -7.0], [5.0, 7.0]]), torch.tensor(0.01))
    draws = prediction.sample(50, rng)
    assert (draws[:, 0].sign() == draws[:, 1].sign()).all()
    assert len(draws[:, 0].sign().unique()) == 2


@pytest.mark.parametrize("shape", [(8, 5, 4), (8, 5, 4, 2)])
def test_class_entropies_and_log_prob_match_torch_distributions(shape, rng):
    logits = 3.0 * torch.randn(shape, generator=rng)
    prediction = ClassificationPrediction(logits, Categorical())
    each = Choice(logits=logits.movedim(2, -1))
    average = Choice(probs=each.probs.mean(0))
    torch.testing.assert_close(prediction.probabilities.movedim(1, -1), average.probs)
    torch.testing.assert_close(prediction.entropy, average.entropy())
    torch.testing.assert_close(prediction.aleatoric_entropy, each.entropy().mean(0))
    torch.testing.assert_close(prediction.mutual_information, average.entropy() - each.entropy().mean(0))
    torch.testing.assert_close(prediction.confidence, average.probs.amax(-1))
    assert torch.equal(prediction.label, average.probs.argmax(-1))
    y = torch.randint(4, prediction.label.shape, generator=rng)
    within = each.log_prob(y).flatten(2).sum(2) if len(shape) > 3 else each.log_prob(y)
    torch.testing.assert_close(prediction.log_prob(y), within.logsumexp(0) - math.log(8))


def test_label_entropies_match_torch_distributions(rng):
    logits = 3.0 * torch.randn(8, 5, 4, generator=rng)
    prediction = ClassificationPrediction(logits, Bernoulli())
    each = torch.distributions.Bernoulli(logits=logits)
    average = torch.distributions.Bernoulli(each.probs.mean(0))
    torch.testing.assert_close(prediction.probabilities, average.probs)
    torch.testing.assert_close(prediction.entropy, average.entropy())
    torch.testing.assert_close(prediction.aleatoric_entropy, each.entropy().mean(0))
    torch.testing.assert_close(prediction.confidence, torch.maximum(average.probs, 1 - average.probs))
    assert torch.equal(prediction.label, (average.probs > 0.5).long())
    y = torch.randint(2, (5, 4), generator=rng).double()
    torch.testing.assert_close(prediction.log_prob(y), each.log_prob(y).sum(2).logsumexp(0) - math.log(8))


def test_two_classes_and_one_label_say_the_same(rng):
    logits = torch.randn(6, 5, generator=rng)
    label = ClassificationPrediction(logits, Bernoulli())
    classes = ClassificationPrediction(torch.stack([torch.zeros_like(logits), logits], 2), Categorical())
    y = torch.tensor([0, 1, 1, 0, 1])
    for name in ("label", "confidence", "entropy", "aleatoric_entropy", "mutual_information"):
        torch.testing.assert_close(getattr(label, name), getattr(classes, name))
    torch.testing.assert_close(label.probabilities, classes.probabilities[:, 1])
    torch.testing.assert_close(label.log_prob(y), classes.log_prob(y))


def test_overconfident_logits_keep_a_finite_log_prob():
    logits = torch.tensor([[[0.0, 200.0]]], dtype=torch.float32)
    prediction = ClassificationPrediction(logits, Categorical())
    torch.testing.assert_close(prediction.log_prob(torch.tensor([0])), torch.tensor([-200.0], dtype=torch.float32))
    assert prediction.entropy.item() == 0.0
    label = ClassificationPrediction(torch.tensor([[200.0]], dtype=torch.float32), Bernoulli())
    assert label.log_prob(torch.tensor([0.0])).item() == -200.0


# --- properties -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(9, 20, 5), (1, 20, 5)])
def test_mutual_information_is_never_negative(shape, rng):
    logits = torch.randn(shape, generator=rng, dtype=torch.float32)
    for likelihood in (Categorical(), Bernoulli()):
        prediction = ClassificationPrediction(logits, likelihood)
        assert (prediction.mutual_information >= 0).all()
        assert (prediction.mutual_information <= prediction.entropy).all()


def test_the_order_of_samples_does_not_matter(mixture, rng):
    order = torch.randperm(7, generator=rng)
    shuffled = RegressionPrediction(mixture.means[order], mixture.stds[order])
    y = torch.linspace(-3, 3, 15).reshape(5, 3)
    torch.testing.assert_close(shuffled.quantile(0.3), mixture.quantile(0.3))
    torch.testing.assert_close(shuffled.log_prob(y), mixture.log_prob(y))
    logits = torch.randn(7, 5, 3, generator=rng)
    one, other = (ClassificationPrediction(some, Categorical()) for some in (logits, logits[order]))
    torch.testing.assert_close(one.probabilities, other.probabilities)
    torch.testing.assert_close(one.mutual_information, other.mutual_information)


UNBATCHABLE = ("recurrent", "time first")  # vmap has no rule for LSTM
STRATEGIES = [
    (case, strategy)
    for case in CASES
    for strategy in (None, Vmap(2), Loop())
    if case not in UNBATCHABLE or not isinstance(strategy, Vmap)
]


@pytest.mark.parametrize("memory_limit", [1, 3_000, 40_000, None])
@pytest.mark.parametrize(("case", "strategy"), STRATEGIES)
def test_chunks_do_not_change_the_outputs(case, memory_limit, strategy):
    build, inputs = CASES[case]
    sampler, batch = sampler_for(build()), inputs()
    args, kwargs = chunking.as_call(batch)
    whole = torch.stack([sampler.layout.apply(row, *args, **kwargs) for row in sampler.theta])
    outputs = evaluate(sampler.layout, sampler.theta, batch, memory_limit=memory_limit, strategy=strategy)
    torch.testing.assert_close(outputs, whole)


def watched_calls(monkeypatch):
    calls = []

    def recording(layout, theta, *args, **kwargs):
        calls.append((theta.shape[0], args[0].shape[0]))
        return apply_many(layout, theta, *args, **kwargs)

    monkeypatch.setattr(chunking, "apply_many", recording)
    return calls


@pytest.mark.parametrize("batch", [30, 150])
@pytest.mark.parametrize("memory_limit", [100_000, 1_000_000])
@pytest.mark.parametrize("build", [convolutional, CASES["perceptron"][0]], ids=["convolutional", "perceptron"])
def test_activations_stay_below_the_memory_limit(monkeypatch, build, memory_limit, batch):
    sampler = sampler_for(build(), num_samples=40)
    x = x_for(batch, 1, 6, 6) if build is convolutional else x_for(batch, 3)
    calls = watched_calls(monkeypatch)
    with torch.no_grad(), chunking._Watch() as watch:
        outputs = evaluate(sampler.layout, sampler.theta, x, memory_limit=memory_limit)
    result = outputs.untyped_storage().nbytes()
    assert max(watch.levels) <= memory_limit + 2 * result  # chunks, and what they are joined into
    assert sum(s * b for s, b in calls) >= 40 * batch
    # Not by being timid: the largest chunk takes a good part of the limit, or is everything.
    with torch.no_grad(), chunking._Watch() as alone:
        s, b = max(calls, key=math.prod)
        apply_many(sampler.layout, sampler.theta[:s], x[:b])
    assert max(alone.levels) > memory_limit / 5 or (s, b) == (40, batch)


def test_examples_that_depend_on_each_other_are_not_split(monkeypatch):
    calls = watched_calls(monkeypatch)
    for case in ("coupled", "time first"):
        sampler, x = sampler_for(CASES[case][0]()), CASES[case][1]()
        calls.clear()
        evaluate(sampler.layout, sampler.theta, x, memory_limit=1)
        assert calls[-6:] == [(1, 11)] * 6
    sampler, x = sampler_for(CASES["perceptron"][0]()), CASES["perceptron"][1]()
    evaluate(sampler.layout, sampler.theta, x, memory_limit=1)
    assert calls[-11:] == [(1, 1)] * 11


def test_an_error_of_the_module_itself_reaches_the_user():
    sampler = sampler_for(nn.Linear(3, 1))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        predict(sampler, Gaussian(), torch.ones(4, 2), num_samples=2)


@pytest.mark.parametrize("memory_limit", [1, 20_000, None])
@pytest.mark.parametrize("per_sample", [True, False])
def test_batch_norm_statistics_go_with_their_samples(per_sample, memory_limit):
    sampler = sampler_for(convolutional())
    x = x_for(11, 1, 6, 6)
    buffers = estimate_statistics(sampler.layout, sampler.theta, [2.0 * x + 1.0], per_sample=per_sample)
    prediction = predict(sampler, Categorical(), x, num_samples=6, buffers=buffers, memory_limit=memory_limit)
    for i, row in enumerate(sampler.theta):
        own = {name: buffer[i] if per_sample else buffer for name, buffer in buffers.items()}
        torch.testing.assert_close(prediction.logits[i], sampler.layout.apply(row, x, buffers=own))


def test_draws_are_joint_functions_of_the_inputs():
    sampler = sampler_for(CASES["perceptron"][0]())
    draws = FunctionDraws(sampler.layout, sampler.theta)
    one, two = x_for(4, 3), x_for(9, 3)[4:]
    torch.testing.assert_close(draws(torch.cat([one, two])), torch.cat([draws(one), draws(two)], 1))
    assert len(draws) == 6
    assert draws(one).shape == (6, 4, 1)
    torch.testing.assert_close(draws[-1](one), draws(one)[-1])
    torch.testing.assert_close(draws[1:3](one), draws(one)[1:3])
    torch.testing.assert_close(torch.stack([draw(one) for draw in draws]), draws(one))
    assert torch.equal(draws[2].theta, sampler.theta[2])
    with pytest.raises(IndexError, match="expected -6 to 5, got 6"):
        draws[6]


def test_draws_take_their_rows_of_the_buffers():
    sampler = sampler_for(convolutional())
    x = x_for(11, 1, 6, 6)
    buffers = estimate_statistics(sampler.layout, sampler.theta, [2.0 * x + 1.0], per_sample=True)
    draws = FunctionDraws(sampler.layout, sampler.theta, buffers)
    torch.testing.assert_close(draws[3](x), draws(x)[3])


def test_drawn_functions_can_be_differentiated_in_their_inputs():
    sampler = sampler_for(CASES["perceptron"][0]())
    for memory_limit in (1, None):
        draws = FunctionDraws(sampler.layout, sampler.theta, memory_limit=memory_limit)
        x = x_for(4, 3).requires_grad_()
        gradient = torch.autograd.grad(draws(x)[2].sum(), x)[0]
        step = torch.zeros_like(x)
        step[1, 2] = 1e-6
        numeric = (draws(x + step)[2] - draws(x - step)[2]).sum() / 2e-6
        torch.testing.assert_close(gradient[1, 2], numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", ["row", "vector"])
def test_one_weight_vector_has_no_epistemic_uncertainty(shape):
    sampler = sampler_for(nn.Linear(3, 2))
    theta = sampler.layout.flatten()
    x = x_for(4, 3)
    prediction = predict(sampler, Gaussian(0.3), x, theta=theta[None] if shape == "row" else theta)
    torch.testing.assert_close(prediction.mean, sampler.layout.module(x).detach())
    assert (prediction.epistemic_std == 0).all()
    torch.testing.assert_close(prediction.total_std, torch.full((4, 2), 0.3))
    assert (predict(sampler, Categorical(), x, theta=theta).mutual_information == 0).all()


def test_an_implicit_posterior_is_a_weight_sampler_and_an_rng_fixes_the_prediction():
    layout = Layout(nn.Linear(3, 1))
    posterior = ImplicitPosterior(layout, MLP(4, layout.num_params, hidden=(6,)))
    assert isinstance(posterior, WeightSampler)
    x = x_for(4, 3)
    one, two = (predict(posterior, Gaussian(), x, rng=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one.means, two.means)
    assert one.num_samples == 100
    assert not one.means.requires_grad
    assert not one.stds.requires_grad


# --- which result, of which shape -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "outputs", "mean", "targets"),
    [
        (Gaussian(), 1, (5,), [(5,), (5, 1)]),
        (Gaussian(), 3, (5, 3), [(5, 3)]),
        (HeteroscedasticGaussian(), 2, (5,), [(5,), (5, 1)]),
        (HeteroscedasticGaussian(), 4, (5, 2), [(5, 2)]),
    ],
    ids=repr,
)
def test_regression_shapes_follow_the_targets(likelihood, outputs, mean, targets):
    sampler = sampler_for(nn.Linear(3, outputs))
    prediction = predict(sampler, likelihood, x_for(5, 3), num_samples=6)
    assert isinstance(prediction, RegressionPrediction)
    for value in (prediction.mean, prediction.total_std, prediction.quantile(0.2), *prediction.interval()):
        assert value.shape == mean
    raw = apply_many(sampler.layout, sampler.theta, x_for(5, 3))
    for shape in targets:
        y = torch.zeros(shape)
        assert prediction.cdf(y).shape == shape
        expected = likelihood.log_prob(raw, y).logsumexp(0) - math.log(6)
        torch.testing.assert_close(prediction.log_prob(y), expected.detach())


@pytest.mark.parametrize(
    ("likelihood", "outputs", "probabilities", "y"),
    [
        (Bernoulli(), 1, (5,), torch.ones(5)),
        (Bernoulli(), 1, (5,), torch.ones(5, 1)),
        (Multilabel(), 3, (5, 3), torch.ones(5, 3)),
        (Multilabel(), 1, (5,), torch.ones(5, 1)),
        (Categorical(), 3, (5, 3), torch.tensor([0, 1, 2, 1, 0])),
    ],
    ids=lambda value: repr(value) if isinstance(value, nn.Module) else None,
)
def test_classification_shapes_follow_the_targets(likelihood, outputs, probabilities, y):
    sampler = sampler_for(nn.Linear(3, outputs))
    prediction = predict(sampler, likelihood, x_for(5, 3), num_samples=6)
    assert isinstance(prediction, ClassificationPrediction)
    assert prediction.probabilities.shape == probabilities
    assert (
        prediction.label.shape
        == prediction.entropy.shape
        == (probabilities[:1] if prediction.exclusive else probabilities)
    )
    raw = apply_many(sampler.layout, sampler.theta, x_for(5, 3))
    torch.testing.assert_close(prediction.log_prob(y), likelihood.log_prob(raw, y).logsumexp(0) - math.log(6))


def test_ignored_targets_count_for_nothing():
    prediction = predict(sampler_for(nn.Conv1d(2, 3, 1)), Categorical(ignore_index=255), x_for(5, 2, 4), num_samples=6)
    y = torch.ones(5, 4, dtype=torch.long)
    y[:, 2:] = 255
    assert prediction.ignore_index == 255
    part = ClassificationPrediction(prediction.logits[..., :2], Categorical())
    torch.testing.assert_close(prediction.log_prob(y), part.log_prob(y[:, :2]))


class Tempered(Categorical):
    def log_prob(self, outputs, targets):
        return super().log_prob(outputs / 2.0, targets)

    def probabilities(self, outputs):
        return super().probabilities(outputs / 2.0)


class Probit(ClassificationLikelihood):
    def probabilities(self, outputs):
        return torch.special.ndtr(outputs)


def test_other_classification_likelihoods_are_known_by_their_probabilities():
    x = x_for(5, 3)
    sampler = sampler_for(nn.Linear(3, 4))
    outputs = apply_many(sampler.layout, sampler.theta, x)
    tempered = predict(sampler, Tempered(ignore_index=7), x, num_samples=6)
    assert (tempered.exclusive, tempered.ignore_index) == (True, 7)
    torch.testing.assert_close(tempered.samples, (outputs / 2.0).softmax(2))
    probit = predict(sampler, Probit(), x, num_samples=6)
    assert not probit.exclusive
    torch.testing.assert_close(probit.samples, torch.special.ndtr(outputs))


def test_other_likelihoods_give_the_raw_outputs():
    likelihood = FunctionLikelihood(lambda out, y: -(out.squeeze(-1) - y).abs() - math.log(2.0))
    sampler = sampler_for(nn.Linear(3, 1))
    x, y = x_for(5, 3), torch.zeros(5)
    prediction = predict(sampler, likelihood, x, num_samples=6)
    assert isinstance(prediction, SampledOutputs)
    raw = apply_many(sampler.layout, sampler.theta, x)
    torch.testing.assert_close(prediction.outputs, raw)
    torch.testing.assert_close(prediction.mean, raw.mean(0).squeeze(-1))
    torch.testing.assert_close(prediction.std, raw.std(0, correction=0).squeeze(-1))
    expected = (raw.squeeze(-1).abs().neg().exp() / 2.0).mean(0).log()
    torch.testing.assert_close(prediction.log_prob(y), expected)


@pytest.mark.parametrize("memory_limit", [1, None])
def test_outputs_may_be_a_dictionary(memory_limit):
    net = nn.Linear(3, 2)
    layout = Layout(net, forward=lambda module, x: {"a": module(x)[:, :1], "b": module(x)[:, 1:]})
    sampler = Draws(layout, sampler_for(net).theta)
    likelihood = FunctionLikelihood(lambda out, y: -(out["a"] + out["b"]).squeeze(-1) * y)
    prediction = predict(sampler, likelihood, x_for(5, 3), num_samples=6, memory_limit=memory_limit)
    torch.testing.assert_close(
        prediction.mean["b"], apply_many(Layout(net), sampler.theta, x_for(5, 3))[..., 1].mean(0)
    )
    assert prediction.log_prob(torch.ones(5)).shape == (5,)
    with pytest.raises(TypeError, match="expected one tensor for this likelihood, got dict"):
        predict(sampler, Gaussian(), x_for(5, 3), num_samples=6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_results_have_the_dtype_of_the_module_but_at_least_float32(dtype):
    sampler = sampler_for(nn.Linear(3, 1).to(dtype))
    prediction = predict(sampler, Gaussian(0.5), x_for(5, 3).to(dtype), num_samples=6)
    expected = torch.float32 if dtype == torch.bfloat16 else dtype
    assert prediction.mean.dtype == prediction.stds.dtype == prediction.quantile(0.1).dtype == expected
    assert prediction.log_prob(torch.zeros(5)).dtype == expected


@pytest.mark.parametrize("device", DEVICES)
def test_the_device_does_not_change_the_prediction(device):
    x = x_for(11, 1, 6, 6)
    sampler = sampler_for(convolutional())
    y = torch.arange(11) % 3
    here = predict(sampler, Categorical(), x, num_samples=6)
    noisy = predict(sampler, Gaussian(0.3), x, num_samples=6)
    moved = Draws(Layout(sampler.layout.module.to(device)), sampler.theta.to(device))
    for memory_limit in (20_000, None):
        there = predict(moved, Categorical(), x.to(device), num_samples=6, memory_limit=memory_limit)
        assert there.logits.device.type == device
        torch.testing.assert_close(there.probabilities.cpu(), here.probabilities)
        torch.testing.assert_close(there.mutual_information.cpu(), here.mutual_information)
        torch.testing.assert_close(there.log_prob(y.to(device)).cpu(), here.log_prob(y))
        there = predict(moved, Gaussian(0.3), x.to(device), num_samples=6, memory_limit=memory_limit)
        torch.testing.assert_close(there.quantile([0.1, 0.99]).cpu(), noisy.quantile([0.1, 0.99]))
        draws = [p.sample(3, torch.Generator().manual_seed(0)).cpu() for p in (there, noisy)]
        torch.testing.assert_close(*draws)
        assert score(there, noisy.mean.to(device)) == pytest.approx(score(noisy, noisy.mean))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="measures the memory of a CUDA device")
@pytest.mark.parametrize("memory_limit", [2**26, 2**28, 2**30])
def test_cuda_memory_stays_below_the_limit(memory_limit):
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10),
    )  # fmt: skip
    sampler = sampler_for(net.to("cuda", torch.float32))
    theta = sampler.layout.flatten().expand(20, -1).clone()
    x = x_for(300, 3, 32, 32).to("cuda", torch.float32)
    predict(sampler, Categorical(), x[:2], theta=theta[:2])  # cuDNN and cuBLAS take their workspaces
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    predict(sampler, Categorical(), x, theta=theta, memory_limit=memory_limit)
    assert torch.cuda.max_memory_allocated() - before < memory_limit


# --- messages -------------------------------------------------------------------------------------


def test_unusable_arguments_are_refused_with_a_remedy():
    sampler = sampler_for(nn.Linear(3, 1))
    x = x_for(5, 3)
    with pytest.raises(ValueError, match="num_samples: expected at least 1, got 0"):
        predict(sampler, Gaussian(), x, num_samples=0)
    with pytest.raises(ValueError, match=r"inputs: expected torch.float64 on cpu .* got torch.float32 .*`inputs.to\("):
        predict(sampler, Gaussian(), x.float(), num_samples=6)
    with pytest.raises(ValueError, match=r"on cpu .* on meta; convert with"):
        predict(sampler, Gaussian(), x.to("meta"), num_samples=6)
    with pytest.raises(TypeError, match=r"numpy array of float64; convert with `torch.as_tensor"):
        predict(sampler, Gaussian(), np.ones((5, 3)), num_samples=6)
    with pytest.raises(ValueError, match="at least one example"):
        predict(sampler, Gaussian(), x[:0], num_samples=6)
    with pytest.raises(TypeError, match="sampler: expected an object with a layout"):
        predict(nn.Linear(3, 1), Gaussian(), x)
    with pytest.raises(TypeError, match="likelihood: expected a livi likelihood"):
        predict(sampler, nn.MSELoss(), x)
    with pytest.raises(ValueError, match=r"sampler: expected samples of shape \(50, 4\), got \(6, 4\)"):
        predict(sampler, Gaussian(), x, num_samples=50)
    with pytest.raises(TypeError, match="memory_limit: expected an int, got float"):
        predict(sampler, Gaussian(), x, num_samples=6, memory_limit=1e9)
    with pytest.raises(ValueError, match="the network must keep the axis of examples"):
        predict(
            Draws(Layout(nn.Linear(3, 1), forward=lambda m, x: m(x).sum()), sampler.theta), Gaussian(), x, num_samples=6
        )


def test_unusable_predictions_and_targets_are_refused(mixture):
    with pytest.raises(ValueError, match=r"q: expected a number strictly between 0 and 1, got 1.0"):
        mixture.quantile(1.0)
    with pytest.raises(ValueError, match="each of q: expected"):
        mixture.function_quantile([0.5, -0.1])
    with pytest.raises(ValueError, match="level: expected a number strictly between"):
        mixture.interval(90.0)
    with pytest.raises(ValueError, match="broadcastable to that of means"):
        RegressionPrediction(torch.zeros(2, 5, 1), torch.ones(5))
    with pytest.raises(ValueError, match="stds: expected positive numbers, got nan"):
        RegressionPrediction(torch.zeros(2, 5), torch.full((2, 5), torch.nan))
    with pytest.raises(ValueError, match=r"expected \(num_samples, \*targets.shape\)"):
        mixture.log_prob(torch.zeros(5))
    with pytest.raises(TypeError, match=r"targets: expected tensors, arrays or lists of numbers, got str"):
        mixture.log_prob("train.csv")
    with pytest.raises(TypeError, match="each of q: expected a number, got list"):
        mixture.quantile(torch.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="targets: expected a tensor on cpu, got one on meta"):
        mixture.cdf(torch.zeros(5, 3, device="meta"))
    with pytest.raises(ValueError, match=r"wants livi.Bernoulli\(\)"):
        ClassificationPrediction(torch.zeros(2, 5), Categorical())
    with pytest.raises(ValueError, match="expected a sum of one over classes"):
        ClassificationPrediction.from_probabilities(torch.full((2, 5, 3), 0.5), exclusive=True)
    with pytest.raises(ValueError, match=r"expected probabilities, got 2.0"):
        ClassificationPrediction.from_probabilities(torch.full((2, 5, 3), 2.0), exclusive=False)
    with pytest.raises(ValueError, match="expected labels 0 to 2, got 5"):
        ClassificationPrediction(torch.zeros(2, 1, 3), Categorical()).log_prob(torch.tensor([5]))
