"""Gaussian likelihoods against torch.distributions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, distributions
from torch.nn import functional as F

import livi
from livi.model.likelihoods import aligned

S, B = 3, 4


def summed(log_prob: Tensor) -> Tensor:
    """Over the axes behind (S, B)."""
    return log_prob.reshape(*log_prob.shape[:2], -1).sum(2)


@pytest.mark.parametrize("event", [(), (1,), (2,), (3, 5), (2, 1)])
def test_gaussian_is_torchs_normal_summed_over_the_event(event):
    outputs, targets = torch.randn(S, B, *event), torch.randn(B, *event)
    found = livi.Gaussian(0.7).log_prob(outputs, targets)
    assert found.shape == (S, B)
    torch.testing.assert_close(found, summed(distributions.Normal(outputs, 0.7).log_prob(targets)))


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [((S, B, 1), (B,)), ((S, B), (B, 1)), ((S, B, 2, 1), (B, 2)), ((S, B, 2), (B, 2, 1)), ((S, 1, 1), (1,))],
)
@pytest.mark.parametrize("likelihood", [livi.Gaussian(0.5), livi.Bernoulli()], ids=["Gaussian", "Bernoulli"])
def test_trailing_axis_of_one_on_either_side_is_dropped_and_never_broadcast(likelihood, outputs, targets):
    out, y = torch.randn(outputs), torch.rand(targets)
    expected = likelihood.log_prob(out.reshape(S, targets[0], -1), y.reshape(targets[0], -1))
    found = likelihood.log_prob(out, y)
    assert found.shape == (S, targets[0])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        ((S, B, 2), (B,)),
        ((S, B), (B, 2)),
        ((S, B + 1), (B,)),
        ((S, 1), (B,)),
        ((S, B, 1), (B, 2)),
        ((S, B, 2, 3), (B, 3, 2)),
        ((B,), (B,)),
        ((B, 1), (B,)),
    ],
)
@pytest.mark.parametrize(
    "likelihood", [livi.Gaussian(0.5), livi.Gaussian(), livi.Bernoulli()], ids=["fixed", "learned", "Bernoulli"]
)
def test_shapes_that_do_not_match_are_an_error(likelihood, outputs, targets):
    with pytest.raises(ValueError, match=r"outputs: expected \(num_samples, \*targets\.shape\) = \(S, 4"):
        likelihood.log_prob(torch.zeros(outputs), torch.zeros(targets))


def test_targets_of_other_examples_are_told_from_a_network_of_other_outputs():
    with pytest.raises(ValueError, match="pass the targets of the 5 examples that the outputs are of"):
        aligned(torch.zeros(2, 5), torch.zeros(4))
    with pytest.raises(ValueError, match="as many outputs as an example has targets"):
        aligned(torch.zeros(2, 5, 3), torch.zeros(5, 2))


def test_aligned_gives_a_view():
    outputs = torch.randn(S, B, 1)
    for found in (aligned(outputs, torch.zeros(B)), aligned(outputs, torch.zeros(B, 1))):
        assert found.data_ptr() == outputs.data_ptr()


def test_integer_targets_may_be_regressed_on():
    outputs, targets = torch.randn(S, B), torch.arange(B)
    torch.testing.assert_close(
        livi.Gaussian(0.5).log_prob(outputs, targets), distributions.Normal(outputs, 0.5).log_prob(targets)
    )


@pytest.mark.parametrize(
    ("likelihood", "start", "is_learned"),
    [
        (lambda: livi.Gaussian(), 1.0, True),
        (lambda: livi.Gaussian(0.2), 0.2, False),
        (lambda: livi.Gaussian(0.2, learned=True), 0.2, True),
        (lambda: livi.Gaussian(learned=False), 1.0, False),
    ],
)
def test_noise_is_learned_where_it_is_not_given_or_where_asked(likelihood, start, is_learned):
    gaussian = likelihood()
    torch.testing.assert_close(gaussian.obs_std().detach(), torch.tensor(start))
    assert [name for name, _ in gaussian.named_parameters()] == ["log_std"] * is_learned
    assert list(gaussian.state_dict()) == ["log_std"]


def test_learned_noise_reaches_its_maximum_likelihood_value(rng):
    outputs, targets = torch.randn(S, 50, 2, generator=rng), torch.randn(50, 2, generator=rng)
    gaussian = livi.Gaussian()
    optimiser = torch.optim.LBFGS(
        gaussian.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=1e-16
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = -gaussian.log_prob(outputs, targets).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    torch.testing.assert_close(gaussian.obs_std().detach(), (targets - outputs).square().mean().sqrt())


@pytest.mark.parametrize(
    ("obs_std", "error"), [(0.0, ValueError), (-1.0, ValueError), (math.nan, ValueError), ("1", TypeError)]
)
def test_noise_must_be_a_positive_number(obs_std, error):
    with pytest.raises(error, match="obs_std: expected a"):
        livi.Gaussian(obs_std)


@pytest.mark.parametrize("obs_std", [[0.1, 2.0], (0.1, 2.0), torch.tensor([0.1, 2.0], dtype=torch.float64)])
@pytest.mark.parametrize("event", [(2,), (3, 2)])
def test_each_output_may_have_its_own_noise(obs_std, event):
    outputs, targets = torch.randn(S, B, *event), torch.randn(B, *event)
    likelihood = livi.Gaussian(obs_std)
    expected = distributions.Normal(outputs, torch.tensor([0.1, 2.0])).log_prob(targets)
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), summed(expected))
    mean, std = likelihood.moments(outputs)
    assert mean.shape == std.shape
    assert list(likelihood.parameters()) == []
    assert len(list(livi.Gaussian(obs_std, learned=True).parameters())) == 1


@pytest.mark.parametrize("outputs", [(S, B), (S, B, 1), (S, B, 3)])
def test_there_are_as_many_noises_as_outputs(outputs):
    with pytest.raises(ValueError, match="expected a last axis of 2, one output per value of obs_std"):
        livi.Gaussian([0.1, 2.0]).log_prob(torch.zeros(outputs), torch.zeros(outputs[1:]))


@pytest.mark.parametrize("outputs", [(S, B), (S, B, 1)])
@pytest.mark.parametrize("obs_std", [[0.3], torch.tensor(0.3, dtype=torch.float64)])
def test_one_noise_may_stand_in_a_list_or_tensor(obs_std, outputs):
    out, targets = torch.randn(outputs), torch.randn(B)
    expected = livi.Gaussian(0.3).log_prob(out, targets)
    torch.testing.assert_close(livi.Gaussian(obs_std).log_prob(out, targets), expected)


@pytest.mark.parametrize("obs_std", [[], [0.1, -1.0], [0.1, math.inf], torch.ones(2, 2), torch.tensor([1, 2])])
def test_noises_must_be_positive_numbers(obs_std):
    with pytest.raises(ValueError, match="obs_std: expected a positive number, or one per output"):
        livi.Gaussian(obs_std)


@pytest.mark.parametrize("event", [(1,), (2,), (3, 2)])
def test_heteroscedastic_gaussian_is_torchs_normal(event):
    mean, raw, targets = torch.randn(S, B, *event), torch.randn(S, B, *event), torch.randn(B, *event)
    likelihood = livi.HeteroscedasticGaussian(floor=0.1)
    outputs = torch.cat([mean, raw], -1)
    expected = distributions.Normal(mean, 0.1 + F.softplus(raw))
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), summed(expected.log_prob(targets)))
    torch.testing.assert_close(likelihood.moments(outputs), (expected.mean, expected.stddev))


def test_heteroscedastic_gaussian_takes_targets_without_a_trailing_axis():
    outputs, targets = torch.randn(S, B, 2), torch.randn(B)
    likelihood = livi.HeteroscedasticGaussian()
    torch.testing.assert_close(likelihood.log_prob(outputs, targets), likelihood.log_prob(outputs, targets[:, None]))


def test_heteroscedastic_standard_deviation_never_falls_below_the_floor():
    _, std = livi.HeteroscedasticGaussian(floor=0.25).moments(torch.full((1, 1, 2), -1e4))
    assert std.item() == 0.25


@pytest.mark.parametrize("shape", [(S, B), (S, B, 1), (S, B, 3)])
def test_heteroscedastic_gaussian_needs_two_outputs_for_each_target(shape):
    with pytest.raises(ValueError, match=r"expected an even last axis.*two outputs for each target"):
        livi.HeteroscedasticGaussian().log_prob(torch.zeros(shape), torch.zeros(B))


def test_heteroscedastic_gaussian_refuses_targets_of_another_width():
    with pytest.raises(ValueError, match=r"outputs: expected \(num_samples, \*targets\.shape\)"):
        livi.HeteroscedasticGaussian().log_prob(torch.zeros(S, B, 4), torch.zeros(B, 4))


def test_floor_must_be_positive():
    with pytest.raises(ValueError, match="floor: expected a positive"):
        livi.HeteroscedasticGaussian(0.0)
