"""Counts, outliers and skewed targets: densities, moments, draws, starts, files and what is said of unfit targets."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from scipy import stats
from torch import distributions

import livi
from livi.posterior import metrics
from livi.posterior.prediction import DrawnPrediction, LogNormalPrediction, prediction_of
from livi.spec import build, known_classes, spec_of

S, B = 3, 40


def negative_binomial(mean, dispersion):
    return distributions.NegativeBinomial(1.0 / dispersion, logits=(mean * dispersion).log())


# The likelihood, and torch's distribution at these outputs.
CASES = {
    "Poisson": (lambda: livi.Poisson(), lambda out: distributions.Poisson(out.exp())),
    "Poisson in fives": (lambda: livi.Poisson(unit=5.0), lambda out: distributions.Poisson(5.0 * out.exp())),
    "NegativeBinomial": (lambda: livi.NegativeBinomial(0.7), lambda out: negative_binomial(out.exp(), 0.7)),
    "rare": (lambda: livi.NegativeBinomial(30.0, unit=0.2), lambda out: negative_binomial(0.2 * out.exp(), 30.0)),
    "StudentT": (lambda: livi.StudentT(0.3), lambda out: distributions.StudentT(4.0, out, 0.3)),
    "StudentT of 2.5": (lambda: livi.StudentT(2.0, 2.5), lambda out: distributions.StudentT(2.5, out, 2.0)),
    "learned df": (
        lambda: livi.StudentT(2.0, 7.0, learned_df=True),
        lambda out: distributions.StudentT(7.0, out, 2.0),
    ),
    "LogNormal": (lambda: livi.LogNormal(0.4), lambda out: distributions.LogNormal(out, 0.4)),
    "LogNormal in tens": (
        lambda: livi.LogNormal(0.4, unit=10.0),
        lambda out: distributions.LogNormal(out + math.log(10.0), 0.4),
    ),
}
every = pytest.mark.parametrize(("likelihood", "truth"), CASES.values(), ids=CASES.keys())


def outputs_and_targets(truth, *event):
    outputs = torch.randn(S, B, *event)
    return outputs, truth(outputs[0]).sample()


# --- densities ------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("event", [(), (1,), (2,), (2, 3)])
def test_the_density_is_torchs_summed_over_the_event(likelihood, truth, event):
    outputs, targets = outputs_and_targets(truth, *event)
    expected = truth(outputs).log_prob(targets).reshape(S, B, -1).sum(-1)
    torch.testing.assert_close(likelihood().log_prob(outputs, targets), expected, rtol=1e-10, atol=1e-10)


@every
def test_a_trailing_axis_of_one_is_dropped_and_never_broadcast(likelihood, truth):
    outputs, targets = outputs_and_targets(truth)
    expected = truth(outputs).log_prob(targets)
    torch.testing.assert_close(likelihood().log_prob(outputs[..., None], targets), expected)
    torch.testing.assert_close(likelihood().log_prob(outputs, targets[:, None]), expected)
    with pytest.raises(ValueError, match="as many outputs as an example has targets"):
        likelihood().log_prob(torch.zeros(S, B, 2), targets)


@pytest.mark.parametrize(
    ("likelihood", "each"),
    [
        (livi.Poisson(unit=[1.0, 9.0]), [livi.Poisson(unit=1.0), livi.Poisson(unit=9.0)]),
        (livi.NegativeBinomial([0.5, 2.0]), [livi.NegativeBinomial(0.5), livi.NegativeBinomial(2.0)]),
        (livi.StudentT([0.5, 2.0]), [livi.StudentT(0.5), livi.StudentT(2.0)]),
        (livi.LogNormal([0.5, 2.0]), [livi.LogNormal(0.5), livi.LogNormal(2.0)]),
    ],
)
def test_each_output_may_have_a_number_of_its_own(likelihood, each):
    outputs, targets = torch.randn(S, B, 2), torch.randint(1, 4, (B, 2))
    expected = sum(one.log_prob(outputs[..., i], targets[:, i]) for i, one in enumerate(each))
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), expected)
    with pytest.raises(ValueError, match=r"outputs: expected a last axis of 2, one output per value of"):
        likelihood.log_prob(torch.zeros(S, B, 3), torch.ones(B, 3))


def test_a_dispersion_towards_zero_is_poisson_in_single_precision_too():
    outputs, counts = torch.randn(S, B, dtype=torch.float32), torch.randint(0, 6, (B,))
    for dispersion in (1e-2, 1e-5, 1e-7, 1e-9):
        found = livi.NegativeBinomial(dispersion).float().log_prob(outputs, counts)
        expected = livi.NegativeBinomial(dispersion).log_prob(outputs.double(), counts).float()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, livi.Poisson().float().log_prob(outputs, counts), rtol=1e-5, atol=1e-5)


COUNTED = {
    "Poisson": lambda: livi.Poisson(),
    "Poisson in units": lambda: livi.Poisson(unit=3.0),
    "NegativeBinomial": lambda: livi.NegativeBinomial(1e-3),
    "spread": lambda: livi.NegativeBinomial(0.5, unit=3.0),
}
every_count = pytest.mark.parametrize("likelihood", COUNTED.values(), ids=COUNTED.keys())


def by_scipy(likelihood, outputs, counts):
    """Log probabilities in double precision, with the scale and unit that the likelihood has."""
    mean = (outputs.double() + likelihood.log_unit.double()).exp().numpy()
    if isinstance(likelihood, livi.Poisson):
        return torch.as_tensor(stats.poisson.logpmf(counts.numpy(), mean))
    shape = math.exp(-likelihood.log_scale.item())
    return torch.as_tensor(stats.nbinom.logpmf(counts.numpy(), shape, shape / (shape + mean)))


@every_count
@pytest.mark.parametrize("size", [1.0, 1e3, 1e5, 1e6, 1e7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_large_counts_lose_no_nats_in_single_precision(likelihood, size, dtype):
    counts = (size + size**0.5 * torch.randn(200)).round().clamp_min(0.0).to(dtype)
    single = likelihood().float()
    outputs = (math.log(size) - single.log_unit + 0.01 * torch.randn(S, 200)).float()
    found = single.log_prob(outputs, counts)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), by_scipy(single, outputs, counts), rtol=1e-6, atol=1e-6)


@every_count
def test_slopes_in_large_counts_are_right_in_single_precision_and_under_vmap(likelihood):
    counts = torch.tensor([0.0, 1e3, 1e6, 1e6 + 7])
    outputs = torch.tensor([[0.0, 7.0, 13.8, 13.9], [1.0, 6.9, 13.81, 14.0]]).float()
    single = likelihood().float()
    double = copy.deepcopy(single).double()
    values, slopes = single.log_prob_with_gradient(outputs, counts)
    expected = double.log_prob_with_gradient(outputs.double(), counts)[1]
    assert slopes.dtype == torch.float32
    torch.testing.assert_close(slopes.double(), expected, rtol=1e-6, atol=1e-6)

    def sums(row):
        return single.log_prob(row[None], counts).sum()

    torch.testing.assert_close(torch.func.vmap(sums)(outputs), values.sum(1))
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(sums))(outputs), slopes)


def test_many_degrees_of_freedom_are_a_gaussian_in_single_precision_too():
    outputs, targets = torch.randn(S, B, dtype=torch.float32), torch.randn(B, dtype=torch.float32)
    expected = livi.Gaussian(0.5).float().log_prob(outputs, targets)
    found = livi.StudentT(0.5, 1e7).float().log_prob(outputs, targets)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


# --- predictions ----------------------------------------------------------------------------------


@every
def test_moments_are_those_of_torchs_distribution(likelihood, truth):
    outputs = torch.randn(S, B)
    mean, std = likelihood().moments(outputs)
    torch.testing.assert_close(mean, truth(outputs).mean)
    torch.testing.assert_close(std.expand_as(mean), truth(outputs).stddev)


@every
def test_draws_follow_the_density(likelihood, truth, rng):
    outputs = torch.tensor([0.4]).expand(20_000, 1)
    draws = likelihood().sample(outputs, rng)
    assert torch.equal(draws, likelihood().sample(outputs, torch.Generator().manual_seed(0)))
    own = truth(outputs[0])
    for level in own.sample((5,)).unique():
        share, reference = (draws <= level).double().mean(), (own.sample((20_000,)) <= level).double().mean()
        assert abs(share - reference) < 5.0 * math.sqrt(0.5 / 20_000)


@every
def test_predictions_have_quantiles_of_the_density_itself_and_every_score(likelihood, truth):
    outputs, targets = outputs_and_targets(truth)
    prediction = prediction_of(likelihood(), outputs, torch.Generator().manual_seed(0))
    assert type(prediction) is (LogNormalPrediction if type(likelihood()) is livi.LogNormal else DrawnPrediction)
    expected = truth(outputs).log_prob(targets).exp().mean(0).log()
    torch.testing.assert_close(prediction.log_prob(targets), expected)
    assert metrics.nll(prediction, targets) == pytest.approx(-expected.mean().item())
    lower, upper = prediction.interval(0.9)
    assert bool((lower <= upper).all())
    if not isinstance(likelihood(), livi.StudentT):
        assert bool((lower >= 0).all())
    assert metrics.score(prediction, targets).keys() == {"nll", "rmse", "crps", "coverage_error", "interval_width"}


@pytest.mark.parametrize("likelihood", [livi.Poisson(unit=0.7), livi.NegativeBinomial(0.8)])
def test_quantiles_of_counts_are_counts_and_their_transforms_uniform(likelihood, rng):
    outputs = torch.randn(50, 1000, 1)
    targets = likelihood.sample(outputs[:1], rng)[0]  # of one network out of 50 alike
    alike = prediction_of(likelihood, outputs[:1], rng)
    for q in (0.05, 0.5, 0.95):
        found = alike.quantile(q)
        assert torch.equal(found, found.round())
    values = metrics.pit(alike, targets)
    assert values.shape == targets.shape
    assert torch.equal(values, metrics.pit(alike, targets.to(torch.uint8)))
    distance = (values.flatten().sort().values - (torch.arange(1000) + 0.5) / 1000).abs().max()
    assert distance < 1.63 / math.sqrt(1000) + 0.01  # Kolmogorov's 1 per cent point, and the error of the draws
    assert metrics.coverage(alike, targets, 0.8) == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / 1000) + 0.01)


def test_a_quantile_of_counts_is_the_smallest_with_enough_below():
    prediction = prediction_of(livi.Poisson(), torch.full((1, 1), math.log(3.0)))
    poisson = [3.0**k * math.exp(-3.0) / math.factorial(k) for k in range(20)]
    for q in (0.1, 0.5, 0.75, 0.99):
        expected = next(k for k in range(20) if sum(poisson[: k + 1]) >= q)
        assert prediction.quantile(q).item() == expected


@pytest.mark.parametrize(
    ("several", "each"),
    [
        (livi.Poisson(unit=[1.0, 9.0]), [livi.Poisson(unit=1.0), livi.Poisson(unit=9.0)]),
        (livi.NegativeBinomial([0.5, 2.0], unit=2.0), [livi.NegativeBinomial(d, unit=2.0) for d in (0.5, 2.0)]),
        (livi.StudentT([0.5, 2.0], learned=True), [livi.StudentT(0.5), livi.StudentT(2.0)]),
        (livi.LogNormal(0.5, unit=[1.0, 9.0]), [livi.LogNormal(0.5, unit=unit) for unit in (1.0, 9.0)]),
    ],
)
def test_each_output_is_scored_by_itself(several, each):
    outputs, targets = torch.randn(S, B, 2), torch.randint(1, 4, (B, 2))
    prediction = prediction_of(several, outputs)
    expected = [metrics.nll(prediction_of(one, outputs[..., i]), targets[:, i]) for i, one in enumerate(each)]
    scores = metrics.score_outputs(prediction, targets)
    assert scores["nll"] == pytest.approx(expected)
    assert {len(values) for values in scores.values()} == {2}
    assert repr(prediction).startswith(f"{type(prediction).__name__}(num_samples=3, shape=(40, 2)")


class HalfNormal(livi.LogNormal):
    """With a density of its own, of which nobody knows the quantiles."""

    def log_prob(self, outputs, targets):
        return 0.5 * super().log_prob(outputs, targets)


@pytest.mark.parametrize("event", [(), (1,), (2,)])
def test_quantiles_of_a_log_normal_are_exact(event):
    outputs, likelihood = torch.randn(S, B, *event), livi.LogNormal(0.4, unit=10.0)
    prediction = prediction_of(likelihood, outputs)
    parts = distributions.LogNormal(outputs.squeeze(-1) if event == (1,) else outputs, 0.4)
    for q in (0.05, 0.5, 0.999):
        share = parts.cdf(prediction.quantile(q) / 10.0).mean(0)
        torch.testing.assert_close(share, torch.full_like(share, q), rtol=0.0, atol=1e-6)
    torch.testing.assert_close(prediction.mean, 10.0 * parts.mean.mean(0))
    torch.testing.assert_close(prediction.cdf(prediction.mean), parts.cdf(prediction.mean / 10.0).mean(0))
    assert type(prediction_of(HalfNormal(0.4), outputs)) is DrawnPrediction


# --- before a fit ---------------------------------------------------------------------------------

OPEN = {
    "NegativeBinomial": (livi.NegativeBinomial, lambda n: negative_binomial(torch.tensor(4.0), 0.5).sample((n,)), 0.5),
    "StudentT": (livi.StudentT, lambda n: distributions.StudentT(1.5, 7.0, 2.0).sample((n,)), 2.0),
    "LogNormal": (livi.LogNormal, lambda n: distributions.LogNormal(3.0, 0.6).sample((n,)), 0.6),
}
every_open = pytest.mark.parametrize(("kind", "draw", "scale"), OPEN.values(), ids=OPEN.keys())


@every_open
def test_a_learned_scale_starts_at_that_of_the_targets(kind, draw, scale):
    targets = draw(20_000)
    before = kind()
    started = before.started_from(targets)
    assert started.learned
    assert before.log_scale.item() == 0.0
    assert started.log_scale.exp().item() == pytest.approx(scale, rel=0.3)
    assert started.started_from(9.0 * targets) is started
    given = kind(0.5)
    assert not given.learned
    assert given.started_from(targets) is given
    [(parameter, limit)] = started.lower_limits()
    assert parameter is started.log_scale
    assert math.exp(limit) == pytest.approx(0.1 * started.log_scale.exp().item())
    assert started.for_map(targets) is started


@every_open
def test_each_output_starts_by_itself_and_is_built_again_from_its_file(kind, draw, scale):
    targets = torch.stack([draw(50), draw(50)], 1)
    started = kind().started_from(targets)
    assert started.log_scale.shape == (2,)
    again = build(spec_of(started), known_classes())
    again.load_state_dict(started.state_dict())
    outputs = torch.zeros(S, 50, 2)
    assert torch.equal(again.log_prob(outputs, targets), started.log_prob(outputs, targets))
    assert scale > 0


@pytest.mark.parametrize("kind", [livi.Poisson, livi.NegativeBinomial, livi.LogNormal])
def test_an_open_unit_is_the_mean_of_the_targets(kind):
    targets = torch.tensor([[100.0, 1.0], [300.0, 3.0]])
    started = kind(unit=None).started_from(targets)
    torch.testing.assert_close(started.log_unit.exp(), torch.tensor([200.0, 2.0]))
    assert started.started_from(5.0 * targets) is started
    torch.testing.assert_close(kind(unit=None).started_from(targets[:, 0]).log_unit.exp(), torch.tensor(200.0))
    again = build(spec_of(started), known_classes())
    again.load_state_dict(started.state_dict())
    assert torch.equal(again.moments(torch.zeros(1, 1, 2))[0], started.moments(torch.zeros(1, 1, 2))[0])
    assert started.log_unit.dtype == kind(unit=None).float().log_unit.double().dtype
    assert kind(unit=None).float().started_from(targets).log_unit.dtype == torch.float32


@every
def test_no_constant_prediction_is_better_than_the_best(likelihood, truth):
    targets = truth(torch.zeros(60)).sample()
    best, grid = likelihood().constant_log_prob(targets), torch.linspace(-3, 3, 601)
    tried = [float(likelihood().log_prob(torch.full((1, 60), c), targets).sum().detach()) for c in grid]
    assert max(tried) <= best + 1e-9
    if not any(parameter.requires_grad for parameter in likelihood().parameters()):
        assert max(tried) == pytest.approx(best, abs=0.02)


@every_open
def test_a_learned_scale_counts_in_the_best_constant(kind, draw, scale):
    targets = draw(400)
    best = kind().constant_log_prob(targets)
    centres = torch.linspace(-1.0, 8.0, 181)
    tried = [
        float(kind(scale * factor).log_prob(torch.full((1, 400), float(c)), targets).sum())
        for factor in (0.7, 1.0, 1.4)
        for c in centres
    ]
    assert max(tried) <= best + (0.0 if kind is not livi.NegativeBinomial else 0.5)


def test_degrees_of_freedom_can_be_learned():
    targets = distributions.StudentT(3.0).sample((4000,))
    likelihood = livi.StudentT(df=10.0, learned_df=True).started_from(targets)
    optimiser = torch.optim.Adam(likelihood.parameters(), 0.05)
    for _ in range(300):
        optimiser.zero_grad()
        (-likelihood.log_prob(torch.zeros(1, 4000), targets).mean()).backward()
        optimiser.step()
    assert float(likelihood.df().detach()) == pytest.approx(3.0, rel=0.2)
    assert len(likelihood.lower_limits()) == 2


# --- unfit targets --------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", [livi.Poisson(), livi.NegativeBinomial()])
@pytest.mark.parametrize("wrong", [-1.0, 0.5, math.nan])
def test_what_is_no_count_is_refused(likelihood, wrong):
    with pytest.raises(
        ValueError,
        match=rf"expected counts 0, 1, 2, ..., got {wrong:g} in 1 of 3 rows \(numbers 1, counted from 0\); .*LogNormal",
    ):
        likelihood.log_prob(torch.zeros(1, 3), torch.tensor([1.0, wrong, 2.0]))


@pytest.mark.parametrize("wrong", [-1.0, 0.0])
def test_what_is_not_positive_is_refused(wrong):
    with pytest.raises(ValueError, match=rf"expected numbers above 0, got {wrong:g} in 2 of 3 rows .*; .*Poisson"):
        livi.LogNormal().log_prob(torch.zeros(1, 3), torch.tensor([1.0, wrong, wrong]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: livi.StudentT(df=1.0), r"df: expected more than 1, got 1.0; .*no mean"),
        (lambda: livi.StudentT(df=2.0, learned_df=True), r"df: expected more than 2, got 2.0; .* finite"),
        (lambda: livi.StudentT(-1.0), "scale: expected a positive"),
        (lambda: livi.NegativeBinomial(0.0), "dispersion: expected a positive"),
        (lambda: livi.LogNormal(math.inf), "log_std: expected a positive"),
        (lambda: livi.Poisson(unit=0.0), "unit: expected a positive"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
