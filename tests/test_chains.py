"""Microcanonical chains against targets that are known, and what measures their agreement against series that are."""

import math

import pytest
import torch

from livi.sampling.chains import MovingChains, _hopeless, _kick, differentiated, not_lost, run_chains
from livi.sampling.convergence import effective_size, split_rhat

SETTINGS = {"steps": 2000, "warm_up": 600, "draws": 350}


def gaussian(mean, factor):
    """N(mean, factor factor^T), and its log density up to a constant."""
    inverse = torch.linalg.inv(factor)
    return differentiated(lambda x: -0.5 * ((x - mean) @ inverse.T).square().sum(1))


def from_draws(mean, factor, rng, chains=64):
    return mean + torch.randn(chains, len(mean), generator=rng, dtype=mean.dtype) @ factor.T


def off_by(draws, expected):
    """How many standard errors the mean over independent chains lies from what is expected: (T, C, k) -> (k,)."""
    each = draws.mean(0)
    return (each.mean(0) - expected) / (each.std(0) / math.sqrt(each.shape[0]))


# --- chains that are lost -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "levels", [[0.0, -1e6], [0.0, -1.0, -1e6, -1e6], [0.0, float("nan")], [0.0, -1.0, -float("inf")]]
)
def test_chains_far_below_the_others_do_not_hold_even_where_they_are_half(levels):
    sound = torch.tensor([level > -10.0 for level in levels])
    assert torch.equal(not_lost(torch.tensor(levels), dim=5), sound)
    found = _hopeless(torch.tensor([levels]).expand(10, -1), torch.zeros(len(levels)), 5)
    assert [i not in found for i in range(len(levels))] == sound.tolist()


def test_chains_that_diverge_are_no_measure_for_others():
    levels = torch.tensor([[1e6, 1e6, 0.0, -1.0]]).expand(10, -1)
    assert list(_hopeless(levels, torch.tensor([0.9, 0.9, 0.0, 0.0]), 5)) == [0, 1]


# --- targets that are known -----------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 5, 40])
def test_mean_and_covariance_of_a_gaussian_are_those_of_small_energy_errors(rng, dim):
    mean = torch.linspace(-2.0, 3.0, dim)
    factor = torch.eye(dim) + 0.3 * torch.randn(dim, dim, generator=rng).tril(-1) / math.sqrt(dim)
    start = from_draws(mean, factor, rng)
    run = run_chains(gaussian(mean, factor), start, rng=rng, energy_error=1e-7, **SETTINGS)
    unit = (run.draws - mean) @ torch.linalg.inv(factor).T
    assert off_by(unit, 0.0).abs().max() < 4.5
    assert off_by(unit.square(), 1.0).abs().max() < 4.5
    assert run.dropped == {}
    assert run.failed == 0.0


def test_the_default_step_size_changes_variances_by_a_few_per_cent(rng):
    mean, factor = torch.zeros(30), torch.eye(30)
    run = run_chains(gaussian(mean, factor), from_draws(mean, factor, rng), rng=rng, **SETTINGS)
    assert 0.95 < run.draws.square().mean() < 1.0
    assert run.gradients == 2 * SETTINGS["steps"] + 1
    assert 2e-4 < run.energy_error.median() < 1.5e-3


def test_an_ill_conditioned_gaussian_is_kept_and_its_width_found(rng):
    widths = torch.logspace(-2, 0, 20)
    run = run_chains(
        gaussian(torch.zeros(20), widths.diag()),
        from_draws(torch.zeros(20), widths.diag(), rng),
        rng=rng,
        energy_error=1e-6,
        **SETTINGS,
    )
    unit = run.draws / widths
    assert off_by(unit, 0.0).abs().max() < 4.5
    assert off_by(unit.square(), 1.0).abs().max() < 4.5
    assert run.length == pytest.approx(float(widths.norm()), rel=0.15)


def test_chains_come_from_far_away_and_forget_where_they_began(rng):
    start = torch.full((32, 10), 8.0)
    settings = {"steps": 3000, "warm_up": 1500, "draws": 300}
    run = run_chains(gaussian(torch.zeros(10), torch.eye(10)), start, rng=rng, energy_error=1e-5, **settings)
    assert off_by(run.draws, 0.0).abs().max() < 4.5
    assert split_rhat(run.draws).max() < 1.05


def test_single_precision_gives_the_same_distribution(rng):
    mean, factor = torch.zeros(10, dtype=torch.float32), torch.eye(10, dtype=torch.float32)
    run = run_chains(gaussian(mean, factor), from_draws(mean, factor, rng), rng=rng, energy_error=1e-6, **SETTINGS)
    assert run.draws.dtype == torch.float32
    assert off_by(run.draws.square(), 1.0).abs().max() < 4.5


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_the_step_size_follows_the_units_of_the_target(rng, scale):
    factor = scale * torch.eye(10)
    start = from_draws(torch.zeros(10), factor, rng)
    run = run_chains(gaussian(torch.zeros(10), factor), start, rng=rng, **SETTINGS)
    assert 0.93 < run.draws.div(scale).square().mean() < 1.05
    assert run.length == pytest.approx(scale * math.sqrt(10.0), rel=0.3)


def test_the_same_random_numbers_give_the_same_chains():
    target = gaussian(torch.zeros(3), torch.eye(3))

    def drawn(seed):
        rng = torch.Generator().manual_seed(seed)
        return run_chains(target, torch.ones(4, 3), rng=rng, steps=30, warm_up=10, draws=5).draws

    assert drawn(1).equal(drawn(1))
    assert not drawn(1).equal(drawn(2))


# --- chains that do not hold ----------------------------------------------------------------------


def test_a_chain_that_starts_without_a_density_is_left_out(rng):
    start = torch.randn(5, 3, generator=rng)
    start[2] = float("nan")
    run = run_chains(gaussian(torch.zeros(3), torch.eye(3)), start, rng=rng, steps=100, warm_up=50, draws=10)
    assert run.draws.shape == (10, 4, 3)
    assert torch.isfinite(run.draws).all()
    assert run.dropped == {2: "started where the log density is not finite"}


def test_a_chain_far_below_the_others_is_left_out(rng):
    """A bump at 0 on which four chains are, and one on a plain 1,000 nats lower."""

    def log_density(x):
        near = -0.5 * x.square().sum(1)
        return torch.where(x[:, 0] > 50.0, -1000.0 - 0.5 * (x - 100.0).square().sum(1), near)

    start = torch.randn(5, 3, generator=rng)
    start[4] += 100.0
    run = run_chains(differentiated(log_density), start, rng=rng, steps=200, warm_up=100, draws=20)
    assert list(run.dropped) == [4]
    assert "nats below the others" in run.dropped[4]


def test_a_step_to_where_there_is_no_density_is_not_taken(rng):
    """log sqrt(1 - |x|^2) and its slope end at the border of a ball."""
    target = differentiated(lambda x: 0.5 * (1.0 - x.square().sum(1)).log())
    run = run_chains(target, 0.1 * torch.randn(8, 4, generator=rng), rng=rng, steps=400, warm_up=200, draws=50)
    assert torch.isfinite(run.draws).all()
    assert run.draws.norm(dim=-1).max() < 1.0


@pytest.mark.parametrize(
    ("start", "settings", "message"),
    [
        (torch.full((2, 3), float("nan")), {}, "finite log density, got none"),
        (torch.zeros(2, 1), {}, "at least 2 weights"),
        (torch.zeros(2, 3), {"draws": 60}, "expected at least 110"),
    ],
)
def test_what_cannot_run_says_why(start, settings, message):
    dim = start.shape[1]
    with pytest.raises(ValueError, match=message):
        run_chains(
            gaussian(torch.zeros(dim), torch.eye(dim)), start, **({"steps": 100, "warm_up": 50, "draws": 5} | settings)
        )


def test_no_chain_that_holds_is_an_error(rng):
    """A density whose reported value has nothing to do with its slope."""

    def target(x):
        return 1e3 * torch.randn(len(x), generator=rng), -x

    with pytest.raises(ValueError, match="at least one of 3 to hold, got none"):
        run_chains(target, torch.randn(3, 4, generator=rng), rng=rng, steps=100, warm_up=50, draws=5)


# --- agreement ------------------------------------------------------------------------------------


def test_independent_numbers_count_in_full(rng):
    values = torch.randn(200, 8, 20, generator=rng)
    assert effective_size(values).mean() == pytest.approx(1600.0, rel=0.1)
    assert split_rhat(values).max() < 1.02


def test_the_effective_size_of_an_autoregression_is_known(rng):
    """x_t = a x_{t-1} + noise has (1 - a) / (1 + a) effective draws for each."""
    a, count = 0.8, 4000
    values = torch.empty(count, 4, 10)
    values[0] = torch.randn(4, 10, generator=rng)
    for t in range(1, count):
        values[t] = a * values[t - 1] + math.sqrt(1 - a**2) * torch.randn(4, 10, generator=rng)
    assert effective_size(values).mean() == pytest.approx(4 * count * (1 - a) / (1 + a), rel=0.1)


def test_chains_in_different_places_do_not_agree(rng):
    values = torch.randn(100, 4, 1, generator=rng)
    values[:, 0] += 3.0
    assert split_rhat(values) > 1.5
    assert effective_size(values) < 40


def test_a_drift_within_chains_is_seen(rng):
    values = 0.1 * torch.randn(100, 4, 1, generator=rng) + torch.linspace(0.0, 1.0, 100)[:, None, None]
    assert split_rhat(values) > 1.5


def test_numbers_that_never_change_agree_and_few_draws_say_nothing():
    assert split_rhat(torch.ones(20, 3, 1)).item() == 1.0
    assert effective_size(torch.ones(20, 3, 1)).item() == 60.0
    assert torch.isnan(split_rhat(torch.ones(3, 3, 1)))
    assert torch.isnan(effective_size(torch.ones(7, 3, 1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chains_that_start_at_the_mode_leave_it(rng, dtype):
    start = torch.zeros(4, 5, dtype=dtype)
    target = gaussian(torch.zeros(5, dtype=dtype), torch.eye(5, dtype=dtype))
    run = run_chains(target, start, rng=rng, steps=400, warm_up=100, draws=100)
    assert run.dropped == {}
    assert run.failed < 0.1
    assert run.draws.std() > 0.5


@pytest.mark.parametrize("size", [1e-6, 0.3, 5.0, 30.0])
def test_kick_is_the_formula_by_hyperbolic_functions(rng, size):
    u = torch.randn(20, 6, generator=rng, dtype=torch.float64)
    u = u / u.norm(dim=1, keepdim=True)
    gradient = 7.0 * torch.randn(20, 6, generator=rng, dtype=torch.float64)
    norm = gradient.norm(dim=1, keepdim=True)
    towards, s = gradient / norm, torch.full_like(norm, size)
    along = (u * towards).sum(1, keepdim=True)
    growth = s.cosh() + along * s.sinh()
    kicked, length, factor = _kick(u, gradient, s / norm)
    torch.testing.assert_close(kicked, (u + towards * (s.sinh() + along * (s.cosh() - 1.0))) / growth)
    torch.testing.assert_close(length + factor.log(), growth.log())
    torch.testing.assert_close(kicked.norm(dim=1), torch.ones(20, dtype=torch.float64))


@pytest.mark.parametrize("worst", [math.nan, math.inf, 1e300])
def test_step_to_a_gradient_without_an_end_is_not_taken(rng, worst):
    def target(x):
        far = x.norm(dim=1) > 1e-3
        return torch.zeros_like(x[:, 0]), torch.where(far[:, None], worst, torch.zeros_like(x))

    chains = MovingChains(target, torch.zeros(4, 3, dtype=torch.float64), (0.1, 0.1), rng)
    _, taken = chains.advance()
    assert not taken.any()
    assert (chains.x == 0.0).all()
    assert torch.isfinite(chains.u).all()
