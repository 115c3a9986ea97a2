"""Subclasses of livi's likelihoods: what a fit sets of them leaves them what they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import livi
from livi.model.likelihoods import Normals, RegressionLikelihood
from livi.posterior.prediction import (
    ClassificationPrediction,
    DensityPrediction,
    DrawnPrediction,
    LogNormalPrediction,
    RegressionPrediction,
    prediction_of,
)
from livi.spec import build, known_classes, spec_of

B = 30
KINDS = {
    "Gaussian": (livi.Gaussian, 2, {}),
    "HeteroscedasticGaussian": (livi.HeteroscedasticGaussian, 4, {"learned": True}),
    "ContaminatedGaussian": (livi.ContaminatedGaussian, 4, {"share": 0.1}),
    "StudentT": (livi.StudentT, 2, {"learned_df": True}),
    "Poisson": (livi.Poisson, 2, {"unit": None}),
    "NegativeBinomial": (livi.NegativeBinomial, 2, {"unit": None}),
    "LogNormal": (livi.LogNormal, 2, {"unit": None}),
}
every_kind = pytest.mark.parametrize(("kind", "width", "options"), KINDS.values(), ids=KINDS.keys())


def sharper(kind):
    """A subclass with a constructor and a density of its own."""

    class Sharper(kind):
        def __init__(self, power, **others):
            super().__init__(**others)
            self.power = power

        def log_prob(self, outputs, targets):
            return self.power * super().log_prob(outputs, targets)

    return Sharper


def prices():
    """Of two outputs."""
    draws = torch.rand(B, 2, generator=torch.Generator().manual_seed(0)).double()
    return (torch.tensor([300.0, 50_000.0]) * (1.0 + draws)).round()


@every_kind
@pytest.mark.parametrize("way", ["started_from", "standardised"])
def test_a_subclass_stays_one(kind, width, options, way):
    own, targets = sharper(kind)(3.0, **options), prices()
    changed = getattr(own, way)(targets)
    usual = getattr(kind(**options), way)(targets)
    assert type(changed) is type(own)
    outputs = torch.randn(2, B, width)
    torch.testing.assert_close(changed.log_prob(outputs, targets), 3.0 * usual.log_prob(outputs, targets))
    assert {name: value.shape for name, value in changed.state_dict().items()} == {
        name: value.shape for name, value in usual.state_dict().items()
    }


@every_kind
def test_what_was_set_is_known_to_its_file(kind, width, options):
    own, targets = sharper(kind)(3.0, **options), prices()
    changed = own.standardised(targets).started_from(targets)
    again = build(spec_of(changed), known_classes([type(own)]))
    again.load_state_dict(changed.state_dict())
    outputs = torch.randn(2, B, width)
    assert torch.equal(again.log_prob(outputs, targets), changed.log_prob(outputs, targets))
    before = sharper(kind)(3.0, **options)
    assert own.state_dict().keys() == before.state_dict().keys()  # the user's own is as it was
    assert spec_of(own) == spec_of(before)


def test_a_fit_is_of_the_users_likelihood():
    x, y = torch.randn(B, 2), prices()
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    own = sharper(livi.Gaussian)(3.0)
    for targets in (y, (y - y.mean(0)) / y.std(0)):
        assert type(livi.Problem.of(net, (x, targets), own).likelihood) is type(own)
    kind = type("Counted", (livi.Weighted,), {})
    weighted = kind(own)
    assert type(weighted.started_from(y)) is type(weighted.standardised(y)) is type(weighted.for_map(y)) is kind


CLOSED = {
    "Gaussian": (livi.Gaussian, 2, RegressionPrediction),
    "HeteroscedasticGaussian": (livi.HeteroscedasticGaussian, 4, RegressionPrediction),
    "ContaminatedGaussian": (livi.ContaminatedGaussian, 4, RegressionPrediction),
    "LogNormal": (livi.LogNormal, 2, LogNormalPrediction),
}
every_closed = pytest.mark.parametrize(("kind", "width", "expected"), CLOSED.values(), ids=CLOSED.keys())


@every_closed
def test_a_plain_subclass_keeps_its_closed_form(kind, width, expected):
    class Named(kind):
        def title(self):
            return "a name"

    outputs, targets = torch.randn(3, B, width), prices() / 300.0
    own, usual = prediction_of(Named(), outputs), prediction_of(kind(), outputs)
    assert type(own) is type(usual) is expected
    assert torch.equal(own.log_prob(targets), usual.log_prob(targets))
    assert torch.equal(own.quantile(0.9), usual.quantile(0.9))


@every_closed
def test_a_subclass_with_a_density_of_its_own_is_predicted_with_by_that(kind, width, expected):
    outputs, targets = torch.randn(3, B, width), prices() / 300.0
    own = sharper(kind)(3.0)
    prediction = prediction_of(own, outputs)
    assert isinstance(prediction, DensityPrediction)
    each = own.log_prob(outputs, targets).logsumexp(0) - torch.tensor(3.0).log()
    torch.testing.assert_close(prediction.log_prob(targets), each)
    assert not isinstance(prediction, expected)
    changed = kind()
    changed.log_prob = own.log_prob  # of this one instance
    assert isinstance(prediction_of(changed, outputs), DensityPrediction)


@every_closed
def test_a_subclass_with_draws_of_its_own_has_their_quantiles(kind, width, expected):
    class Sevens(kind):
        def sample(self, outputs, rng=None):  # noqa: ARG002
            return torch.full_like(outputs[..., :2], 7.0)

    del expected
    prediction = prediction_of(Sevens(), torch.randn(3, B, width))
    assert type(prediction) is DrawnPrediction
    assert torch.equal(prediction.quantile(0.3), torch.full((B, 2), 7.0))


@every_closed
def test_a_subclass_with_moments_of_its_own_is_predicted_with_by_those(kind, width, expected):
    class Fivefold(kind):
        def moments(self, outputs):
            mean, std = super().moments(outputs)
            return 5.0 * mean, 5.0 * std

    del expected
    outputs = torch.randn(3, B, width)
    prediction, usual = prediction_of(Fivefold(), outputs), prediction_of(kind(), outputs)
    torch.testing.assert_close(prediction.mean, 5.0 * usual.mean)
    torch.testing.assert_close(prediction.total_std, 5.0 * usual.total_std)


def test_a_subclass_may_say_what_its_closed_form_is():
    class Doubled(RegressionLikelihood):
        """Normal with a deviation of 2, by a log_prob of its own."""

        def moments(self, outputs):
            return outputs, torch.tensor(2.0)

        def log_prob(self, outputs, targets):
            return torch.distributions.Normal(outputs.squeeze(-1), 2.0).log_prob(targets)

        def closed_form(self, outputs):
            return Normals(*self.moments(outputs))

    outputs, targets = torch.randn(3, B, 1), torch.randn(B)
    prediction = prediction_of(Doubled(), outputs)
    assert type(prediction) is RegressionPrediction
    each = Doubled().log_prob(outputs, targets).logsumexp(0) - torch.tensor(3.0).log()
    torch.testing.assert_close(prediction.log_prob(targets), each)


@pytest.mark.parametrize("kind", [livi.Categorical, livi.Bernoulli, livi.Multilabel])
def test_logits_are_those_of_a_plain_subclass_and_not_of_one_with_other_probabilities(kind):
    class Halved(kind):
        def probabilities(self, outputs):
            return super().probabilities(0.5 * outputs)

        def log_prob(self, outputs, targets):
            return super().log_prob(0.5 * outputs, targets)

    outputs = torch.randn(3, B, 4)
    outputs[0, 0] = torch.tensor([200.0, -200.0, 0.0, 1.0])  # whose logarithms probabilities round away
    plain = prediction_of(type("Named", (kind,), {})(), outputs)
    assert isinstance(plain, ClassificationPrediction)
    assert plain.exclusive == (kind is livi.Categorical)
    assert torch.equal(plain.logits, outputs)
    halved = prediction_of(Halved(), outputs[:, 1:])
    assert halved.exclusive == plain.exclusive
    torch.testing.assert_close(halved.samples, kind().probabilities(0.5 * outputs[:, 1:]))
