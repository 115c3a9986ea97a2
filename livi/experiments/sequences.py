"""Networks that read sequences: a vision transformer, a decoder of text, and an LSTM.

Attention is torch's own `scaled_dot_product_attention`, and the LSTM torch's `nn.LSTM`, as people use them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Multi-head self-attention; if `causal`, each token attends only to itself and earlier ones."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width: expected a multiple of {heads} heads, got {width}.")
        self.heads, self.causal = heads, causal
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, width)
        query, key, value = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)  # (B, heads, T, .)
        out: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention, then two dense layers, each after a LayerNorm and added to its input (Radford et al., 2019)."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first_norm(x))
        out: Tensor = x + self.dense(self.second_norm(x))
        return out


class VisionTransformer(nn.Module):
    """Patches of an image as a sequence (Dosovitskiy et al., 2021); logits come from the mean over patches.

    >>> VisionTransformer(side=32, patch=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        side: int = 32,
        patch: int = 4,
        channels: int = 3,
        *,
        width: int = 192,
        depth: int = 6,
        heads: int = 3,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.positions = nn.Parameter(torch.empty((side // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal=False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, x: Tensor) -> Tensor:  # (B, channels, side, side)
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        out: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return out


class Decoder(nn.Module):
    """A GPT, with its embedding as output layer: logits of the next token after every token of a text.

    >>> Decoder(vocabulary=128, length=32, width=32, depth=1)(torch.zeros(2, 32, dtype=torch.long)).shape
    torch.Size([2, 128, 32])
    """

    def __init__(
        self, vocabulary: int = 128, length: int = 256, *, width: int = 384, depth: int = 6, heads: int | None = None
    ) -> None:
        super().__init__()
        heads = max(1, width // 64) if heads is None else heads
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:  # (B, T) -> (B, vocabulary, T)
        positions = torch.arange(text.shape[1], device=text.device)
        x = self.norm(self.blocks(self.tokens(text) + self.positions(positions)))
        return F.linear(x, self.tokens.weight).transpose(1, 2)


class Reader(nn.Module):
    """An LSTM that reads an image row by row; logits come from its state after the last row.

    >>> Reader(28, 16)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, inputs: int = 28, width: int = 128, *, layers: int = 1, classes: int = 10) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, layers, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:  # (B, 1, rows, inputs)
        out: Tensor = self.head(self.lstm(x.squeeze(1))[0][:, -1])
        return out
