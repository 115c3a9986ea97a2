"""Which parameters a layout takes: by pattern, of what kinds, tied or not."""

from __future__ import annotations

import pytest
import torch
from support.networks import Holder, Net, Tied, assert_unchanged, perturbed, snapshot
from torch import Tensor, nn

from livi.network import Layout, apply_many

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


# --- which parameters -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ("head.2.*", (), ["head.2.weight", "head.2.bias"]),
        ("*.bias", "norm.*", ["conv.bias", "attention.out_proj.bias", "head.0.bias", "head.2.bias"]),
        (("conv.weight", "shift"), (), ["shift", "conv.weight"]),
        ("attention.*", ("*_proj.*",), ["attention.in_proj_weight", "attention.in_proj_bias"]),
        ("head.[02].weight", (), ["head.0.weight", "head.2.weight"]),
        ("*", ("[!th]*", "head.*"), ["temperature"]),
        ("norm.*", (), ["norm.weight", "norm.bias"]),
    ],
)
def test_patterns_choose_a_subnetwork_in_the_modules_order(include, exclude, expected):
    net = Net()
    layout = Layout(net, include, exclude)
    assert [slot.name for slot in layout.slots] == expected
    assert {*expected, *layout.fixed} == {name for name, _ in net.named_parameters()}
    assert len(layout.fixed) + len(expected) == len(list(net.parameters()))


class Adapted(nn.Module):
    """A linear layer with a low-rank adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 4)
        self.lora_A, self.lora_B = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


def test_adapters_are_chosen_by_pattern_and_the_base_stays_fixed():
    net = nn.Sequential(Adapted(), nn.Tanh(), Adapted())
    layout = Layout(net, ("*.lora_A", "*.lora_B"))
    assert layout.num_params == 2 * (2 * 4 + 4 * 2)
    assert layout.fixed == ("0.base.weight", "0.base.bias", "2.base.weight", "2.base.bias")
    x = torch.randn(3, 4)
    base = nn.Sequential(net[0].base, nn.Tanh(), net[2].base)
    torch.testing.assert_close(layout.apply(torch.zeros(layout.num_params), x), base(x))


@pytest.mark.parametrize("options", [{"include": "haed.*"}, {"exclude": ("head.*", "haed.*")}])
def test_pattern_that_matches_nothing_is_an_error(options):
    with pytest.raises(ValueError, match=r"pattern 'haed\.\*' matches no parameter; the names are \['temperature'"):
        Layout(Net(), **options)


def test_patterns_are_case_sensitive():
    net = nn.ModuleDict({"head": nn.Linear(2, 1), "Head": nn.Linear(2, 1)})
    assert [slot.name for slot in Layout(net, "head.*").slots] == ["head.weight", "head.bias"]
    with pytest.raises(ValueError, match="matches no parameter"):
        Layout(net, "HEAD.*")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"include": ()}, "include: expected at least one pattern"),
        ({"exclude": "*"}, "expected at least one stochastic parameter"),
        ({"include": "head.*", "exclude": ("*.weight", "*.bias")}, "expected at least one stochastic parameter"),
    ],
)
def test_choosing_no_parameter_is_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        Layout(Net(), **options)


def test_module_without_parameters_is_an_error():
    with pytest.raises(ValueError, match="expected parameters, ReLU has none"):
        Layout(nn.ReLU())


@pytest.mark.parametrize("module", [None, torch.zeros(2), nn.Linear, lambda x: x])
def test_what_is_no_module_is_a_type_error(module):
    with pytest.raises(TypeError, match=r"module: expected a torch\.nn\.Module, got"):
        Layout(module)


def test_excluded_parameters_stay_at_current_values_and_get_no_gradient(rng):
    net = Net()
    layout = Layout(net, exclude="conv.*")
    x = torch.randn(3, 2, 4, 4)
    theta = perturbed(layout, rng).requires_grad_()
    before = layout.apply(theta, x)
    before.sum().backward()
    assert bool(theta.grad.any())
    assert all(parameter.grad is None for parameter in net.parameters())

    with torch.no_grad():
        net.conv.weight.mul_(2.0)  # current means at the time of the call
    after = layout.apply(theta, x)
    assert not torch.allclose(before, after)
    layout.load_(theta.detach())
    torch.testing.assert_close(after, net.eval()(x))


def test_stochastic_parameters_of_the_module_do_not_matter_to_apply(rng):
    net = Net()
    layout = Layout(net)
    x, theta = torch.randn(3, 2, 4, 4), perturbed(layout, rng)
    before = layout.apply(theta, x)
    layout.load_(torch.zeros(layout.num_params))
    torch.testing.assert_close(layout.apply(theta, x), before, rtol=0, atol=0)


# --- parameters that are no plain weights ---------------------------------------------------------


def test_lazy_module_is_an_error_until_it_has_seen_a_batch():
    net = nn.Sequential(nn.LazyLinear(2), nn.Tanh(), nn.Linear(2, 1))
    with pytest.raises(ValueError, match=r"0\.weight: expected initialised weights, got a lazy module"):
        Layout(net)
    net(torch.zeros(1, 3))
    assert Layout(net).num_params == 11


@pytest.mark.parametrize(
    ("extra", "error", "message"),
    [
        (nn.Parameter(torch.arange(3), requires_grad=False), TypeError, "floating-point parameter, got torch.int64"),
        (nn.Parameter(torch.ones(2, dtype=torch.bool), requires_grad=False), TypeError, "floating-point parameter"),
        (nn.Parameter(torch.ones(2, dtype=torch.complex128)), TypeError, "got torch.complex128"),
        (nn.Parameter(torch.zeros(0, 4)), ValueError, r"expected at least one weight, got shape \(0, 4\)"),
        (nn.Parameter(torch.tensor([1.0, torch.nan])), ValueError, "expected finite weights"),
        (nn.Parameter(torch.tensor([1.0, torch.inf])), ValueError, "expected finite weights"),
        (nn.Parameter(torch.zeros(2, dtype=torch.float16)), ValueError, "one dtype on one device.*float16"),
    ],
)
def test_parameter_that_cannot_be_stochastic_is_an_error_and_may_be_excluded(extra, error, message):
    net = Holder(extra)
    with pytest.raises(error, match=message):
        Layout(net, include=("*", "extra"))
    layout = Layout(net, exclude="extra")
    x = torch.randn(4, 2)
    torch.testing.assert_close(layout.apply(layout.flatten(), x), net(x))


def test_frozen_parameters_stay_fixed_unless_named():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    net[0].requires_grad_(False)
    assert [slot.name for slot in Layout(net).slots] == ["1.weight", "1.bias"]
    assert Layout(net, include=("*", "0.weight")).num_params == 6 + 4
    with pytest.raises(ValueError, match="requires_grad=False count only if"):
        Layout(net.requires_grad_(False))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_and_device_follow_the_module(dtype, device):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    layout = Layout(net)
    net.to(device, dtype)
    assert (layout.dtype, layout.device) == (dtype, net[0].weight.device)
    theta = layout.flatten()
    assert (theta.dtype, theta.device.type) == (dtype, device)
    x = torch.randn(5, 3).to(device, dtype)
    torch.testing.assert_close(layout.apply(theta, x), net(x), rtol=0, atol=0)
    many = apply_many(layout, theta.expand(2, -1), x)
    assert many.dtype == dtype
    torch.testing.assert_close(many, net(x).expand(2, -1, -1))


def test_parameter_without_axes_is_one_weight(rng):
    net = Net()
    layout = Layout(net, "temperature")
    x = torch.randn(2, 2, 4, 4)
    assert layout.num_params == 1
    halved = layout.apply(2.0 * layout.flatten(), x)
    torch.testing.assert_close(halved - net.shift, 0.5 * (layout.apply(layout.flatten(), x) - net.shift))


def test_reparametrised_weight_is_stochastic_in_its_own_parameters(rng):
    net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    layout = Layout(net)
    assert [slot.numel for slot in layout.slots] == [2, 2, 6]
    theta, x = perturbed(layout, rng), torch.randn(4, 3)
    bias, size, direction = (value for value in layout.unflatten(theta).values())
    weight = size * direction / direction.norm(dim=1, keepdim=True)
    torch.testing.assert_close(layout.apply(theta, x), x @ weight.T + bias)


# --- tied weights ---------------------------------------------------------------------------------


def test_tied_weights_are_one_slot_and_move_together(rng):
    net = Tied()
    layout = Layout(net)
    [slot] = layout.slots
    assert (slot.name, slot.names, layout.num_params) == ("embed.weight", ("embed.weight", "out.weight"), 20)
    tokens, theta = torch.tensor([0, 3, 3]), torch.randn(20, generator=rng)
    weight = theta.view(5, 4)
    torch.testing.assert_close(layout.apply(theta, tokens), torch.tanh(weight[tokens]) @ weight.T)


@pytest.mark.parametrize("pattern", ["embed.*", "out.*", "*.weight"])
def test_pattern_on_either_tied_name_chooses_or_excludes_both(pattern):
    net = nn.Sequential(Tied(), nn.Linear(5, 1))
    chosen, excluded = Layout(net, f"0.{pattern}"), Layout(net, exclude=f"0.{pattern}")
    assert [slot.name for slot in chosen.slots] == ["0.embed.weight"]
    assert [slot.name for slot in excluded.slots] == ["1.weight", "1.bias"]
    assert excluded.fixed == ("0.embed.weight",)


def test_tied_weights_may_come_from_a_state_dict_under_either_name():
    layout, value = Layout(Tied()), torch.randn(5, 4)
    for name in ("embed.weight", "out.weight"):
        assert torch.equal(layout.flatten({name: value}), value.reshape(-1))


def test_tied_weights_stay_tied_after_load(rng):
    net = Tied()
    layout = Layout(net)
    layout.load_(perturbed(layout, rng))
    assert net.out.weight is net.embed.weight


@pytest.mark.parametrize("forward", [None, lambda module, x: module(x)])
def test_submodule_with_two_names_is_evaluated_and_left_alone(forward, rng):
    net = nn.Module()
    net.a = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    net.b = nn.ModuleDict({"c": net.a})
    net.forward = lambda x: net.b["c"](torch.tanh(net.a(x)))
    layout = Layout(net, forward=forward)
    assert [slot.names for slot in layout.slots] == [
        (f"a.{name}", f"b.c.{name}") for name in ("0.weight", "0.bias", "1.weight", "1.bias")
    ]
    theta, x, before = perturbed(layout, rng), torch.randn(6, 3), snapshot(net)
    buffers = {"a.1.running_mean": torch.ones(3)}
    found = layout.apply(theta, x, buffers=buffers)
    assert_unchanged(net, before)
    layout.load_(theta)
    net.a[1].running_mean.copy_(buffers["a.1.running_mean"])
    torch.testing.assert_close(found, net.eval().forward(x))


def test_buffer_in_two_places_is_replaced_in_both():
    net = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Linear(1, 1)})
    shared = torch.ones(1)
    net["a"].register_buffer("gain", shared)
    net["b"].register_buffer("gain", shared)
    layout = Layout(net, forward=lambda net: net["a"].gain + 10 * net["b"].gain + 0 * net["a"].weight)
    assert layout.apply(layout.flatten()).item() == 11
    assert layout.apply(layout.flatten(), buffers={"a.gain": torch.full((1,), 2.0)}).item() == 22
    net.float()  # which makes two buffers of one
    with torch.no_grad():
        net["b"].gain.fill_(3.0)
    assert layout.apply(layout.flatten()).item() == 31
