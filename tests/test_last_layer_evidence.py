"""The evidence and the posterior of a last layer, against brute force."""

import pytest
import torch
from support.last_layers import data
from torch import nn
from torch.distributions import MultivariateNormal

import livi
from livi.family.last_layer import Conditional, LinearGaussian, evidence


def features_of(rows=20, width=4, samples=3):
    return torch.randn(samples, rows, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize("outputs", [None, 3])
def test_the_evidence_is_that_of_the_joint_gaussian(outputs):
    features, (_, y) = features_of(), data(outputs=outputs)
    likelihood = LinearGaussian(livi.Gaussian(0.3), scale=0.7).double()
    design = torch.cat([features, torch.ones(3, 20, 1)], -1)
    covariance = 0.7**2 * design @ design.mT + 0.3**2 * torch.eye(20, dtype=torch.float64)
    columns = y.reshape(20, -1).T
    expected = sum(
        MultivariateNormal(torch.zeros(20, dtype=y.dtype), covariance).log_prob(column) for column in columns
    )
    shares = likelihood.log_prob(features, y)
    assert shares.shape == (3, 20)
    torch.testing.assert_close(shares.sum(1), expected)


def test_the_posterior_is_that_of_ridge_regression():
    features, (_, y) = features_of(), data()
    likelihood = LinearGaussian(livi.Gaussian(0.3), scale=0.7).double()
    conditional = likelihood.conditional(features, y)
    design = torch.cat([features, torch.ones(3, 20, 1)], -1)
    precision = design.mT @ design / 0.3**2 + torch.eye(5, dtype=y.dtype) / 0.7**2
    mean = torch.linalg.solve(precision, design.mT @ y[:, None] / 0.3**2)
    torch.testing.assert_close(conditional.mean, mean)
    many = conditional.mean[:1].repeat(20_000, 1, 1), conditional.factor[:1].repeat(20_000, 1, 1, 1)
    draws = likelihood.draw(Conditional(*many, *conditional[2:]), torch.Generator().manual_seed(0))
    covariance = draws.squeeze(-1).T.cov()
    torch.testing.assert_close(
        covariance, torch.linalg.inv(precision[0]), rtol=0.1, atol=0.05 * covariance.max().item()
    )


def test_gradients_reach_features_noise_and_scale():
    features, (_, y) = features_of(rows=6, width=2, samples=2), data(6)
    likelihood = LinearGaussian(livi.Gaussian(0.5, learned=True), scale=0.8, learn_scale=True).double()
    names = [name for name, _ in likelihood.named_parameters()]
    assert names == ["log_scale", "noise.log_std"]

    def total(features, log_scale, log_std):
        parts = {"log_scale": log_scale, "noise.log_std": log_std}
        return torch.func.functional_call(
            _LogProb(likelihood), {f"inner.{k}": v for k, v in parts.items()}, (features, y)
        )

    inputs = (features.requires_grad_(), *(p.detach().clone().requires_grad_() for p in likelihood.parameters()))
    assert torch.autograd.gradcheck(total, inputs)


class _LogProb(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, features, targets):
        return self.inner.log_prob(features, targets)


def varying(count=20):
    """A likelihood, features with a raw scale behind them, and the noise that they mean."""
    likelihood = LinearGaussian(livi.HeteroscedasticGaussian(0.1, learned=True), scale=0.7).double()
    outputs = features_of(count, width=5)
    return likelihood, outputs, likelihood.noise.std(outputs[..., -1])


def test_the_noise_may_vary():
    (likelihood, outputs, std), (_, y) = varying(), data()
    design = torch.cat([outputs[..., :-1], torch.ones(3, 20, 1)], -1)
    covariance = 0.7**2 * design @ design.mT + torch.diag_embed(std.square())
    expected = MultivariateNormal(torch.zeros(20, dtype=y.dtype), covariance).log_prob(y)
    torch.testing.assert_close(likelihood.log_prob(outputs, y).sum(1), expected)
    with pytest.raises(ValueError, match="expected one for each example whose noise varies, got 2"):
        likelihood.log_prob(outputs, torch.stack([y, y], 1))


@pytest.mark.parametrize("noise", [livi.Gaussian(0.3), livi.HeteroscedasticGaussian(0.1)])
def test_a_row_that_counts_twice_is_two_rows(noise):
    counts = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0])
    times = counts.long()
    features, (_, y) = features_of(5), data(5)
    once = LinearGaussian(noise, counts=counts).double()
    repeated = LinearGaussian(noise).double()
    again = features.repeat_interleave(times, 1), y.repeat_interleave(times)
    torch.testing.assert_close(once.log_prob(features, y).sum(1), repeated.log_prob(*again).sum(1))
    torch.testing.assert_close(once.conditional(features, y).mean, repeated.conditional(*again).mean)


@pytest.mark.parametrize("counts", [None, torch.tensor([1.0, 0.5, 2.0, 1.0, 1.5, 1.0])])
def test_gradients_reach_a_varying_noise(counts):
    likelihood = LinearGaussian(livi.HeteroscedasticGaussian(0.1), counts=counts).double()
    outputs, (_, y) = features_of(rows=6, width=3, samples=2).requires_grad_(), data(6)
    assert torch.autograd.gradcheck(lambda given: likelihood.log_prob(given, y), (outputs,))


def test_blocks_of_samples_change_nothing(monkeypatch):
    (likelihood, outputs, _), (_, y) = varying(), data()
    found = []
    for block in (400_000, 1):
        monkeypatch.setattr("livi.family.last_layer.evidence._CPU_BLOCK", block)
        leaf = outputs.clone().requires_grad_()
        likelihood.zero_grad()
        values = likelihood.log_prob(leaf, y)
        (values.sum(1) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        solved = likelihood.conditional(outputs, y)
        found.append((values, leaf.grad, likelihood.noise.log_level.grad.clone(), *solved))
    torch.testing.assert_close(*found)


def test_part_of_the_data_is_refused():
    with pytest.raises(ValueError, match="all examples at once"):
        LinearGaussian(livi.Gaussian(0.3)).log_prob(torch.zeros(1, 4, 3), torch.zeros(5))


def test_a_matrix_that_rounding_has_spoiled_gives_nan_and_not_a_wrong_number():
    sound, spoiled = torch.eye(3).double(), torch.diag(torch.tensor([1.0, -1e-9, 1.0]).double())
    factor = evidence.cholesky(torch.stack([sound, spoiled]))
    assert torch.equal(factor[0], sound)
    assert bool(factor[1].isnan().all())
