"""Networks for tests of `Layout`, and checks that a module was not changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from livi.network import Layout


class Net(nn.Module):
    """Many kinds of layers: convolution, BatchNorm, dropout, attention, linear; and a scalar and a vector parameter."""

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
    """Embedding and output layer share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(torch.tanh(self.embed(tokens)))


class Holder(nn.Module):
    """A linear layer, and a parameter that the output does not depend on."""

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
    """Everything about a module, and torch's settings, in which a user could notice a change."""
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
