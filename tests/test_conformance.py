"""Every generator, estimator, noise and family, swept: what a new one must satisfy to be taken in.

A generator gives a Jacobian, a noise whitens it, an estimator reads the product: what goes wrong goes wrong between two
of them, so the sweep holds every pair and not every combination.
"""

import io
from itertools import cycle

import pytest
import torch
from support.pairwise import every_pair
from torch import nn

import livi
from livi import ImplicitPosterior, Layout, rivals
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
FAMILIES = {
    "AVB": lambda layout: rivals.Adversarial(layout, GENERATORS["MLP with skip"](layout), hidden=(8,)),
    "AVB, adaptive": lambda layout: rivals.Adversarial(layout, GENERATORS["MLP with skip"](layout), adaptive=True),
    "KIVI": lambda layout: rivals.KernelImplicit(
        layout, GENERATORS["Affine"](layout), NOISES["diagonal"](layout), num_contrast=20
    ),
    "KIVI, prior": lambda layout: rivals.KernelImplicit(
        layout, GENERATORS["Affine"](layout), NOISES["diagonal"](layout), num_contrast=20, adaptive=False
    ),
    "SIVI": lambda layout: rivals.SemiImplicit(
        layout, GENERATORS["MLP"](layout), NOISES["diagonal"](layout), num_mixing=10
    ),
    "MNF": lambda layout: rivals.MultiplicativeFlow(layout, hidden=6),
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
@pytest.mark.parametrize(
    ("generator", "noise", "estimator", "dtype"),
    every_pair(GENERATORS, NOISES, ESTIMATORS, [torch.float32, torch.float64]),
)
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
@pytest.mark.parametrize(("generator", "noise", "estimator"), every_pair(GENERATORS, NOISES, ESTIMATORS))
def test_entropy_alone_reaches_generator_and_noise(generator, noise, estimator, device):
    posterior = build(generator, noise, device=device)
    latents = posterior.draw(2, torch.Generator().manual_seed(0)).latents
    estimate = posterior.entropy_at(latents, ESTIMATORS[estimator], torch.Generator().manual_seed(1))[0]
    assert estimate.nats.shape == (2,)
    estimate.nats.sum().backward()
    reached = {n for n, p in posterior.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    # Offsets move the mean alone; all else must feel the entropy.
    assert any(name.startswith("generators") for name in reached)
    assert {n for n, _ in posterior.named_parameters() if n.startswith("noises")} <= reached


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "dtype"), every_pair(FAMILIES, [torch.float32, torch.float64]))
def test_a_family_is_finite_reproducible_and_learns_all_that_it_names(name, dtype, device):
    family = FAMILIES[name](network(dtype, device)).to(device, dtype)
    family.begin_around(family.layout.flatten()[None], 0.2)
    bound = bound_of(family, "Exact")
    family.prepare_step(bound.prior, torch.Generator().manual_seed(1))
    terms = bound(*data(family), torch.Generator().manual_seed(0))
    again = bound(*data(family), torch.Generator().manual_seed(0))
    assert terms.non_finite() == ()
    assert terms.bound.dtype == dtype
    torch.testing.assert_close(terms.bound, again.bound, rtol=0, atol=0)
    terms.bound.backward()
    learned = [parameter for group in family.rates() for parameter in group]
    assert learned
    for parameter in learned:
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().sum() > 0
    ours = {id(parameter) for parameter in learned}
    for key, parameter in family.named_parameters():
        assert id(parameter) in ours or parameter.grad is None, f"{key}, which the family trains itself"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_begins_where_it_is_put_and_comes_back_from_its_state(name):
    layout = network(torch.float64, "cpu")
    family, fresh = FAMILIES[name](layout), FAMILIES[name](layout)
    row = torch.randn(layout.num_params)
    family.begin_around(row[None], 0.02)
    theta = family.sample(400, torch.Generator().manual_seed(0)).detach()
    assert (theta.mean(0) - row).square().mean().sqrt() < 0.05
    assert (family.centre() - row).square().mean().sqrt() < 0.05
    family.prepare_step(livi.Normal(1.0), torch.Generator().manual_seed(1))
    fresh.load_state_dict(family.state_dict())
    for one in (family, fresh):
        one.prepare_step(livi.Normal(1.0), torch.Generator().manual_seed(2))
    torch.testing.assert_close(fresh.state_dict(), family.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(*(one.sample(3, torch.Generator().manual_seed(0)) for one in (family, fresh)))


# The states of a generator and of a noise know nothing of each other: every one of each will do.
@pytest.mark.parametrize(("generator", "noise"), list(zip(GENERATORS, cycle(NOISES), strict=False)))
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
    families = {kind for kind in vars(rivals).values() if isinstance(kind, type) and issubclass(kind, livi.Family)}
    families -= {rivals.DropoutWeights}  # for networks with dropout; swept among the methods
    assert {type(FAMILIES[name](network(torch.float64, "cpu"))) for name in FAMILIES} == families
