"""Any likelihood: shapes, functions, specifications, and what is said before a fit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import distributions

import livi
from livi.model.likelihoods import Likelihood
from livi.spec import build, known_classes, spec_of

S, B = 3, 4


# --- any likelihood -------------------------------------------------------------------------------

LIKELIHOODS = {
    "Gaussian": (lambda: livi.Gaussian(0.5), (S, B, 2), lambda: torch.randn(B, 2)),
    "learned Gaussian": (lambda: livi.Gaussian(), (S, B, 2), lambda: torch.randn(B, 2)),
    "HeteroscedasticGaussian": (lambda: livi.HeteroscedasticGaussian(), (S, B, 4), lambda: torch.randn(B, 2)),
    "ContaminatedGaussian": (lambda: livi.ContaminatedGaussian(0.1), (S, B, 4), lambda: torch.randn(B, 2)),
    "Poisson": (lambda: livi.Poisson(unit=2.0), (S, B, 2), lambda: torch.randint(0, 5, (B, 2))),
    "NegativeBinomial": (lambda: livi.NegativeBinomial(), (S, B, 2), lambda: torch.randint(0, 5, (B, 2))),
    "StudentT": (lambda: livi.StudentT(learned_df=True), (S, B, 2), lambda: torch.randn(B, 2)),
    "LogNormal": (lambda: livi.LogNormal(), (S, B, 2), lambda: torch.rand(B, 2) + 0.1),
    "Bernoulli": (lambda: livi.Bernoulli(), (S, B), lambda: torch.randint(0, 2, (B,))),
    "Multilabel": (lambda: livi.Multilabel(), (S, B, 3), lambda: torch.randint(0, 2, (B, 3))),
    "Categorical": (lambda: livi.Categorical(), (S, B, 3), lambda: torch.randint(0, 3, (B,))),
}
every_likelihood = pytest.mark.parametrize(("build", "shape", "draw"), LIKELIHOODS.values(), ids=LIKELIHOODS.keys())


@every_likelihood
def test_samples_and_examples_do_not_mix(build, shape, draw):
    likelihood, outputs, targets = build(), torch.randn(shape), draw()
    found = likelihood.log_prob(outputs, targets)
    assert found.shape == (S, B)
    for s in range(S):
        for b in range(B):
            single = likelihood.log_prob(outputs[s : s + 1, b : b + 1], targets[b : b + 1])
            torch.testing.assert_close(found[s : s + 1, b : b + 1], single)


@every_likelihood
def test_gradients_agree_with_differences(build, shape, draw):
    likelihood, targets = build(), draw()
    outputs = torch.randn(shape, requires_grad=True)
    assert torch.autograd.gradcheck(lambda outputs: likelihood.log_prob(outputs, targets), (outputs,))


@every_likelihood
def test_single_precision_outputs_give_single_precision_values(build, shape, draw):
    likelihood, targets = build().float(), draw()
    targets = targets.float() if targets.is_floating_point() else targets
    assert likelihood.log_prob(torch.randn(shape, dtype=torch.float32), targets).dtype == torch.float32


def test_users_function_gets_the_modules_outputs_as_they_are():
    outputs = {"rate": torch.rand(S, B), "unused": (torch.zeros(S, 2),)}
    counts = torch.tensor([0.0, 1.0, 2.0, 5.0])
    likelihood = livi.FunctionLikelihood(lambda out, y: distributions.Poisson(out["rate"]).log_prob(y.expand(S, B)))
    expected = distributions.Poisson(outputs["rate"]).log_prob(counts.expand(S, B))
    torch.testing.assert_close(likelihood.log_prob(outputs, counts), expected)


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda out, _: out.sum(), r"\(\)"),
        (lambda out, _: out.mean(0), r"\(4,\)"),
        (lambda out, _: out[..., None], r"\(3, 4, 1\)"),
        (lambda _out, _targets: 1.0, "float"),
    ],
)
def test_users_function_of_another_shape_is_an_error(function, got):
    with pytest.raises(ValueError, match=rf"log_prob: expected shape \(num_samples, batch\), got {got}"):
        livi.FunctionLikelihood(function).log_prob(torch.zeros(S, B), torch.zeros(B))


def test_base_class_has_no_density():
    with pytest.raises(NotImplementedError):
        Likelihood().log_prob(torch.zeros(S, B), torch.zeros(B))


# --- before a fit ---------------------------------------------------------------------------------


def test_a_learned_noise_starts_at_the_spread_of_the_targets():
    before = livi.Gaussian()
    likelihood = before.started_from(torch.tensor([1.0, 3.0, 5.0]))
    torch.testing.assert_close(likelihood.obs_std().detach(), torch.tensor(2.0))
    assert likelihood.log_std.requires_grad
    assert before.obs_std().item() == 1.0


def test_each_of_several_outputs_starts_at_the_spread_of_its_own_targets():
    targets = torch.tensor([[100.0, 3.0, 7.0], [102.0, 5.0, 7.0], [104.0, 7.0, 7.0]]) * torch.tensor([1.0, 2.0, 1.0])
    likelihood = livi.Gaussian().started_from(targets)
    torch.testing.assert_close(likelihood.obs_std().detach(), torch.tensor([2.0, 4.0, 1.0]))
    assert likelihood.log_std.requires_grad
    again = build(spec_of(likelihood), known_classes())
    again.load_state_dict(likelihood.state_dict())
    assert torch.equal(again.obs_std(), likelihood.obs_std())


@pytest.mark.parametrize("shape", [(3, 1), (3, 2, 2)])
def test_other_targets_share_one_noise(shape):
    targets = torch.tensor([1.0, 3.0, 5.0]).reshape(3, *[1] * (len(shape) - 1)).expand(shape)
    likelihood = livi.Gaussian().started_from(targets)
    torch.testing.assert_close(likelihood.obs_std().detach(), torch.tensor(2.0))


@pytest.mark.parametrize("targets", [torch.ones(5), torch.ones(1), torch.ones(0), torch.tensor([1, 1])])
def test_targets_without_a_spread_leave_the_noise_as_it_was(targets):
    assert livi.Gaussian().started_from(targets).obs_std().item() == 1.0


@pytest.mark.parametrize(
    ("likelihood", "expected"),
    [(livi.Gaussian(1.0, learned=True), 1.0), (livi.Gaussian(0.5, learned=True), 0.5), (livi.Gaussian(0.5), 0.5)],
)
def test_a_given_noise_stays_as_given(likelihood, expected):
    assert likelihood.started_from(torch.tensor([1.0, 3.0, 5.0])) is likelihood
    assert likelihood.obs_std().item() == pytest.approx(expected)


@pytest.mark.parametrize("columns", [(3,), (3, 2)])
def test_a_noise_learned_before_is_kept(columns):
    first, second = (torch.randn(columns) * scale for scale in (1.0, 10.0))
    likelihood = livi.Gaussian().started_from(first)
    assert likelihood.started_from(second) is likelihood


def test_the_lower_limit_of_a_learned_noise_is_a_tenth_of_it():
    likelihood = livi.Gaussian(0.5, learned=True)
    [(parameter, limit)] = likelihood.lower_limits()
    assert parameter is likelihood.log_std
    assert math.exp(limit) == pytest.approx(0.05)


def test_each_learned_noise_has_its_own_lower_limit():
    likelihood = livi.Gaussian([0.5, 2.0], learned=True)
    [(parameter, limit)] = likelihood.lower_limits()
    assert parameter is likelihood.log_std
    torch.testing.assert_close(limit.exp(), torch.tensor([0.05, 0.2]))


@pytest.mark.parametrize(
    "likelihood", [livi.Gaussian(0.5), livi.HeteroscedasticGaussian(), livi.Bernoulli(), livi.Categorical()]
)
def test_other_likelihoods_have_no_limits_and_start_from_nothing(likelihood):
    before = {name: value.clone() for name, value in likelihood.state_dict().items()}
    assert likelihood.started_from(torch.tensor([1, 0, 1])) is likelihood
    assert likelihood.lower_limits() == []
    assert likelihood.state_dict() == before


def test_a_wrapper_can_pass_both_on():
    class Tempered(Likelihood):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def started_from(self, targets):
            return Tempered(self.inner.started_from(targets))

        def lower_limits(self):
            return self.inner.lower_limits()

    likelihood = Tempered(livi.Gaussian()).started_from(torch.tensor([1.0, 3.0, 5.0]))
    [(parameter, limit)] = likelihood.lower_limits()
    assert parameter is likelihood.inner.log_std
    assert math.exp(limit) == pytest.approx(0.2)
