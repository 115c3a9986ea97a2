"""Generators: the paper's sizes, automatic sizing, and the start around given weights."""

import pytest
import torch
from torch import nn

from livi import CMMNN, MLP, MMNN, Affine, FixedNoise, Layout, PerLayer
from livi.family.generators import Head, presets
from livi.family.generators.cmmnn import merge_small
from livi.family.generators.sizing import square_enough, widest
from livi.family.implicit import ImplicitPosterior
from livi.family.jacobian import dense_jacobian, forward_mode_jacobian


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture
def layout():
    net = nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 1))  # 3,051 weights
    return Layout(net)


def test_the_paper_s_generators_have_the_paper_s_sizes():
    assert count(presets.toy()) == 60 * 105 + 105 + 105 * 105 + 105
    lenet = presets.mnist_lenet()
    assert (count(lenet), lenet.latent_dim, lenet.num_params) == (612_450, 4_225, 44_426)
    assert presets.mnist_mlp().num_params == 784 * 400 + 400 + 400 * 400 + 400 + 400 * 10 + 10
    wide = presets.cifar10_wrn_16_4()
    assert (wide.latent_dim, wide.num_params, len(wide.heads)) == (9_025, 2_745_274, 15)
    assert round(count(wide) / 1e6, 1) == 11.8


def test_surplus_outputs_reach_nobody():
    generator = presets.mnist_lenet()
    output = generator(torch.randn(2, 4_225))
    assert output.shape == (2, 44_426)
    (gradient,) = torch.autograd.grad(output.sum(), generator.stack.last.right_bias)
    assert gradient.flatten()[:44_426].eq(2).all()
    assert gradient.flatten()[44_426:].eq(0).all()


@pytest.mark.parametrize("budget", [2.0, 4.0])
@pytest.mark.parametrize("kind", [MMNN, CMMNN, PerLayer])
def test_budget_is_nearly_used_and_never_exceeded(layout, kind, budget):
    generator = kind.for_layout(layout, budget=budget)
    assert 0.75 * budget * layout.num_params < count(generator) <= budget * layout.num_params


@pytest.mark.parametrize("extras", [{"offset": True}, {"skip": True, "latent_dim": 4}, {"scale_sizes": "layers"}])
def test_budget_includes_the_extras(layout, extras):
    if "scale_sizes" in extras:
        extras = {"scale_sizes": layout.group_sizes}
    for kind in (MMNN, CMMNN):
        generator = kind.for_layout(layout, budget=8.0, **extras)
        assert count(generator) <= 8.0 * layout.num_params


def test_a_budget_too_small_says_what_it_takes(layout):
    with pytest.raises(ValueError, match=r"one hidden row takes .* its budget, .* give this for_layout a larger"):
        MMNN.for_layout(layout, budget=0.9)
    with pytest.raises(ValueError, match="use MMNN"):
        MLP.for_layout(layout, budget=1.5)


def test_mlp_takes_the_widest_hidden_layer_within_budget(layout):
    generator = MLP.for_layout(layout, budget=20.0, latent_dim=10)
    assert count(generator) <= 20 * 3_051 < count(MLP(10, 3_051, hidden=(generator.head.in_features + 1,)))
    assert MLP.for_layout(layout).latent_dim == 3_051


def test_cmmnn_heads_align_with_the_layers(layout):
    generator = CMMNN.for_layout(layout, budget=3.0)
    assert [head.kept for head in generator.head_shapes] == merge_small(layout.group_sizes, 32) == [450, 2550, 51]


def test_cmmnn_layers_depend_on_their_own_head_and_share_the_trunk(layout):
    generator = CMMNN.for_layout(layout, budget=3.0)
    z = torch.randn(1, generator.latent_dim)
    first = generator(z)[:, :450].sum()
    gradients = torch.autograd.grad(first, list(generator.parameters()), allow_unused=True)
    named = {name: grad for (name, _), grad in zip(generator.named_parameters(), gradients, strict=True)}
    reached = {
        name.split(".")[0] + name.split(".")[1] for name, grad in named.items() if grad is not None and grad.any()
    }
    assert {"trunk0", "trunk2", "heads0"} == reached


def test_per_layer_parts_are_independent(layout):
    generator = PerLayer.for_layout(layout, budget=3.0)
    jacobian = torch.autograd.functional.jacobian(lambda z: generator(z[None])[0], torch.randn(generator.latent_dim))
    row = column = 0
    for part in generator.parts:
        block = jacobian[row : row + part.num_params, column : column + part.latent_dim]
        assert block.abs().sum() > 0
        jacobian[row : row + part.num_params, column : column + part.latent_dim] = 0
        row, column = row + part.num_params, column + part.latent_dim
    assert jacobian.abs().max() == 0


def starts(layout):
    m = layout.num_params
    return {
        "affine": Affine(20, m),
        "affine, full rank": Affine(m, m),
        "mlp": MLP(20, m, hidden=(30,)),
        "mlp with everything": MLP(20, m, hidden=(30,), skip=True, offset=True, scale_sizes=layout.group_sizes),
        "mmnn": MMNN((6, 6), m, hidden=((20, 20),)),
        "mmnn with offset and scale": MMNN((6, 6), m, hidden=((20, 20),), offset=True, scale_sizes=layout.group_sizes),
        "cmmnn": CMMNN.for_layout(layout, budget=5.0),
        "cmmnn with scale": CMMNN.for_layout(layout, budget=5.0, scale_sizes=layout.group_sizes),
        "per layer": PerLayer.for_layout(layout, budget=5.0),
        "per layer with offset": PerLayer.for_layout(layout, budget=5.0, offset=True),
    }


@pytest.mark.parametrize("name", starts(Layout(nn.Linear(20, 20))))
def test_start_is_around_these_weights_this_narrow(name):
    layout = Layout(nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 5)))  # 205 weights
    centre = layout.flatten()
    generator = starts(layout)[name].init_around(centre, 0.05)
    with torch.no_grad():
        theta = generator(torch.randn(4000, generator.latent_dim))
    standard_error = theta.std(0) / 4000**0.5
    # The centre comes from 128 latents and is itself an estimate.
    assert ((theta.mean(0) - centre).abs() < 6.0 * standard_error * (4000 / 128) ** 0.5 + 1e-6).all()
    assert 0.035 < theta.std(0).square().mean().sqrt() < 0.075


def test_start_takes_one_spread_for_each_layer():
    layout = Layout(nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 5)))
    generator = MMNN((6, 6), 205, hidden=((20, 20),), scale_sizes=layout.group_sizes)
    generator.init_around(layout.flatten(), [0.01, 0.1])
    theta = generator(torch.randn(2000, 36)).detach()
    spreads = [part.std(0).square().mean().sqrt() for part in theta.split(layout.group_sizes, 1)]
    assert 0.008 < spreads[0] < 0.0125
    assert 0.08 < spreads[1] < 0.125


def test_start_is_reproducible_and_leaves_the_global_stream_alone():
    before = torch.random.get_rng_state()
    one, two = Affine(5, 30), Affine(5, 30)
    after_construction = torch.random.get_rng_state()
    one.init_around(torch.zeros(30), 0.1)
    two.init_around(torch.zeros(30), 0.1)
    torch.testing.assert_close(one.skip, two.skip)
    assert torch.equal(after_construction, torch.random.get_rng_state())
    assert not torch.equal(before, after_construction)


@pytest.mark.parametrize("name", starts(Layout(nn.Linear(20, 20))))
def test_a_generator_s_own_jacobian_is_that_of_forward_mode(name):
    generator = starts(Layout(nn.Linear(20, 20)))[name]
    deep = MLP(5, 30, hidden=(8, 9, 7), activation=nn.GELU, skip=True, scale_sizes=(10, 20))
    for built in (generator, deep):
        z = torch.randn(3, built.latent_dim)
        reference = torch.func.vmap(torch.func.jacfwd(lambda row, g=built: g(row[None])[0]))(z)
        torch.testing.assert_close(dense_jacobian(built, z), reference)


def test_learning_rate_groups_cover_every_parameter_once(layout):
    for generator in starts(layout).values():
        groups = [*generator.affine_parameters(), *generator.nonlinear_parameters()]
        assert {id(p) for p in groups} == {id(p) for p in generator.parameters()}
        assert len(groups) == len({id(p) for p in groups})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MLP(0, 5), "latent_dim: expected at least 1, got 0"),
        (lambda: MLP(5, 0), "num_params: expected at least 1"),
        (lambda: MLP(5, 5, hidden=(0,)), "each of hidden"),
        (lambda: MLP(5, 5, scale_sizes=(2, 2)), "add up to 5"),
        (lambda: MMNN((2, 2), 50, hidden=((3, 3),), output=(5, 5)), "output: expected at least 50 entries"),
        (lambda: MMNN((2, 0), 50, hidden=((3, 3),)), "each matrix side"),
        (lambda: MMNN.for_layout(Layout(nn.Linear(9, 9)), latent_dim=7), "square number"),
        (lambda: CMMNN((2, 2), 50, trunk=(), heads=()), "expected a trunk and heads"),
        (lambda: CMMNN((2, 2), 50, trunk=((3, 3),), heads=[Head((4, 4), (), (8, 8))]), "trunk: expected at least 16"),
        (lambda: CMMNN((2, 2), 50, trunk=((3, 3),), heads=[Head((3, 3), (), (4, 4))]), "heads: expected at least 50"),
        (lambda: PerLayer([]), "parts: expected at least one"),
        (lambda: MLP(5, 5)(torch.randn(2, 4)), r"z: expected shape \(num_samples, 5\), got \(2, 4\)"),
        (lambda: MLP(5, 5).init_around(torch.zeros(4), 0.1), r"theta: expected shape \(5,\)"),
        (lambda: MLP(5, 5).init_around(torch.full((5,), float("nan")), 0.1), "expected finite numbers, got 5"),
        (lambda: MLP(5, 5).init_around(torch.zeros(5), -0.1), "spread: expected a positive"),
        (lambda: MLP(5, 5).init_around(torch.zeros(5), [0.1, 0.2]), "got 2 for no scale_sizes"),
    ],
)
def test_bad_sizes_are_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("kind", [MMNN, CMMNN, PerLayer])
def test_a_generator_too_large_for_a_small_network_names_those_that_fit(kind):
    small = Layout(nn.Linear(4, 1))
    with pytest.raises(ValueError, match=r"for_layout: one .* use MLP.for_layout or Affine.for_layout, or"):
        kind.for_layout(small)
    assert MLP.for_layout(small).num_params == Affine.for_layout(small).num_params == 5


def test_sizing_helpers():
    assert widest(lambda w: w * w, 99, "unit") == 9
    assert all(a * b >= n and a * b - n < a for n in (1, 2, 7, 100, 44_426) for a, b in [square_enough(n)])
    assert merge_small([100, 1, 100, 1, 1], 10) == [101, 102]
    assert merge_small([1, 1, 1, 1], 2) == [2, 2]
    assert merge_small([5], 3) == [5]


class Bent(Affine):
    def branch(self, z):
        return 5.0 * torch.tanh(z)


def test_what_a_subclass_or_a_hook_changes_is_in_the_jacobian(rng):
    z = torch.randn(4, 3, generator=rng)
    hooked = MLP(3, 5, hidden=(4,), activation=nn.Tanh)
    hooked.register_forward_hook(lambda _module, _inputs, output: 10.0 * output)
    for generator in (Bent(3, 3), hooked):
        torch.testing.assert_close(generator.jacobian(z), forward_mode_jacobian(generator, z))


def test_a_relative_spread_is_of_the_weights_size_for_every_generator(rng):
    layout = Layout(nn.Linear(40, 2, bias=False))
    row = torch.full((1, 80), 1e-1)
    family = ImplicitPosterior(layout, MLP(8, 80, hidden=(16,), activation=nn.Tanh), FixedNoise(1e-6))
    family.begin_around(row, 0.1, relative=True)
    assert float(family.sample(4000, rng).detach().std(0).mean()) == pytest.approx(0.01, rel=0.3)
