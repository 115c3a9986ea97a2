"""What a layout says of a module: slots, layers, a table, and the parameters that do nothing."""

from __future__ import annotations

import pytest
import torch
from support.networks import Net, Tied
from torch import Tensor, nn

from livi.network import Layout

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
