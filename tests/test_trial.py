"""The trial of the first batch: what is accepted, what is doubted, and the remedies that are named."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import livi
from livi import rivals
from livi.model.likelihoods import pass_weights

X, LABELS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
BRIEF = livi.Recipe(steps=5, map_steps=5, num_samples=4)


@dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None


class Mapped(OrderedDict):
    """As transformers' outputs: a dict whose entries are attributes too."""

    @property
    def logits(self):
        return self["logits"]


class Wrapped(nn.Module):
    """A network that returns its logits in an object."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.kind = nn.Linear(4, 3), kind

    def forward(self, x):
        return self.kind(logits=self.layer(x))


class Adapted(nn.Module):
    """A linear layer with an adapter, one factor of which starts at zero."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(4, 3), nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def doubts_of(net, data, likelihood, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        livi.Problem.of(net, data, likelihood, **options)
    assert all(issubclass(each.category, livi.FitWarning) for each in caught)
    return [str(each.message) for each in caught]


# --- outputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Output, Mapped, SimpleNamespace])
def test_an_object_with_logits_is_taken_for_them(kind, path):
    net = Wrapped(kind)
    plain = livi.Problem.of(net.layer, (X, LABELS), livi.Categorical())
    problem = livi.Problem.of(net, (X, LABELS), livi.Categorical())
    theta = torch.randn(5, 15)
    batch = problem.data.first()
    torch.testing.assert_close(problem.log_likelihood(theta, batch), plain.log_likelihood(theta, batch))
    posterior = livi.fit(net, (X, LABELS), livi.Categorical(), recipe=BRIEF, progress=False)
    posterior.save(path)
    assert livi.load(path, Wrapped(kind)).predict(X).probabilities.shape == (30, 3)


def test_a_forward_of_ones_own_sees_the_object():
    [doubt] = doubts_of(
        Wrapped(Output), (X, LABELS), livi.Categorical(), forward=lambda net, x: net(x).logits.softmax(-1)
    )
    assert "expected logits" in doubt


def test_of_a_dict_the_logits_are_named():
    class Two(Wrapped):
        def forward(self, x):
            return {"features": x, "logits": self.layer(x)}

    with pytest.raises(TypeError, match=r"forward=lambda net, x: net\(x\)\['logits'\]"):
        livi.Problem.of(Two(dict), (X, LABELS), livi.Categorical())


class Through(nn.Module):
    """A linear layer, and a function of what it gives."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(4, 3), function

    def forward(self, x):
        return self.function(self.layer(x))


@pytest.mark.parametrize("start", ["map", "net"])
@pytest.mark.parametrize("function", [lambda h: (h - 100.0).log(), lambda h: h / 0.0], ids=["NaN", "inf"])
def test_a_network_that_gives_no_finite_numbers_is_named_before_the_fit(function, start):
    with pytest.raises(
        ValueError, match=r"^net: expected finite outputs at the network's own weights, .* 30 examples of"
    ):
        livi.plan(Through(function), (X, LABELS), livi.Categorical(), start=start, recipe=BRIEF)
    with pytest.raises(ValueError, match=r"^net: expected finite outputs"):
        livi.plan(Through(function), (X, X[:, :3]), livi.Gaussian(), start=start, recipe=BRIEF)


def test_classes_may_be_masked_by_infinite_logits():
    masked = Through(lambda h: torch.cat([h, torch.full_like(h[:, :1], -float("inf"))], 1))
    assert doubts_of(masked, (X, LABELS), livi.Categorical()) == []


@pytest.mark.parametrize("pixels", [(), (5,)])
def test_a_softmax_at_the_end_is_doubted_and_its_remedy_works(pixels):
    x, labels = (X, LABELS) if not pixels else (X[:, :, None].expand(30, 4, 5), LABELS[:, None].expand(30, 5))
    linear = nn.Linear(4, 3) if not pixels else nn.Conv1d(4, 3, 1)
    net = nn.Sequential(linear, nn.Softmax(1))
    [doubt] = doubts_of(net, (x, labels), livi.Categorical())
    assert "got numbers of at least 0 that sum to 1, as from a softmax" in doubt
    remedy = {"forward": lambda net, x: net(x).clamp_min(1e-12).log()}
    assert doubts_of(net, (x, labels), livi.Categorical(), **remedy) == []
    assert doubts_of(linear, (x, labels), livi.Categorical()) == []
    assert doubts_of(nn.Sequential(linear, nn.LogSoftmax(1)), (x, labels), livi.Categorical()) == []


def test_a_sigmoid_at_the_end_is_doubted_and_its_remedy_works():
    net, labels = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), (LABELS > 0).double()
    [doubt] = doubts_of(net, (X, labels), livi.Bernoulli())
    assert "got numbers from 0 to 1 whatever the weights, as of a sigmoid" in doubt
    assert doubts_of(net, (X, labels), livi.Bernoulli(), forward=lambda net, x: net(x).logit(1e-6)) == []
    weighted = ((X, torch.ones(30)), labels)
    assert len(doubts_of(net, weighted, livi.Weighted(livi.Bernoulli()), forward=pass_weights)) == 1


def test_a_sigmoid_is_found_wherever_it_is_and_small_logits_are_none():
    class Squashed(nn.Linear):
        def forward(self, x):
            return torch.sigmoid(super().forward(x))

    labels = (LABELS > 0).double()
    [doubt] = doubts_of(Squashed(4, 1), (X, labels), livi.Bernoulli())
    assert "as of a sigmoid" in doubt
    small = nn.Linear(4, 1)
    with torch.no_grad():
        small.weight.mul_(1e-3)
        small.bias.fill_(0.5)
        outputs = small(X.to(small.weight))
    assert ((outputs > 0) & (outputs < 1)).all()
    assert doubts_of(small, (X, labels), livi.Bernoulli()) == []


# --- parameters -----------------------------------------------------------------------------------


def test_a_factor_of_zero_hides_no_other():
    assert doubts_of(Adapted(), (X, LABELS), livi.Categorical()) == []
    assert doubts_of(Adapted(), (X, LABELS), livi.Categorical(), include=["down.*", "up.*"]) == []


def test_a_factor_of_zero_that_stays_zero_does():
    [doubt] = doubts_of(Adapted(), (X, LABELS), livi.Categorical(), exclude="up.*")
    assert "do not depend on down.weight: their posterior will be the prior" in doubt


# --- inputs and targets ---------------------------------------------------------------------------


@pytest.mark.parametrize("first", [nn.Identity, lambda: nn.Conv2d(1, 1, 1)])
def test_images_of_bytes_come_with_their_remedy(first):
    images = torch.randint(0, 256, (30, 1, 4, 4), dtype=torch.uint8)
    whole = nn.Sequential(first(), nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(RuntimeError, match=r"torch.uint8: .*; images of bytes want `x.to\(torch.float64\) / 255`"):
        livi.Problem.of(whole, (images, LABELS), livi.Categorical())
    assert doubts_of(whole, (images.double() / 255, LABELS), livi.Categorical()) == []


@pytest.mark.parametrize("kind", [torch.float64, torch.uint8])
def test_images_with_their_channels_last_come_with_a_remedy(kind):
    images = torch.ones(30, 5, 4, 3, dtype=kind)
    whole = nn.Sequential(nn.Conv2d(3, 1, 1), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(RuntimeError, match=r"; channels come before height and width: pass x.permute\(0, 3, 1, 2\)\."):
        livi.Problem.of(whole, (images, LABELS), livi.Categorical())
    with pytest.raises(RuntimeError, match=r"to have 3 channels, but got 5 channels instead$"):
        livi.Problem.of(whole, (images[..., :2].double(), LABELS), livi.Categorical())


def test_images_of_bytes_as_floats_are_doubted_where_they_enter_a_convolution():
    images = torch.randint(0, 256, (30, 1, 4, 4)).double()
    whole = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(16, 3))
    [doubt] = doubts_of(whole, (images, LABELS), livi.Categorical())
    assert "as of images of bytes; divide them by 255, or pass standardise=True" in doubt
    assert doubts_of(whole, (images, LABELS), livi.Categorical(), standardise=True) == []
    with pytest.warns(livi.FitWarning, match=r"divide them by 255\.$"):
        livi.plan(whole, (images, LABELS), livi.Categorical(), start="net", recipe=BRIEF)
    assert doubts_of(whole, (images / 255, LABELS), livi.Categorical()) == []
    assert doubts_of(whole, (images, LABELS), livi.Categorical(), forward=lambda net, x: net(x / 255)) == []
    assert doubts_of(whole, (images, LABELS), livi.Categorical(), exclude="0.*") == []  # a backbone that knows them


def test_whole_numbers_for_a_network_of_floats_come_with_their_remedy():
    with pytest.raises(RuntimeError, match=r"; whole numbers that are no indices want `x.to\(torch.float64\)`"):
        livi.Problem.of(nn.Linear(4, 3), (X.long(), LABELS), livi.Categorical())


@pytest.mark.parametrize(
    ("labels", "error", "remedy"),
    [
        (LABELS.double(), TypeError, r"convert with `\.long\(\)`"),
        (LABELS + 0.5, TypeError, r"no classes want livi\.Gaussian\(\)"),
        (F.one_hot(LABELS), ValueError, r"of one-hot targets pass class indices: `y\.argmax\(1\)`"),
        (F.one_hot(LABELS).double(), ValueError, r"pass class indices: `y\.argmax\(1\)`"),
    ],
)
def test_labels_of_another_kind_come_with_their_remedy(labels, error, remedy):
    with pytest.raises(error, match=remedy):
        livi.Problem.of(nn.Linear(4, 3), (X, labels), livi.Categorical())


@pytest.mark.parametrize(
    ("rows", "words"),
    [([3], r"1 of 30 rows \(numbers 3, counted"), (range(10, 18), r"8 of 30 rows \(numbers 10, 11, 12, 13, 14, ...,")],
)
def test_rows_with_nan_are_counted_and_named(rows, words):
    x = X.clone()
    x[list(rows), 1] = torch.nan
    with pytest.raises(ValueError, match=rf"inputs: expected finite numbers, got NaN or inf in {words}"):
        livi.Problem.of(nn.Linear(4, 3), (x, LABELS), livi.Categorical())
    with pytest.raises(ValueError, match=rf"batch 0: inputs: expected finite numbers, got NaN or inf in {words}"):
        livi.Problem.of(nn.Linear(4, 3), [(x, LABELS)], livi.Categorical())


def squared_error(outputs, targets):
    return -(outputs.squeeze(-1) - targets).square()


def test_large_targets_are_standardised_or_come_with_their_numbers_and_the_remedy():
    y = 5000.0 + 100.0 * X[:, 0]
    numbers = f"got a mean of {y.mean():.4g} and a standard deviation of {y.std():.4g}; "
    assert doubts_of(nn.Linear(4, 1), (X, y), livi.Gaussian()) == []
    [doubt] = doubts_of(nn.Linear(4, 1), (X, y), livi.Gaussian(), standardise=False)
    assert numbers + "pass standardise=True" in doubt
    [doubt] = doubts_of(nn.Linear(4, 1), (X, y), livi.FunctionLikelihood(squared_error))
    assert numbers + "standardise them" in doubt
    first, second = doubt.splitlines()[1:3]
    names = {"y": y, "x": X, "net": nn.Linear(4, 1), "likelihood": livi.FunctionLikelihood(squared_error)}
    names["livi"] = SimpleNamespace(fit=lambda *given: doubts_of(*given))
    exec(first.strip() + "\n" + second.strip(), names)
    assert names["posterior"] == []


@pytest.mark.parametrize("kind", [livi.Poisson, livi.NegativeBinomial, livi.LogNormal])
@pytest.mark.parametrize("size", [900, 2])
def test_large_counts_and_prices_have_a_unit(kind, size):
    y = size + LABELS
    assert doubts_of(nn.Linear(4, 1), (X, y), kind()) == []
    doubts = doubts_of(nn.Linear(4, 1), (X, y), kind(), standardise=False)
    if size == 2:
        assert doubts == []
    else:
        [doubt] = doubts
        assert f"got 901; livi.{kind.__name__}(unit=None) takes their mean" in doubt
    assert doubts_of(nn.Linear(4, 1), (X, y), kind(unit=None)) == []


@pytest.mark.parametrize("standardise", ["auto", True])
@pytest.mark.parametrize("likelihood", [livi.Gaussian(), livi.StudentT()], ids=["Gaussian", "StudentT"])
def test_an_axis_of_one_behind_the_outputs_comes_with_its_remedy(likelihood, standardise):
    data = torch.randn(30, 2), torch.randn(30, 7)
    net = nn.Sequential(nn.Linear(2, 7), nn.Unflatten(1, (7, 1)))
    with pytest.raises(ValueError, match=r"a last axis of 7, .* got \(\d+, 30, 7, 1\); drop the axis of one behind"):
        livi.plan(net, data, likelihood, standardise=standardise)
    livi.plan(net, data, likelihood, standardise=standardise, forward=lambda net, x: net(x).squeeze(-1))


def test_weights_that_are_missing_come_with_their_remedy():
    x, y, net = torch.randn(30, 2), torch.randn(30), nn.Linear(2, 1)
    weighted, weights = livi.Weighted(livi.Gaussian()), torch.ones(30)
    remedy = r"pass data \(\(x, w\), y\) and forward=pass_weights, of livi.model.likelihoods; without weights"
    with pytest.raises(TypeError, match=f"the weights of the examples, got Tensor alone; {remedy}"):
        livi.plan(net, (x, y), weighted)
    with pytest.raises(TypeError, match=f"first batch .* with Weighted.. {remedy}"):
        livi.plan(net, (x, y), weighted, forward=pass_weights)
    with pytest.raises(TypeError, match=f"first batch .* with Weighted.. {remedy}"):
        livi.plan(net, ((x, weights), y), weighted)
    livi.plan(net, ((x, weights), y), weighted, forward=pass_weights)


class HalfUsed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.spare = nn.Linear(4, 1), nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize(
    "function",
    [livi.fit, livi.plan, rivals.fit_mean_field, rivals.fit_sivi, rivals.fit_map, rivals.fit_swag],
    ids=lambda function: function.__name__,
)
def test_a_doubt_is_said_once_and_where_the_method_was_called(function):
    options = {"recipe": BRIEF} if function is livi.plan else {"recipe": BRIEF, "progress": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(HalfUsed(), (X, X.sum(1)), livi.Gaussian(0.5), **options)
    doubts = [warning for warning in caught if "do not depend on spare" in str(warning.message)]
    assert [(doubt.category, doubt.filename) for doubt in doubts] == [(livi.FitWarning, __file__)]


def test_a_doubt_about_chains_is_said_where_they_were_asked_for():
    posterior = livi.fit(nn.Linear(4, 1), (X, X.sum(1)), livi.Gaussian(0.5), recipe=BRIEF, progress=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        livi.polish(posterior, (X[:20], X[:20].sum(1)), chains=2, draws=16, steps=40, progress=False)
    assert any("expected the 30 examples" in str(warning.message) for warning in caught)
    assert {warning.filename for warning in caught} == {__file__}


class Dropping(nn.Module):
    """With dropout that is always on, or only where the module is in training mode."""

    def __init__(self, always):
        super().__init__()
        self.first, self.last, self.always = nn.Linear(4, 8), nn.Linear(8, 1), always

    def forward(self, x):
        return self.last(nn.functional.dropout(torch.tanh(self.first(x)), 0.2, self.always or self.training))


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, packed):
        return self.last(self.layer(packed)[1][-1])


def test_packed_sequences_are_told_to_come_padded():
    packed = nn.utils.rnn.pack_sequence([torch.randn(size, 3) for size in (5, 4, 2)])
    with pytest.raises(TypeError, match=r"pass the padded sequences and their lengths, and pack them in the network"):
        livi.plan(Packed(), [(packed, torch.zeros(3))], livi.Gaussian())


def test_a_network_without_weights_of_its_own_is_named():
    with torch.device("meta"):
        net = nn.Linear(4, 1)
    with pytest.raises(ValueError, match=r'expected weights, got parameters on the device "meta"'):
        livi.plan(net, (X, torch.randn(30)), livi.Gaussian())


def test_inputs_and_targets_apart_are_told_to_come_together():
    with pytest.raises(TypeError, match=r"fit: expected net, data, likelihood, .*, got 4 .* \(X, y\)"):
        livi.fit(nn.Linear(4, 1), X, torch.randn(30), livi.Gaussian())


def test_dropout_that_cannot_be_turned_off_is_named():
    data, likelihood = (X, torch.randn(30)), livi.Gaussian()
    assert doubts_of(Dropping(always=False), data, likelihood) == []
    [doubt] = doubts_of(Dropping(always=True), data, likelihood)
    assert "draws random numbers" in doubt
    assert "training=self.training" in doubt


class Checkpointed(nn.Module):
    """Computes what its first layer gives again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(checkpoint(lambda x: torch.tanh(self.first(x)), x, use_reentrant=False))


def test_gradient_checkpointing_is_refused():
    """Its gradients would be those at the module's own weights, whatever theta is."""
    with pytest.raises(RuntimeError, match=r"kept .* got gradient checkpointing .*; turn it off"):
        livi.plan(Checkpointed(), (X, torch.randn(30)), livi.Gaussian())
