# ruff: noqa: ARG002 -- a family may leave unused what others need
"""A family of the user's own goes through the same fit, checkpoint, file, prediction and diagnosis as livi's."""

import math

import pytest
import torch
from torch import nn

import livi
from livi.family.entropy import Exact
from livi.family.family import Estimation
from livi.inference import Recipe

QUICK = Recipe(steps=60, map_steps=80, map_restarts=2, num_samples=8, num_entropy_samples=2)


class MeanField(livi.Family):
    def __init__(self, layout, log_std=-3.0):
        super().__init__(layout)
        self.mean = nn.Parameter(layout.flatten().clone())
        self.log_std = nn.Parameter(torch.full_like(self.mean, log_std))

    def draw(self, num_samples, rng=None, *, latents=None):
        eps = torch.randn(num_samples, self.num_params, generator=rng, dtype=self.mean.dtype)
        return livi.Draw(self.mean + self.log_std.exp() * eps)

    def entropy(self, draw, how):
        return livi.exactly(self.log_std.sum() + 0.5 * self.num_params * (1.0 + math.log(2.0 * math.pi)))

    def centre(self):
        return self.mean.detach()

    def begin_around(self, rows, spread, *, relative=False):
        with torch.no_grad():
            self.mean.copy_(rows[0])
            self.log_std.fill_(math.log(spread))


class Adversarial(MeanField):
    """Estimates KL(q || p) by a linear discriminator with an optimiser of its own."""

    def __init__(self, layout):
        super().__init__(layout)
        self.score = nn.Linear(2, 1)
        self.optimiser = torch.optim.SGD(self.score.parameters(), 1e-3, momentum=0.9)
        self.prepared = 0

    def rates(self):
        return livi.family.family.Rates([self.mean], [], [self.log_std])

    def prepare_step(self, prior, rng):
        self.prepared += 1
        with torch.no_grad():
            ours, theirs = self.draw(8, rng).theta, prior.sample(8, self.num_params, rng)
        loss = nn.functional.softplus(-self._ratio(ours)).mean() + nn.functional.softplus(self._ratio(theirs)).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def entropy(self, draw, how):
        self.score.requires_grad_(False)
        ratio = self._ratio(draw.theta).mean()
        self.score.requires_grad_(True)
        return livi.exactly(-ratio - livi.Normal(1.0).log_prob(draw.theta).mean())

    def _ratio(self, theta):
        return self.score(torch.stack([theta.mean(1), theta.square().mean(1)], 1))[:, 0]

    def get_extra_state(self):
        return {"optimiser": self.optimiser.state_dict(), "prepared": self.prepared}

    def set_extra_state(self, state):
        self.optimiser.load_state_dict(state["optimiser"])
        self.prepared = state["prepared"]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))


def rows():
    x = torch.linspace(-1, 1, 30)[:, None]
    return x, torch.sin(2 * x) + 0.1 * torch.randn(30, 1, generator=torch.Generator().manual_seed(1))


def quick_fit(family=MeanField, **options):
    options = {"recipe": QUICK, "progress": False, "family": family} | options
    return livi.fit(network(), rows(), livi.Gaussian(0.3), **options)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_family_is_fitted_and_predicts_like_any_posterior():
    posterior = quick_fit(recipe=Recipe(steps=500, map_steps=300, map_restarts=2, num_samples=16))
    assert type(posterior) is livi.Posterior
    assert posterior.plan["family"] == "MeanField"
    assert livi.metrics.rmse(posterior.predict(rows()[0]), rows()[1]) < 0.3
    one = posterior.predict(rows()[0], deterministic=True)
    torch.testing.assert_close(one.means[0], posterior.layout.apply(posterior.sampler.mean.detach(), rows()[0])[:, 0])
    assert repr(posterior) == "Posterior(MeanField, 13 weights of Sequential, Gaussian, 500 steps)"


def test_its_bound_is_that_of_a_mean_field_generator():
    """The same q written as a family and as an implicit posterior has the same terms."""
    layout = livi.Layout(network().double())
    family = MeanField(layout, -1.0).double()
    implicit = livi.ImplicitPosterior(
        layout, livi.rivals.Constant(13).double(), livi.DiagonalNoise(13, math.exp(-1.0)).double()
    )
    with torch.no_grad():
        implicit.generators[0].offset.copy_(family.mean)
    how = Estimation(Exact(), 4)
    ours, theirs = (q.entropy(q.draw(4), how) for q in (family, implicit))
    torch.testing.assert_close(ours[0].nats.mean(), theirs[0].nats.mean())
    x, y = (part.double() for part in rows())
    bounds = [
        livi.Bound(q, livi.Gaussian(0.3).double(), livi.Normal(1.0).double(), num_data=30, num_samples=4000)
        for q in (family, implicit)
    ]
    with torch.no_grad():
        a, b = (bound(x, y, torch.Generator().manual_seed(2)) for bound in bounds)
    assert abs(float(a.log_prior - b.log_prior)) < 0.3
    assert abs(float(a.log_likelihood / b.log_likelihood) - 1.0) < 0.1


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_it_is_saved_loaded_and_diagnosed(tmp_path):
    posterior = quick_fit()
    posterior.save(tmp_path / "q.livi")
    with pytest.raises(livi.StorageError, match="MeanField"):
        livi.load(tmp_path / "q.livi", network())
    again = livi.load(tmp_path / "q.livi", network(), classes=[MeanField])
    assert torch.equal(*(q.sample(3, torch.Generator().manual_seed(0)) for q in (again, posterior)))
    found = posterior.diagnose(*rows())
    entropy = float(posterior.sampler.entropy(posterior.sampler.draw(1), Estimation(Exact(), 1))[0].nats)
    assert found.bound.entropy.value == pytest.approx(entropy, abs=1e-3)
    assert math.isfinite(found.bound.bound.value)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_family_may_learn_with_an_optimiser_of_its_own_and_goes_on_from_a_checkpoint(tmp_path):
    whole = quick_fit(Adversarial)
    assert whole.sampler.prepared == QUICK.steps
    first = whole.sampler.score.weight.detach()
    assert not torch.equal(first, Adversarial(livi.Layout(network())).score.weight)
    path = tmp_path / "c.livi"

    class Stop(Exception):  # noqa: N818
        pass

    class Stopped(Adversarial):
        def prepare_step(self, prior, rng):
            if self.prepared == 35:
                raise Stop
            super().prepare_step(prior, rng)

    Stopped.__name__ = Stopped.__qualname__ = "Adversarial"
    with pytest.raises(Stop):
        quick_fit(Stopped, checkpoint=path, checkpoint_every=20)
    resumed = quick_fit(Adversarial, checkpoint=path, checkpoint_every=20)
    assert resumed.sampler.prepared == QUICK.steps
    for name, value in whole.sampler.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, resumed.sampler.state_dict()[name]), name


def test_what_the_family_decides_cannot_be_asked_for_beside_it():
    with pytest.raises(TypeError, match="generator, components: expected none beside family="):
        quick_fit(generator=livi.MLP.for_layout, components=2)
    with pytest.raises(ValueError, match="the family is one of the user's own"):
        quick_fit(last_layer="exact")
    assert "one of the user's own" in str(livi.plan(network(), rows(), livi.Gaussian(), family=MeanField))


def test_a_family_that_lacks_a_method_cannot_be_made():
    class Empty(livi.Family):
        def centre(self):
            return self.layout.flatten()

    with pytest.raises(TypeError, match=r"abstract.* begin_around.* draw.* entropy"):
        Empty(livi.Layout(network()))
