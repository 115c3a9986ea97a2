"""Networks of many kinds, to test that any module works."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

BATCH, CLASSES = 4, 3


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1))


def lenet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


class WideBlock(nn.Module):
    """A residual block: BatchNorm, ReLU and convolution, twice, next to a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.dropout = nn.Dropout(0.3)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(x))
        inner = self.dropout(F.relu(self.norm2(self.conv1(x))))
        return self.conv2(inner) + self.shortcut(x)


def wide_resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        *(WideBlock(4, 8, 1), WideBlock(8, 12, 2)),
        *(nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, CLASSES)),
    )


def group_norm_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.SiLU(), nn.Conv2d(6, 6, 3, groups=2), nn.GroupNorm(2, 6)),
        *(nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(24, CLASSES)),
    )


def segmenter() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(4, CLASSES, 4, 2, 1))


class Encoder(nn.Module):
    """Classifies tokens with torch's encoder layer; the positions are a persistent buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.register_buffer("positions", torch.randn(5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(tokens) + self.positions).mean(1))


class Recurrent(nn.Module):
    def __init__(self, layer: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = layer(3, 5, num_layers=2, dropout=0.4, batch_first=True)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


class LanguageModel(nn.Module):
    """A language model whose embedding and output layer share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.mix = nn.Linear(6, 6)
        self.unembed = nn.Linear(6, 7, bias=False)
        self.unembed.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:  # (B, T) -> (B, V, T)
        return self.unembed(torch.tanh(self.mix(self.embed(tokens)))).transpose(1, 2)


class Repeated(nn.Module):
    """One submodule under two names, used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = self.first
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(torch.tanh(self.first(x)))))))


class Positive(nn.Module):
    """A parametrisation: the weight is the softplus of the parameter."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x)


class Scalars(nn.Module):
    """Parameters without axes, a reparametrised weight, and a buffer that every call writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.tensor(-0.5))
        self.linear = nn.Linear(5, CLASSES)
        parametrize.register_parametrization(self.linear, "weight", Positive())
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.gain * self.linear(x) + self.shift + self.calls


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(5, 4), nn.Linear(3, 4)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head(torch.tanh(torch.cat([self.left(x), self.right(y)], 1)))


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, CLASSES)

    def forward(self, *, features: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.linear(features if mask is None else features * mask)


class TakesDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, CLASSES)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.linear(batch["features"]) + batch["bias"]


class ReturnsDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(5, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> dict[str, Tensor | None]:
        hidden = torch.tanh(self.body(x))
        return {"logits": self.head(hidden), "hidden": hidden, "loss": None}


class Pretrained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            *(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        )
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))


def pick_logits(module: nn.Module, x: Tensor) -> Tensor:
    return module(x)["logits"]
