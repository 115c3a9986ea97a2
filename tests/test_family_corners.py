"""Corners of families: rounding, constant generators, names that look like patterns, labels that are none."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.family.entropy import Exact, Lanczos, SmallestSingularValue
from livi.family.generators import Affine
from livi.family.jacobian import Jacobian
from livi.family.last_layer.network import NotExactError, earlier_layout
from livi.family.last_layer.problem import integrate_last_layer
from livi.family.products import Chain, Cut, Dense, Gate, _absorbed
from livi.model.problem import Problem
from livi.network import Layout


def with_an_outlier(size):
    """A generator of 2,000 weights with one singular value far above the others, in single precision."""
    torch.manual_seed(0)
    made = Affine(100, 2000).float()
    u, v = torch.randn(2000).float(), torch.randn(100).float()
    made.skip.data.normal_().mul_(3e-4).add_(size * torch.outer(u / u.norm(), v / v.norm()))
    return made, torch.randn(1, 100).float(), torch.tensor(0.01).float()


@pytest.mark.parametrize("size", [30.0, 100.0, 300.0])
def test_the_log_determinant_survives_large_eigenvalues_in_single_precision(size):
    generator, z, std = with_an_outlier(size)
    with torch.no_grad():
        exact = Exact()(generator, z, std).nats
        found = Lanczos(num_probes=64, tolerance=1e-4, max_iterations=300)(
            generator, z, std, torch.Generator().manual_seed(1)
        )
    assert abs(float(found.nats - exact)) < 4.0 * float(found.report.standard_error) + 0.05
    assert bool(found.report.converged)


def test_a_gram_matrix_in_single_precision_says_when_it_is_not_to_be_trusted():
    with torch.no_grad():
        for size, sound in ((0.1, True), (300.0, False)):
            generator, z, std = with_an_outlier(size)
            assert bool(Exact(qr_above=math.inf, chunk_size=50)(generator, z, std).report.converged) == sound


def test_a_generator_that_ignores_its_latents_has_a_jacobian_of_zeros():
    weights = torch.ones(3, requires_grad=True)
    for function in (lambda z: torch.ones(len(z), 3), lambda z: weights.expand(len(z), 3)):
        found = Jacobian(function, torch.randn(2, 4))
        assert found.matvec(torch.ones(2, 4)).tolist() == torch.zeros(2, 3).tolist()
        assert found.rmatvec(torch.ones(5, 2, 3)).tolist() == torch.zeros(5, 2, 4).tolist()
        assert found.bilinear(torch.ones(2, 3), torch.ones(2, 4)).tolist() == [0.0, 0.0]
        assert found.gram(torch.ones(3))(torch.ones(2, 4)).tolist() == torch.zeros(2, 4).tolist()


def test_what_a_nested_chain_ends_in_goes_into_the_weights():
    inner = Chain((Dense(torch.randn(6, 3)), Cut(6, 5)))
    piece, weights = _absorbed(Chain((inner, Gate(torch.full((5,), 2.0)))), torch.tensor(1.0))
    assert isinstance(piece, Chain)
    assert all(not isinstance(part, Cut | Gate) for part in piece.pieces)
    assert weights.tolist() == [4.0, 4.0, 4.0, 4.0, 4.0, 0.0]


def test_half_of_the_examples_count_for_half_of_them():
    x = torch.linspace(-1, 1, 20)[:, None]
    net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    bound = livi.plan(net, (x, x.sin()), livi.Gaussian(0.1), last_layer="sampled").bound
    rngs = (torch.Generator().manual_seed(0) for _ in range(2))
    whole, half = (
        bound.accumulate(x, x.sin(), rng, weight=weight) for rng, weight in zip(rngs, (1.0, 0.5), strict=True)
    )
    torch.testing.assert_close(half.log_likelihood, 0.5 * whole.log_likelihood)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.ModuleDict({"b*": nn.Linear(2, 3), "a[1]": nn.Linear(3, 3), "bx": nn.Linear(3, 1)})

    def forward(self, x):
        return self.d["bx"](self.d["a[1]"](self.d["b*"](x).tanh()).tanh())


def test_names_that_look_like_patterns_are_names():
    layout = Layout(Odd())
    earlier = earlier_layout(layout, "d.bx")
    assert [slot.name.split(".")[1] for slot in earlier.slots] == ["b*", "b*", "a[1]", "a[1]"]
    again = Layout(layout.module, layout.patterns)
    assert [slot.name for slot in again.slots] == [slot.name for slot in layout.slots]


@pytest.mark.parametrize(
    ("likelihood", "wrong", "outputs"), [(livi.Bernoulli(), 7.0, 1), (livi.Categorical(), 5, 2)], ids=["label", "class"]
)
def test_a_wrong_label_far_behind_is_seen_where_the_last_layer_is_conditional(likelihood, wrong, outputs):
    x = torch.randn(5_000, 3)
    labels = (x[:, 0] > 0).long() if outputs == 2 else (x[:, :1] > 0).to(x.dtype)
    net = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, outputs))
    problem = Problem.of(net, DataLoader(TensorDataset(x, labels), batch_size=500), likelihood)
    problem.data.check = None  # as for batches from a GPU, of which only the first is looked at
    labels[4_321] = wrong
    with pytest.raises(NotExactError, match="not every"):
        integrate_last_layer(problem, labels=True)


def test_products_are_counted_where_the_problem_is_solved_densely():
    with torch.no_grad():
        for d in (1, 9):
            made = Affine(d, 30).double()
            estimator = SmallestSingularValue()
            found = estimator(made, torch.randn(2, d), torch.tensor(0.1), torch.Generator().manual_seed(0))
            assert found.report.products == 2 * (min(estimator.block_size, d) + d)  # of the start, and the identity
