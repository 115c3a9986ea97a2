"""Posteriors that need help to be loaded: classes of your own, functions, another network."""

import copy

import pytest
import torch
from support.saved_posteriors import Fitted, affine, assert_identical, draws, network, perturbed, same
from torch import nn

import livi
from livi import ImplicitPosterior, Layout
from livi.model.likelihoods import Gaussian, Likelihood
from livi.posterior import storage
from livi.posterior.storage import StorageError, load_parts, read, save_posterior, write
from livi.spec import Specified

# --- classes of your own --------------------------------------------------------------------------


class Wide(livi.MLP):
    def __init__(self, num_params, *, gain=2):
        super().__init__(gain, num_params, hidden=(3 * gain,), offset=True)


class Rough(livi.FixedNoise):
    pass


class Student(Likelihood):
    def __init__(self, freedom: float) -> None:
        super().__init__()
        self.freedom = nn.Parameter(torch.tensor(freedom))


class Ensemble(Specified, nn.Module):
    """Another kind of sampler: a set of weight vectors."""

    def __init__(self, layout, num_members):
        super().__init__()
        self.layout = layout
        self.register_buffer("members", torch.zeros(num_members, layout.num_params))

    def sample(self, num_samples, rng=None):
        return self.members[torch.randint(len(self.members), (num_samples,), generator=rng)]


def test_classes_of_your_own_come_back(path):
    layout = Layout(network())
    fitted = Fitted(perturbed(ImplicitPosterior(layout, Wide(17, gain=3), Rough(0.2))), Student(3.5))
    save_posterior(path, fitted)
    parts = load_parts(path, network(), classes=[Wide, Rough, Student])
    same(draws(parts.sampler), draws(fitted.sampler))
    assert type(parts.sampler.generators[0]) is Wide
    same(parts.likelihood.freedom, torch.tensor(3.5))
    with pytest.raises(
        StorageError, match=r"custom\.Rough: expected one of the known classes .*pass classes=\[Rough\]"
    ):
        load_parts(path, network(), classes=[Wide, Student])


def test_a_class_of_your_own_is_not_taken_for_livi_s_of_the_same_name(path):
    mine = type("Affine", (livi.Affine,), {})
    layout = Layout(network())
    save_posterior(path, Fitted(ImplicitPosterior(layout, mine(2, 17))))
    with pytest.raises(StorageError, match=r"custom\.Affine: .*pass classes=\[Affine\]"):
        load_parts(path, network())
    assert type(load_parts(path, network(), classes=[mine]).sampler.generators[0]) is mine


def test_another_kind_of_sampler_comes_back(path):
    layout = Layout(network(), exclude="0.bias")
    ensemble = Ensemble(layout, 4)
    ensemble.members.normal_()
    save_posterior(path, Fitted(ensemble))
    parts = load_parts(path, network(), classes=[Ensemble])
    assert type(parts.sampler) is Ensemble
    same(draws(parts.sampler), draws(ensemble))
    assert parts.sampler.layout.slots == layout.slots


def test_a_sampler_without_a_spec_is_refused(path):
    class Bare(nn.Module):
        layout = Layout(network())

    with pytest.raises(StorageError, match=r"sampler: expected an nn\.Module that is a livi.spec.Specified, got Bare"):
        save_posterior(path, Fitted(Bare()))


# --- what cannot be described ---------------------------------------------------------------------


def test_functions_are_left_out_and_passed_again(path):
    layout = Layout(network())

    def likelihood():
        return livi.FunctionLikelihood(lambda outputs, targets: -(outputs.squeeze(-1) - targets).square())

    def prior():
        return livi.FunctionPrior(lambda theta: -theta.square().sum(-1))

    def generator():
        return livi.MLP(3, 17, hidden=(4,), activation=lambda: nn.LeakyReLU(0.3))

    fitted = Fitted(perturbed(ImplicitPosterior(layout, generator())), likelihood(), prior())
    for left_out, match in [
        ([], r"MLP: argument activation: .*leave_out=\['generators'\] and pass generators="),
        (["generators"], r"FunctionLikelihood: argument log_prob: .*leave_out=\['likelihood'\]"),
        (["generators", "likelihood"], r"FunctionPrior: argument log_prob: .*leave_out=\['prior'\] and pass prior="),
    ]:
        with pytest.raises(StorageError, match=match):
            save_posterior(path, fitted, leave_out=left_out)
        assert not path.exists()
    save_posterior(path, fitted, leave_out=["generators", "likelihood", "prior"])
    given = {"generators": generator(), "likelihood": likelihood(), "prior": prior()}
    for name in given:
        with pytest.raises(StorageError, match=f"expected {name}=..., left out when it was saved, got none"):
            load_parts(path, network(), **{other: part for other, part in given.items() if other != name})
    parts = load_parts(path, network(), **given)
    same(draws(parts.sampler), draws(fitted.sampler))
    assert parts.likelihood is given["likelihood"]
    assert parts.prior is given["prior"]


def test_an_object_given_takes_its_weights_from_the_file(path):
    fitted = affine()
    fitted.likelihood = perturbed(Gaussian())
    save_posterior(path, fitted)
    mine = Gaussian(learned=True)
    same(load_parts(path, network(), likelihood=mine).likelihood.log_std, fitted.likelihood.log_std)
    with pytest.raises(StorageError, match=r"weight of the likelihood 'log_std' \(\), got \(no more\)"):
        load_parts(path, network(), likelihood=livi.Bernoulli())
    with pytest.raises(StorageError, match="expected no prior=, since none was saved"):
        load_parts(path, network(), prior=livi.Normal())


@pytest.mark.parametrize("name", ["generator", "sampler", "prior"])
def test_leaving_out_what_is_not_there_is_refused(path, name):
    with pytest.raises(StorageError, match=f"leave_out: expected .*, got .*{name}"):
        save_posterior(path, affine(), leave_out=[name])


def test_an_argument_that_the_sampler_does_not_have_is_refused(path):
    save_posterior(path, affine())
    with pytest.raises(TypeError, match=r"load: expected options among device, .*, generators, .*got 'colour'"):
        load_parts(path, network(), colour="red")
    with pytest.raises(TypeError, match=r"load: got 'strct'; did you mean 'strict'\?$"):
        livi.load(path, network(), strct=False)
    with pytest.raises(TypeError, match=r"save: got 'draw'; did you mean 'draws'\?$"):
        livi.load(path, network()).save(path, draw=3)


def test_a_plan_with_an_object_in_it_is_refused(path):
    fitted = affine()
    fitted.plan = {"entropy": livi.Exact()}
    with pytest.raises(StorageError, match=r"plan\.entropy: expected .*got Exact"):
        save_posterior(path, fitted)


def test_a_forward_is_passed_again(path):
    def forward(module, x):
        return 2.0 * module(x)

    fitted = affine(forward=forward)
    save_posterior(path, fitted)
    with pytest.raises(StorageError, match="forward: expected forward=, as when it was fitted, got none"):
        load_parts(path, network())
    layout = load_parts(path, network(), forward=forward).sampler.layout
    theta, x = draws(fitted.sampler)[0], torch.randn(3, 2)
    same(layout.apply(theta, x), fitted.sampler.layout.apply(theta, x))
    save_posterior(path, affine())
    with pytest.raises(StorageError, match="forward: expected no forward=, got one"):
        load_parts(path, network(), forward=forward)


# --- another network ------------------------------------------------------------------------------


class Swapped(nn.Module):
    """Two layers of one shape: names and shapes say nothing if only their order differs."""

    def __init__(self, first, second):
        super().__init__()
        setattr(self, first, nn.Linear(2, 2))
        setattr(self, second, nn.Linear(2, 2))


def tied():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    return net


def untied():
    return nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))


def normed(affine=True):
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False, track_running_stats=affine))


@pytest.mark.parametrize(
    ("saved", "given", "options", "match"),
    [
        (network, lambda: network(5), {}, r"parameter '0.weight' \(4, 2\), got '0.weight' \(5, 2\)"),
        (network, lambda: network()[:1], {}, r"parameter '2.weight' \(1, 4\), got \(no more\)"),
        (
            network,
            lambda: nn.Sequential(*network(), nn.Linear(1, 1)),
            {},
            r"parameter \(no more\), got '3.weight' \(1, 1\)",
        ),
        (
            network,
            lambda: nn.Sequential(nn.Identity(), *network()),
            {},
            r"'0.weight' \(4, 2\), got '1.weight' \(4, 2\)",
        ),
        (lambda: Swapped("a", "b"), lambda: Swapped("b", "a"), {}, r"'a.weight' \(2, 2\), got 'b.weight' \(2, 2\)"),
        (tied, untied, {}, r"\(no more\), got '1.weight' \(2, 2\)"),
        (
            network,
            lambda: network().float(),
            {},
            r"expected parameters of torch.float64, got torch.float32; use `net.to",
        ),
        (
            network,
            lambda: nn.Sequential(network()[0].float(), *network()[1:]),
            {"exclude": "0.*"},
            r"fixed weight '0.weight' \(4, 2\) torch.float64, got '0.weight' \(4, 2\) torch.float32",
        ),
        (normed, lambda: normed(False), {}, r"buffer '1.running_mean' \(3,\) torch.float64, got \(no more\)"),
    ],
)
def test_the_first_difference_of_another_network_is_named_and_the_network_left_alone(
    path, saved, given, options, match
):
    save_posterior(path, affine(saved(), **options))
    net = given()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(StorageError, match=match):
        load_parts(path, net)
    assert_identical(dict(net.state_dict()), dict(before))


class Renamed(nn.Sequential):
    pass


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (lambda: nn.Sequential(network()[0], nn.Tanh(), network()[2]), r"layer 1 ELU\(alpha=1.0\), got 1 Tanh\(\)"),
        (lambda: nn.Sequential(network()[0], nn.ELU(0.5), network()[2]), r"1 ELU\(alpha=1.0\), got 1 ELU\(alpha=0.5\)"),
        (lambda: nn.Sequential(*network(), nn.Sigmoid()), r"layer \(no more\), got 3 Sigmoid\(\)"),
        (lambda: Renamed(*network()), r"layer Sequential\(\), got Renamed\(\)"),
    ],
)
def test_a_layer_of_another_kind_is_named_unless_that_is_meant(path, given, match):
    save_posterior(path, affine())
    with pytest.raises(StorageError, match=f"{match}; pass a network like the one saved, or strict=False"):
        load_parts(path, given())
    load_parts(path, given(), strict=False)


class Talkative(nn.Module):
    """Says of itself what changes no prediction."""

    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(1))])
        self.shared = nn.ReLU()
        self.again = self.shared
        self.drop = nn.Dropout(0.1)
        self.rnn = nn.LSTM(1, 1, num_layers=2, dropout=0.2)

    def extra_repr(self):
        place = self.scales[0].device
        return f"width=1, training={self.training}, device={place}, {place}, at {object()}"


def test_differences_that_change_no_prediction_are_none(path):
    save_posterior(path, affine(Talkative()))
    net = Talkative().eval().requires_grad_(False)
    net.again, net.drop, net.rnn.dropout = nn.ReLU(inplace=True), nn.Dropout(0.9), 0.5
    load_parts(path, net)
    moved = storage.network.layers(Talkative().to("meta"))
    assert moved == storage.network.layers(Talkative())
    assert moved[0] == "Talkative(width=1)"


def plain():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.Tanh(), nn.Linear(3, 1)))


def compiled():
    return torch.compile(plain(), backend="eager")


def compiled_within():
    net = plain()
    net[2] = torch.compile(net[2], backend="eager")
    return net


@pytest.mark.parametrize("given", [plain, compiled, compiled_within])
@pytest.mark.parametrize("saved", [plain, compiled, compiled_within])
def test_a_network_may_be_compiled_or_not(path, saved, given):
    net = saved()
    layout = Layout(net, exclude="*0.weight")
    fitted = Fitted(ImplicitPosterior(layout, livi.Affine(2, layout.num_params)))
    buffer = next(name for name, _ in net.named_buffers() if name.endswith("running_mean"))
    fitted.buffers = {buffer: torch.randn(3)}
    save_posterior(path, fitted)
    parts, theta, x = load_parts(path, given()), draws(fitted.sampler)[0], torch.randn(4, 2)
    outputs = parts.sampler.layout.apply(theta, x, buffers=parts.buffers)
    same(outputs, layout.apply(theta, x, buffers=fitted.buffers))
    other = plain()
    other[1].eps = 0.1
    with pytest.raises(StorageError, match=r"layer 1 BatchNorm1d\(3, .*, got 1 BatchNorm1d\(3, eps=0.1"):
        load_parts(path, other)


def test_a_file_from_before_layers_were_stored_is_loaded(path):
    save_posterior(path, affine())
    tensors, meta = read(path)
    del meta["layout"]["layers"]
    write(path, tensors, meta)
    load_parts(path, nn.Sequential(network()[0], nn.Tanh(), network()[2]))


def test_a_network_is_left_alone_when_a_part_cannot_be_built(path):
    layout = Layout(network(), exclude="0.*")
    save_posterior(path, Fitted(ImplicitPosterior(layout, Wide(layout.num_params))))
    net = network()
    before = copy.deepcopy(net.state_dict())
    for options in ({}, {"classes": [Wide], "likelihood": livi.Bernoulli()}, {"generators": livi.Affine(1, 5)}):
        with pytest.raises(StorageError):
            load_parts(path, net, **options)
        assert_identical(dict(net.state_dict()), dict(before))


def test_a_posterior_can_be_saved_in_place_of_the_one_it_was_loaded_from(path):
    fitted = affine()
    save_posterior(path, fitted)
    parts = load_parts(path, network())
    save_posterior(path, parts)
    same(draws(load_parts(path, network()).sampler), draws(fitted.sampler))
