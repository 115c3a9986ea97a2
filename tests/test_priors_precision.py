"""Priors of millions of weights in single precision, and row by row under vmap."""

from __future__ import annotations

import copy

import pytest
import torch

import livi

every_family = pytest.mark.parametrize("family", [livi.Normal, livi.Laplace])
LARGE = 3_000_000


@pytest.mark.parametrize(
    "make",
    [
        lambda family: family(0.2, learned=True),
        lambda family: family([0.2, 0.01], sizes=(LARGE - 10, 10), learned=True),
        lambda family: family(torch.full((LARGE,), 0.2)),
        lambda _: livi.Relevance((torch.arange(LARGE) < 10).long(), torch.tensor([0.2, 0.01])),
    ],
    ids=["one scale", "by layer", "by weight", "relevance"],
)
@every_family
def test_many_weights_in_single_precision_lose_no_nats(family, make, rng):
    theta = (0.2 * torch.randn(1, LARGE, generator=rng)).float()
    single = make(family).float()
    double = copy.deepcopy(single).double()
    found, truth = single.log_prob(theta), double.log_prob(theta.double())
    assert found.dtype == torch.float32
    assert abs(found.double() - truth) < 1e-6 * abs(truth) < 1.0
    if not any(True for _ in single.parameters()):
        return
    found.sum().backward()
    truth.sum().backward()
    torch.testing.assert_close(single.log_scale.grad.double(), double.log_scale.grad, rtol=1e-5, atol=1.0)


@every_family
def test_densities_are_the_same_row_by_row_under_vmap(family):
    theta = torch.randn(3, 6)
    for prior in (family(0.3), family([0.3, 2.0], sizes=(2, 4)), family([0.3] * 6)):
        rows = torch.func.vmap(lambda row, prior=prior: prior.log_prob(row[None])[0])(theta)
        torch.testing.assert_close(rows, prior.log_prob(theta))
        slopes = torch.func.vmap(torch.func.grad(lambda row, prior=prior: prior.log_prob(row[None])[0]))(theta)
        leaf = theta.clone().requires_grad_()
        prior.log_prob(leaf).sum().backward()
        torch.testing.assert_close(slopes, leaf.grad)
