"""Inputs that a network does not take are answered with what was expected, what came, and what to do."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi

BRIEF = livi.Recipe(steps=3, map_steps=3, map_restarts=1, num_samples=2, num_entropy_samples=1)


def fitted(net, data, likelihood, **options):
    return livi.fit(net, data, likelihood, recipe=BRIEF, progress=False, **options)


@pytest.fixture(scope="module", params=["sampled", "exact", "loaded"])
def regression(request, tmp_path_factory):
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    how = "sampled" if request.param == "loaded" else request.param
    posterior = fitted(net, (x, x[:, 0]), livi.Gaussian(), last_layer=how)
    if request.param == "loaded":
        path = tmp_path_factory.mktemp("saved") / "posterior.livi"
        posterior.save(path)
        posterior = livi.load(path, net)
    return posterior


@pytest.fixture(scope="module")
def pictures():
    x = torch.randn(12, 1, 6, 5, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(24, 2))
    return fitted(net, (x, torch.arange(12) % 2), livi.Categorical())


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        (torch.zeros(5, 4), ValueError, r"\(B, 3\), got \(5, 4\); pass the 3 columns of the fit, in their order"),
        (
            (torch.zeros(5, 3), torch.zeros(5)),
            TypeError,
            r"\(B, 3\), got a tuple of \(5, 3\) and \(5,\); a tuple of 2 is as many arguments of the network: pass its "
            "inputs alone, without targets",
        ),
        (
            {"x": torch.zeros(5, 3)},
            TypeError,
            "got a dict of 'x': .5, 3.; the names of a dict are those of the network",
        ),
        ("x.csv", TypeError, "got str; pass a tensor, an array or a list of numbers"),
        (None, TypeError, "got NoneType; pass a tensor"),
    ],
)
def test_inputs_of_another_kind_or_size_are_named(regression, inputs, kind, message):
    with pytest.raises(kind, match=f"inputs: expected inputs like those of the fit, .*{message}"):
        regression.predict(inputs)


@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        ((7, 6, 5), r"images need an axis for their channels: pass x\[:, None\]"),
        ((1, 6, 5), r"for a single example pass x\[None\]"),
        ((7, 6, 5, 1), r"pass x.permute\(0, 3, 1, 2\)"),
        ((7, 1, 9, 9), "bring them into that shape"),
    ],
)
def test_pictures_of_another_shape_come_with_a_remedy(pictures, shape, remedy):
    with pytest.raises(ValueError, match=rf"\(B, 1, 6, 5\), got .*{remedy}"):
        pictures.predict(torch.zeros(shape))
    with pytest.raises(ValueError, match=remedy):
        pictures.diagnose(torch.zeros(shape), torch.zeros(shape[0], dtype=torch.long), num_samples=4)


def test_images_of_bytes_are_refused_as_by_the_fit(pictures):
    images = torch.randint(0, 256, (4, 1, 6, 5), dtype=torch.uint8)
    with pytest.raises(
        ValueError, match=r"bytes want to be scaled as the images of the fit were, .*`x.float\(\) / 255`"
    ):
        pictures.predict(images)
    assert pictures.predict(images.int()).label.shape == (4,)  # whole numbers that the network could have had
    whole = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(24, 2))
    own = fitted(whole, (images, torch.arange(4) % 2), livi.Categorical(), forward=lambda net, x: net(x / 255))
    assert own.predict(images).label.shape == (4,)


def test_the_batch_that_is_wrong_is_named(pictures):
    batches = [(torch.zeros(2, 1, 6, 5), torch.zeros(2)), (torch.zeros(2, 6, 5), torch.zeros(2))]
    with pytest.raises(ValueError, match=r"got \(2, 6, 5\); images need an axis"):
        pictures.predict(batches)


def test_posteriors_that_know_nothing_of_their_fit_name_what_came(regression):
    bare = livi.Posterior(regression.sampler, regression.likelihood)
    with pytest.raises(
        ValueError, match=r"inputs: expected inputs like those of the fit, got \(5, 4\)\. \(The network"
    ):
        bare.predict(torch.zeros(5, 4))


def test_errors_that_are_not_about_inputs_are_left_as_they_are(regression, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("something else")

    monkeypatch.setattr("livi.posterior.posterior.outputs_of", fails)
    with pytest.raises(RuntimeError, match=r"^something else$"):
        regression.predict(torch.zeros(5, 3))


def test_shapes_that_the_network_takes_are_answered(regression):
    assert regression.predict(torch.zeros(2, 5, 3)).mean.shape == (2, 5)
    assert regression.predict(DataLoader(TensorDataset(torch.zeros(4, 3), torch.zeros(4)), 3)).mean.shape == (4,)


def test_several_inputs_are_told_by_name():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(3, 1)

        def forward(self, x, shift):
            return self.last(x) + shift

    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    posterior = fitted(Two(), ({"x": x, "shift": x[:, :1]}, x[:, 0]), livi.Gaussian())
    with pytest.raises(
        TypeError, match=r"a dict of 'x': .B, 3. and 'shift': .B, 1., got a dict of 'x': .12, 3.; add 'shift'"
    ):
        posterior.predict({"x": x})
    with pytest.raises(TypeError, match="leave out 'labels'"):
        posterior.predict({"x": x, "shift": x[:, :1], "labels": x[:, 0]})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rows_without_an_answer_are_counted_and_named(regression, value):
    x = torch.zeros(5, 3)
    x[1], x[4, 2] = value, float("nan")
    said = r"^inputs: expected finite numbers, got NaN or inf in 2 of 5 rows \(numbers 1, 4, counted from 0\); leave"
    for options in ({}, {"rng": torch.Generator().manual_seed(0)}, {"num_samples": 1}):
        with pytest.raises(ValueError, match=said):
            regression.predict(x, **options)
        with pytest.raises(ValueError, match=said):
            regression.predict(x.numpy(), **options)
    with pytest.raises(ValueError, match=r"^batch 1: inputs: expected finite numbers, .* 1 of 1 rows \(numbers 0,"):
        regression.predict(DataLoader(TensorDataset(x[2:], torch.zeros(3)), 2))


@pytest.mark.parametrize("value", [float("inf"), -float("inf")])
def test_infinite_inputs_are_named_where_a_network_saturates_too(regression, value):
    x = torch.zeros(5, 3)
    x[2, 1] = value
    with pytest.raises(ValueError, match=r"^inputs: expected finite numbers, got .* in 1 of 5 rows \(numbers 2,"):
        regression.predict(x)
    with pytest.raises(ValueError, match=r"^batch 1: inputs: expected finite numbers, .* in 1 of 2 rows"):
        regression.predict(DataLoader(TensorDataset(x[:4], torch.zeros(4)), 2))


def test_a_network_that_knows_what_to_do_with_nan_answers():
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    posterior = fitted(net, (x, x[:, 0]), livi.Gaussian(), forward=lambda net, x: net(x.nan_to_num(0.0)))
    gaps = x.clone()
    gaps[3, 0] = float("nan")
    assert torch.equal(posterior.predict(gaps).mean, posterior.predict(gaps.nan_to_num(0.0)).mean)


def test_logits_of_minus_infinity_and_weights_that_are_lost_are_no_fault_of_the_inputs():
    layout = livi.Layout(nn.Linear(1, 2))
    ruled_out = torch.tensor([[1.0, 1.0, 0.0, -torch.inf]])  # the second class has no probability
    x = torch.ones(3, 1)
    probabilities = livi.Posterior(livi.Ensemble(layout, ruled_out), livi.Categorical()).predict(x).probabilities
    assert torch.equal(probabilities, torch.tensor([[1.0, 0.0]]).expand(3, 2))
    lost = livi.Posterior(livi.Ensemble(layout, torch.full((1, 4), torch.nan)), livi.Categorical())
    assert bool(lost.predict(x).probabilities.isnan().all())
