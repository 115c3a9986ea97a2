"""Matrix-free products against the dense Jacobian of autograd."""

import pytest
import torch
from torch import nn

from livi import MMNN
from livi.family.jacobian import Jacobian, dense_jacobian


@pytest.fixture(params=["elu", "tanh", "gelu", "mmnn", "affine"])
def function(request):
    if request.param == "mmnn":
        return MMNN((3, 2), 11, hidden=((4, 5),))
    if request.param == "affine":
        return nn.Linear(6, 11)
    activation = {"elu": nn.ELU, "tanh": nn.Tanh, "gelu": nn.GELU}[request.param]
    return nn.Sequential(nn.Linear(6, 9), activation(), nn.Linear(9, 11))


def reference(function, z):
    return torch.stack([torch.autograd.functional.jacobian(lambda row: function(row[None])[0], row) for row in z])


def test_products_match_autograd(function):
    z, v, u = torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 11)
    dense = reference(function, z)
    jacobian = Jacobian(function, z)
    assert jacobian.shape == (4, 11, 6)
    torch.testing.assert_close(jacobian.value, function(z))
    torch.testing.assert_close(jacobian.matvec(v), torch.einsum("smd,sd->sm", dense, v))
    torch.testing.assert_close(jacobian.rmatvec(u), torch.einsum("smd,sm->sd", dense, u))
    torch.testing.assert_close(dense_jacobian(function, z), dense)


@pytest.mark.parametrize("stack", [1, 3])
def test_a_stack_of_vectors_is_as_good_as_one_after_the_other(function, stack):
    z, v, u = torch.randn(4, 6), torch.randn(stack, 4, 6), torch.randn(stack, 4, 11)
    jacobian = Jacobian(function, z)
    torch.testing.assert_close(jacobian.matvec(v), torch.stack([jacobian.matvec(row) for row in v]))
    torch.testing.assert_close(jacobian.rmatvec(u), torch.stack([jacobian.rmatvec(row) for row in u]))


def test_large_vectors_go_one_after_the_other_with_the_same_result(function, monkeypatch):
    z, v, u = torch.randn(4, 6), torch.randn(3, 4, 6), torch.randn(3, 4, 11)
    together = Jacobian(function, z).matvec(v), Jacobian(function, z).rmatvec(u)
    monkeypatch.setattr("livi.family.jacobian.LARGE", 0)
    torch.testing.assert_close((Jacobian(function, z).matvec(v), Jacobian(function, z).rmatvec(u)), together)


def test_products_work_without_gradients(function):
    z = torch.randn(2, 6)
    with torch.no_grad():
        product = Jacobian(function, z).matvec(torch.ones(2, 6))
    torch.testing.assert_close(product, reference(function, z).sum(-1))
    assert not product.requires_grad


def test_bilinear_form_has_the_gradient_of_the_dense_one(function):
    z, v, u = torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 11)
    parameters = list(function.parameters())
    form = Jacobian(function, z).bilinear(u, v)
    dense = torch.einsum("sm,smd,sd->s", u, dense_jacobian(function, z), v)
    torch.testing.assert_close(form, dense)
    got = torch.autograd.grad(form.sum(), parameters, allow_unused=True)
    expected = torch.autograd.grad(dense.sum(), parameters, allow_unused=True)
    for a, b, parameter in zip(got, expected, parameters, strict=True):
        zero = torch.zeros_like(parameter)
        torch.testing.assert_close(zero if a is None else a, zero if b is None else b)


def test_a_constant_function_has_a_zero_jacobian():
    jacobian = Jacobian(lambda z: z * 0.0 + 1.0, torch.randn(2, 3))
    torch.testing.assert_close(jacobian.matvec(torch.ones(2, 3)), torch.zeros(2, 3))
