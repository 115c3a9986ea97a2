"""Posteriors: what is loaded draws and predicts as what was saved."""

import copy

import pytest
import torch
from support.pairwise import every_pair
from support.saved_posteriors import Fitted, affine, assert_identical, draws, network, perturbed, same
from torch import nn

import livi
from livi import ImplicitPosterior, Layout
from livi.family.generators import Generator
from livi.family.noise import Noise
from livi.model.likelihoods import Gaussian, Likelihood
from livi.model.priors import Prior
from livi.posterior.storage import StorageError, load_parts, read, save_posterior


def begun(noise, theta):
    noise.init_around(theta)
    return noise


GENERATORS = {
    "Affine": lambda layout: livi.Affine.for_layout(layout, latent_dim=7),
    "MLP": lambda layout: livi.MLP.for_layout(layout, budget=15.0, latent_dim=4),
    "MLP with skip": lambda layout: livi.MLP.for_layout(layout, activation=nn.Tanh, skip=True, offset=True),
    "MMNN": lambda layout: livi.MMNN.for_layout(layout, budget=12.0, latent_dim=4),
    "MMNN with scale": lambda layout: livi.MMNN.for_layout(
        layout, budget=12.0, latent_dim=4, offset=True, scale_sizes=layout.group_sizes
    ),
    "CMMNN": lambda layout: livi.CMMNN.for_layout(layout, budget=24.0, latent_dim=4),
    "PerLayer": lambda layout: livi.PerLayer.for_layout(layout, budget=24.0),
    "nested": lambda layout: livi.PerLayer(
        [
            livi.PerLayer([livi.Affine(2, 3), livi.MLP(2, 4, hidden=(3,))]),
            livi.MMNN((2, 2), layout.num_params - 7, hidden=[(2, 3)]),
        ]
    ),
}
NOISES = {
    "FixedNoise": lambda layout: livi.FixedNoise(0.1),  # noqa: ARG005
    "LearnedNoise": lambda layout: livi.LearnedNoise(0.1),  # noqa: ARG005
    "LayerNoise": lambda layout: livi.LayerNoise(layout.group_sizes, 0.1),
    "DiagonalNoise": lambda layout: livi.DiagonalNoise(layout.num_params, 0.1),
    "RelativeNoise": lambda layout: begun(livi.RelativeNoise.for_layout(layout, 0.1), layout.flatten()),
}
PRIORS = {
    "none": lambda layout: None,  # noqa: ARG005
    "Normal": lambda layout: livi.Normal(0.7),  # noqa: ARG005
    "Normal per layer": lambda layout: livi.Normal.for_layout(layout, per_layer=True, learned=True),
    "Normal by fan-in": lambda layout: livi.Normal.for_layout(layout, fan_in=True),
    "Laplace": lambda layout: livi.Laplace([0.5, 2.0], sizes=layout.group_sizes),
    "Relevance": lambda layout: livi.Relevance.for_layout(layout),
}
LIKELIHOODS = {
    "Gaussian": lambda: livi.Gaussian(0.3),
    "Gaussian, learned": lambda: livi.Gaussian(),
    "HeteroscedasticGaussian": lambda: livi.HeteroscedasticGaussian(0.01),
    "ContaminatedGaussian": lambda: livi.ContaminatedGaussian(0.02, floor=0.01, unit=torch.tensor(3.0)),
    "Poisson": lambda: livi.Poisson(unit=[1.0, 3.0]),
    "NegativeBinomial": lambda: livi.NegativeBinomial(unit=None),
    "StudentT": lambda: livi.StudentT(df=5.0, learned_df=True),
    "LogNormal": lambda: livi.LogNormal(torch.tensor([0.5, 1.0]), learned=True),
    "Bernoulli": lambda: livi.Bernoulli(),
    "Multilabel": lambda: livi.Multilabel(),
    "Categorical": lambda: livi.Categorical(ignore_index=3),
    "Weighted": lambda: livi.Weighted(livi.Gaussian()),
}


def test_the_sweeps_below_cover_every_class_of_the_package():
    covered = {name.split(" ")[0].rstrip(",") for name in (*GENERATORS, *NOISES, *PRIORS, *LIKELIHOODS)}
    bases = (Generator, Noise, Prior, Likelihood)
    values = {name: getattr(livi, name) for name in livi.__all__}
    public = {name for name, value in values.items() if isinstance(value, type) and issubclass(value, bases)} - {
        "FunctionPrior",
        "FunctionLikelihood",
    }  # these cannot be described
    assert public <= covered


def assert_parts_agree(parts, fitted, theta):
    same(draws(parts.sampler), draws(fitted.sampler))
    for one, other in ((parts.likelihood, fitted.likelihood), (parts.prior, fitted.prior)):
        assert type(one) is type(other)
        if other is not None:
            assert one._spec == other._spec
            assert_identical(dict(one.state_dict()), dict(other.state_dict()))
    if fitted.prior is not None:
        same(parts.prior.log_prob(theta), fitted.prior.log_prob(theta).detach())


# Every part stands in the file by itself; if one disturbs another, two are enough to see it.
@pytest.mark.parametrize(
    ("generator", "noise", "prior", "likelihood"), every_pair(GENERATORS, NOISES, PRIORS, LIKELIHOODS)
)
def test_a_posterior_draws_the_same_after_loading(path, generator, noise, prior, likelihood):
    layout = Layout(network())
    sampler = perturbed(ImplicitPosterior(layout, GENERATORS[generator](layout), NOISES[noise](layout)))
    made = PRIORS[prior](layout)
    fitted = Fitted(sampler, perturbed(LIKELIHOODS[likelihood]()), made and perturbed(made))
    save_posterior(path, fitted)
    net, before = network(), torch.random.get_rng_state()
    parts = load_parts(path, net)
    same(torch.random.get_rng_state(), before)
    assert_parts_agree(parts, fitted, draws(sampler))


@pytest.mark.parametrize("generator", GENERATORS)
def test_what_was_frozen_stays_frozen(path, generator):
    # Not for its own sake alone: torch rounds products differently where a gradient is required.
    layout = Layout(network())
    sampler = ImplicitPosterior(layout, GENERATORS[generator](layout), livi.LearnedNoise())
    for learned in (True, False):
        save_posterior(path, Fitted(sampler.requires_grad_(learned)))
        again = load_parts(path, network()).sampler
        assert all(parameter.requires_grad is learned for parameter in again.parameters())
        same(draws(again), draws(sampler))
    sampler.noises.requires_grad_(True)
    save_posterior(path, Fitted(sampler))
    found = dict(load_parts(path, network()).sampler.named_parameters())
    assert [name for name, parameter in found.items() if parameter.requires_grad] == ["noises.0.log_std"]


def test_everything_else_comes_back_too(path):
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    fitted = affine(net)
    fitted.buffers = {"1.running_mean": torch.randn(4, 3), "1.running_var": torch.rand(4, 3)}
    fitted.history = [{"step": 1.0, "bound": float("-inf")}, {"step": 2.0, "bound": float("nan")}]
    fitted.plan = {"recipe": {"betas": (0.9, 0.99), "steps": 100}, "entropy": "Exact()", "seed": None}
    save_posterior(path, fitted)
    parts = load_parts(path, copy.deepcopy(net))
    assert_identical(parts.buffers, fitted.buffers)
    assert_identical(parts.history, fitted.history)
    assert_identical(parts.plan, fitted.plan)
    _, meta = read(path)
    assert meta["torch"] == torch.__version__


def test_an_extra_comes_back_and_can_make_the_network(path):
    extra = {"columns": ["a", "b"], "limits": {0: (1.0, float("inf"))}, "table": torch.arange(3)}
    save_posterior(path, affine(), extra=extra)
    asked = []

    def made(found):
        asked.append(found)
        return network()

    parts = load_parts(path, made)
    assert_identical(parts.extra, extra)
    assert_identical(asked, [extra])
    save_posterior(path, affine())
    assert load_parts(path, network()).extra == {}
    with pytest.raises(StorageError, match=r"extra\.columns\.0: expected None, numbers"):
        save_posterior(path, affine(), extra={"columns": [object()]})


def test_mixtures_and_precisions_come_back(path):
    layout = Layout(network().float())
    generators = [livi.Affine(2, 17), livi.MLP(3, 17, hidden=(4,))]
    sampler = ImplicitPosterior(layout, generators, [livi.LearnedNoise(), livi.DiagonalNoise(17)])
    fitted = Fitted(perturbed(sampler), Gaussian(0.1 + 0.2), livi.Normal(1 / 3).double())
    save_posterior(path, fitted)
    torch.set_default_dtype(torch.float32)  # whatever the new process has set
    parts = load_parts(path, network())
    assert_parts_agree(parts, fitted, draws(sampler))
    assert parts.sampler.num_components == 2
    assert parts.likelihood.log_std.dtype == torch.float64


def test_predictions_do_not_depend_on_the_fixed_weights_of_the_network_given(path):
    def made():
        return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))

    torch.manual_seed(1)
    net = made()
    net(torch.randn(50, 2))  # moves the running statistics
    fitted = affine(net, exclude="0.*")
    save_posterior(path, fitted)
    other = made()
    parts = load_parts(path, other)
    theta, x = draws(parts.sampler), torch.randn(4, 2)
    same(parts.sampler.layout.apply(theta[0], x), fitted.sampler.layout.apply(theta[0], x))
    loaded = parts.sampler.layout.module
    same(loaded[0].weight, net[0].weight)
    same(loaded[1].running_var, net[1].running_var)
    same(loaded[1].num_batches_tracked, net[1].num_batches_tracked)
    same(loaded[2].weight, other[2].weight)  # sampled, so none of our business
    assert loaded[0].weight.requires_grad

    small = path.with_name("small")
    save_posterior(small, fitted, fixed_weights=False)
    assert small.stat().st_size < path.stat().st_size
    third = made()
    same(load_parts(small, third).sampler.layout.module[0].weight, third[0].weight)


def test_what_is_loaded_has_a_network_of_its_own(path):
    made, files = [], [path, path.with_name("other")]
    for seed, file in enumerate(files):
        torch.manual_seed(seed)
        made.append(affine(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), exclude="0.*"))
        save_posterior(file, made[-1])
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    before = copy.deepcopy(net.state_dict())
    loaded = [load_parts(file, net) for file in files]
    assert_identical(dict(net.state_dict()), dict(before))
    with torch.no_grad():
        net[0].weight.zero_()
    x = torch.randn(4, 2)
    for fitted, again in zip(made, loaded, strict=True):
        theta = draws(fitted.sampler)[0]
        same(again.sampler.layout.apply(theta, x), fitted.sampler.layout.apply(theta, x))


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_sampled_does_not_depend_on_what_is_frozen_in_the_network_given(path, frozen):
    net = network()
    net[0].requires_grad_(False)  # so that only the head is sampled
    fitted = affine(net)
    save_posterior(path, fitted)
    parts = load_parts(path, network().requires_grad_(not frozen))
    assert parts.sampler.layout.slots == fitted.sampler.layout.slots
    assert parts.sampler.layout.fixed == ("0.weight", "0.bias")
    assert read(path)[1]["layout"]["include"] == ["*"]


def test_everything_goes_to_the_device_of_the_network(path):
    save_posterior(path, affine())
    parts = load_parts(path, network(), device="cpu")
    assert parts.sampler.layout.device == torch.device("cpu")
    net = network()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=r"device: expected one that torch can use here, got 'cuda:99' \(.*\); pass"):
        load_parts(path, net, device="cuda:99")
    assert_identical(dict(net.state_dict()), dict(before))


@pytest.mark.parametrize("device", ["mps:7", "gpu", torch.device("cuda", 99)])
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(ValueError, match=rf"got '{device}' \(.*\); pass device='cpu', or install"):
        livi.checks.device(device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("saved", "loaded"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
def test_a_posterior_moves_between_devices(path, saved, loaded):
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).to(saved)
    fitted = affine(net, exclude="0.*")
    fitted.buffers = {"1.running_mean": torch.zeros(3, device=saved)}
    save_posterior(path, fitted)
    for other, device in ((copy.deepcopy(net).to(loaded), None), (copy.deepcopy(net).cpu(), loaded)):
        parts = load_parts(path, other, device=device)
        tensors = [
            *parts.sampler.layout.module.state_dict().values(),
            *parts.sampler.state_dict().values(),
            *parts.likelihood.state_dict().values(),
            *parts.buffers.values(),
            draws(parts.sampler),
        ]
        assert {tensor.device.type for tensor in tensors} == {loaded}
        torch.testing.assert_close(draws(parts.sampler).to(saved), draws(fitted.sampler))
