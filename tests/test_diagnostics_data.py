"""A diagnosis says where its data are others than those of the fit."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.posterior.diagnostics import Effort
from livi.posterior.diagnostics.data import same_examples

BRIEF = livi.Recipe(steps=5, map_steps=5, map_restarts=1, num_samples=4, num_entropy_samples=2)
LITTLE = {"num_samples": 8, "effort": Effort(num_densities=4, num_importance=8, num_prior=8, mean_field_steps=2)}


def rows():
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, 300.0 * x[:, 0] + 5000.0  # far from order one, so that they are standardised inside


def fitted(last_layer):
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    return livi.fit(net, rows(), livi.Gaussian(), recipe=BRIEF, progress=False, last_layer=last_layer)


def said(posterior, *data, **options):
    return [one for one in posterior.diagnose(*data, **LITTLE | options).findings if one.topic == "data"]


@pytest.fixture(scope="module")
def sampled():
    return fitted("sampled")


@pytest.fixture(scope="module")
def exact():
    return fitted("exact")


def test_the_data_of_the_fit_are_examined_without_a_word(sampled, exact):
    x, y = rows()
    for posterior in (sampled, exact):
        assert said(posterior, x, y) == []
        assert said(posterior, x.flip(0).numpy(), y.flip(0).tolist()) == []
    assert said(sampled, x[:10], y[:10], num_data=30) == []


def test_data_of_another_size_are_said_to_be_others_and_what_it_means(sampled):
    x, y = rows()
    (finding,) = said(sampled, x[:10], y[:10])
    assert finding.severity == "notice"
    assert "fitted to 30 examples, and these stand for 10" in finding.text
    assert "pass num_data=30" in finding.text
    assert "the log likelihood is that of held-out examples" in finding.text
    assert "fitted to 30 examples" in str(sampled.diagnose(x[:10], y[:10], **LITTLE))


def test_an_exact_last_layer_refuses_what_cannot_be_data_of_its_network(exact):
    x, y = rows()
    with pytest.raises(ValueError, match=r"expected a tensor with the targets' 3 rows"):
        exact.diagnose(x, y[:3], **LITTLE)
    for others in (x[:, :1], torch.cat([x, x], 1)):
        with pytest.raises(ValueError, match=r"inputs: expected inputs like those of the fit, .* got \(30, [14]\)"):
            exact.diagnose(others, y, **LITTLE)
    for function in (livi.polish, livi.reweight):
        with pytest.raises(ValueError, match=r"inputs: expected inputs like those of the fit, .*got \(30, 1\)"):
            function(exact, (x[:, :1], y), progress=False)


def test_of_a_single_draw_the_verdict_says_that_its_error_is_not_known(sampled):
    found = sampled.diagnose(*rows(), **LITTLE | {"num_samples": 1}).findings
    (finding,) = [one for one in found if one.topic == "bound"]
    assert finding.text == "estimated from too few draws for its error to be known."
    assert finding.severity == "notice"


def test_an_exact_last_layer_says_that_it_examined_its_own(exact):
    x, y = rows()
    (fewer,) = said(exact, x[:10], y[:10])
    assert "holds the 30 examples that it was fitted to: these were examined, and not 10 others" in fewer.text
    (others,) = said(exact, x, y + 1.0)
    assert "and not those given, which are others" in others.text
    (others,) = said(exact, x + 0.01, y)
    assert "and not those given, which are others" in others.text
    (paired_anew,) = said(exact, x, y.flip(0))
    assert "which are others" in paired_anew.text
    assert exact.predict(x[:10]).log_prob(y[:10]).shape == (10,)


def test_a_pair_in_place_of_inputs_and_targets_is_answered_with_how_to_pass_them(sampled):
    with pytest.raises(TypeError, match=r"got a tuple alone; pass diagnose\(x, y\)"):
        sampled.diagnose(rows())


def test_what_is_not_known_is_not_said(sampled):
    x, y = rows()
    bare = livi.Posterior(sampled.sampler, sampled.likelihood, sampled.prior)
    assert said(bare, x[:10], y[:10]) == []


def test_inputs_by_name_are_compared_by_name():
    x, y = rows()
    own = ({"x": x, "shift": y}, y)
    assert same_examples(own, ({"shift": y, "x": x}, y[:, None]))
    assert not same_examples(own, ({"shift": y + 1.0, "x": x}, y))


def test_batches_are_the_data_that_they_hold(sampled, exact):
    x, y = rows()
    batches = DataLoader(TensorDataset(x, y), 8, shuffle=True)
    for posterior in (sampled, exact):
        assert said(posterior, batches) == []
        assert "30 of 30 examples" in str(posterior.diagnose(batches, **LITTLE))


def test_batches_of_other_examples_each_time_come_with_a_remedy(sampled):
    x, y = rows()

    class Changing:
        def __iter__(self):
            yield x + torch.rand(()), y

    with pytest.raises(ValueError, match=r"epoch hold other examples.*pass some of them as diagnose\(x, y, num_data"):
        sampled.diagnose(Changing(), **LITTLE)
