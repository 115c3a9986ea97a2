"""The module as a function of its weights: it is left as it was."""

from __future__ import annotations

import pytest
import torch
from support.networks import Net, assert_unchanged, perturbed, snapshot
from torch import Tensor, nn
from torch.nn import functional as F

import livi
from livi.network import Layout, Loop, Vmap, apply_many


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


@pytest.mark.parametrize(
    "made",
    [
        lambda net: livi.apply_many(net, torch.zeros(2, 5), torch.zeros(3, 4)),
        *(kind.for_layout for kind in (livi.MLP, livi.Affine, livi.MMNN, livi.CMMNN, livi.PerLayer)),
        *(kind.for_layout for kind in (livi.Normal, livi.Laplace, livi.Relevance, livi.RelativeNoise)),
        lambda net: livi.ImplicitPosterior(net, livi.Affine(5, 5)),
    ],
)
def test_a_network_where_its_layout_belongs_is_named(made):
    with pytest.raises(TypeError, match=r"^layout: expected a livi.Layout, got Linear; pass livi.Layout\(net\)\.$"):
        made(nn.Linear(4, 1))
