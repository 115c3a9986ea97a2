"""The posterior predictive: against a closed form, and which result of which shape comes out."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from support.samplers import Draws, convolutional, sampler_for, x_for
from torch import nn
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
    Multilabel,
    Posterior,
    apply_many,
)
from livi.family.family import WeightSampler
from livi.model.likelihoods import ClassificationLikelihood, ContaminatedGaussian, RegressionLikelihood
from livi.posterior.metrics import score
from livi.posterior.prediction import (
    ClassificationPrediction,
    DensityPrediction,
    DrawnPrediction,
    RegressionPrediction,
    SampledOutputs,
    evaluate,
)
from livi.posterior.prediction.density import NUM_DRAWS

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def predict(sampler, likelihood, inputs, **options):
    return Posterior(sampler, likelihood).predict(inputs, **options)


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


def test_one_weight_vector_has_no_epistemic_uncertainty():
    layout, x = Layout(nn.Linear(3, 2)), x_for(4, 3)
    sampler = Draws(layout, layout.flatten()[None])
    prediction = predict(sampler, Gaussian(0.3), x, num_samples=1)
    torch.testing.assert_close(prediction.mean, sampler.layout.module(x).detach())
    assert (prediction.epistemic_std == 0).all()
    torch.testing.assert_close(prediction.total_std, torch.full((4, 2), 0.3))
    assert (predict(sampler, Categorical(), x, num_samples=1).mutual_information == 0).all()


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
        (ContaminatedGaussian(), 2, (5,), [(5,), (5, 1)]),
        (ContaminatedGaussian(), 4, (5, 2), [(5, 2)]),
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


class StudentT(RegressionLikelihood):
    """y ~ output + scale T with 4 degrees of freedom, whose variance is 2 scale^2."""

    scale = 0.7

    def moments(self, outputs):
        return outputs, torch.tensor(self.scale * math.sqrt(2.0))

    def log_prob(self, outputs, targets):
        return torch.distributions.StudentT(4.0, outputs.squeeze(-1), self.scale).log_prob(targets)


class DrawnStudentT(StudentT):
    def sample(self, outputs, rng=None):
        normal = torch.randn(5, *outputs.shape, generator=rng)
        return outputs + self.scale * normal[0] / normal[1:].square().mean(0).sqrt()


class Renamed(Gaussian):
    """Overrides nothing that matters."""


def test_a_regression_likelihood_is_scored_by_its_own_density(rng):
    sampler, x, y = sampler_for(nn.Linear(3, 1)), x_for(5, 3), torch.tensor([0.0, 3.0, -20.0, 0.5, 1.0])
    prediction = predict(sampler, StudentT(), x, num_samples=6)
    raw = apply_many(sampler.layout, sampler.theta, x).squeeze(-1)
    assert type(prediction) is DensityPrediction
    each = torch.distributions.StudentT(4.0, raw, 0.7).log_prob(y)
    torch.testing.assert_close(prediction.log_prob(y), each.exp().mean(0).log())
    torch.testing.assert_close(prediction.log_prob(y[:, None][:, 0].numpy()), each.exp().mean(0).log())
    torch.testing.assert_close(prediction.mean, raw.mean(0))
    torch.testing.assert_close(prediction.epistemic_std, raw.std(0, correction=0))
    torch.testing.assert_close(prediction.aleatoric_std, torch.full((5,), 0.7 * math.sqrt(2.0)))
    torch.testing.assert_close(prediction.total_std, (raw.var(0, correction=0) + 0.98).sqrt())
    torch.testing.assert_close(prediction.function_quantile([0.25, 0.5]), raw.quantile(torch.tensor([0.25, 0.5]), 0))
    assert score(prediction, y).keys() == {"nll", "rmse"}  # and nothing that would need a Gaussian
    assert not hasattr(prediction, "quantile")
    assert repr(prediction) == "DensityPrediction(num_samples=6, shape=(5,), StudentT)"
    assert isinstance(predict(sampler, Renamed(0.5), x, num_samples=6), RegressionPrediction)


def test_quantiles_of_a_likelihood_that_can_be_drawn_from_are_those_of_its_density(rng):
    sampler, x = sampler_for(nn.Linear(3, 1)), x_for(5, 3)
    prediction = predict(sampler, DrawnStudentT(), x, num_samples=6, rng=rng)
    assert type(prediction) is DrawnPrediction
    raw = apply_many(sampler.layout, sampler.theta, x).squeeze(-1)
    found = prediction.quantile([0.1, 0.5, 0.9])
    exact = torch.from_numpy(stats.t(4, loc=raw[:, None].numpy(), scale=0.7).cdf(found.numpy())).mean(0)
    for place, level in enumerate((0.1, 0.5, 0.9)):
        assert ((exact[place] - level).abs() < 4.5 * math.sqrt(level * (1 - level) / NUM_DRAWS)).all()
    lower, upper = prediction.interval(0.8)
    torch.testing.assert_close(torch.stack([lower, upper]), found[[0, 2]])
    torch.testing.assert_close(prediction.cdf(found[1]), torch.full((5,), 0.5), atol=2 / NUM_DRAWS, rtol=0.0)
    torch.testing.assert_close(prediction.cdf(found[1][:, None])[:, 0], prediction.cdf(found[1]))
    assert score(prediction, found[1]).keys() == {"nll", "rmse", "crps", "coverage_error", "interval_width"}
    drawn = prediction.sample(4000, rng)
    assert drawn.shape == (4000, 5)
    assert ((drawn <= found[2]).double().mean(0) - 0.9).abs().max() < 0.04


def test_draws_in_parts_are_as_many_and_an_rng_decides_them(monkeypatch):
    sampler, x = sampler_for(nn.Linear(3, 1)), x_for(5, 3)
    one, same, other = (
        predict(sampler, DrawnStudentT(), x, num_samples=6, rng=torch.Generator().manual_seed(seed)).quantile(0.3)
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    monkeypatch.setattr("livi.posterior.prediction.density._AT_ONCE", 1)
    parts = predict(sampler, DrawnStudentT(), x, num_samples=6, rng=torch.Generator().manual_seed(0)).quantile(0.3)
    torch.testing.assert_close(parts, one)


def test_what_is_beside_an_example_has_no_part_in_its_quantiles():
    sampler, x = sampler_for(nn.Linear(3, 1)), x_for(5, 3)
    together = predict(sampler, DrawnStudentT(), x, num_samples=6).interval(0.9)
    alone = predict(sampler, DrawnStudentT(), x[3:4], num_samples=6).interval(0.9)
    for end, other in zip(together, alone, strict=True):
        torch.testing.assert_close(end[3:4], other)


def test_draws_and_moments_of_the_wrong_kind_are_clear_errors():
    class Flat(DrawnStudentT):
        def sample(self, outputs, rng=None):
            return super().sample(outputs[0], rng)

    class Negative(StudentT):
        def moments(self, outputs):
            return outputs, torch.tensor(-1.0)

    sampler, x = sampler_for(nn.Linear(3, 1)), x_for(5, 3)
    with pytest.raises(ValueError, match=r"sample: expected targets of shape \(2004, 1\)"):
        predict(sampler, Flat(), x, num_samples=6).quantile(0.5)
    with pytest.raises(ValueError, match=r"moments: expected standard deviations of at least 0, got -1\.0"):
        predict(sampler, Negative(), x, num_samples=6)


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
    posterior = Posterior(Draws(sampler.layout, theta), Categorical())
    posterior.predict(x[:2], num_samples=2)  # cuDNN and cuBLAS take their workspaces
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    posterior.predict(x, num_samples=20, memory_limit=memory_limit)
    assert torch.cuda.max_memory_allocated() - before < memory_limit


# --- messages -------------------------------------------------------------------------------------


def test_unusable_arguments_are_refused_with_a_remedy():
    sampler = sampler_for(nn.Linear(3, 1))
    x = x_for(5, 3)
    with pytest.raises(ValueError, match="num_samples: expected at least 1, got 0"):
        predict(sampler, Gaussian(), x, num_samples=0)
    with pytest.raises(ValueError, match=r"inputs: expected torch.float64 on cpu .* got torch.float32 .*`inputs.to\("):
        evaluate(sampler.layout, sampler.theta, x.float())
    with pytest.raises(ValueError, match=r"on cpu .* on meta; convert with"):
        evaluate(sampler.layout, sampler.theta, x.to("meta"))
    with pytest.raises(TypeError, match=r"numpy array of float64; convert with `torch.as_tensor"):
        evaluate(sampler.layout, sampler.theta, np.ones((5, 3)))
    with pytest.raises(ValueError, match="at least one example"):
        evaluate(sampler.layout, sampler.theta, x[:0])
    with pytest.raises(
        TypeError, match=r"rng: expected a torch.Generator or None, got int 0; pass torch.Generator\(\)"
    ):
        predict(sampler, Gaussian(), x, num_samples=6, rng=0)
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
