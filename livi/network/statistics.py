"""BatchNorm's statistics under posterior samples of the weights.

While a posterior is fitted, BatchNorm normalises by the batch (`Layout.apply(batch_statistics=True)`). For prediction
it needs fixed statistics, and those of the training run belong to no particular theta. So they are measured for each
theta: the mean and variance of all values that reach the layer. The variance is the biased one, which BatchNorm divides
by while fitting, and not the unbiased one of torch's `running_var`. So on the inputs that were measured, a network
gives the same outputs as in training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from livi import checks
from livi.network.evaluation import Loop, Strategy, as_call, as_wanted, for_each
from livi.network.parameters import Layout


class _Moments(NamedTuple):
    """Number, mean and variance of the values of each channel."""

    number: Tensor  # (..., C)
    mean: Tensor  # (..., C)
    variance: Tensor  # (..., C), biased

    @classmethod
    def of(cls, inputs: Tensor) -> _Moments:  # (B, C, ...)
        values = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        number = values.numel() // values.shape[1]
        mean, variance = (values.new_zeros(values.shape[1]) for _ in range(2))
        # As the layer itself does it, which is up to four times as quick as torch.var_mean.
        functional.batch_norm(values, mean, variance, training=True, momentum=1.0)
        return cls(torch.full_like(mean, number), mean, variance * ((number - 1) / number))

    def joined(self, other: _Moments) -> _Moments:
        """The moments of both sets of values together (Chan et al., 1979)."""
        number, gap = self.number + other.number, other.mean - self.mean
        share = other.number / number
        between = share * (1.0 - share) * gap.square()
        return _Moments(number, self.mean + share * gap, torch.lerp(self.variance, other.variance, share) + between)


@torch.no_grad()
def record_statistics(
    layout: Layout,
    theta: Tensor,  # (S, m)
    *args: Any,
    strategy: Strategy | None = None,
    **kwargs: Any,
) -> dict[str, Tensor]:
    """Every BatchNorm layer's mean and variance over these inputs at each theta, with a leading sample axis.

    The module runs once at each theta and normalises by the batch as in fitting. A layer that is called several times
    gets the statistics of all calls together; one that is not reached keeps those in its buffers. Passed as `buffers`
    to `apply_many`, they let each theta behave on new inputs as it was trained. {} without BatchNorm layers that keep
    statistics.
    """
    checks.matrix("theta", theta, layout.num_params)
    checks.same_kind("theta", theta, layout.dtype, layout.device)
    if not layout.batch_norms:
        return {}
    return _buffers(layout, _moments(layout, theta, args, kwargs, strategy), len(theta))


@torch.no_grad()
def estimate_statistics(
    layout: Layout,
    theta: Tensor,  # (S, m)
    batches: Iterable[Any],
    *,
    per_sample: bool = False,
) -> dict[str, Tensor]:
    """Means and variances of what reaches every BatchNorm layer under each theta, as buffers for `apply_many`.

    A layer behind another BatchNorm sees values that were normalised batch by batch: deep networks need large batches.

    Args:
        batches: module inputs; a tuple is passed as positional, a dict as keyword arguments.
        per_sample: keep one set for each theta, with a leading axis S; otherwise their average over S.

    Raises:
        ValueError: the batches hold no example (for instance an exhausted iterator).
    """
    checks.matrix("theta", theta, layout.num_params)
    if not layout.batch_norms:
        return {}
    found: dict[str, _Moments] = {}
    for batch in batches:
        args, kwargs = as_call(batch)
        for name, moments in _moments(layout, theta, args, kwargs, Loop()).items():
            found[name] = found[name].joined(moments) if name in found else moments
    for name in layout.batch_norms:
        if name not in found:
            raise ValueError(
                f"batches: expected examples that reach BatchNorm layer {name!r}, got none; "
                "pass a list or DataLoader that can be iterated more than once."
            )
    buffers = _buffers(layout, found, len(theta))
    return buffers if per_sample else {name: values.mean(0) for name, values in buffers.items()}


def _moments(
    layout: Layout, theta: Tensor, args: tuple[Any, ...], kwargs: Mapping[str, Any], strategy: Strategy | None
) -> dict[str, _Moments]:  # of (S, C)
    """Moments of all values that reach each layer at each theta; layers that no value reaches are left out."""
    seen: dict[str, _Moments] = {}

    def watch(name: str, layer: _BatchNorm) -> Any:
        def hook(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            inputs = given[0] if given else named["input"]
            if inputs.numel():
                moments = _Moments.of(inputs)
                seen[name] = seen[name].joined(moments) if name in seen else moments

        return layer.register_forward_pre_hook(hook, with_kwargs=True)

    def recorded(row: Tensor, _: dict[str, Tensor]) -> dict[str, _Moments]:
        seen.clear()
        layout.call(row, args, kwargs, None)
        return dict(seen)

    args, kwargs = as_wanted(strategy, (args, kwargs))
    with layout.turn:
        handles = [watch(name, layer) for name, layer in layout.batch_norms.items()]
        try:
            with layout.evaluation(batch_statistics=True):
                found: dict[str, _Moments] = for_each(recorded, theta, {}, strategy)
        finally:
            for handle in handles:
                handle.remove()
    return found


def _buffers(layout: Layout, moments: Mapping[str, _Moments], rows: int) -> dict[str, Tensor]:
    """The moments under the names of the module's buffers; a layer without moments keeps its own buffers."""
    with layout.turn:
        known = dict(layout.module.named_buffers())
    found = {}
    for name in layout.batch_norms:
        for kind, field in (("running_mean", "mean"), ("running_var", "variance")):
            buffer = f"{name}.{kind}" if name else kind
            own = known[buffer]
            measured = name in moments
            found[buffer] = getattr(moments[name], field).to(own) if measured else own.expand(rows, -1).clone()
    return found
