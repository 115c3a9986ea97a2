"""What predictions say about themselves: moments, quantiles, entropies, log densities."""

import math

import pytest
import torch
from scipy import optimize, stats
from torch.distributions import Categorical as Choice
from torch.distributions import MixtureSameFamily
from torch.distributions import Normal as Gauss

from livi import Bernoulli, Categorical
from livi.posterior.prediction import ClassificationPrediction, RegressionPrediction


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


def test_the_mass_of_a_cell_is_that_of_the_mixture_and_as_precise_above_as_below(mixture):
    low = torch.linspace(-3, 3, 15).reshape(5, 3)
    expected = reference(mixture).cdf(low + 0.5) - reference(mixture).cdf(low)
    torch.testing.assert_close(mixture.log_mass(low, low + 0.5).exp(), expected, rtol=1e-6, atol=1e-12)
    far = RegressionPrediction(torch.zeros(1, 4), torch.ones(1, 4))
    ends = torch.tensor([9.0, 12.0, -9.5, -12.5])
    exact = stats.norm.logsf([9.0, 12.0, 9.0, 12.0]) + [
        math.log1p(-math.exp(stats.norm.logsf(x + 0.5) - stats.norm.logsf(x))) for x in (9.0, 12.0, 9.0, 12.0)
    ]
    torch.testing.assert_close(far.log_mass(ends, ends + 0.5), torch.from_numpy(exact))
    narrow = far.log_mass(ends, ends + 1e-9) - math.log(1e-9)
    torch.testing.assert_close(narrow, far.log_prob(ends), rtol=1e-6, atol=1e-6)


def test_total_variance_is_epistemic_plus_aleatoric(mixture):
    torch.testing.assert_close(mixture.total_std**2, mixture.epistemic_std**2 + mixture.aleatoric_std**2)


def test_std_is_short_for_all_of_it(mixture):
    assert torch.equal(mixture.std, mixture.total_std)


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
