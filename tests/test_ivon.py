"""IVON: exact for a posterior with independent weights, and the mean-field optimum for others."""

import sys

import pytest
import torch
from torch import nn

from livi.inference import FitError, Recipe
from livi.model.likelihoods import Gaussian
from livi.model.priors import Laplace, Normal
from livi.rivals import fit_ivon
from livi.rivals.ivon import PROBES

OBS_STD = 0.5
SHORT = Recipe(map_steps=100, map_restarts=1, map_rate=3e-2)


def test_ivon_is_the_best_gaussian_with_independent_weights():
    pytest.importorskip("ivon")
    design = torch.randn(60, 3) + 0.7 * torch.randn(60, 1)
    targets = design @ torch.tensor([1.0, -1.0, 0.5]) + OBS_STD * torch.randn(60)
    precision = torch.eye(3) + design.T @ design / OBS_STD**2
    mean = torch.linalg.solve(precision, design.T @ targets / OBS_STD**2)
    posterior = fit_ivon(
        nn.Linear(3, 1, bias=False),
        (design, targets),
        Gaussian(OBS_STD),
        prior=Normal(1.0),
        recipe=SHORT,
        steps=3000,
        hessian_memory=0.998,
    )
    torch.testing.assert_close(posterior.sampler.mean, mean, rtol=0, atol=0.03)
    torch.testing.assert_close(posterior.sampler.std, precision.diagonal().rsqrt(), rtol=0.2, atol=0)


def test_the_hessian_starts_at_the_curvature_of_the_data_alone():
    pytest.importorskip("ivon")
    design = torch.randn(10, 3)
    data = (design, design.sum(1))
    options = {"prior": Normal(0.01), "recipe": SHORT, "steps": 1}
    posterior = fit_ivon(nn.Linear(3, 1, bias=False), data, Gaussian(OBS_STD), **options)
    exact = float((design.T @ design).diagonal().mean()) / OBS_STD**2 / 10
    assert posterior.plan["hessian_start"] == pytest.approx(exact, rel=0.8)  # by random signs; the prior's is 1,000


def test_a_noise_is_learned_along(rng):
    pytest.importorskip("ivon")
    inputs = torch.randn(200, 2, generator=rng)
    data = (inputs, inputs.sum(1) + OBS_STD * torch.randn(200, generator=rng))
    posterior = fit_ivon(nn.Linear(2, 1), data, Gaussian(), recipe=SHORT, steps=300)
    assert float(posterior.likelihood.obs_std()) == pytest.approx(OBS_STD, rel=0.15)


def test_steps_that_diverge_are_taken_again_at_a_lower_rate(rng):
    pytest.importorskip("ivon")
    inputs = torch.randn(50, 2, generator=rng)
    data, options = (inputs, inputs.sum(1)), {"recipe": SHORT, "steps": 200, "hessian_start": 1e-3}
    posterior = fit_ivon(nn.Linear(2, 1), data, Gaussian(OBS_STD), rate=0.1, **options)
    assert posterior.plan["rate"] == pytest.approx(0.1 / 3)
    assert posterior.plan["gradients"] == 100 + 2 * 200 + 2 * PROBES  # of the start and of both attempts
    assert bool(torch.isfinite(posterior.sampler.mean).all())
    with pytest.raises(FitError, match=r"fit_ivon: steps diverged at every rate down to 3.7e\+04"):
        fit_ivon(nn.Linear(2, 1), data, Gaussian(OBS_STD), rate=1e6, **options)


def test_priors_without_a_weight_decay_are_refused():
    pytest.importorskip("ivon")
    data = (torch.randn(8, 2), torch.randn(8))
    with pytest.raises(TypeError, match=r"fit_ivon: expected a livi.Normal prior, got Laplace"):
        fit_ivon(nn.Linear(2, 1), data, Gaussian(), prior=Laplace(1.0), recipe=SHORT)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ivon", None)
    with pytest.raises(ImportError, match=r'expected ivon, got no such package; install it: pip install "livi'):
        fit_ivon(nn.Linear(2, 1), (torch.randn(8, 2), torch.randn(8)), Gaussian())
