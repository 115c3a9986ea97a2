"""Subclasses of livi's likelihoods: what a fit sets of them leaves them what they are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import livi
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
