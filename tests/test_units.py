"""Inputs and targets far from order one: fitted in natural units, answered in the user's."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import livi
from livi.model.data import as_data
from livi.model.likelihoods import pass_weights
from livi.model.units import in_natural_units, only_reparametrises
from livi.network import InputScaling

RNG = torch.Generator().manual_seed(0)
RAW = torch.stack([500.0 + 3000.0 * torch.rand(60, generator=RNG), 0.02 * torch.rand(60, generator=RNG)], 1).double()
PRICE = 230_000.0 + 60.0 * (RAW[:, 0] - 2000.0) + 2000.0 * torch.randn(60, generator=RNG).double()
X, Y = InputScaling.of(RAW)(RAW), (PRICE - PRICE.mean()) / PRICE.std(correction=0)
UNIT = PRICE.std(correction=0)
BRIEF = livi.Recipe(steps=20, map_steps=10, num_samples=4)
QUIET = {"recipe": BRIEF, "progress": False}


def net(outputs=1):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, outputs))


def fitted(data, likelihood, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", livi.FitWarning)
        own = options.pop("net", None) or net(options.pop("outputs", 1))
        return livi.fit(own, data, likelihood, **QUIET, **options)


# --- the same fit as of data standardised by hand --------------------------------------------------


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (livi.Gaussian, {}),  # with an exact last layer
        (livi.Gaussian, {"last_layer": "sampled"}),
        (livi.StudentT, {}),
        (livi.HeteroscedasticGaussian, {"outputs": 2, "polish": False}),
    ],
)
def test_it_is_the_fit_of_standardised_data_in_other_units(make, options):
    ours = fitted((RAW, PRICE), make(), **options)
    by_hand = fitted((X, Y), make(), standardise=False, **options)
    assert ours.plan["standardised"] == ["inputs", "targets"]
    there, here = ours.predict(RAW), by_hand.predict(X)
    torch.testing.assert_close(there.mean, PRICE.mean() + UNIT * here.mean, rtol=1e-7, atol=1e-3)
    torch.testing.assert_close(there.total_std, UNIT * here.total_std, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(there.log_prob(PRICE), here.log_prob(Y) - UNIT.log(), rtol=1e-5, atol=1e-5)
    shift = len(PRICE) * float(UNIT.log())  # the bound is in nats of the user's units too
    assert ours.history[-1]["bound"] == pytest.approx(by_hand.history[-1]["bound"] - shift, rel=1e-6)


def test_several_outputs_have_units_of_their_own():
    targets = torch.stack([PRICE, Y], 1)
    ours = fitted((RAW, targets), livi.Gaussian(), outputs=2)
    by_hand = fitted((X, torch.stack([Y, (Y - Y.mean()) / Y.std(correction=0)], 1)), livi.Gaussian(), outputs=2)
    expected = by_hand.predict(X).mean * torch.stack([UNIT, Y.std(correction=0)]) + targets.mean(0)
    torch.testing.assert_close(ours.predict(RAW).mean, expected, rtol=1e-6, atol=1e-6)


def test_a_noise_that_is_given_is_in_the_users_units():
    posterior = fitted((RAW, PRICE), livi.Gaussian(2000.0))
    assert float(posterior.likelihood.obs_std()) == pytest.approx(2000.0)
    by_hand = fitted((X, Y), livi.Gaussian(2000.0 / float(UNIT)))
    torch.testing.assert_close(posterior.predict(RAW).total_std, UNIT * by_hand.predict(X).total_std, rtol=1e-5, atol=0)


def test_weights_of_examples_pass_beside_scaled_inputs():
    options = {"forward": pass_weights, "last_layer": "sampled"}
    ours = fitted(((RAW, torch.ones(60).double()), PRICE), livi.Weighted(livi.Gaussian()), **options)
    by_hand = fitted(((X, torch.ones(60).double()), Y), livi.Weighted(livi.Gaussian()), **options)
    assert ours.plan["standardised"] == ["inputs", "targets"]
    assert ours.history[-1]["bound"] == pytest.approx(
        by_hand.history[-1]["bound"] - len(PRICE) * float(UNIT.log()), rel=1e-6
    )


@pytest.mark.parametrize("kind", [livi.Poisson, livi.LogNormal])
def test_large_counts_and_prices_get_a_unit(kind):
    problem = livi.Problem.of(net(), (X, PRICE.round()), kind())
    assert float(problem.likelihood.log_unit.exp()) == pytest.approx(float(PRICE.mean()), rel=1e-3)


# --- what comes after -----------------------------------------------------------------------------


def test_a_file_keeps_the_units(path):
    posterior = fitted((RAW, PRICE), livi.Gaussian(), last_layer="sampled")
    posterior.save(path)
    again = livi.load(path, net())
    assert torch.equal(again.predict(RAW).mean, posterior.predict(RAW).mean)
    posterior.save(path, draws=20)
    frozen = livi.load(path, net())
    assert (frozen.predict(RAW, num_samples=20).mean - PRICE.mean()).abs().max() < 5 * UNIT


def test_validation_scores_are_in_the_users_units():
    posterior = fitted((RAW, PRICE), livi.Gaussian(), validation=(RAW[:20], PRICE[:20]))
    last = posterior.history[-1]
    assert 100.0 < last["validation_rmse"] < 2.0 * UNIT
    assert last["validation_nll"] > 5.0  # nats of a density over a range of 100,000


@pytest.mark.parametrize("last_layer", ["exact", "sampled"])
def test_a_fit_goes_on_and_is_polished_in_the_same_units(last_layer):
    before = fitted((RAW, PRICE), livi.Gaussian(), last_layer=last_layer)
    longer = livi.fit(net(), (RAW[:50], PRICE[:50]), livi.Gaussian(), start=before, **QUIET)
    assert longer.layout.scaling == before.layout.scaling
    assert torch.equal(longer.likelihood.centre, before.likelihood.centre)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", livi.FitWarning)
        polished = livi.polish(before, (RAW, PRICE), chains=2, draws=16, steps=30, progress=False)
    assert (polished.predict(RAW).mean - PRICE).square().mean().sqrt() < 2.0 * UNIT
    assert before.diagnose(RAW, PRICE, num_samples=64).findings


def test_a_checkpoint_goes_on_in_the_same_units(path):
    whole = fitted((RAW, PRICE), livi.Gaussian())
    fitted((RAW, PRICE), livi.Gaussian(), checkpoint=path)
    again = fitted((RAW, PRICE), livi.Gaussian(), checkpoint=path)
    assert torch.equal(again.predict(RAW).mean, whole.predict(RAW).mean)


# --- when it is done by itself --------------------------------------------------------------------


def units_of(module, data, likelihood, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = livi.plan(module, data, likelihood, **options)
    return made.summary()["standardised"], [str(each.message) for each in caught]


def test_data_of_order_one_stay_as_they_are():
    assert units_of(net(), (X, Y), livi.Gaussian()) == ([], [])
    assert units_of(net(), (3.0 * X + 2.0, 2.0 * Y), livi.Gaussian()) == ([], [])


def test_each_side_is_looked_at_by_itself():
    assert units_of(net(), (RAW, Y), livi.Gaussian()) == (["inputs"], [])
    assert units_of(net(), (X, PRICE), livi.Gaussian()) == (["targets"], [])
    assert units_of(net(3), (RAW, torch.arange(60) % 3), livi.Categorical())[0] == ["inputs"]
    assert units_of(net(), (X, 1e-3 * Y), livi.Gaussian())[0] == ["targets"]


@pytest.mark.parametrize("targets", [PRICE, PRICE.long()], ids=["numbers", "whole numbers"])
def test_without_it_the_warning_names_it(targets):
    units, [doubt] = units_of(net(), (X, targets), livi.Gaussian(), standardise=False)
    assert units == []
    assert "pass standardise=True" in doubt


def advice(likelihood, targets, **options):
    """The warnings of a plan."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", livi.FitWarning)
        livi.plan(net(), (X, targets), likelihood, recipe=BRIEF, **options)
    return [str(one.message) for one in caught if issubclass(one.category, livi.FitWarning)]


@pytest.mark.parametrize("standardise", ["auto", False])
def test_where_a_fit_starts_at_weights_that_are_there_no_warning_names_what_would_be_refused(standardise):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", livi.FitWarning)
        earlier = livi.fit(net(), (X, PRICE), livi.Gaussian(), standardise=False, progress=False, recipe=BRIEF)
    for start in ("net", earlier):
        [doubt] = advice(livi.Gaussian(), PRICE, start=start, standardise=standardise)
        assert "pass standardise=True" not in doubt
        assert "pass Gaussian(centre=centre, unit=unit)" in doubt
    own = livi.Gaussian(centre=float(PRICE.mean()), unit=float(PRICE.std()))
    assert advice(own, PRICE, start="net") == []
    [doubt] = advice(livi.Poisson(), PRICE.round(), start="net")
    assert "train the network with livi.Poisson(unit=...)" in doubt
    assert advice(livi.Poisson(unit=float(PRICE.mean())), PRICE.round(), start="net") == []


@pytest.mark.parametrize("standardise", [True, "auto"])
def test_whole_numbers_are_targets_in_units_as_others_are(standardise):
    whole, same = PRICE.long(), PRICE.long().double()
    made = [livi.plan(net(), (RAW, y), livi.Gaussian(), standardise=standardise) for y in (whole, same)]
    assert [plan.summary()["standardised"] for plan in made] == [["inputs", "targets"]] * 2
    first, second = (plan.problem.likelihood.observed for plan in made)
    assert torch.equal(first.centre, second.centre)
    assert torch.equal(first.obs_std(), second.obs_std())
    counted = livi.Problem.of(net(), (RAW, whole), livi.Poisson(), standardise=standardise)
    assert float(counted.likelihood.log_unit.exp()) == pytest.approx(float(same.mean()))


LABELS = torch.arange(60) % 2


@pytest.mark.parametrize(
    ("likelihood", "labels"),
    [
        (livi.Bernoulli(), LABELS),
        (livi.Bernoulli(), LABELS.double()),
        (livi.FunctionLikelihood(lambda out, y: (out.squeeze(-1) - y).square()), LABELS),
    ],
)
def test_labels_have_no_units(likelihood, labels):
    assert units_of(net(), (RAW, labels), likelihood, standardise=True) == (["inputs"], [])
    far = livi.FunctionLikelihood(lambda out, y: -(out.squeeze(-1) - y).square())
    assert far.out_of_reach(LABELS + 1000) is None


class OwnUnits(nn.Module):
    """A network that knows the units of its inputs and targets."""

    def __init__(self):
        super().__init__()
        self.net = net()
        self.register_buffer("size", RAW.mean(0))

    def forward(self, x):
        return PRICE.mean() + UNIT * self.net(x / self.size)


class Twice(nn.Module):
    """Inputs are used by a layer, and beside it."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        return self.net(x) * x[:, :1]


def test_a_network_with_units_of_its_own_is_left_alone():
    assert units_of(OwnUnits(), (RAW, PRICE), livi.Gaussian())[0] == []
    assert units_of(Twice(), (RAW, Y), livi.Gaussian())[0] == []
    assert units_of(nn.Sequential(nn.BatchNorm1d(2), net()), (RAW, Y), livi.Gaussian())[0] == []
    assert units_of(net(), (RAW, Y), livi.Gaussian(), exclude="0.*")[0] == []  # its first layer is known


def test_a_fixed_first_layer_keeps_its_inputs_and_that_is_said_with_a_remedy():
    for options in ({"include": "2.*"}, {"exclude": "0.bias"}):
        units, doubts = units_of(net(), (RAW, Y), livi.Gaussian(), **options)
        assert units == []
        (said,) = [doubt for doubt in doubts if doubt.startswith("inputs")]
        assert "of up to 2076, which are not standardised, for the layer that they enter has fixed weights (0." in said
        assert "pass standardise=True if those are untrained" in said
    for remedy, units in ((True, ["inputs", "targets"]), (False, [])):
        found, doubts = units_of(net(), (RAW, Y), livi.Gaussian(), include="2.*", standardise=remedy)
        assert found == units
        assert not [doubt for doubt in doubts if doubt.startswith("inputs")]
    assert units_of(net(), (X, Y), livi.Gaussian(), include="2.*") == ([], [])
    assert units_of(net(), (RAW, Y), livi.Gaussian(), include="0.*")[0] == ["inputs"]  # what is fixed comes later


def test_a_trained_network_keeps_its_meaning():
    trained = net()
    with torch.no_grad():
        trained[2].bias += PRICE.mean()
    options = {"start": "net"}
    assert units_of(trained, (RAW, PRICE), livi.Gaussian(), **options)[0] == []
    assert units_of(net(), (RAW, PRICE), livi.Gaussian(), **options)[0] == []
    with pytest.raises(ValueError, match="expected start='map'"):
        livi.plan(trained, (RAW, PRICE), livi.Gaussian(), standardise=True, **options)
    assert units_of(trained, (X, PRICE), livi.Gaussian())[0] == []  # it gives prices already


@pytest.mark.parametrize("likelihood", [livi.Gaussian(), livi.Gaussian(200.0), livi.StudentT()])
@pytest.mark.parametrize("size", [20.0, 1e3, 1e12, 1e-3])
def test_centred_targets_are_standardised_whatever_the_random_weights(likelihood, size):
    centred = size * (2.0 * X[:, 0] + torch.sin(2.0 * X[:, 1]))
    found = []
    for seed in range(4):
        torch.manual_seed(seed)
        random = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 1)).double()
        layout, data = livi.Layout(random), as_data((X, centred), device=X.device, dtype=X.dtype)
        found.append(in_natural_units(layout, data, likelihood, "auto")[1] is not likelihood)
    assert found == [True] * 4


@pytest.mark.parametrize("size", [100.0, 1e3, 1e-3])
def test_a_network_that_knows_centred_targets_keeps_its_meaning(size):
    trained = net()
    with torch.no_grad():
        trained[2].weight *= size
        trained[2].bias *= size
        centred = trained(X)[:, 0] + 0.03 * size * Y
    assert units_of(trained, (X, centred), livi.Gaussian())[0] == []
    assert units_of(net(), (X, centred), livi.Gaussian())[0] == ["targets"]
    weighted = livi.Weighted(livi.Gaussian()), {"forward": pass_weights}
    for module, units in ((trained, []), (net(), ["targets"])):
        data = ((X, torch.ones(60).double()), centred)
        assert units_of(module, data, weighted[0], **weighted[1])[0] == units


def test_images_are_scaled_only_if_asked_and_all_pixels_alike():
    images = 255.0 * torch.rand(30, 1, 4, 4)
    conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)).double()
    data = (images.double(), torch.arange(30) % 3)
    assert units_of(conv, data, livi.Categorical())[0] == []
    made = livi.plan(conv, data, livi.Categorical(), standardise=True)
    assert made.layout.scaling.centre.shape == (1,)
    scaled = made.layout.scaling(images)
    assert float(scaled.std()) == pytest.approx(1.0, rel=0.01)


def test_batches_are_looked_at_until_there_are_enough():
    batches = [(RAW[i : i + 10], PRICE[i : i + 10]) for i in range(0, 60, 10)]
    made = livi.plan(net(), batches, livi.Gaussian(), last_layer="sampled")
    assert made.layout.scaling == InputScaling.of(RAW)
    assert float(made.problem.likelihood.centre) == pytest.approx(float(PRICE.mean()))


def test_what_cannot_be_standardised_is_named():
    words = torch.randint(0, 9, (60, 3))
    reader = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(6, 1)).double()
    with pytest.raises(ValueError, match="standardise=True: expected one tensor of numbers"):
        livi.plan(reader, (words, PRICE), livi.Gaussian(), standardise=True)
    with pytest.raises(ValueError, match="expected True, False or 'auto', got 'yes'"):
        livi.plan(net(), (X, Y), livi.Gaussian(), standardise="yes")


# --- the maps themselves --------------------------------------------------------------------------


def test_rare_values_are_not_blown_up():
    pixel = torch.zeros(1000, 1)
    pixel[3] = 16.0
    scaled = InputScaling.of(pixel)(pixel)
    assert float(scaled.max() - scaled.min()) == pytest.approx(10.0)


def test_a_column_of_one_value_stays_one_and_small():
    rows = torch.stack([RAW[:, 0], torch.full((60,), -1000.0), torch.ones(60), torch.zeros(60)], 1)
    scaled = InputScaling.of(rows)(rows)
    torch.testing.assert_close(scaled[:, 1:], torch.tensor([-1.0, 1.0, 0.0]).expand(60, 3).to(scaled))


def test_a_column_of_one_large_value_does_not_spoil_a_fit():
    x = torch.linspace(-2.0, 2.0, 60)[:, None]
    y = torch.sin(2.0 * x[:, 0]) + 0.1 * torch.randn(60, generator=torch.Generator().manual_seed(0))
    rows = torch.cat([x, torch.full_like(x, 1000.0)], 1)
    torch.manual_seed(0)
    wavy = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 1))
    posterior = livi.fit(wavy, (rows, y), livi.Gaussian(), steps=300, progress=False)
    assert float((posterior.predict(rows).mean - y).square().mean().sqrt()) < 0.25  # 0.7 by the mean alone


def test_a_change_of_variables_is_recognised():
    layout = livi.Layout(net())
    assert only_reparametrises(InputScaling.of(RAW), layout, RAW)
    assert not only_reparametrises(InputScaling.of(RAW), livi.Layout(Twice()), RAW)


class Embedding(nn.Module):
    """Of the second column, a category; of the first one or of both, a linear layer."""

    def __init__(self, numbers):
        super().__init__()
        self.layer, self.embedding, self.last = nn.Linear(numbers, 4), nn.Embedding(3, 2), nn.Linear(6, 1)

    def forward(self, x):
        numbers = self.layer(x[:, : self.layer.in_features])
        return self.last(torch.cat([torch.tanh(numbers), self.embedding(x[:, 1].long())], 1))


@pytest.mark.parametrize("numbers", [1, 2])
def test_inputs_of_which_some_are_embedded_are_not_scaled(numbers):
    rows = torch.stack([RAW[:, 0], torch.arange(len(RAW)) % 3], 1)
    scaling = InputScaling.of(rows)
    assert not only_reparametrises(scaling, livi.Layout(Embedding(numbers)), rows)
    fitted((rows, PRICE), livi.Gaussian(), net=Embedding(numbers))


def test_moments_of_drawn_functions_are_in_the_units_of_predictions():
    posterior, seed = fitted((RAW, PRICE), livi.Gaussian()), 3
    draws = posterior.functions(5, torch.Generator().manual_seed(seed))
    means, _ = posterior.likelihood.moments(draws(RAW))
    answer = posterior.predict(RAW, num_samples=5, rng=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(means.squeeze(-1), answer.means)


def test_other_columns_than_the_fits_are_an_error():
    posterior = fitted((RAW, PRICE), livi.Gaussian())
    with pytest.raises(ValueError, match="expected 2 columns, as in the fit"):
        posterior.predict(torch.ones(3, 5).double())


def test_a_density_counts_in_the_targets_units():
    located = livi.Gaussian(3.0, centre=100.0, unit=20.0)
    expected = torch.distributions.Normal(100.0 + 20.0 * 0.5, 3.0).log_prob(torch.tensor(104.0))
    assert float(located.log_prob(torch.tensor([[[0.5]]]), torch.tensor([104.0]))) == pytest.approx(float(expected))
    assert float(located.natural(torch.tensor(110.0))) == pytest.approx(0.5)
