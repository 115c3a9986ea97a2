"""BatchNorm: the batch's statistics while fitting, measured ones for prediction, the module's own otherwise."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from livi.network import Layout, Loop, Vmap, apply_many, estimate_statistics, record_statistics

# Layers in front of a norm, and the shape of one example.
KINDS = {
    "BatchNorm1d": (lambda: (nn.Linear(3, 4), nn.BatchNorm1d(4)), (3,)),
    "BatchNorm1d with length": (lambda: (nn.Conv1d(3, 4, 2), nn.BatchNorm1d(4, affine=False)), (3, 6)),
    "BatchNorm2d": (lambda: (nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4, momentum=0.3)), (3, 5, 4)),
    "BatchNorm3d": (lambda: (nn.Conv3d(3, 4, 2), nn.BatchNorm3d(4, momentum=None, eps=0.1)), (3, 3, 2, 4)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def shallow(kind: str, rng: torch.Generator, examples: int = 23) -> tuple[Layout, Tensor]:
    """A network with one norm whose buffers are not the initial ones, and data."""
    layers, shape = KINDS[kind]
    net = nn.Sequential(*layers(), nn.Tanh())
    net[1].running_mean.uniform_(-1, 1, generator=rng)
    net[1].running_var.uniform_(0.5, 2, generator=rng)
    return Layout(net), torch.randn(examples, *shape, generator=rng)


def deep() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(12, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)),
    )


def samples(layout: Layout, rng: torch.Generator, num_samples: int) -> Tensor:
    return layout.flatten() + 0.5 * torch.randn(num_samples, layout.num_params, generator=rng)


def of_what_norms_see(layout: Layout, theta: Tensor, *inputs: Tensor) -> dict[str, Tensor]:
    """Mean and biased variance of all that reaches each norm while the module itself runs in train mode."""
    net = copy.deepcopy(layout.module)
    Layout(net).load_(theta)
    norms = {name: layer for name, layer in net.named_modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)}
    seen: dict[str, list[Tensor]] = {name: [] for name in norms}
    for name, layer in norms.items():
        layer.register_forward_pre_hook(lambda _layer, args, name=name: seen[name].append(args[0].detach()))
    net.train()
    for batch in inputs:
        net(batch)
    found = {}
    for name, parts in seen.items():
        values = torch.cat([part.transpose(0, 1).flatten(1) for part in parts], 1)
        found |= {f"{name}.running_mean": values.mean(1), f"{name}.running_var": values.var(1, correction=0)}
    return found


# --- while fitting --------------------------------------------------------------------------------


@every_kind
def test_batch_statistics_are_those_of_train_mode_and_leave_buffers_alone(kind, rng):
    layout, x = shallow(kind, rng)
    theta = samples(layout, rng, 1)[0]
    before = copy.deepcopy(layout.module.state_dict())
    found = layout.apply(theta, x, batch_statistics=True)
    torch.testing.assert_close(layout.module.state_dict(), before, rtol=0, atol=0)
    layout.load_(theta)
    torch.testing.assert_close(found, layout.module.train()(x))


@every_kind
@pytest.mark.parametrize("strategy", [None, Vmap(), Vmap(chunk_size=2), Loop()])
def test_every_theta_is_normalised_by_its_own_batch_statistics(kind, strategy, rng):
    layout, x = shallow(kind, rng)
    theta = samples(layout, rng, 3)
    found = apply_many(layout, theta, x, batch_statistics=True, strategy=strategy)
    torch.testing.assert_close(found, torch.stack([layout.apply(row, x, batch_statistics=True) for row in theta]))


@every_kind
def test_batch_statistics_take_part_in_the_gradient(kind, rng):
    layout, x = shallow(kind, rng)
    theta = layout.flatten()
    shift = {slot.name: torch.zeros(slot.shape) for slot in layout.slots} | {"0.bias": torch.ones(4)}
    direction = torch.cat([value.reshape(-1) for value in shift.values()])
    _, with_batch = torch.func.jvp(lambda t: layout.apply(t, x, batch_statistics=True), (theta,), (direction,))
    _, frozen = torch.func.jvp(lambda t: layout.apply(t, x), (theta,), (direction,))
    torch.testing.assert_close(with_batch, torch.zeros_like(with_batch))  # a norm removes a constant shift
    assert frozen.abs().min() > 0.0


@pytest.mark.parametrize("training", [True, False])
def test_buffers_are_used_otherwise_whatever_the_modules_mode(training, rng):
    layout, x = shallow("BatchNorm2d", rng)
    expected = copy.deepcopy(layout.module).eval()(x)
    layout.module.train(training)
    theta = layout.flatten()
    torch.testing.assert_close(layout.apply(theta, x), expected)
    torch.testing.assert_close(layout.apply(theta, x[:1]), expected[:1])  # an example does not see its batch
    torch.testing.assert_close(apply_many(layout, theta[None], x[:1])[0], expected[:1])


def test_norm_without_running_statistics_always_uses_the_batch(rng):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False))
    layout = Layout(net)
    x, theta = torch.randn(5, 3, generator=rng), layout.flatten()
    torch.testing.assert_close(layout.apply(theta, x), net(x))
    assert not layout.batch_norms
    assert estimate_statistics(layout, theta[None], [x]) == {}


# --- for prediction -------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("batch_size", [4, 23])
def test_a_network_answers_under_its_statistics_as_in_train_mode_on_all_examples_together(kind, batch_size, rng):
    layout, x = shallow(kind, rng)
    theta = samples(layout, rng, 3)
    found = estimate_statistics(layout, theta, x.split(batch_size), per_sample=True)
    trained = apply_many(layout, theta, x, batch_statistics=True)
    torch.testing.assert_close(apply_many(layout, theta, x, buffers=found), trained)
    layout.load_(theta[0])
    torch.testing.assert_close(trained[0], layout.module.train()(x))


def test_a_deep_network_answers_under_its_statistics_as_in_train_mode(rng):
    layout = Layout(deep())
    theta, x = samples(layout, rng, 3), torch.randn(17, 1, 3, 3, generator=rng)
    trained = apply_many(layout, theta, x, batch_statistics=True)
    for found in (estimate_statistics(layout, theta, [x], per_sample=True), record_statistics(layout, theta, x)):
        torch.testing.assert_close(apply_many(layout, theta, x, buffers=found), trained)


@every_kind
def test_the_variance_is_torchs_without_its_correction(kind, rng):
    layout, x = shallow(kind, rng)
    norm = layout.module[1]
    norm.momentum = 1.0
    norm.train()(inputs := layout.module[0](x))
    count = inputs.numel() / 4
    found = estimate_statistics(layout, layout.flatten()[None], [x])
    torch.testing.assert_close(found["1.running_mean"], norm.running_mean)
    torch.testing.assert_close(found["1.running_var"], norm.running_var * (count - 1) / count)


@every_kind
@pytest.mark.parametrize("batch_size", [4, 8, 12, 23])  # the last batch has 3, 7, 11 and 23 examples
def test_statistics_do_not_depend_on_how_data_are_split(kind, batch_size, rng):
    layout, x = shallow(kind, rng)
    theta = samples(layout, rng, 1)
    found = estimate_statistics(layout, theta, x.split(batch_size))
    torch.testing.assert_close(found, of_what_norms_see(layout, theta[0], x))


def test_ragged_batches_are_weighted_by_their_examples(rng):
    layout, x = shallow("BatchNorm1d", rng)
    theta = layout.flatten()[None]
    batches = [x[:20], 5.0 + x[20:]]
    found = estimate_statistics(layout, theta, batches)
    torch.testing.assert_close(found, of_what_norms_see(layout, theta[0], torch.cat(batches)))


def test_deep_network_in_one_batch_matches_torch_in_every_layer(rng):
    layout = Layout(deep())
    theta, x = samples(layout, rng, 1), torch.randn(17, 1, 3, 3, generator=rng)
    expected = of_what_norms_see(layout, theta[0], x)
    assert len(expected) == 4
    torch.testing.assert_close(estimate_statistics(layout, theta, [x]), expected)


def test_deep_network_in_several_batches_pools_what_each_layer_saw(rng):
    layout = Layout(deep())
    theta, x = samples(layout, rng, 1), torch.randn(17, 1, 3, 3, generator=rng)
    found = estimate_statistics(layout, theta, x.split(6))
    torch.testing.assert_close(found, of_what_norms_see(layout, theta[0], *x.split(6)))
    everything = of_what_norms_see(layout, theta[0], x)
    torch.testing.assert_close(found["1.running_var"], everything["1.running_var"])  # nothing normalised before it
    assert not torch.allclose(found["5.running_var"], everything["5.running_var"])


def test_small_variance_beside_a_large_mean_is_kept(rng):
    layout = Layout(nn.Sequential(nn.BatchNorm1d(2)))
    noise = torch.randn(40, 2, generator=rng)
    found = estimate_statistics(layout, layout.flatten()[None], (1e8 + noise).split(7))
    # Data near 1e8 are rounded to about 1e-8; the difference of two raw moments would have lost all of them.
    torch.testing.assert_close(found["0.running_var"], noise.var(0, correction=0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("per_sample", [True, False])
def test_several_thetas_are_kept_apart_or_averaged(per_sample, rng):
    layout = Layout(deep())
    theta, batches = samples(layout, rng, 3), torch.randn(10, 1, 3, 3, generator=rng).split(4)
    singles = [estimate_statistics(layout, row[None], batches) for row in theta]
    stacked = {name: torch.stack([single[name] for single in singles]) for name in singles[0]}
    expected = stacked if per_sample else {name: values.mean(0) for name, values in stacked.items()}
    found = estimate_statistics(layout, theta, batches, per_sample=per_sample)
    torch.testing.assert_close(found, expected)
    assert found["1.running_mean"].shape == ((3, 3) if per_sample else (3,))


def test_statistics_make_apply_the_module_with_those_buffers(rng):
    layout = Layout(deep())
    theta, x = samples(layout, rng, 1), torch.randn(9, 1, 3, 3, generator=rng)
    statistics = estimate_statistics(layout, theta, [x])
    found = layout.apply(theta[0], x, buffers=statistics)
    layout.load_(theta[0])
    layout.module.load_state_dict(statistics, strict=False)
    torch.testing.assert_close(found, layout.module.eval()(x))


@pytest.mark.parametrize("strategy", [None, Vmap(), Vmap(chunk_size=2), Loop()])
@pytest.mark.parametrize("per_sample", [True, False])
def test_apply_many_gives_every_theta_its_statistics(per_sample, strategy, rng):
    layout = Layout(deep())
    theta, x = samples(layout, rng, 3).requires_grad_(), torch.randn(9, 1, 3, 3, generator=rng)
    statistics = estimate_statistics(layout, theta, x.split(5), per_sample=per_sample)
    assert not any(value.requires_grad for value in statistics.values())
    expected = torch.stack(
        [
            layout.apply(row, x, buffers={k: v[i] for k, v in statistics.items()} if per_sample else statistics)
            for i, row in enumerate(theta)
        ]
    )
    found = apply_many(layout, theta, x, buffers=statistics, strategy=strategy)
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad(outputs.square().sum(), theta)[0] for outputs in (found, expected)]
    torch.testing.assert_close(*slopes)


def test_statistics_follow_the_buffers_dtype(rng):
    layout = Layout(deep().float())
    x = torch.randn(6, 1, 3, 3, generator=rng).float()
    found = estimate_statistics(layout, layout.flatten()[None], [x])
    assert {value.dtype for value in found.values()} == {torch.float32}


class Keyword(nn.Module):
    """Takes its input by keyword, and passes it to the norm by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, *, features: Tensor, scale: float = 1.0) -> Tensor:
        return scale * self.norm(input=scale * features)


def test_batches_may_be_tuples_or_dicts(rng):
    x, y = torch.randn(8, 3, generator=rng), torch.randn(8, 3, generator=rng)
    keyword = Layout(Keyword())
    found = estimate_statistics(keyword, keyword.flatten()[None], [{"features": x, "scale": 2.0}])
    torch.testing.assert_close(found["norm.running_mean"], 2.0 * x.mean(0))

    positional = Layout(Keyword(), forward=lambda module, x, y: module(features=x + y))
    for batch in ((x, y), [x, y]):
        found = estimate_statistics(positional, positional.flatten()[None], [batch])
        torch.testing.assert_close(found["norm.running_mean"], (x + y).mean(0))


def test_norm_used_twice_pools_both_uses(rng):
    layout = Layout(nn.Sequential(nn.BatchNorm1d(3)), forward=lambda module, x, y: module(x) + module(y))
    x, y = torch.randn(8, 3, generator=rng), 1.0 + torch.randn(8, 3, generator=rng)
    found = estimate_statistics(layout, layout.flatten()[None], [(x, y)])
    torch.testing.assert_close(found["0.running_var"], torch.cat([x, y]).var(0, correction=0))


def test_network_without_batch_norm_has_no_statistics():
    net = nn.Sequential(nn.Conv1d(2, 4, 1), nn.GroupNorm(2, 4))
    layout = Layout(net)
    assert not layout.batch_norms
    assert estimate_statistics(layout, layout.flatten()[None], [torch.randn(3, 2, 5)]) == {}


def test_module_is_left_as_it_was_also_when_a_batch_fails(rng):
    layout = Layout(deep())
    net, x = layout.module, torch.randn(6, 1, 3, 3, generator=rng)
    before = copy.deepcopy(net.state_dict())
    estimate_statistics(layout, samples(layout, rng, 2), [x])
    with pytest.raises(RuntimeError, match="channels"):
        estimate_statistics(layout, samples(layout, rng, 2), [x, x.expand(-1, 2, -1, -1)])
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)
    assert all(layer.training and not layer._forward_pre_hooks for layer in net.modules())


def test_exhausted_iterator_is_an_error_that_says_what_to_pass(rng):
    layout = Layout(deep())
    theta = samples(layout, rng, 2)

    def once() -> Iterator[Tensor]:
        yield torch.zeros(3, 1, 3, 3)

    read = once()
    assert estimate_statistics(layout, theta, read)
    with pytest.raises(ValueError, match=r"reach BatchNorm layer '1', got none; pass a list or DataLoader"):
        estimate_statistics(layout, theta, read)


@pytest.mark.parametrize("shape", [(97,), (2, 96), (0, 97)])
def test_theta_of_another_shape_is_an_error(shape):
    layout = Layout(deep())
    assert layout.num_params == 108
    with pytest.raises(ValueError, match=r"theta: expected shape \(num_samples >= 1, 108\)"):
        estimate_statistics(layout, torch.zeros(shape), [torch.zeros(2, 1, 3, 3)])


@pytest.mark.parametrize("frozen", ["excluded", "requires_grad"])
def test_norms_of_a_frozen_backbone_keep_their_own_statistics(rng, frozen):
    net = deep()
    net[1].running_mean.uniform_(-1, 1, generator=rng)
    if frozen == "requires_grad":
        net[:4].requires_grad_(False)
    layout = Layout(net) if frozen == "requires_grad" else Layout(net, exclude=("0.*", "1.*"))
    x = torch.randn(8, 1, 3, 3, generator=rng)
    backbone = net[:4].eval()(x)
    expected = net[4:].train()(backbone)
    torch.testing.assert_close(layout.apply(layout.flatten(), x, batch_statistics=True), expected)
    assert set(estimate_statistics(layout, layout.flatten()[None], [x])) == {"5.running_mean", "5.running_var"}


def test_an_empty_batch_says_nothing():
    layout = Layout(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    theta, x = layout.flatten()[None], torch.randn(8, 2)
    whole, also = (estimate_statistics(layout, theta, batches) for batches in ([x], [x, x[:0]]))
    for name in whole:
        torch.testing.assert_close(also[name], whole[name])


def test_norms_that_share_fixed_parameters_are_all_frozen():
    first, second = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    second.weight, second.bias = first.weight, first.bias
    layout = Layout(nn.Sequential(nn.Linear(2, 3), first, nn.Linear(3, 3), second), exclude=["1.*"])
    assert not layout.batch_norms
