"""BatchNorm's running statistics under posterior samples of the weights.

While a posterior is fitted, BatchNorm normalises by the batch (`Layout.apply(batch_statistics=True)`). For prediction
it needs fixed statistics, and those of the training run belong to no particular theta. `estimate_statistics` measures
them anew from data: for one theta they are the exact mean and variance of all that reached the layer, which, behind
another BatchNorm, was normalised batch by batch, so that large batches serve deep networks better; for several theta
they are either kept per sample or averaged into one shared set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from livi import checks
from livi.network.parameters import Layout


class _Moments:
    """Count, mean and summed squared deviation per channel, merged batch by batch (Chan et al., 1979)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, torch.zeros(()), torch.zeros(())

    def add(self, inputs: Tensor) -> None:  # (B, C, ...)
        if not inputs.numel():
            return
        values = inputs.detach().transpose(0, 1).flatten(1).double()  # (C, n)
        count, mean = values.shape[1], values.mean(1)
        squares = (values - mean[:, None]).square().sum(1)
        if self.count == 0:
            self.count, self.mean, self.squares = count, mean, squares
            return
        total, gap = self.count + count, mean - self.mean
        self.squares = self.squares + squares + gap.square() * (self.count * count / total)
        self.mean = self.mean + gap * (count / total)
        self.count = total

    @property
    def variance(self) -> Tensor:
        return self.squares / max(self.count - 1, 1)  # unbiased, as in nn.BatchNorm's running_var


def has_batch_norm(module: nn.Module) -> bool:
    """Whether any BatchNorm layer keeps running statistics."""
    return any(True for _ in _tracked(module))


@torch.no_grad()
def estimate_statistics(
    layout: Layout,
    theta: Tensor,  # (S, m)
    batches: Iterable[Any],
    *,
    per_sample: bool = False,
) -> dict[str, Tensor]:
    """Running means and variances of every BatchNorm layer under each theta, as buffers for `apply` and `apply_many`.

    Args:
        batches: module inputs; a tuple is passed as positional, a dict as keyword arguments. Iterated S times, so give
            a list or a DataLoader.
        per_sample: keep one set for each theta, with a leading axis S; otherwise their average over S.

    Raises:
        ValueError: the batches hold no example (for instance an exhausted iterator).
    """
    checks.matrix("theta", theta, layout.num_params)
    layers = {name: layer for name, layer in _tracked(layout.module) if layer not in layout.frozen_norms}
    samples: list[dict[str, Tensor]] = []
    for row in theta:
        moments = {name: _Moments() for name in layers}
        handles = [
            layer.register_forward_pre_hook(_recorder(moments[name]), with_kwargs=True)
            for name, layer in layers.items()
        ]
        try:
            for batch in batches:
                args, kwargs = as_call(batch)
                layout.apply(row, *args, batch_statistics=True, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        samples.append(_buffers(moments, layers))
    stacked = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    return stacked if per_sample else {name: values.mean(0) for name, values in stacked.items()}


def as_call(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a module call from one batch of inputs."""
    if isinstance(batch, dict):
        return (), batch
    return (tuple(batch), {}) if isinstance(batch, (tuple, list)) else ((batch,), {})


def _tracked(module: nn.Module) -> Iterable[tuple[str, _BatchNorm]]:
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None:
            yield name, layer


def _recorder(moments: _Moments) -> Any:
    return lambda _layer, args, kwargs: moments.add(args[0] if args else kwargs["input"])


def _buffers(moments: dict[str, _Moments], layers: dict[str, _BatchNorm]) -> dict[str, Tensor]:
    buffers = {}
    for name, moment in moments.items():
        if moment.count == 0:
            raise ValueError(
                f"batches: expected examples that reach BatchNorm layer {name!r}, got none; "
                "pass a list or DataLoader that can be iterated more than once."
            )
        kind = layers[name].running_mean
        assert kind is not None
        prefix = f"{name}." if name else ""
        buffers[prefix + "running_mean"] = moment.mean.to(kind)
        buffers[prefix + "running_var"] = moment.variance.to(kind)
    return buffers
