"""Which networks have a last layer that can be integrated out, and what is said of the others."""

import pickle

import pytest
import torch
from support.last_layers import Headed, Named, Scaled, Shifted, TwoHeads, data, made, sequential
from torch import nn

import livi
from livi.family.last_layer import NotExactError, earlier_layout, find_last


class Squeezed(Headed):
    def forward(self, x):
        return super().forward(x).squeeze(-1)


class ByKeyword(Headed):
    def forward(self, x):
        return self.last(input=self.features(x))


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


def hooked(target):
    net = sequential()
    net.get_submodule(target).register_forward_hook(lambda *call: 2.0 * call[-1])
    return net


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
    "BatchNorm that keeps no statistics": (
        lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 1)),
        "BatchNorm",
    ),
    "no linear layer": (lambda: nn.Bilinear(1, 1, 1), "no nn.Linear"),
}


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
