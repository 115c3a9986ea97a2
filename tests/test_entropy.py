"""The entropy estimators against closed forms: every constant, every noise, value and gradient."""

import math

import pytest
import torch
from torch.distributions import LowRankMultivariateNormal, MultivariateNormal

from livi import CMMNN, MLP, MMNN, Affine, Exact, Lanczos, Layout, PerLayer, SmallestSingularValue
from livi.family.entropy import importance_log_density
from livi.family.entropy.estimate import gaussian_constants
from livi.family.jacobian import dense_jacobian

CONVERGED = {
    "exact": Exact(),
    "exact by QR": Exact(qr_above=0.0),
    "exact, every term": Exact(exact_terms=True),
    "lanczos": Lanczos(num_probes=400, tolerance=1e-10, max_iterations=400),
}


def network():
    return Layout(torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.ELU(), torch.nn.Linear(6, 1)))  # 25 weights


def generators():
    layout = network()
    m = layout.num_params
    built = {
        "MLP": MLP(7, m, hidden=(12,)),
        "MLP with skip": MLP(30, m, hidden=(12,), activation=torch.nn.Tanh, skip=True, offset=True),
        "MLP, d > m": MLP(40, m, hidden=(50,)),
        "MMNN": MMNN((3, 3), m, hidden=((5, 5),), scale_sizes=layout.group_sizes),
        "CMMNN": CMMNN.for_layout(layout, budget=30.0, latent_dim=9),
        "PerLayer": PerLayer.for_layout(layout, budget=30.0),
    }
    return {name: generator.init_around(layout.flatten(), 0.3) for name, generator in built.items()}


NOISES = {
    "tiny": torch.tensor(1e-3, dtype=torch.float64),
    "scalar": torch.tensor(0.1, dtype=torch.float64),
    "large": torch.tensor(3.0, dtype=torch.float64),
    "diagonal": torch.linspace(0.05, 0.8, 25, dtype=torch.float64),
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("latent_dim", [1, 10, 25, 40])
def test_affine_generator_entropy_is_exact(latent_dim, noise):
    std = NOISES[noise]
    generator = Affine(latent_dim, 25)
    covariance = generator.skip @ generator.skip.T + (std**2).expand(25).diag()
    truth = MultivariateNormal(generator.offset, covariance).entropy()
    z = torch.randn(3, latent_dim)
    torch.testing.assert_close(Exact()(generator, z, std).nats, truth.expand(3))
    torch.testing.assert_close(Exact(qr_above=0.0)(generator, z, std).nats, truth.expand(3))
    with torch.no_grad():
        torch.testing.assert_close(Exact(chunk_size=4)(generator, z, std).nats, truth.expand(3))


@pytest.mark.parametrize("noise", NOISES)
def test_exact_terms_average_to_the_affine_entropy(noise):
    std = NOISES[noise]
    generator = Affine(10, 25)
    truth = MultivariateNormal(
        generator.offset, generator.skip @ generator.skip.T + (std**2).expand(25).diag()
    ).entropy()
    nats = Exact(exact_terms=True)(generator, torch.randn(4000, 10), std).nats
    assert abs(nats.mean() - truth) < 4.0 * nats.std() / 4000**0.5


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", generators())
def test_integrand_is_the_entropy_of_the_local_gaussian(name, noise):
    std, generator = NOISES[noise], generators()[name]
    z = torch.randn(3, generator.latent_dim)
    jacobian = dense_jacobian(generator, z)
    local = LowRankMultivariateNormal(generator(z), jacobian, (std**2).expand(3, 25)).entropy()
    torch.testing.assert_close(Exact()(generator, z, std).nats, local)


@pytest.mark.parametrize("name", generators())
def test_exact_terms_are_the_expected_log_density_of_the_linearised_model(name):
    # -E_{theta ~ N(g(z), D)} log N(theta; g - J z, J J^T + D), equations (A.9) to (A.16) by brute force
    std, generator = NOISES["diagonal"], generators()[name]
    z = torch.randn(2, generator.latent_dim)
    jacobian, mean = dense_jacobian(generator, z), generator(z)
    covariance = jacobian @ jacobian.mT + (std**2).diag()
    gaussian = MultivariateNormal(mean - (jacobian @ z[..., None])[..., 0], covariance)
    inverse = torch.linalg.inv(covariance)
    shift = mean - gaussian.mean
    expected = (
        0.5 * 25 * math.log(2 * math.pi)
        + 0.5 * torch.logdet(covariance)
        + 0.5 * torch.einsum("si,sij,sj->s", shift, inverse, shift)
        + 0.5 * (inverse.diagonal(dim1=1, dim2=2) * std**2).sum(1)
    )
    torch.testing.assert_close(Exact(exact_terms=True)(generator, z, std).nats, expected)


def test_exact_terms_tend_to_the_paper_s_limit():
    generator = generators()["MLP"]
    z = torch.randn(5, 7)
    gaps = []
    for sigma in (1e-1, 1e-2, 1e-3):
        full = Exact(exact_terms=True)(generator, z, torch.tensor(sigma)).nats
        limit = Exact()(generator, z, torch.tensor(sigma)).nats + 0.5 * (z.square().sum(1) - 7)
        gaps.append((full - limit).abs().max())
    assert gaps[2] < gaps[1] < gaps[0]
    assert gaps[2] < 1e-3


@pytest.mark.parametrize("noise", ["scalar", "diagonal"])
@pytest.mark.parametrize("name", generators())
def test_lanczos_value_is_within_its_standard_error_of_exact(name, noise):
    std, generator = NOISES[noise], generators()[name]
    z = torch.randn(4, generator.latent_dim)
    exact = Exact()(generator, z, std)
    estimate = CONVERGED["lanczos"](generator, z, std, torch.Generator().manual_seed(1))
    assert estimate.report.converged.all()
    assert (estimate.report.truncation < 1e-6).all()
    assert ((estimate.nats - exact.nats).abs() < 4.5 * estimate.report.standard_error + 1e-9).all()


@pytest.mark.parametrize("noise", ["scalar", "diagonal"])
@pytest.mark.parametrize("name", generators())
def test_lanczos_gradient_is_within_its_standard_error_of_exact(name, noise):
    std, generator = NOISES[noise].clone().requires_grad_(), generators()[name]
    parameters = [*generator.parameters(), std]
    z = torch.randn(2, generator.latent_dim)
    exact = flat_gradient(Exact()(generator, z, std).nats.sum(), parameters)
    rng = torch.Generator().manual_seed(2)
    estimator = Lanczos(num_probes=1, tolerance=1e-10, max_iterations=400)
    draws = torch.stack([flat_gradient(estimator(generator, z, std, rng).nats.sum(), parameters) for _ in range(150)])
    errors = (draws.mean(0) - exact).abs()
    standard_errors = draws.std(0) / 150**0.5
    # Thousands of entries: judge them together, and each by a generous multiple.
    assert (errors <= 6.0 * standard_errors + 1e-9).all()
    assert errors.norm() < 1.5 * standard_errors.norm() + 1e-9


def test_lanczos_says_when_it_was_cut_short():
    generator = generators()["MLP with skip"]
    report = Lanczos(num_probes=2, tolerance=1e-8, max_iterations=2)(
        generator, torch.randn(2, 30), torch.tensor(1e-3)
    ).report
    assert not report.converged.any()
    assert (report.residual > 1e-8).all()
    assert (report.truncation > 0).all()
    assert "raise max_iterations" in report.remedy


def test_lanczos_that_asks_nothing_in_between_is_held_to_its_tolerance():
    generator, z, noise_std = generators()["MLP with skip"], torch.randn(2, 30), torch.tensor(1e-3)
    for iterations, converged in ((2, False), (200, True)):
        estimator = Lanczos(max_iterations=iterations, check_every=iterations + 1)
        report = estimator(generator, z, noise_std).report
        assert report.products == 2 * iterations
        assert report.converged.tolist() == [converged] * 2
        assert (report.residual <= estimator.tolerance).tolist() == [converged] * 2
    report = Lanczos(max_iterations=2, check_every=3)(lambda z: z * torch.inf, z, noise_std).report
    assert not report.converged.any()


def test_lanczos_truncation_bounds_the_error_of_each_probe():
    # With all 2^d sign vectors as probes the trace is exact, and only truncation is left.
    generator = MLP(6, 25, hidden=(12,))
    z, std = torch.randn(1, 6), torch.tensor(0.05)
    exact = Exact()(generator, z, std).nats
    for iterations in (1, 2, 4):
        estimate = Lanczos(num_probes=4000, tolerance=0.0, max_iterations=iterations)(
            generator, z, std, torch.Generator().manual_seed(0)
        )
        slack = 0.5 * estimate.report.truncation + 4.5 * estimate.report.standard_error
        assert (estimate.nats - exact).abs() <= slack


@pytest.mark.parametrize(
    "spectrum",
    [[0.3] * 6, [0.1, 0.2, 0.4, 0.6, 0.8, 1.0], [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0], [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]],
    ids=["equal", "linear", "geometric", "singular"],
)
@pytest.mark.parametrize("shape", [(25, 6), (6, 25)])
def test_smallest_singular_value_bound_lies_below_and_touches_only_equal_spectra(spectrum, shape):
    m, d = shape
    u, v = torch.linalg.qr(torch.randn(m, 6)).Q, torch.linalg.qr(torch.randn(d, 6)).Q
    spectrum = torch.tensor(spectrum)
    generator = Affine(d, m)
    generator.skip.data = u @ spectrum.diag() @ v.T
    z, std = torch.randn(2, d), torch.tensor(0.2)
    exact = Exact()(generator, z, std).nats
    lower = SmallestSingularValue(tolerance=1e-10, max_iterations=2000)(generator, z, std)
    by_hand = (
        3.0 * torch.log(spectrum.min() ** 2 + 0.04) + (m - 6) * math.log(0.2) + 0.5 * m * (1 + math.log(2 * math.pi))
    )
    torch.testing.assert_close(lower.nats, by_hand.expand(2))
    assert lower.report.converged.all()
    assert (lower.nats <= exact + 1e-9).all()
    assert bool((exact - lower.nats < 1e-6).all()) == bool(spectrum.std() == 0)


@pytest.mark.parametrize("name", generators())
def test_smallest_singular_value_has_the_gradient_of_svd(name):
    std, generator = NOISES["diagonal"].clone().requires_grad_(), generators()[name]
    parameters = [*generator.parameters(), std]
    z = torch.randn(2, generator.latent_dim)
    a = dense_jacobian(lambda row: generator(row) / std, z)
    rank = min(a.shape[1:])
    smallest = torch.linalg.svdvals(a)[:, rank - 1]
    reference = 0.5 * rank * torch.log1p(smallest.square()) + std.log().sum() + 12.5 * (1 + math.log(2 * math.pi))
    estimate = SmallestSingularValue(tolerance=1e-10, max_iterations=5000)(generator, z, std)
    torch.testing.assert_close(estimate.nats, reference, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        flat_gradient(estimate.nats.sum(), parameters), flat_gradient(reference.sum(), parameters), rtol=1e-3, atol=1e-4
    )


def test_smallest_singular_value_says_when_it_is_no_bound():
    generator = Affine(200, 300)
    generator.skip.data = torch.linalg.qr(torch.randn(300, 200)).Q * torch.logspace(-3, 1, 200)
    report = SmallestSingularValue(tolerance=1e-6, max_iterations=3)(
        generator, torch.randn(1, 200), torch.tensor(0.01)
    ).report
    assert not report.converged.any()
    assert "too large after 3 iterations" in report.remedy


def test_qr_resolves_what_the_squared_matrix_loses():
    spectrum = torch.logspace(-14, 4, 8)
    generator = Affine(8, 25)
    generator.skip.data = torch.linalg.qr(torch.randn(25, 8)).Q * spectrum @ torch.linalg.qr(torch.randn(8, 8)).Q
    std = torch.tensor(1e-7)
    truth = 0.5 * (spectrum.square() + 1e-14).log().sum() + 17 * math.log(1e-7) + 12.5 * (1 + math.log(2 * math.pi))
    estimate = Exact()(generator, torch.randn(1, 8), std)
    assert abs(estimate.nats.item() - truth) < 1e-4
    assert estimate.report.condition > 1e7  # of the unsquared matrix
    assert estimate.report.converged.all()


@pytest.mark.parametrize("kind", ["indefinite", "too wide"])
def test_a_gram_matrix_beyond_rounding_is_an_error_where_qr_cannot_help(monkeypatch, kind):
    # Both by far more than any arithmetic rounds: an eigenvalue of -1e6, and a condition number of 1e22 whose matrix is
    # diagonal, so that no order of summation changes it.
    generator = Affine(8, 25)
    generator.skip.data = torch.eye(25, 8) * torch.logspace(-9, 3, 8)
    if kind == "indefinite":
        gram = torch.diag(torch.tensor([1e6, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1e6]))
        monkeypatch.setattr("livi.family.entropy.exact._gram", lambda *_: gram[None])
    with torch.no_grad(), pytest.raises(ValueError, match="singular to working precision; drop chunk_size"):
        Exact(chunk_size=4)(generator, torch.randn(1, 8), torch.tensor(1e-8))


@pytest.mark.parametrize("name", [*CONVERGED, "smallest"])
def test_value_is_the_same_in_float32(name):
    estimator = CONVERGED.get(name, SmallestSingularValue(tolerance=1e-4, max_iterations=2000))
    generator = generators()["MLP"]
    z, std = torch.randn(2, 7), torch.tensor(0.1)
    double = estimator(generator, z, std, torch.Generator().manual_seed(0)).nats
    single = estimator(generator.float(), z.float(), std.float(), torch.Generator().manual_seed(0)).nats
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=2e-3, atol=2e-3)


ESTIMATORS = [Exact(), Exact(exact_terms=True), Lanczos(num_probes=2), SmallestSingularValue()]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("shape", [(), (3_000_000,)])
def test_constants_of_many_weights_in_single_precision_lose_no_nats(estimator, shape):
    m, std = 3_000_000, torch.full(shape, 0.01).float().requires_grad_()
    generator = Affine(1, m).float()
    generator.skip.data.zero_()  # what is left are the constants
    estimate = estimator(generator, torch.zeros(1, 1).float(), std, torch.Generator().manual_seed(0))
    each = 0.5 * (1.0 + math.log(2.0 * math.pi)) + math.log(float(std.detach().flatten()[0]))
    assert gaussian_constants(std, m).item() == pytest.approx(m * each, rel=1e-12)
    assert estimate.nats.item() == pytest.approx(m * each, rel=1e-7)  # of ten million: rounded, once
    estimate.nats.sum().backward()
    torch.testing.assert_close(std.grad, torch.full(shape, 100.0 * m / std.numel()).float(), rtol=1e-6, atol=0.0)


def test_importance_density_of_an_affine_generator_is_exact():
    generator = Affine(5, 25)
    std = NOISES["diagonal"]
    gaussian = MultivariateNormal(generator.offset, generator.skip @ generator.skip.T + (std**2).diag())
    theta = gaussian.sample((6,))
    estimate = importance_log_density(generator, theta, std, latent_dim=5, inflation=1.0, num_importance=8)
    torch.testing.assert_close(estimate.log_prob, gaussian.log_prob(theta))
    assert (estimate.standard_error < 1e-6).all()
    inflated = importance_log_density(generator, theta, std, latent_dim=5, inflation=1.2, num_importance=4000)
    assert ((inflated.log_prob - gaussian.log_prob(theta)).abs() < 5 * inflated.standard_error).all()


def test_importance_density_of_a_curve_matches_quadrature():
    generator = MLP(1, 3, hidden=(6,), activation=torch.nn.Tanh)
    generator.head.weight.data *= 2.0
    std, z = torch.tensor(0.15), torch.randn(5, 1)
    theta = generator(z) + std * torch.randn(5, 3)
    grid = torch.linspace(-8, 8, 20001)[:, None]
    logs = -0.5 * ((theta[:, None] - generator(grid)) / std).square().sum(-1) - 0.5 * grid[:, 0].square()
    truth = torch.logsumexp(logs, 1) + math.log(16 / 20000) - 2.0 * math.log(2 * math.pi) - 3 * std.log()
    estimate = importance_log_density(
        generator, theta, std, latent_dim=1, starts=z, num_importance=20000, inflation=1.5
    )
    assert ((estimate.log_prob - truth).abs() < 5 * estimate.standard_error + 1e-3).all()


def test_importance_density_of_a_fold_needs_a_start_on_either_side():
    def fold(z):
        return torch.cat([z.square(), torch.zeros_like(z)], 1)

    std, z = torch.tensor(0.1), torch.tensor([[0.8], [1.5]])
    theta = fold(z)
    grid = torch.linspace(-8, 8, 20001)[:, None]
    logs = -0.5 * ((theta[:, None] - fold(grid)) / std).square().sum(-1) - 0.5 * grid[:, 0].square()
    truth = torch.logsumexp(logs, 1) + math.log(16 / 20000) - 1.5 * math.log(2 * math.pi) - 2 * std.log()
    rng = torch.Generator().manual_seed(0)
    options = {"latent_dim": 1, "num_importance": 4000, "inflation": 1.3, "rng": rng}
    one = importance_log_density(fold, theta, std, starts=z, **options)
    both = importance_log_density(fold, theta, std, starts=torch.stack([z, -z, z + 0.1]), **options)
    assert ((both.log_prob - truth).abs() < 5 * both.standard_error + 1e-6).all()
    assert ((one.log_prob - truth + math.log(2.0)).abs() < 5 * one.standard_error + 1e-6).all()
    torch.testing.assert_close(both.preimages, torch.full((2,), 2.0))
    torch.testing.assert_close(one.preimages, torch.ones(2))


@pytest.mark.parametrize("estimator", [Exact(), Lanczos(num_probes=2), SmallestSingularValue()])
def test_a_broken_generator_gives_nan_and_no_exception(estimator):
    generator = MLP(60, 80, hidden=(12,))
    with torch.no_grad():
        generator.head.weight.fill_(float("nan"))
        nats = estimator(generator, torch.randn(2, 60), torch.tensor(0.1)).nats
    assert torch.isnan(nats).all()


@pytest.mark.parametrize("hidden", [(), (6,)])
def test_generators_that_the_chain_rule_does_not_fit_use_forward_mode(hidden):
    class Squared(MLP):
        def branch(self, z):
            return super().branch(z) ** 2

    for generator in (Squared(3, 9, hidden=(4,)), MLP(3, 9, hidden=hidden, activation=lambda: torch.nn.Softmax(1))):
        z = torch.randn(2, 3)
        reference = torch.func.vmap(torch.func.jacfwd(lambda row, g=generator: g(row[None])[0]))(z)
        torch.testing.assert_close(dense_jacobian(generator, z), reference)


def test_wrong_noise_is_an_error():
    generator = Affine(5, 25)
    for estimator in (Exact(), Lanczos(), SmallestSingularValue()):
        with pytest.raises((ValueError, RuntimeError), match=r"noise_std|size of tensor"):
            estimator(generator, torch.randn(2, 5), torch.ones(7))


def flat_gradient(value, parameters):
    gradients = torch.autograd.grad(value, parameters, allow_unused=True, retain_graph=True)
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat([torch.zeros(p.numel()) if g is None else g.reshape(-1) for g, p in pairs])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("estimator", [Exact(), Lanczos(), SmallestSingularValue()], ids=repr)
def test_half_precision_is_refused_with_a_remedy(estimator, dtype):
    z, noise_std = torch.ones(2, 3, dtype=dtype), torch.ones((), dtype=dtype)
    with pytest.raises(ValueError, match=r"float32 or float64, got torch\..*float16.*; fit `net\.float\(\)`"):
        estimator(lambda z: 2.0 * z, z, noise_std)
