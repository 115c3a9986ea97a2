"""Every scheme draws rows that are exactly N(0, I_d), and differs from the others in how rows depend on each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from livi.draws import normal, rademacher
from livi.family.latents import Antithetic, Independent, Latents, Orthogonal, mirrored

SCHEMES = {
    "independent": Independent(),
    "antithetic": Antithetic(),
    "orthogonal": Orthogonal(),
    "orthogonal, not mirrored": Orthogonal(antithetic=False),
}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES.keys())
mirrored_schemes = pytest.mark.parametrize("scheme", [Antithetic(), Orthogonal()], ids=["antithetic", "orthogonal"])
# Fewer rows than latents, as many, more (so that there are several frames), an odd number, a single latent.
sizes = pytest.mark.parametrize(("num_samples", "latent_dim"), [(1, 3), (2, 3), (3, 3), (7, 3), (8, 2), (4, 1), (5, 1)])

CPU = torch.device("cpu")
REPLICATES = 1_000


def replicated(scheme: Latents, num_samples: int, latent_dim: int, rng: torch.Generator) -> Tensor:  # (R, S, d)
    draws = [scheme.draw(num_samples, latent_dim, rng, dtype=torch.float64) for _ in range(REPLICATES)]
    return torch.stack(draws)


def standard_scores(values: Tensor, expected: Tensor | float) -> Tensor:  # (R, ...) -> (...)
    """How many of its standard errors the mean over replicates is off."""
    return (values.mean(0) - expected) / (values.std(0) / math.sqrt(values.shape[0]))


def p_value(sample: Tensor, distribution: stats.rv_frozen) -> float:
    return float(stats.kstest(sample.numpy(), distribution.cdf).pvalue)


# --- each row by itself ---------------------------------------------------------------------------


@sizes
@every_scheme
def test_rows_have_the_moments_of_a_standard_normal(scheme, num_samples, latent_dim, rng):
    z = replicated(scheme, num_samples, latent_dim, rng)
    outer = z[..., :, None] * z[..., None, :]
    assert standard_scores(z, 0.0).abs().max() < 5.0
    assert standard_scores(outer, torch.eye(latent_dim)).abs().max() < 5.0
    assert standard_scores(z**3, 0.0).abs().max() < 5.0
    assert standard_scores(z**4, 3.0).abs().max() < 5.0


@sizes
@every_scheme
def test_coordinates_and_radii_have_the_right_distribution(scheme, num_samples, latent_dim, rng):
    z = replicated(scheme, num_samples, latent_dim, rng)
    direction = torch.ones(latent_dim) / math.sqrt(latent_dim)
    for row in z.unbind(1):  # over replicates, each row is an independent sample
        assert p_value(row[:, 0], stats.norm()) > 1e-4
        assert p_value(row @ direction, stats.norm()) > 1e-4
        assert p_value(row.norm(dim=1), stats.chi(latent_dim)) > 1e-4


@every_scheme
def test_shape_dtype_and_device_are_as_asked(scheme, rng):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        z = scheme.draw(5, 3, rng, dtype=dtype, device="cpu")
        assert (z.shape, z.dtype, z.device) == ((5, 3), dtype, CPU)
        assert bool(torch.isfinite(z).all())
    assert scheme.draw(2, 2, rng).dtype == torch.float32


# --- rows together --------------------------------------------------------------------------------


def test_independent_rows_are_uncorrelated_in_every_even_moment(rng):
    z = replicated(Independent(), 2, 2, rng)
    products = z[:, 0, :, None] * z[:, 1, None, :]
    squares = (z[:, 0, :, None] ** 2 - 1) * (z[:, 1, None, :] ** 2 - 1)
    assert standard_scores(products, 0.0).abs().max() < 5.0
    assert standard_scores(squares, 0.0).abs().max() < 5.0


@pytest.mark.parametrize("num_samples", [2, 6, 14])
@mirrored_schemes
def test_odd_functions_cancel_exactly(scheme, num_samples, rng):
    z = scheme.draw(num_samples, 3, rng, dtype=torch.float64)
    half = num_samples // 2
    for function in (lambda z: z, lambda z: z**3, torch.sin, lambda z: z.sum(1) * z[:, 0] ** 2):
        assert torch.equal(function(z)[half:], -function(z)[:half])


@pytest.mark.parametrize("num_samples", [1, 3, 9])
@mirrored_schemes
def test_odd_last_row_of_the_first_half_stands_alone(scheme, num_samples, rng):
    z = scheme.draw(num_samples, 3, rng, dtype=torch.float64)
    pairs = num_samples // 2
    assert z.shape == (num_samples, 3)
    assert torch.equal(z[pairs + 1 :], -z[:pairs])
    assert not any(torch.equal(z[pairs], -row) for row in z)


def test_schemes_say_whether_they_are_antithetic(rng):
    for scheme in SCHEMES.values():
        z = scheme.draw(6, 4, rng)
        assert scheme.antithetic == torch.equal(z[3:], -z[:3])


@pytest.mark.parametrize(("num_samples", "latent_dim"), [(1, 1), (2, 5), (5, 5), (12, 5), (11, 4)])
@pytest.mark.parametrize("antithetic", [True, False])
def test_rows_of_a_frame_are_orthogonal(num_samples, latent_dim, antithetic, rng):
    z = Orthogonal(antithetic).draw(num_samples, latent_dim, rng, dtype=torch.float64)
    directions = z[: (num_samples + 1) // 2] if antithetic else z
    for frame in directions.split(latent_dim):
        gram = frame @ frame.T
        torch.testing.assert_close(gram, gram.diagonal().diag(), rtol=0, atol=1e-12)


def test_frames_are_independent_of_each_other(rng):
    z = replicated(Orthogonal(antithetic=False), 4, 2, rng)
    between = z[:, :2] @ z[:, 2:].mT
    assert between.abs().mean() > 0.1
    assert standard_scores(between, 0.0).abs().max() < 5.0
    assert standard_scores(between**2, 2.0).abs().max() < 5.0


def test_full_frame_has_no_directional_error(rng):
    z = Orthogonal(antithetic=False).draw(6, 6, rng, dtype=torch.float64)
    unit = z / z.norm(dim=1, keepdim=True)
    torch.testing.assert_close(unit.T @ unit, torch.eye(6))


def test_radii_within_a_frame_are_independent(rng):
    radii = replicated(Orthogonal(antithetic=False), 2, 3, rng).square().sum(2) - 3.0
    assert standard_scores(radii[:, 0] * radii[:, 1], 0.0).abs() < 5.0


def test_orthogonal_draws_average_an_anisotropic_quadratic_with_less_variance(rng):
    weights = torch.tensor([10.0, 0.0, -10.0, 5.0])

    def spread(scheme: Latents) -> Tensor:
        averages = (replicated(scheme, 4, 4, rng) ** 2 * weights).sum(2).mean(1)
        return averages.var()

    # The ratio of two variances of R values has a relative standard error of about 2 / sqrt(R).
    assert spread(Orthogonal(antithetic=False)) / spread(Independent()) < 1.0 - 5.0 * 2.0 / math.sqrt(REPLICATES)


# --- randomness -----------------------------------------------------------------------------------


@every_scheme
def test_same_seed_gives_the_same_draw_and_another_seed_another(scheme):
    first, second = torch.Generator().manual_seed(7), torch.Generator().manual_seed(7)
    one = scheme.draw(5, 3, first)
    assert torch.equal(one, scheme.draw(5, 3, second))
    assert not torch.equal(one, scheme.draw(5, 3, second))
    assert not torch.equal(one, scheme.draw(5, 3, torch.Generator().manual_seed(8)))


@every_scheme
def test_given_rng_is_the_only_source(scheme, rng):
    state = torch.random.get_rng_state()
    scheme.draw(5, 3, rng)
    assert torch.equal(torch.random.get_rng_state(), state)


@every_scheme
def test_without_an_rng_torchs_own_is_used(scheme):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        one, two = scheme.draw(5, 3), scheme.draw(5, 3)
        torch.manual_seed(5)
        assert torch.equal(scheme.draw(5, 3), one)
    assert not torch.equal(one, two)


def test_signs_are_fair_and_reproducible(rng):
    signs = rademacher((REPLICATES, 4), rng, torch.float64, CPU)
    assert signs.dtype == torch.float64
    assert torch.equal(signs.abs(), torch.ones_like(signs))
    assert standard_scores(signs, 0.0).abs().max() < 5.0
    assert standard_scores(signs[:, :1] * signs[:, 1:], 0.0).abs().max() < 5.0
    again = rademacher((REPLICATES, 4), torch.Generator().manual_seed(0), torch.float64, CPU)
    assert torch.equal(again, signs)


def test_normal_numbers_are_torchs(rng):
    expected = torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    assert torch.equal(normal((3, 2), rng, torch.float32, CPU), expected)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_samples", "latent_dim", "error", "message"),
    [
        (0, 3, ValueError, "num_samples: expected at least 1, got 0"),
        (-2, 3, ValueError, "num_samples: expected at least 1, got -2"),
        (2.0, 3, TypeError, "num_samples: expected an int, got float"),
        (True, 3, TypeError, "num_samples: expected an int, got bool"),
        (2, 0, ValueError, "latent_dim: expected at least 1, got 0"),
        (2, 3.0, TypeError, "latent_dim: expected an int, got float"),
    ],
)
@every_scheme
def test_sizes_must_be_positive_integers(scheme, num_samples, latent_dim, error, message):
    with pytest.raises(error, match=message):
        scheme.draw(num_samples, latent_dim)


@pytest.mark.parametrize(
    ("rng", "words"),
    [
        (0, r"int 0; pass torch.Generator\(\).manual_seed\(0\)"),
        (7, r"int 7; pass torch.Generator\(\).manual_seed\(7\)"),
        (True, "bool True; pass"),
        (np.random.default_rng(0), "Generator; pass"),
        ("seed", "str; pass"),
    ],
)
@every_scheme
def test_a_seed_is_not_taken_for_a_generator(scheme, rng, words):
    with pytest.raises(TypeError, match=f"rng: expected a torch.Generator or None, got {words}"):
        scheme.draw(2, 3, rng)


def test_mirrored_asks_for_half_of_the_rows_rounded_up():
    asked = []

    def draw(rows: int) -> Tensor:
        asked.append(rows)
        return torch.ones(rows, 1)

    assert mirrored(5, draw).flatten().tolist() == [1, 1, 1, -1, -1]
    assert mirrored(4, draw).flatten().tolist() == [1, 1, -1, -1]
    assert asked == [3, 2]
