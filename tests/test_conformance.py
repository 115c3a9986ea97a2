"""Every generator x estimator x noise, swept: what a new one must satisfy to be taken in."""

import io

import pytest
import torch
from torch import nn

import livi
from livi import ImplicitPosterior, Layout
from livi.family.generators import Generator

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
GENERATORS = {
    "Affine": lambda layout: livi.Affine.for_layout(layout, latent_dim=7),
    "MLP": lambda layout: livi.MLP.for_layout(layout, budget=12.0, latent_dim=6),
    "MLP with skip": lambda layout: livi.MLP.for_layout(layout, activation=nn.Tanh, skip=True, offset=True),
    "MMNN": lambda layout: livi.MMNN.for_layout(layout, budget=12.0, latent_dim=9),
    "MMNN with scale": lambda layout: livi.MMNN.for_layout(
        layout, budget=12.0, latent_dim=9, offset=True, scale_sizes=layout.group_sizes
    ),
    "CMMNN": lambda layout: livi.CMMNN.for_layout(layout, budget=24.0, latent_dim=9),
    "PerLayer": lambda layout: livi.PerLayer.for_layout(layout, budget=24.0),
}
ESTIMATORS = {
    "Exact": livi.Exact(),
    "Exact, every term": livi.Exact(exact_terms=True),
    "SmallestSingularValue": livi.SmallestSingularValue(max_iterations=2000),
    "Lanczos": livi.Lanczos(num_probes=3, tolerance=1e-3),
}
NOISES = {
    "fixed": lambda layout: livi.FixedNoise(0.1),  # noqa: ARG005
    "learned": lambda layout: livi.LearnedNoise(0.1),  # noqa: ARG005
    "per layer": lambda layout: livi.LayerNoise(layout.group_sizes, 0.1),
    "diagonal": lambda layout: livi.DiagonalNoise(layout.num_params, 0.1),
    "relative": lambda layout: livi.RelativeNoise.for_layout(layout, 0.1),
}


def network(dtype, device):
    net = nn.Sequential(nn.Linear(2, 5), nn.ELU(), nn.Linear(5, 4), nn.ELU(), nn.Linear(4, 1))  # 44 weights
    return Layout(net.to(device, dtype))


def build(generator, noise, dtype=torch.float64, device="cpu"):
    layout = network(dtype, device)
    built = GENERATORS[generator](layout).init_around(layout.flatten(), 0.2)
    made = NOISES[noise](layout)
    made.init_around(layout.flatten())
    return ImplicitPosterior(layout, built, made)


def bound_of(posterior, estimator):
    prior = livi.Normal(learned=True)
    return livi.Bound(posterior, livi.Gaussian(), prior, num_data=20, entropy=ESTIMATORS[estimator], num_samples=4)


def data(posterior):
    kind = {"dtype": posterior.layout.dtype, "device": posterior.layout.device}
    x = torch.linspace(-1, 1, 10).reshape(5, 2).to(**kind)
    return x, x.sum(1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("generator", GENERATORS)
def test_bound_is_finite_reproducible_and_reaches_every_parameter(generator, estimator, noise, dtype, device):
    posterior = build(generator, noise, dtype, device)
    bound = bound_of(posterior, estimator)
    terms = bound(*data(posterior), torch.Generator().manual_seed(0))
    again = bound(*data(posterior), torch.Generator().manual_seed(0))
    assert terms.non_finite() == ()
    assert terms.bound.shape == ()
    assert terms.bound.dtype == dtype
    torch.testing.assert_close(terms.bound, again.bound, rtol=0, atol=0)
    assert all(report.converged.all() for report in terms.reports)
    terms.bound.backward()
    for name, parameter in bound.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("generator", GENERATORS)
def test_entropy_alone_reaches_generator_and_noise(generator, noise, device):
    posterior = build(generator, noise, device=device)
    latents = posterior.draw(2, torch.Generator().manual_seed(0)).latents
    for name, estimator in ESTIMATORS.items():
        posterior.zero_grad()
        estimate = posterior.entropy_at(latents, estimator, torch.Generator().manual_seed(1))[0]
        assert estimate.nats.shape == (2,)
        estimate.nats.sum().backward()
        reached = [p for p in posterior.parameters() if p.grad is not None and p.grad.abs().sum() > 0]
        # Offsets move the mean alone; all else must feel the entropy.
        assert len(reached) >= 1, name
        learned_noise = [p for n, p in posterior.named_parameters() if n.startswith("noises")]
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in learned_noise), name


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("generator", GENERATORS)
def test_state_dict_round_trip_gives_the_same_draws(generator, noise):
    saved, fresh = build(generator, noise), build(generator, noise)
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    before = saved.sample(3, torch.Generator().manual_seed(0))
    assert not torch.equal(before, fresh.sample(3, torch.Generator().manual_seed(0))) or noise == "fixed"
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(fresh.sample(3, torch.Generator().manual_seed(0)), before, rtol=0, atol=0)


@pytest.mark.parametrize("generator", GENERATORS)
def test_rows_are_independent(generator):
    posterior = build(generator, "fixed")
    built = posterior.generators[0]
    z = torch.randn(5, built.latent_dim)
    torch.testing.assert_close(built(z)[2:3], built(z[2:3]))
    assert isinstance(built, Generator)
    assert built(z).shape == (5, posterior.num_params)


@pytest.mark.parametrize("generator", GENERATORS)
def test_generators_work_under_grad_vmap_and_jvp(generator):
    built = build(generator, "fixed").generators[0]
    z = torch.randn(3, built.latent_dim)
    forward = torch.func.vmap(lambda row: built(row[None])[0])(z)
    torch.testing.assert_close(forward, built(z))
    tangent = torch.func.jvp(built, (z,), (torch.ones_like(z),))[1]
    numeric = (built(z + 1e-6) - built(z - 1e-6)) / 2e-6
    torch.testing.assert_close(tangent, numeric, rtol=1e-4, atol=1e-6)


def test_every_public_class_is_in_the_sweep():
    for room, swept in (("generators", GENERATORS), ("noise", NOISES)):
        assert swept, room
    from livi.family import generators, noise

    classes = {
        name
        for name, kind in vars(generators).items()
        if isinstance(kind, type) and issubclass(kind, Generator) and kind is not Generator
    }
    assert {name for name in classes if not any(key.startswith(name) for key in GENERATORS)} == set()
    noises = [
        k for k in vars(noise).values() if isinstance(k, type) and issubclass(k, noise.Noise) and k is not noise.Noise
    ]
    assert len(noises) == len(NOISES)
