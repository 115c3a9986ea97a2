"""The fixed part of a network, computed once: the same posterior, and which fits it is for."""

from __future__ import annotations

import pytest
import torch
from support.networks import assert_unchanged, snapshot
from torch import Tensor, nn

import livi
from livi.inference import plans
from livi.model.features import Features
from livi.network.entered import Entered

SHORT = livi.Recipe(steps=20, num_samples=4)


class Residual(nn.Module):
    """Convolutions with BatchNorm and dropout before a head of one or two layers."""

    def __init__(self, head: nn.Module | None = None) -> None:
        super().__init__()
        self.stem, self.norm, self.drop = nn.Conv2d(1, 6, 3, 2), nn.BatchNorm2d(6), nn.Dropout(0.5)
        self.fc = head or nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.drop(torch.relu(self.norm(self.stem(x))).mean((2, 3))))


class Added(Residual):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.mean()


class Clamped(Residual):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(-50.0, 50.0)


class Twice(Residual):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(super().forward(x))


class Centred(Residual):
    """An example's features depend on the other examples."""

    def forward(self, x: Tensor) -> Tensor:
        features = self.norm(self.stem(x)).mean((2, 3))
        return self.fc(features - features.mean(0))


class Overwriting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.mul_(2.0)))


class Tied(nn.Module):
    """The head's weights are the first layer's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.between, self.fc = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.fc.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.between(torch.relu(self.first(x))))


def pictures(rng: torch.Generator, count: int = 40) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 1, 8, 8, generator=rng), torch.randint(3, (count,), generator=rng)


def planned(net: nn.Module, data: object, include: str = "fc.*", **options: object) -> plans.Plan:
    return livi.plan(net, data, livi.Categorical(), include=include, start="net", recipe=SHORT, **options)


@pytest.mark.parametrize("start", ["net", "map"])
@pytest.mark.parametrize("head", [None, nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))])
def test_the_posterior_is_that_of_the_whole_network(head, start, rng, monkeypatch):
    net, (x, y) = Residual(head).double(), pictures(rng)
    before = snapshot(net)
    options = {"include": "fc.*", "start": start, "batch_size": 16, "progress": False, "validation": (x.double(), y)}
    recipe = livi.Recipe(steps=20, map_steps=20 * (start == "map"), num_samples=4)
    once = livi.fit(net, (x.double(), y), livi.Categorical(), recipe=recipe, **options)
    monkeypatch.setattr(plans, "on_features", lambda problem: problem)
    every = livi.fit(net, (x.double(), y), livi.Categorical(), recipe=recipe, **options)
    draws = [posterior.sample(5, torch.Generator().manual_seed(0)) for posterior in (once, every)]
    torch.testing.assert_close(*draws)
    torch.testing.assert_close(once.predict(x.double()).probabilities, every.predict(x.double()).probabilities)
    same = ("inputs", "first_batch", "num_data", "steps_per_epoch", "recipe", "network")
    assert {name: once.plan[name] for name in same} == {name: every.plan[name] for name in same}
    assert_unchanged(net, before)


def test_every_step_takes_the_features_of_its_own_examples(rng):
    net, (x, y) = Residual(), pictures(rng)
    made = planned(net, (x, y), batch_size=16)
    assert isinstance(made.data, Features)
    theta = made.layout.flatten() + 1.0
    pairs = list(zip(made.data.epoch(3), made.data.original.epoch(3), strict=True))
    assert len(pairs) == 3
    for (entered, targets), (inputs, same) in pairs:
        assert isinstance(entered, Entered)
        assert torch.equal(targets, same)
        torch.testing.assert_close(made.layout.apply(theta, entered), made.layout.apply(theta, inputs))


def test_inputs_may_be_several_and_scaled(rng):
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.fc = nn.Linear(3, 4), nn.Linear(4, 3)

        def forward(self, one: Tensor, other: Tensor) -> Tensor:
            return self.fc(torch.tanh(self.body(one) * other))

    x, y = (torch.randn(30, 3, generator=rng), torch.randn(30, 1, generator=rng)), torch.arange(30) % 3
    assert isinstance(planned(Two(), (x, y)).data, Features)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    scaling = livi.network.InputScaling(torch.full((3,), 5.0), torch.full((3,), 2.0))
    scaled = livi.Layout(net, include="2.*", scaling=scaling)
    entered = Entered("2", torch.tanh(net[0]((x[0] - 5.0) / 2.0)).detach())
    torch.testing.assert_close(scaled.apply(scaled.flatten(), entered), scaled.apply(scaled.flatten(), x[0]))


@pytest.mark.parametrize(
    "net",
    [Added(), Clamped(), Twice(nn.Linear(6, 6)), Centred(), Residual(Overwriting())],
    ids=["added", "clamped", "twice", "centred", "overwriting"],
)
def test_the_inputs_are_kept_where_the_rest_is_not_a_function_of_features_alone(net, rng):
    assert not isinstance(planned(net, pictures(rng)).data, Features)


def test_the_inputs_are_kept_where_they_are_needed(rng, monkeypatch):
    net, data = Residual(), pictures(rng)
    for include in ("*", "stem.*", ("fc.*", "norm.*")):
        assert not isinstance(planned(net, data, include).data, Features)
    assert not isinstance(planned(net, data, augment=lambda x, _: x).data, Features)
    assert not isinstance(planned(net, data, autocast=torch.bfloat16).data, Features)
    assert not isinstance(planned(net, data, polish=True).data, Features)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=20)
    assert not isinstance(planned(net, loader).data, Features)
    rows = (torch.randn(30, 4, generator=rng), torch.arange(30) % 4)
    assert not isinstance(planned(Tied(), rows).data, Features)
    assert isinstance(planned(net, data).data, Features)
    monkeypatch.setattr("livi.model.features.MOST", 0)
    assert isinstance(planned(net, data).data, Features)  # six numbers an example instead of 64
    few = (data[0][..., :1, :1], data[1])
    monkeypatch.setattr(net.stem, "kernel_size", (1, 1))
    net.stem.weight = nn.Parameter(net.stem.weight[..., :1, :1].detach())
    assert not isinstance(planned(net, few).data, Features)  # instead of one
