"""BatchNorm: the batch's statistics while fitting, measured ones for prediction, the module's own otherwise."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from livi.network import Layout, Loop, Vmap, apply_many, estimate_statistics, has_batch_norm

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


def torchs_own(layout: Layout, theta: Tensor, *inputs: Tensor) -> dict[str, Tensor]:
    """Running statistics as nn.BatchNorm itself averages them over batches, with equal weight for each."""
    net = copy.deepcopy(layout.module)
    Layout(net).load_(theta)
    for layer in net.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.momentum = None
            layer.reset_running_stats()
    net.train()
    for batch in inputs:
        net(batch)
    return {name: value for name, value in net.named_buffers() if "running" in name}


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
    assert not has_batch_norm(net)
    assert estimate_statistics(layout, theta[None], [x]) == {}


# --- for prediction -------------------------------------------------------------------------------


@every_kind
def test_statistics_of_one_batch_of_everything_are_torchs_own(kind, rng):
    layout, x = shallow(kind, rng)
    theta = samples(layout, rng, 1)
    torch.testing.assert_close(estimate_statistics(layout, theta, [x]), torchs_own(layout, theta[0], x))


@every_kind
@pytest.mark.parametrize("batch_size", [4, 8, 12, 23])  # the last batch has 3, 7, 11 and 23 examples
def test_statistics_do_not_depend_on_how_data_are_split(kind, batch_size, rng):
    layout, x = shallow(kind, rng)
    theta = samples(layout, rng, 1)
    found = estimate_statistics(layout, theta, x.split(batch_size))
    torch.testing.assert_close(found, torchs_own(layout, theta[0], x))


def test_ragged_batches_are_weighted_by_their_examples_unlike_torchs_average(rng):
    layout, x = shallow("BatchNorm1d", rng)
    theta = layout.flatten()[None]
    batches = [x[:20], 5.0 + x[20:]]
    averaged = torchs_own(layout, theta[0], *batches)
    found = estimate_statistics(layout, theta, batches)
    torch.testing.assert_close(found, torchs_own(layout, theta[0], torch.cat(batches)))
    assert not torch.allclose(found["1.running_mean"], averaged["1.running_mean"])


def test_variance_is_the_unbiased_one_as_in_running_var(rng):
    net = nn.Sequential(nn.BatchNorm1d(3))
    layout = Layout(net)
    x = torch.randn(5, 3, generator=rng)
    found = estimate_statistics(layout, layout.flatten()[None], [x[:2], x[2:]])
    torch.testing.assert_close(found, {"0.running_mean": x.mean(0), "0.running_var": x.var(0, correction=1)})


def test_deep_network_in_one_batch_matches_torch_in_every_layer(rng):
    layout = Layout(deep())
    theta, x = samples(layout, rng, 1), torch.randn(17, 1, 3, 3, generator=rng)
    expected = torchs_own(layout, theta[0], x)
    assert len(expected) == 4
    torch.testing.assert_close(estimate_statistics(layout, theta, [x]), expected)


def test_deep_network_in_several_batches_pools_what_each_layer_saw(rng):
    layout = Layout(deep())
    theta, x = samples(layout, rng, 1), torch.randn(17, 1, 3, 3, generator=rng)
    net = copy.deepcopy(layout.module)
    Layout(net).load_(theta[0])
    seen: list[Tensor] = []
    net[5].register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0].detach()))
    for batch in x.split(6):
        net.train()(batch)
    found = estimate_statistics(layout, theta, x.split(6))
    everything = torchs_own(layout, theta[0], x)
    torch.testing.assert_close(found["1.running_var"], everything["1.running_var"])  # nothing normalised before it
    torch.testing.assert_close(found["5.running_mean"], torch.cat(seen).mean(0))
    torch.testing.assert_close(found["5.running_var"], torch.cat(seen).var(0))


def test_small_variance_beside_a_large_mean_is_kept(rng):
    layout = Layout(nn.Sequential(nn.BatchNorm1d(2)))
    noise = torch.randn(40, 2, generator=rng)
    found = estimate_statistics(layout, layout.flatten()[None], (1e8 + noise).split(7))
    # Data near 1e8 are rounded to about 1e-8; the difference of two raw moments would have lost all of them.
    torch.testing.assert_close(found["0.running_var"], noise.var(0), rtol=1e-6, atol=0)


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
    torch.testing.assert_close(found["0.running_var"], torch.cat([x, y]).var(0))


def test_network_without_batch_norm_has_no_statistics():
    net = nn.Sequential(nn.Conv1d(2, 4, 1), nn.GroupNorm(2, 4))
    layout = Layout(net)
    assert not has_batch_norm(net)
    assert has_batch_norm(deep())
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

    assert estimate_statistics(layout, theta[:1], once())  # one theta needs one pass
    with pytest.raises(ValueError, match=r"reach BatchNorm layer '1', got none; pass a list or DataLoader"):
        estimate_statistics(layout, theta, once())
    with pytest.raises(ValueError, match="got none"):
        estimate_statistics(layout, theta, [])


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
    assert len(layout.frozen_norms) == 2
