"""A module's weights as one vector, and back."""

from __future__ import annotations

import pytest
import torch
from support.networks import Net, perturbed
from torch import nn

from livi.network import Layout, apply_many


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
