"""Networks that write over their inputs: the user's data stay as they are, and every weight vector sees them."""

import copy

import pytest
import torch
from support.samplers import x_for
from torch import nn

import livi
from livi import Layout, Loop, Vmap, apply_many


class Shifts(nn.Module):
    """Works on its input in place, by hand."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x, scale=None):
        x -= 0.5
        if scale is not None:
            scale.mul_(2.0)
            x = x * scale[:, None]
        return self.layer(x)


def sequential(first):
    return nn.Sequential(first, nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))


NETWORKS = {
    "linear layers": lambda: sequential(nn.LeakyReLU(0.5, inplace=True)),
    "no linear layers alone": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 1)), nn.Flatten(), sequential(nn.ELU(2.0, True))
    ),
    "by hand": Shifts,
}


@pytest.fixture(params=NETWORKS)
def net(request):
    return NETWORKS[request.param]()


def test_inputs_stay_as_they_are_and_all_weights_see_them(net):
    layout, x = Layout(net), x_for(5, 3)
    theta = layout.flatten() + torch.randn(4, layout.num_params)
    kept = x.clone()
    expected = torch.stack([copy.deepcopy(layout).apply(row, x.clone()) for row in theta])
    for _ in range(2):
        for strategy in (None, Vmap(), Loop()):
            torch.testing.assert_close(apply_many(layout, theta, x, strategy=strategy), expected)
        torch.testing.assert_close(layout.apply(theta[0], x), expected[0])
        assert torch.equal(x, kept)


def test_inputs_with_a_gradient_may_be_written_over_too(net):
    layout, x = Layout(net), x_for(5, 3).requires_grad_()
    theta = layout.flatten() + torch.randn(4, layout.num_params)
    for strategy in (None, Loop()):
        assert torch.autograd.grad(apply_many(layout, theta, x, strategy=strategy).sum(), x)[0].any()


def test_named_inputs_stay_as_they_are():
    layout, inputs = Layout(Shifts()), {"x": x_for(5, 3), "scale": x_for(5)}
    kept = copy.deepcopy(inputs)
    first = layout.apply(layout.flatten(), **inputs)
    torch.testing.assert_close(layout.apply(layout.flatten(), **inputs), first)
    assert all(torch.equal(inputs[name], kept[name]) for name in inputs)


def test_inputs_are_copied_only_where_they_would_be_written_over():
    seen = []

    class Seeing(nn.Linear):
        def forward(self, x):
            seen.append(x.data_ptr())
            return super().forward(x)

    layout, x = Layout(Seeing(3, 1)), x_for(5, 3)
    for _ in range(3):
        layout.apply(layout.flatten(), x)
    assert [place == x.data_ptr() for place in seen] == [False, True, True]


@pytest.mark.parametrize("last_layer", ["sampled", "exact"])
@pytest.mark.parametrize("name", ["linear layers", "no linear layers alone"])
def test_a_fit_and_its_predictions_leave_the_data_alone(name, last_layer):
    x = x_for(30, 3)
    y, kept = x.sum(1), x.clone()
    recipe = livi.Recipe(steps=3, map_steps=3, map_restarts=2, num_samples=4)
    options = {"last_layer": last_layer, "recipe": recipe, "progress": False, "standardise": False}
    posterior = livi.fit(NETWORKS[name](), (x, y), livi.Gaussian(0.3), **options)
    first = posterior.predict(x).means
    posterior.functions(3)(x)
    posterior.diagnose(x, y, num_samples=8)
    torch.testing.assert_close(posterior.predict(x).means, first, rtol=0, atol=0)
    assert torch.equal(x, kept)
