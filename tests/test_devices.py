"""Things are made on the network's device, whatever torch's default is, and a network on the CPU needs no GPU.

The default device of these tests is "meta", whose tensors hold nothing: what is made there by mistake cannot be used.
Where there is a GPU it is that one, on which Adam of older torch counts its steps, whatever its parameters' device.
"""

import importlib.util
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import nn

import livi
from livi import checks
from livi.draws import global_stream, normal, permutation, uniform
from livi.inference import Recipe
from livi.model.likelihoods import Categorical, Gaussian, NegativeBinomial, StudentT
from livi.posterior.metrics import METRICS
from livi.posterior.pareto import pareto_shape
from livi.rivals import (
    fit_ensemble,
    fit_ivon,
    fit_laplace_last_layer,
    fit_laplace_linearised,
    fit_laplace_low_rank,
    fit_map,
    fit_swag,
)
from livi.rivals.curvature import BATCH, Examples

ELSEWHERE = "cuda" if torch.cuda.is_available() else "meta"
QUICK = Recipe(steps=20, map_steps=10, map_restarts=2, num_samples=4, num_entropy_samples=2)
RIVALS = {
    "map": (fit_map, "torch", {}),
    "ensemble": (fit_ensemble, "torch", {}),
    "swag": (fit_swag, "torch", {"steps": 30, "collected": 20, "rank": 3}),
    "ivon": (fit_ivon, "ivon", {"steps": 5}),
    "laplace_last_layer": (fit_laplace_last_layer, "laplace", {}),
    "laplace_linearised": (fit_laplace_linearised, "laplace", {}),
    "laplace_low_rank": (fit_laplace_low_rank, "laplace", {"rank": 3}),
}


@contextmanager
def default_elsewhere():
    torch.set_default_device(ELSEWHERE)
    try:
        yield
    finally:
        torch.set_default_device(None)


def network(outputs=1, width=5, *, norm=False):
    middle = [nn.BatchNorm1d(width)] if norm else []
    return nn.Sequential(nn.Linear(2, width), *middle, nn.Tanh(), nn.Linear(width, outputs))


def drawn(posterior):
    return posterior.sample(3, torch.Generator().manual_seed(0))


def noisy_plane(x):
    return x.sum(1) + 0.1 * torch.randn(len(x))


# --- a default device that is not the network's ---------------------------------------------------

FITS = {
    "exact last layer": lambda x: (network(), noisy_plane(x), Gaussian(), {}),
    "other units": lambda x: (network(), 5000 + 900 * noisy_plane(x), StudentT(), {}),
    "mixture": lambda x: (network(), noisy_plane(x), Gaussian(), {"last_layer": "sampled", "components": 2}),
    "batch norm": lambda x: (network(norm=True), noisy_plane(x), Gaussian(), {}),
    "counts": lambda x: (network(), torch.poisson(x.exp().mean(1)), NegativeBinomial(), {}),
    "labels": lambda x: (network(2), (x.sum(1) > 0).long(), Categorical(), {"batch_size": 16, "validation": 0.2}),
    "conditional": lambda x: (network(2), (x.sum(1) > 0).long(), Categorical(), {"last_layer": "conditional"}),
    "middle-sized": lambda x: (network(width=120), noisy_plane(x), Gaussian(), {"last_layer": "sampled"}),
}


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_is_the_same_whatever_the_default_device(name, path):
    x = torch.randn(40, 2)
    net, y, likelihood, options = FITS[name](x)
    options = {"recipe": QUICK, "progress": False} | options
    expected = drawn(livi.fit(net, (x, y), likelihood, **options))
    with default_elsewhere():
        posterior = livi.fit(net, (x, y), likelihood, **options)
        prediction = posterior.predict(x)
        assert posterior.diagnose(x, y, num_samples=16).findings
        assert all(metric(prediction, y) is not None for metric in METRICS.values() if metric.applies_to(prediction))
        posterior.save(path)
        livi.load(path, net).predict(x)
    torch.testing.assert_close(drawn(posterior), expected)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize("name", RIVALS)
def test_rivals_are_the_same_whatever_the_default_device(name):
    fit, package, options = RIVALS[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    x = torch.randn(40, 2)
    data, net, likelihood = (x, noisy_plane(x)), network(), Gaussian()
    expected = drawn(fit(net, data, likelihood, recipe=QUICK, **options))
    with default_elsewhere():
        posterior = fit(net, data, likelihood, recipe=QUICK, **options)
        posterior.predict(x)
    torch.testing.assert_close(drawn(posterior), expected)


def test_chains_and_densities_are_made_where_they_belong():
    x = torch.randn(40, 2)
    data, net, likelihood = (x, noisy_plane(x)), network(), Gaussian()
    with default_elsewhere():
        posterior = livi.fit(net, data, likelihood, recipe=QUICK, progress=False)
        polished = livi.polish(posterior, data, chains=2, draws=16, steps=60, progress=False)
        assert polished.predict(x).mean.device == x.device
        density = livi.fit_density(lambda theta: -0.5 * theta.square().sum(1), 2, steps=20, progress=False)
        assert density.diagnose(64).effective > 0


def test_the_shape_of_a_tail_is_found_where_the_weights_are():
    weights = torch.randn(200)
    expected = pareto_shape(weights)
    with torch.device("meta"):
        assert pareto_shape(weights) == expected


def test_batches_for_laplace_are_slices_of_the_examples_in_their_order():
    x, y = torch.randn(BATCH + 3, 2), torch.randn(BATCH + 3, 1)
    with torch.device("meta"):
        loader = Examples(x, y)
        batches = list(loader)
    assert len(loader.dataset) == BATCH + 3
    assert [len(targets) for _, targets in batches] == [BATCH, 3]
    assert batches[1][0].data_ptr() == x[BATCH:].data_ptr()
    torch.testing.assert_close(torch.cat([inputs for inputs, _ in batches]), x)


def test_random_numbers_are_drawn_on_the_generators_device(rng):
    place = torch.device("cpu")
    with default_elsewhere():
        found = [normal((3,), rng, torch.float32, place), uniform((3,), rng, torch.float32), permutation(5, 0)]
    assert {tensor.device for tensor in found} == {place}
    assert sorted(found[-1].tolist()) == [0, 1, 2, 3, 4]


# --- GPUs -----------------------------------------------------------------------------------------


def refuse(*_, **__):
    raise AssertionError("a fit on the CPU asked for a GPU")


def fit_and_predict():
    x = torch.randn(40, 2)
    data = x, noisy_plane(x)
    livi.fit(network(), data, Gaussian(), recipe=QUICK, progress=False).predict(x)
    livi.fit_density(lambda theta: -0.5 * theta.square().sum(1), 2, steps=5, progress=False)
    if importlib.util.find_spec("ivon") is not None:
        fit_ivon(network(), data, Gaussian(), recipe=QUICK, steps=5)


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_fits_on_the_cpu_leave_gpus_alone(monkeypatch):
    fit_and_predict()  # torch imports parts of itself on the way, and looks at these functions
    for name in ("device_count", "get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all", "_lazy_init"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    fit_and_predict()


def test_the_global_stream_of_one_gpu_is_seeded_and_put_back(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: seen.append(("get", device)) or "before")
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: seen.append((state, device)))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: seen.append(("seed", seed)))
    monkeypatch.setattr(torch.cuda, "manual_seed_all", refuse)
    state, gpu = torch.get_rng_state(), torch.device("cuda", 1)
    with global_stream(7, gpu):
        inside = torch.rand(3)
    assert seen == [("get", gpu), ("seed", 7), ("before", gpu)]
    assert torch.equal(inside, torch.rand(3, generator=torch.Generator().manual_seed(7)))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_device_without_double_precision_is_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"net: expected a device with float64.*got 'mps'.*pass device='cpu'"):
        checks.has_doubles("net", torch.device("mps"))
    assert checks.has_doubles("net", torch.device("cpu")) == torch.device("cpu")
    x = torch.randn(40, 2)
    monkeypatch.setattr(livi.network.Layout, "device", torch.device("mps"))
    with pytest.raises(ValueError, match=r"got 'mps'"):
        livi.plan(network(), (x, noisy_plane(x)), Gaussian())
