"""The layout: a module's weights as one vector, and the module as a function of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from livi.network import Layout, Loop, Vmap, apply_many, multiplications, suitable_strategy
from livi.network.evaluation import out_of_memory

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


class Net(nn.Module):
    """A bit of everything: convolution, norm with buffers, dropout, attention, head, a scalar, an own vector."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.shift = nn.Parameter(torch.randn(3))
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x: Tensor) -> Tensor:  # (B, 2, H, W) -> (B, 3)
        x = self.norm(F.relu(self.conv(x))).flatten(2).transpose(1, 2)
        x = self.attention(x, x, x, need_weights=False)[0].mean(1)
        return self.head(self.dropout(x)) / self.temperature + self.shift


class Tied(nn.Module):
    """out.weight is embed.weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(torch.tanh(self.embed(tokens)))


class Holder(nn.Module):
    """A linear layer beside one more parameter, which the output does not need."""

    def __init__(self, extra: nn.Parameter) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def perturbed(layout: Layout, rng: torch.Generator) -> Tensor:
    theta = layout.flatten()
    return theta + 0.1 * torch.randn(theta.shape, generator=rng, dtype=theta.dtype)


def snapshot(module: nn.Module) -> dict[str, Any]:
    """Everything that a user could find changed."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    return {
        "state": state,
        "identities": {name: id(value) for name, value in module.state_dict(keep_vars=True).items()},
        "gradients": [parameter.grad for parameter in module.parameters()],
        "training": [layer.training for layer in module.modules()],
        "tracking": [getattr(layer, "track_running_stats", None) for layer in module.modules()],
        "dropout": [getattr(layer, "dropout", None) for layer in module.modules() if isinstance(layer, nn.RNNBase)],
        "hooks": [len(layer._forward_pre_hooks) for layer in module.modules()],
        "global": (
            torch.backends.mha.get_fastpath_enabled(),
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
        ),
    }


def assert_unchanged(module: nn.Module, before: dict[str, Any]) -> None:
    after = snapshot(module)
    torch.testing.assert_close(after.pop("state"), before["state"], rtol=0, atol=0)
    assert after == {key: value for key, value in before.items() if key != "state"}


# --- the vector and back --------------------------------------------------------------------------


def test_flatten_concatenates_parameters_in_the_modules_order():
    net = Net()
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])
    assert torch.equal(Layout(net).flatten(), expected)


def test_flatten_gives_a_copy_without_a_gradient():
    net = nn.Linear(2, 1, bias=False)
    theta = Layout(net).flatten()
    assert not theta.requires_grad
    theta.zero_()
    assert bool(net.weight.all())


def test_flatten_reads_a_state_dict():
    net, other = Net(), Net()
    layout = Layout(net, include="head.*")
    assert torch.equal(layout.flatten(other.state_dict()), Layout(other, include="head.*").flatten())


def test_unflatten_undoes_flatten_under_the_parameters_names():
    net = Net()
    layout = Layout(net)
    torch.testing.assert_close(
        layout.unflatten(layout.flatten()), {name: p.detach() for name, p in net.named_parameters()}, rtol=0, atol=0
    )


@pytest.mark.parametrize("rows", [(), (3,), (2, 3)])
def test_unflatten_keeps_leading_axes_and_gives_views(rows):
    layout = Layout(Net())
    theta = torch.randn(*rows, layout.num_params)
    tensors = layout.unflatten(theta)
    for slot in layout.slots:
        assert tensors[slot.name].shape == (*rows, *slot.shape)
        assert tensors[slot.name].untyped_storage().data_ptr() == theta.untyped_storage().data_ptr()
    assert torch.equal(torch.cat([value.reshape(*rows, -1) for value in tensors.values()], -1), theta)


def test_load_writes_what_flatten_reads(rng):
    net = Net()
    layout = Layout(net, exclude="conv.*")
    theta, conv = perturbed(layout, rng), net.conv.weight.detach().clone()
    parameters = list(net.parameters())
    layout.load_(theta)
    assert torch.equal(layout.flatten(), theta)
    assert torch.equal(net.conv.weight, conv)
    assert all(after is before for after, before in zip(net.parameters(), parameters, strict=True))
    assert all(parameter.requires_grad for parameter in parameters)


def test_flatten_names_what_a_state_dict_lacks():
    layout = Layout(nn.Linear(2, 1))
    with pytest.raises(ValueError, match=r"expected a tensor for 'bias', got names \['weight'\]"):
        layout.flatten({"weight": torch.zeros(1, 2)})


def test_flatten_names_a_tensor_of_another_shape():
    layout = Layout(nn.Linear(2, 1))
    with pytest.raises(ValueError, match=r"weight: expected shape \(1, 2\), got \(2, 1\)"):
        layout.flatten({"weight": torch.zeros(2, 1), "bias": torch.zeros(1)})


@pytest.mark.parametrize(
    ("theta", "error", "message"),
    [
        (torch.zeros(4), ValueError, r"expected shape \(3,\), got \(4,\)"),
        (torch.zeros(1, 3), ValueError, r"expected shape \(3,\), got \(1, 3\)"),
        (torch.zeros(3, dtype=torch.long), TypeError, "floating-point"),
        (torch.tensor([0.0, torch.nan, 1.0]), ValueError, "1 NaN or inf"),
        ([0.0, 0.0, 0.0], TypeError, "expected a torch.Tensor, got list"),
    ],
)
def test_load_rejects_what_is_no_weight_vector(theta, error, message):
    net = nn.Linear(2, 1)
    before = net.weight.detach().clone()
    with pytest.raises(error, match=message):
        Layout(net).load_(theta)
    assert torch.equal(net.weight, before)


@pytest.mark.parametrize("shape", [(), (2,), (4,), (2, 4)])
def test_unflatten_rejects_another_last_axis(shape):
    with pytest.raises(ValueError, match="expected a last axis of 3"):
        Layout(nn.Linear(2, 1)).unflatten(torch.zeros(shape))


@pytest.mark.parametrize("shape", [(), (2,), (4,), (1, 3), (2, 3)])
def test_apply_rejects_a_theta_of_another_shape(shape):
    with pytest.raises(ValueError, match=r"theta: expected shape \(3,\), got"):
        Layout(nn.Linear(2, 1)).apply(torch.zeros(shape), torch.zeros(5, 2))


@pytest.mark.parametrize("shape", [(3,), (2, 4), (0, 3), (1, 2, 3)])
def test_apply_many_rejects_a_theta_of_another_shape(shape):
    with pytest.raises(ValueError, match=r"theta: expected shape \(num_samples >= 1, 3\), got"):
        apply_many(Layout(nn.Linear(2, 1)), torch.zeros(shape), torch.zeros(5, 2))


def test_theta_of_another_dtype_is_an_error_that_says_how_to_convert():
    layout = Layout(nn.Linear(2, 1))
    theta = layout.flatten().float()
    for evaluate in (layout.apply, lambda theta, x: apply_many(layout, theta[None], x)):
        with pytest.raises(ValueError, match=r"expected torch.float64 on cpu.*theta.to\('cpu', torch.float64\)"):
            evaluate(theta, torch.zeros(5, 2))


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


# --- slots, layers and the table ------------------------------------------------------------------


def layouts() -> dict[str, Layout]:
    return {
        "all": Layout(Net()),
        "gaps": Layout(Net(), exclude=("conv.weight", "attention.out_proj.*", "shift")),
        "tied": Layout(nn.Sequential(Tied(), nn.Linear(5, 1))),
        "one": Layout(nn.Linear(2, 1, bias=False)),
    }


@pytest.mark.parametrize("name", layouts())
def test_slots_and_layers_are_contiguous_and_cover_theta(name):
    layout = layouts()[name]
    slots = [slot for group in layout.groups for slot in group.slots]
    assert tuple(slots) == layout.slots
    for parts in (slots, layout.groups):
        assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
        assert parts[-1].stop == layout.num_params
        assert all(part.numel == part.stop - part.start > 0 for part in parts)
    assert layout.group_sizes == tuple(group.numel for group in layout.groups)
    assert sum(layout.group_sizes) == layout.num_params
    for group in layout.groups:
        owners = {slot.name.rpartition(".")[0] or "(root)" for slot in group.slots}
        assert owners == {group.name}


def test_each_submodule_is_one_layer():
    names = [group.name for group in Layout(Net()).groups]
    assert names == ["(root)", "conv", "norm", "attention", "attention.out_proj", "head.0", "head.2"]


@pytest.mark.parametrize(
    ("layer", "sizes"),
    [
        (nn.Linear, (7, 3)),
        (nn.Conv2d, (4, 6, (3, 5))),
        (nn.ConvTranspose1d, (4, 6, 3)),
        (nn.Embedding, (9, 5)),
        (nn.Bilinear, (2, 3, 4)),
        (nn.GRU, (3, 4)),
    ],
)
def test_fan_in_is_torchs_for_matrices_and_one_for_vectors(layer, sizes):
    module = layer(*sizes)
    for slot in Layout(module).slots:
        parameter = module.get_parameter(slot.name)
        if parameter.ndim > 1:
            expected, _ = nn.init._calculate_fan_in_and_fan_out(parameter)
            assert slot.fan_in == expected
        else:
            assert slot.fan_in == 1


@pytest.mark.parametrize(
    ("module", "options", "roles"),
    [
        (Net, {}, {}),
        (
            Net,
            {"include": "head.*", "exclude": "*.bias"},
            {"head.0.weight": "stochastic", "head.2.weight": "stochastic"},
        ),
        (Tied, {}, {"embed.weight": "stochastic", "out.weight": "tied to embed.weight"}),
        (
            lambda: nn.Sequential(Tied(), nn.Linear(5, 1)),
            {"include": "1.*"},
            {"0.embed.weight": "fixed", "1.weight": "stochastic", "1.bias": "stochastic"},
        ),
    ],
)
def test_describe_lists_every_parameter_once_with_its_role(module, options, roles):
    net = module()
    layout = Layout(net, **options)
    head, _, *rows, blank, closing = layout.describe().splitlines()
    assert head.split() == ["parameter", "shape", "weights", "role"]
    assert blank == ""
    table = {row.split()[0]: row.split(maxsplit=3) for row in rows}
    assert len(table) == len(rows)
    assert {name for name, _ in net.named_parameters()} <= set(table)
    for name, (_, shape, weights, role) in table.items():
        parameter = net.get_parameter(name)
        assert shape == ("x".join(map(str, parameter.shape)) or "scalar")
        default = "fixed" if options else "stochastic"
        assert role == roles.get(name, default)
        assert int(weights) == (0 if role.startswith("tied") else parameter.numel())
    total = sum(parameter.numel() for parameter in net.parameters())
    assert closing.startswith(f"stochastic: {layout.num_params} of {total} weights in {len(layout.groups)} layer")


def test_describe_counts_buffers_and_norms():
    assert Layout(Net()).describe().endswith("buffers: 3 (BatchNorm: 1)")


def test_repr_says_what_the_layout_is_over():
    assert repr(Layout(nn.Linear(999, 2))) == "Layout(Linear, num_params=2,000, layers=1)"


# --- the module is left as it was -----------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_statistics", [True, False])
@pytest.mark.parametrize("strategy", [None, Vmap(), Loop()])
def test_module_is_never_modified(training, batch_statistics, strategy, rng):
    net = Net().train(training)
    net.head.train(not training)  # flags differ within a module
    layout = Layout(net)
    x, theta = torch.randn(3, 2, 4, 4), perturbed(layout, rng).requires_grad_()
    before = snapshot(net)
    layout.apply(theta, x, batch_statistics=batch_statistics).sum().backward()
    outputs = apply_many(layout, theta[None], x, batch_statistics=batch_statistics, strategy=strategy)
    outputs.sum().backward()
    layout.verify(x)
    layout.describe()
    assert_unchanged(net, before)


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.rnn = Net(), nn.LSTM(3, 3, num_layers=2, dropout=0.5)

    def forward(self, x: Tensor) -> Tensor:
        self.rnn(self.net(x))
        raise RuntimeError("in the middle")


@pytest.mark.parametrize("batch_statistics", [True, False])
def test_module_is_left_alone_when_its_forward_raises(batch_statistics):
    net = Failing()
    layout = Layout(net)
    x, before = torch.randn(3, 2, 4, 4), snapshot(net)
    with pytest.raises(RuntimeError, match="in the middle"):
        layout.apply(layout.flatten(), x, batch_statistics=batch_statistics)
    assert_unchanged(net, before)
    for strategy in (None, Loop()):
        with pytest.raises(RuntimeError, match="in the middle"):
            apply_many(layout, layout.flatten()[None], x, batch_statistics=batch_statistics, strategy=strategy)
        assert_unchanged(net, before)


@pytest.mark.parametrize("enabled", [True, False])
def test_attention_backends_are_as_the_user_set_them(enabled):
    before = torch.backends.mha.get_fastpath_enabled()
    net = Net()
    layout = Layout(net)
    try:
        torch.backends.mha.set_fastpath_enabled(enabled)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            state = snapshot(net)
            layout.apply(layout.flatten(), torch.randn(3, 2, 4, 4))
            assert_unchanged(net, state)
        assert torch.backends.mha.get_fastpath_enabled() == enabled
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class Counting(nn.Module):
    """Writes to one buffer in place and assigns another, in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3, 2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = x
        return self.calls * self.linear(x)


@pytest.mark.parametrize("strategy", [None, Vmap(), Loop()])
def test_buffers_that_the_forward_writes_to_start_afresh_for_every_theta(strategy):
    net = Counting()
    layout = Layout(net)
    x = torch.ones(3, 2)
    outputs = apply_many(layout, layout.flatten().expand(2, -1), x, strategy=strategy)
    torch.testing.assert_close(outputs, net.linear(x).expand(2, -1, -1))
    assert net.calls.item() == 0
    assert not net.last.any()


def test_dropout_is_off_in_every_form(rng):
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.layer = nn.Linear(4, 4), nn.Dropout(0.5)
            self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)
            self.rnn = nn.GRU(4, 4, num_layers=2, dropout=0.5, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            x = F.dropout(self.layer(self.linear(x)), 0.5, self.training)
            return self.rnn(self.attention(x, x, x)[0])[0]

    net = Dropped().train()
    layout = Layout(net)
    x, theta = torch.randn(2, 5, 4), layout.flatten()
    state = torch.random.get_rng_state()
    first = layout.apply(theta, x, batch_statistics=True)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.testing.assert_close(first, net.eval()(x))


def test_apply_passes_keyword_arguments_and_a_users_forward_on():
    net = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(2, 3)})

    def forward(module: nn.Module, which: str, x: Tensor, *, scale: float = 1.0) -> Tensor:
        assert module is net
        return scale * module[which](x)

    layout = Layout(net, forward=forward)
    x, theta = torch.randn(4, 2), layout.flatten()
    torch.testing.assert_close(layout.apply(2 * theta, "b", x, scale=3.0), 6.0 * net["b"](x))
    many = apply_many(layout, torch.stack([theta, 2 * theta]), "a", x, scale=3.0)
    torch.testing.assert_close(many, torch.stack([3.0 * net["a"](x), 6.0 * net["a"](x)]))


def test_apply_composes_with_torch_func(rng):
    layout = Layout(Net())
    x, theta = torch.randn(2, 2, 4, 4), perturbed(layout, rng)
    reverse = torch.func.jacrev(layout.apply)(theta, x)
    torch.testing.assert_close(torch.func.jacfwd(layout.apply)(theta, x), reverse)
    torch.testing.assert_close(torch.func.vmap(layout.apply, (0, None))(theta[None], x)[0], layout.apply(theta, x))

    def energy(theta: Tensor) -> Tensor:
        return layout.apply(theta, x).square().sum()

    direction = torch.randn(theta.shape, generator=rng)
    _, product = torch.func.jvp(torch.func.grad(energy), (theta,), (direction,))
    step = 1e-5
    difference = torch.func.grad(energy)(theta + step * direction) - torch.func.grad(energy)(theta - step * direction)
    torch.testing.assert_close(product, difference / (2 * step), rtol=1e-5, atol=1e-5)


# --- verify ---------------------------------------------------------------------------------------


def test_verify_finds_exactly_the_parameters_that_the_output_does_not_need():
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused, self.cut = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
            self.zeroed = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x) + self.cut(x).detach() + 0.0 * self.zeroed

    layout = Layout(Skips())
    expected = ("zeroed", "unused.weight", "unused.bias", "cut.weight", "cut.bias")
    assert layout.verify(torch.randn(3, 2)) == expected
    assert Layout(Skips(), "used.*").verify(torch.randn(3, 2)) == ()


def test_verify_sees_a_parameter_whose_gradients_cancel_in_a_plain_sum():
    layout = Layout(nn.Linear(3, 2), forward=lambda module, x: module(x).softmax(-1))  # rows sum to one
    assert layout.verify(torch.randn(4, 3)) == ()


def test_verify_looks_into_structured_outputs():
    net = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 1), "c": nn.Linear(2, 1)})
    layout = Layout(net, forward=lambda m, x: {"first": [m["a"](x), None], "second": (m["b"](x), x.argmax())})
    assert layout.verify(torch.randn(3, 2)) == ("c.weight", "c.bias")


@pytest.mark.parametrize(
    "forward",
    [
        lambda module, x: module(x).detach(),
        lambda module, x: torch.no_grad()(module)(x),
        lambda module, x: module(x).argmax(-1),
        lambda _, x: x,
        lambda _module, _x: None,
    ],
    ids=["detach", "no_grad", "integers", "constant", "nothing"],
)
def test_verify_rejects_a_module_without_gradients(forward):
    with pytest.raises(TypeError, match="expected outputs that are differentiable in the parameters"):
        Layout(nn.Linear(2, 2), forward=forward).verify(torch.randn(3, 2))


def test_verify_works_without_grad_mode_and_leaves_the_global_rng_alone():
    layout = Layout(nn.Linear(2, 2))
    state = torch.random.get_rng_state()
    with torch.no_grad():
        assert layout.verify(torch.ones(3, 2)) == ()
    assert torch.equal(torch.random.get_rng_state(), state)


# --- many thetas ----------------------------------------------------------------------------------


def test_apply_many_stacks_structured_outputs():
    net = nn.Linear(2, 3)
    layout = Layout(net, forward=lambda module, x: {"out": module(x), "parts": (module(x).sum(), x)})
    x, theta = torch.randn(4, 2), torch.randn(5, layout.num_params)
    for strategy in (Vmap(), Vmap(chunk_size=2), Loop()):
        outputs = apply_many(layout, theta, x, strategy=strategy)
        assert outputs["out"].shape == (5, 4, 3)
        assert outputs["parts"][0].shape == (5,)
        torch.testing.assert_close(outputs["parts"][1], x.expand(5, 4, 2))


@pytest.mark.parametrize("strategy", ["vmap", Vmap, Loop, 2])
def test_strategy_is_an_object(strategy):
    with pytest.raises(TypeError, match=r"strategy: expected livi\.Vmap\(\), livi\.Loop\(\) or None"):
        apply_many(Layout(nn.Linear(2, 1)), torch.zeros(2, 3), torch.zeros(4, 2), strategy=strategy)


def test_chunk_size_must_be_positive():
    with pytest.raises(ValueError, match="chunk_size"):
        apply_many(Layout(nn.Linear(2, 1)), torch.zeros(2, 3), torch.zeros(4, 2), strategy=Vmap(chunk_size=0))


def test_module_that_decides_by_its_values_falls_back_to_the_loop():
    def forward(module: nn.Module, x: Tensor) -> Tensor:
        out = module(x)
        return out if out.sum() > 0 else -2 * out

    layout = Layout(nn.Linear(2, 1), forward=forward)
    x, theta = torch.rand(4, 2), torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    torch.testing.assert_close(apply_many(layout, theta, x), apply_many(layout, theta, x, strategy=Loop()))
    with pytest.raises(RuntimeError, match="data-dependent control flow"):
        apply_many(layout, theta, x, strategy=Vmap())


def test_error_of_the_module_itself_reaches_the_user():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        apply_many(Layout(nn.Linear(2, 1)), torch.zeros(2, 3), torch.zeros(4, 5))


def failing(error: Exception, calls: list[int]) -> Layout:
    """A linear network that raises an error of its own and counts how often."""

    def forward(module: nn.Module, x: Tensor) -> Tensor:
        calls.append(1)
        raise error

    return Layout(nn.Linear(2, 1), forward=forward)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried 8 TB."),
    ],
    ids=["cuda", "cpu"],
)
def test_out_of_memory_is_raised_at_once_and_not_tried_again(error):
    calls: list[int] = []
    with pytest.raises(RuntimeError, match="allocate") as caught:
        apply_many(failing(error, calls), torch.zeros(2, 3), torch.zeros(4, 2))
    assert caught.value is error
    assert len(calls) == 1
    with pytest.raises(RuntimeError, match="allocate"):
        suitable_strategy(failing(error, calls), torch.zeros(4, 2))
    assert len(calls) == 2


def test_the_cpu_runs_out_of_memory_with_the_words_that_are_looked_for():
    layout = Layout(nn.Linear(2, 1), forward=lambda module, x: module(x) + torch.empty(2**57)[0])
    with pytest.raises(RuntimeError) as caught:
        apply_many(layout, torch.zeros(2, 3), torch.zeros(4, 2))
    assert out_of_memory(caught.value)


def test_an_error_of_the_module_itself_comes_alone_after_one_more_run():
    calls: list[int] = []
    with pytest.raises(RuntimeError, match="expected a mask") as caught:
        apply_many(failing(RuntimeError("expected a mask"), calls), torch.zeros(5, 3), torch.zeros(4, 2))
    assert len(calls) == 2  # under vmap, and at the first theta without
    assert caught.value.__cause__ is None
    with pytest.raises(RuntimeError, match="expected a mask"):
        suitable_strategy(failing(RuntimeError("expected a mask"), calls), torch.zeros(4, 2))


def test_an_lstm_is_looped_over():
    layout = Layout(nn.LSTM(2, 3, batch_first=True), forward=lambda module, x: module(x)[0])
    theta, x = torch.randn(3, layout.num_params), torch.randn(4, 5, 2)
    torch.testing.assert_close(apply_many(layout, theta, x), apply_many(layout, theta, x, strategy=Loop()))
    assert suitable_strategy(layout, x) == Loop()


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ({"norm.runing_mean": torch.zeros(4)}, r"got 'norm\.runing_mean'; known: \['norm\.num_batches_tracked'"),
        ({"norm.weight": torch.zeros(4)}, "expected the module's buffer names"),
        ({"norm.running_mean": torch.zeros(5)}, r"expected shape \(4,\).*got \(5,\)"),
        ({"norm.running_mean": torch.zeros(3, 4)}, r"expected shape \(4,\).*got \(3, 4\)"),
    ],
)
def test_unknown_or_misshapen_buffers_are_an_error(buffers, message):
    layout = Layout(Net())
    x, theta = torch.randn(3, 2, 4, 4), layout.flatten()
    with pytest.raises(ValueError, match=message):
        layout.apply(theta, x, buffers=buffers)
    with pytest.raises(ValueError, match=message):
        apply_many(layout, theta.expand(2, -1), x, buffers=buffers)


def test_the_strategy_follows_from_the_module_and_its_sizes():
    x = torch.randn(3, 4, 2)
    rnn = Layout(nn.RNN(2, 3, batch_first=True), forward=lambda module, x: module(x)[0])
    assert suitable_strategy(rnn, x) == Loop()  # which vmap cannot batch
    net = Net()
    before = snapshot(net)
    assert suitable_strategy(Layout(net), torch.randn(3, 2, 4, 4)) == Vmap()
    assert_unchanged(net, before)
    convolution = Layout(nn.Conv2d(1, 16, 3))
    assert suitable_strategy(convolution, torch.randn(2, 1, 8, 8)) == Vmap()
    assert suitable_strategy(convolution, torch.randn(64, 1, 28, 28)) == Loop()  # slow as a grouped one, on a CPU
    assert suitable_strategy(Layout(nn.Linear(500, 500)), torch.randn(64, 500)) == Vmap()


def test_no_clock_decides_how_many_weight_vectors_are_evaluated(monkeypatch):
    def refuse() -> float:
        raise AssertionError("a clock was read")

    monkeypatch.setattr("time.perf_counter", refuse)
    assert suitable_strategy(Layout(nn.Linear(2, 1)), torch.zeros(4, 2)) == Vmap()


def test_a_strategy_is_not_chosen_for_a_module_that_cannot_run():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        suitable_strategy(Layout(nn.Linear(2, 1)), torch.zeros(4, 5))


def test_multiplications_are_counted_for_tokens_pixels_and_time_steps():
    assert multiplications(Layout(nn.Linear(4, 3, bias=False)), torch.zeros(5, 4)) == 5 * 12
    assert multiplications(Layout(nn.Linear(4, 3, bias=False)), torch.zeros(5, 7, 4)) == 5 * 7 * 12
    assert multiplications(Layout(nn.Conv2d(1, 2, 3, bias=False)), torch.zeros(5, 1, 6, 6)) == 5 * 16 * 18
    lstm = Layout(nn.LSTM(2, 3, batch_first=True), forward=lambda module, x: module(x)[0])
    assert multiplications(lstm, torch.zeros(5, 7, 2)) == 5 * 7 * lstm.num_params
    own = Layout(nn.ParameterDict({"a": torch.ones(6)}), forward=lambda module, x: x + module["a"].sum())
    assert multiplications(own, torch.zeros(5, 1)) == 5 * 6  # at least one for each weight and example
