"""Solvers against dense linear algebra, on matrices with prescribed spectra."""

import itertools

import pytest
import torch

from livi.family.linalg import conjugate_gradient, fixed_conjugate_gradient, log_quadrature, smallest_eigenpair

DOUBLE = torch.float64
SPECTRA = {
    "flat": torch.ones(40, dtype=DOUBLE),
    "linear": torch.linspace(1.0, 10.0, 40, dtype=DOUBLE),
    "geometric": torch.logspace(0.0, 3.0, 40, dtype=DOUBLE),
    "clustered": torch.tensor([1.0] * 30 + [50.0] * 10, dtype=DOUBLE),
    "outlier": torch.tensor([*torch.linspace(1.0, 2.0, 39).tolist(), 1e4], dtype=DOUBLE),
}


def matrices(eigenvalues, count=3):
    q = torch.linalg.qr(torch.randn(count, len(eigenvalues), len(eigenvalues))).Q
    return q @ eigenvalues.diag() @ q.mT


@pytest.mark.parametrize("name", SPECTRA)
def test_conjugate_gradient_solves_to_its_tolerance(name):
    m = matrices(SPECTRA[name])
    b = torch.randn(3, 40)
    result = conjugate_gradient(lambda v: (m @ v[..., None])[..., 0], b, tolerance=1e-9, max_iterations=400)
    true_residual = (b - (m @ result.solution[..., None])[..., 0]).norm(dim=-1) / b.norm(dim=-1)
    assert result.converged.all()
    assert (true_residual < 1e-8).all()
    torch.testing.assert_close(result.solution, torch.linalg.solve(m, b), rtol=1e-6, atol=1e-8)


def test_conjugate_gradient_admits_that_it_has_not_converged():
    m = matrices(SPECTRA["geometric"])
    result = conjugate_gradient(
        lambda v: (m @ v[..., None])[..., 0], torch.randn(3, 40), tolerance=1e-9, max_iterations=3
    )
    assert not result.converged.any()
    assert (result.residual > 1e-9).all()
    assert result.steps.tolist() == [3, 3, 3]


def test_systems_of_one_batch_stop_by_themselves():
    m = torch.stack([torch.eye(40), matrices(SPECTRA["geometric"], 1)[0]])
    result = conjugate_gradient(
        lambda v: (m @ v[..., None])[..., 0], torch.randn(2, 40), tolerance=1e-8, max_iterations=200
    )
    assert result.steps[0] == 1
    assert result.steps[1] > 10


def test_without_being_asked_every_iteration_runs():
    b = torch.randn(3, 40)
    result = conjugate_gradient(lambda v: v, b, max_iterations=7, check_every=8)
    assert result.diagonal.shape == (3, 7)
    assert result.steps.tolist() == [1, 1, 1]  # enough for the identity, and then each stands still
    torch.testing.assert_close(result.solution, b)


@pytest.mark.parametrize("iterations", [1, 2, 4, 8, 16, 60])
@pytest.mark.parametrize("name", SPECTRA)
def test_quadrature_brackets_the_quadratic_form(name, iterations):
    m = matrices(SPECTRA[name])
    b = torch.randn(3, 40)
    values, vectors = torch.linalg.eigh(m)
    exact = ((vectors.mT @ b[..., None])[..., 0].square() * values.log()).sum(-1) / b.square().sum(-1)
    run = conjugate_gradient(lambda v: (m @ v[..., None])[..., 0], b, tolerance=1e-13, max_iterations=iterations)
    bracket = log_quadrature(run.diagonal, run.off_diagonal, run.steps, floor=1.0)
    assert (bracket.lower <= exact + 1e-9).all()
    assert (bracket.upper >= exact - 1e-9).all()
    if iterations == 60:
        assert (bracket.width < 1e-6).all()


def test_quadrature_bracket_narrows_with_every_step():
    m = matrices(SPECTRA["geometric"])
    b = torch.randn(3, 40)
    widths = []
    for iterations in (2, 5, 10, 20):
        run = conjugate_gradient(lambda v: (m @ v[..., None])[..., 0], b, tolerance=0.0, max_iterations=iterations)
        widths.append(log_quadrature(run.diagonal, run.off_diagonal, run.steps, floor=1.0).width)
    assert all((after < before).all() for before, after in itertools.pairwise(widths))


def test_quadrature_needs_a_positive_floor():
    ones = torch.ones(1, 2)
    with pytest.raises(ValueError, match="floor: expected a positive lower bound"):
        log_quadrature(ones, ones, torch.tensor([2]), floor=0.0)


@pytest.mark.parametrize(("block", "memory"), [(1, 3), (1, 12), (2, 12), (4, 7)])
@pytest.mark.parametrize("name", SPECTRA)
def test_smallest_eigenpair_is_the_smallest(name, block, memory):
    m = matrices(SPECTRA[name])
    result = smallest_eigenpair(
        lambda x: m @ x, torch.randn(3, 40, block), tolerance=1e-7, max_iterations=3000, memory=memory
    )
    assert result.converged.all()
    torch.testing.assert_close(result.value, torch.linalg.eigvalsh(m)[:, 0], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(result.vector.norm(dim=-1), torch.ones(3))
    assert (((m @ result.vector[..., None])[..., 0] - result.value[:, None] * result.vector).norm(dim=-1) < 1e-6).all()


def test_a_longer_memory_takes_fewer_products():
    m = matrices(torch.cat([torch.linspace(1.0, 2.0, 199), torch.tensor([1e4])]))
    start = torch.randn(3, 200, 1)
    short = smallest_eigenpair(lambda x: m @ x, start, tolerance=1e-4, max_iterations=3000, memory=3)
    long = smallest_eigenpair(lambda x: m @ x, start, tolerance=1e-4, max_iterations=3000, memory=12)
    assert long.converged.all()
    assert long.iterations < short.iterations


def test_unconverged_rayleigh_quotient_lies_above_and_says_so():
    m = matrices(torch.logspace(-3.0, 2.0, 200))
    result = smallest_eigenpair(lambda x: m @ x, torch.randn(3, 200, 1), tolerance=1e-6, max_iterations=5)
    assert not result.converged.any()
    assert (result.value > 2.0 * torch.linalg.eigvalsh(m)[:, 0]).all()
    assert result.iterations == 5


def test_an_early_converged_problem_survives_its_neighbours():
    # Problem 0 starts at its solution and must still be right after the hundred steps that problem 1 takes.
    m = matrices(torch.logspace(0.0, 2.0, 60), 2)
    start = torch.randn(2, 60, 2)
    start[0] = torch.linalg.eigh(m[0]).eigenvectors[:, :2]
    result = smallest_eigenpair(lambda x: m @ x, start, tolerance=1e-9, max_iterations=2000)
    torch.testing.assert_close(result.value, torch.ones(2), rtol=1e-7, atol=1e-9)


def test_small_problems_are_solved_densely():
    m = matrices(torch.linspace(1.0, 2.0, 4))
    result = smallest_eigenpair(lambda x: m @ x, torch.randn(3, 4, 1))
    torch.testing.assert_close(result.value, torch.ones(3))
    assert result.converged.all()


def test_wrong_shapes_are_errors():
    with pytest.raises(ValueError, match=r"start: expected shape \(N, n, k >= 1\)"):
        smallest_eigenpair(lambda x: x, torch.randn(3, 4))
    with pytest.raises(ValueError, match="b: expected a non-empty floating-point tensor"):
        conjugate_gradient(lambda v: v, torch.ones(3, dtype=torch.long))
    with pytest.raises(ValueError, match="max_iterations"):
        conjugate_gradient(lambda v: v, torch.ones(3), max_iterations=0)


def test_a_fixed_number_of_steps_solves_like_the_run_that_asks():
    generator = torch.Generator().manual_seed(0)
    square = torch.randn(2, 8, 8, generator=generator, dtype=torch.float64)
    matrix = torch.eye(8, dtype=torch.float64) + square @ square.mT
    b = torch.randn(3, 2, 8, generator=generator, dtype=torch.float64)

    def matvec(v):
        return (matrix @ v[..., None])[..., 0]

    for iterations in (1, 3, 8, 20):
        asked = conjugate_gradient(matvec, b, tolerance=0.0, max_iterations=iterations)
        solution, residual = fixed_conjugate_gradient(matvec, b, iterations)
        torch.testing.assert_close(solution, asked.solution, rtol=1e-6, atol=1e-8)
        true = (b - matvec(solution)).norm(dim=-1) / b.norm(dim=-1)
        torch.testing.assert_close(residual, true, rtol=1e-3, atol=1e-9)
    assert (residual < 1e-9).all()
    still, gone = fixed_conjugate_gradient(lambda v: v, torch.zeros(1, 4), 5)
    assert not still.any()
    assert not gone.any()
