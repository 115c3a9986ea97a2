"""Which networks and data have a last layer that can be integrated out, and what is said of the others."""

import pickle
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

import livi
from livi.family.last_layer import ExactLastLayer, NotExactError, earlier_layout, find_last
from livi.inference import Recipe
from livi.network import as_call

QUICK = Recipe(steps=40, map_steps=40, map_restarts=2, num_samples=8, num_entropy_samples=2)


def data(count=20):
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, generator=rng, dtype=torch.float64)
    return x, torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(count, generator=rng, dtype=torch.float64)


def planned(net, rows=None, likelihood=None, **options):
    return livi.plan(net, rows or data(), likelihood or livi.Gaussian(0.2), **{"recipe": QUICK} | options)


def sequential(*layers, outputs=1):
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, outputs), *layers)


class Headed(nn.Module):
    """The last layer is not the last one defined, and activations are functions."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3, 1)
        self.body = nn.ModuleDict({"first": nn.Linear(2, 3)})

    def features(self, x):
        return torch.relu(self.body["first"](x))

    def forward(self, x):
        return self.last(self.features(x))


class Squeezed(Headed):
    def forward(self, x):
        return super().forward(x).squeeze(-1)


class ByKeyword(Headed):
    def forward(self, x):
        return self.last(input=self.features(x))


class Pair(Headed):
    def forward(self, left, right):
        return super().forward(torch.stack([left, right], 1))


class Shifted(Headed):
    """After the layer, in place: the output is the very tensor that the layer made."""

    def forward(self, x):
        out = super().forward(x)
        out += 3.0 * x[:, :1]
        return out


class Scaled(Headed):
    def forward(self, x):
        return 2.0 * super().forward(x)


class Capped(Headed):
    def forward(self, x):
        return super().forward(x).clamp(-30.0, 30.0)


class Penalised(Headed):
    """The last layer's weights are used twice."""

    def features(self, x):
        return super().features(x) * (1.0 + self.last.weight.norm())


class EvenlyPenalised(Headed):
    """The same, in a way that a change of sign does not show."""

    def features(self, x):
        return super().features(x) + self.last.bias.square()


class Random(Headed):
    def features(self, x):
        return nn.functional.dropout(super().features(x), 0.5, training=True)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Pairwise(Headed):
    """(B, 2, 1) outputs: the layer runs along an axis of its own."""

    def __init__(self):
        super().__init__()
        self.body = nn.ModuleDict({"first": nn.Linear(1, 3)})

    def forward(self, x):
        return super().forward(x[:, :, None])


class Fragile(Headed):
    def forward(self, x):
        if bool(self.last.weight.abs().max() > 5.0):
            raise RuntimeError("such weights are refused")
        return super().forward(x)


class Delicate(Headed):
    def forward(self, x):
        return super().forward(x) + 0.0 * self.body["first"].weight.min().log()


class Named(Headed):
    def forward(self, x):
        return {"mean": super().forward(x)}


def hooked(target):
    net = sequential()
    net.get_submodule(target).register_forward_hook(lambda *call: 2.0 * call[-1])
    return net


# --- networks -------------------------------------------------------------------------------------

FOUND = {
    "a plain one": (sequential, "2"),
    "a head defined first": (Headed, "last"),
    "a squeezed output": (Squeezed, "last"),
    "an input by keyword": (ByKeyword, "last"),
    "a flattened output": (lambda: sequential(nn.Unflatten(1, (2, 2)), outputs=4), "2"),
    "dropout": (lambda: nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1)), "2"),
}
AFTER = "something comes after"
REFUSED = {
    "a residual in place": (Shifted, AFTER),
    "a factor": (Scaled, AFTER),
    "a far cap": (Capped, AFTER),
    "an activation": (lambda: sequential(nn.Tanh()), AFTER),
    "an activation in place": (lambda: sequential(nn.ReLU(inplace=True)), AFTER),
    "a hook of the network": (lambda: hooked(""), AFTER),
    "a hook of the layer": (lambda: hooked("2"), AFTER),
    "weights used elsewhere": (Penalised, "the weights of 'last' are used elsewhere too"),
    "weights used elsewhere, evenly": (EvenlyPenalised, "the weights of 'last' are used elsewhere too"),
    "a random network": (Random, "or the network is random"),
    "a layer that runs twice": (Twice, "'layer', an nn.Linear, runs 2 times"),
    "tied weights": (Tied, "'last.weight' is tied to|'first.weight' is tied to|is not stochastic"),
    "a layer along an axis": (Pairwise, r"'last' takes inputs of shape \(20, 2, 3\), not one row per example"),
    "an error at other weights": (Fragile, "fails at other weights, with RuntimeError: such weights are refused"),
    "an output that is not finite": (Delicate, "output is not finite at other weights"),
    "a dict of outputs": (Named, "the network returns a dict, not one tensor"),
    "nothing before it": (lambda: nn.Linear(2, 1), "no stochastic weights come before"),
    "no bias": (lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1, bias=False)), "'1', an nn.Linear, has no bias"),
    "BatchNorm": (lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)), "BatchNorm"),
    "no linear layer": (lambda: nn.Bilinear(1, 1, 1), "no nn.Linear"),
}


def made(make):
    torch.manual_seed(0)
    return make()


@pytest.mark.parametrize(("make", "name"), FOUND.values(), ids=FOUND.keys())
def test_the_last_layer_is_found_where_it_is_the_last(make, name):
    net, (x, _) = made(make), data()
    layout = livi.Layout(net)
    state = torch.get_rng_state()
    assert find_last(layout, x) == name
    assert torch.equal(torch.get_rng_state(), state)
    layer, earlier = net.get_submodule(name), earlier_layout(layout, name)
    assert earlier.num_params == layout.num_params - sum(p.numel() for p in layer.parameters())
    theta = torch.stack([earlier.flatten(), 2 * earlier.flatten()])
    for strategy in (livi.Vmap(), livi.Loop()):
        features = livi.apply_many(earlier, theta, x, strategy=strategy)
        torch.testing.assert_close(layer(features[0]).reshape(net.eval()(x).shape), net(x))
    assert torch.equal(pickle.loads(pickle.dumps(earlier.forward))(net, x), features[0])
    assert not layer._forward_pre_hooks  # the module is as it was


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_a_last_layer_is_refused_with_the_reason(make, reason):
    net, (x, _) = made(make), data()
    inputs = (x[:, :1], x[:, 1:]) if isinstance(net, nn.Bilinear) else x
    with pytest.raises(NotExactError, match=reason):
        find_last(livi.Layout(net), inputs)


def test_all_of_its_weights_must_be_stochastic_and_others_before_it():
    net, (x, _) = sequential(), data()
    for options, reason in (
        ({"exclude": "2.bias"}, "'2.bias' is not stochastic"),
        ({"include": "2.*"}, "no stochastic weights come before"),
    ):
        with pytest.raises(NotExactError, match=reason):
            find_last(livi.Layout(net, **options), x)
    assert find_last(livi.Layout(net, exclude="0.bias"), x) == "2"


def test_weights_that_do_not_come_before_it_are_not_enough():
    class Beside(Headed):
        def forward(self, x):
            with torch.no_grad():
                features = self.features(x)
            return self.last(features)

    with pytest.raises(NotExactError, match="does not depend on other stochastic weights"):
        find_last(livi.Layout(Beside()), data()[0])


class TwoHeads(Headed):
    """A mean, and beside it a raw scale that does not depend on it."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(2, 1)

    def forward(self, x):
        return torch.cat([super().forward(x), self.scale(x)], 1)


class Entangled(TwoHeads):
    def forward(self, x):
        mean = Headed.forward(self, x)
        return torch.cat([mean, self.scale(x) + mean], 1)


class Narrow(TwoHeads):
    def forward(self, x):
        mean = Headed.forward(self, x)
        return torch.cat([mean, self.scale(torch.cat([mean, mean], 1))], 1)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Entangled, "used elsewhere too"),
        (Narrow, "used elsewhere too|something comes after"),
        (lambda: sequential(outputs=2), "'2' gives the raw scales of the noise too, along with the means"),
    ],
)
def test_the_layer_of_the_mean_is_found_only_beside_a_scale_of_its_own(make, reason):
    layout, (x, _) = livi.Layout(made(TwoHeads)), data()
    assert find_last(layout, x, beside=True) == "last"
    with pytest.raises(NotExactError):
        find_last(layout, x)
    features = earlier_layout(layout, "last", beside=True).apply(layout.flatten()[4:], x)
    torch.testing.assert_close(layout.module.last(features[:, :-1]), layout.module(x)[:, :1])
    torch.testing.assert_close(features[:, -1:], layout.module(x)[:, 1:])
    with pytest.raises(NotExactError, match=reason):
        find_last(livi.Layout(made(make)), x, beside=True)


# --- plans ----------------------------------------------------------------------------------------


def test_the_plan_says_why_the_last_layer_is_sampled():
    plan = planned(made(Shifted))
    reason = "the output is not that of an nn.Linear: something comes after 'last', or beside it"
    assert plan.problem.integrated is None
    assert f"last layer  sampled: {reason}" in str(plan)
    assert plan.summary()["last_layer_reason"] == reason
    assert "last layer  sampled: as asked" in str(planned(sequential(), last_layer="sampled"))
    assert "sampled" not in str(planned(sequential()))


def test_a_residual_in_place_is_learned_all_the_same():
    x, _ = data(60)
    y = 3.0 * x[:, 0] + torch.tanh(x[:, 1])
    recipe = replace(QUICK, steps=300, map_steps=600, map_restarts=4)
    posterior = livi.fit(made(Shifted), (x, y), livi.Gaussian(0.1), recipe=recipe, progress=False)
    assert livi.posterior.metrics.rmse(posterior.predict(x), y) < 0.15


@pytest.mark.parametrize("last_layer", ["exact if possible", "sampled"])
@pytest.mark.parametrize(
    ("outputs", "targets", "likelihood"),
    [
        (3, torch.zeros(20), livi.Gaussian()),
        (3, torch.zeros(20, 2), livi.Gaussian()),
        (3, torch.zeros(20, 3), livi.HeteroscedasticGaussian()),
        (3, torch.zeros(20), livi.Bernoulli()),
        (3, torch.full((20,), 3), livi.Categorical()),
        (2, torch.zeros(20, 2), livi.Gaussian([0.1, 0.2, 0.3])),
    ],
)
def test_outputs_are_checked_against_targets_before_anything_else(
    outputs, targets, likelihood, last_layer, monkeypatch
):
    monkeypatch.setattr(sys.modules["livi.inference.planning"], "integrate_last_layer", None)
    with pytest.raises(ValueError, match=r"outputs: expected|targets: expected"):
        planned(sequential(outputs=outputs), (data()[0], targets), likelihood, last_layer=last_layer)


# --- several inputs, and batches ------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tuple, dict])
def test_several_inputs_are_fitted_saved_and_diagnosed(kind, tmp_path):
    x, y = data()
    inputs = (x[:, 0], x[:, 1]) if kind is tuple else {"right": x[:, 1], "left": x[:, 0]}
    posterior = livi.fit(made(Pair), (inputs, y), livi.Gaussian(0.2), recipe=QUICK, progress=False)
    assert isinstance(posterior.sampler, ExactLastLayer)
    posterior.save(tmp_path / "p.livi")
    for again in (livi.load(tmp_path / "p.livi", Pair()), pickle.loads(pickle.dumps(posterior))):
        draws = [each.sample(5, torch.Generator().manual_seed(0)) for each in (posterior, again)]
        assert torch.equal(*draws)
        found = again.sampler.all_inputs()
        assert as_call(found)[1].keys() == as_call(inputs)[1].keys()
    assert "verdict" in str(again.diagnose(inputs, y, num_samples=16)).lower()
    one = livi.fit(made(Headed), (x, y), livi.Gaussian(0.2), recipe=QUICK, progress=False)
    torch.testing.assert_close(posterior.predict(inputs).mean, one.predict(x).mean, rtol=0.2, atol=0.2)


class Augmented(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index] + torch.randn(2), self.y[index]


def batches(count=20, size=7):
    return [(x, y) for x, y in zip(*(part.split(size) for part in data(count)), strict=True)]


@pytest.mark.parametrize(
    "rows",
    [
        batches(),
        DataLoader(TensorDataset(*data()), 7, shuffle=True),
        DataLoader(TensorDataset(*data()), 7, shuffle=True, generator=torch.Generator()),
        TensorDataset(*data()),
        torch.utils.data.Subset(TensorDataset(*data(40)), range(20)),
    ],
    ids=["list", "DataLoader", "generator", "TensorDataset", "Subset"],
)
def test_batches_are_put_together(rows):
    plan = planned(made(sequential), rows)
    assert plan.problem.integrated is not None
    inputs, targets = plan.data.first()
    x, y = data(20) if not isinstance(rows, torch.utils.data.Subset) else (part[:20] for part in data(40))
    order, expected = targets.argsort(), y.argsort()
    assert torch.equal(targets[order], y[expected])
    assert torch.equal(inputs[order], x[expected])
    again = planned(made(sequential), rows)
    assert torch.equal(again.data.first()[0], inputs)  # in one order, however it is shuffled
    if isinstance(rows, list):
        assert torch.equal(inputs, x)


class Uneven:
    """Batches that differ in more than their examples."""

    def __iter__(self):
        yield data(4)[0][:, :, None], torch.zeros(4)
        yield data(4)[0][:, :, None].repeat(1, 1, 2), torch.zeros(4)


@pytest.mark.parametrize(
    ("rows", "options", "reason"),
    [
        (DataLoader(Augmented(*data()), 7), {}, "another epoch hold other examples, as with augmentation"),
        (
            DataLoader(TensorDataset(*data()), 7, sampler=RandomSampler(range(20), replacement=True)),
            {},
            "another epoch hold other examples, as with augmentation or resampling",
        ),
        (DataLoader(TensorDataset(*data()), 7, drop_last=True), {}, "an epoch has 14 of 20 examples"),
        (batches(), {"num_data": 100}, "an epoch has 20 of 100 examples"),
        (batches(), {"num_data": 20_001}, "there are 20,001 examples, more than 20,000"),
        ([((x, x[:, 0].sum()), y) for x, y in batches()], {}, r"a tensor of shape \(\), not a row per example"),
        ([((x, "word"), y) for x, y in batches()], {}, "a str, not a row per example"),
        (Uneven(), {}, "the batches are of several shapes"),
    ],
    ids=["augmented", "resampled", "dropped", "more", "many", "scalar", "word", "uneven"],
)
def test_batches_that_are_not_all_of_the_data_are_refused(rows, options, reason):
    forward = lambda net, x, *_: net(x.flatten(1)[:, :2])  # noqa: E731
    plan = planned(made(sequential), rows, forward=forward, **options)
    assert plan.problem.integrated is None
    assert reason in plan.summary()["last_layer_reason"].replace("(", r"\(").replace(")", r"\)")


def test_batches_that_do_not_fit_in_memory_are_not_read(monkeypatch):
    monkeypatch.setattr("livi.model.data.gather.MEMORY", 400)
    monkeypatch.setattr("livi.family.last_layer.problem.gathered", None)
    assert "all batches together are" in planned(made(sequential), batches()).summary()["last_layer_reason"]


def test_a_forward_of_ones_own_is_integrated_over_too(tmp_path):
    def forward(net, x):
        return net(x)["mean"]

    posterior = livi.fit(made(Named), data(), livi.Gaussian(0.2), forward=forward, recipe=QUICK, progress=False)
    assert isinstance(posterior.sampler, ExactLastLayer)
    posterior.save(tmp_path / "p.livi")
    again = livi.load(tmp_path / "p.livi", Named(), forward=forward)
    assert torch.equal(*(each.sample(3, torch.Generator().manual_seed(0)) for each in (posterior, again)))
