"""Priors over theta: log p(theta), normalised."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from livi import checks
from livi.draws import normal
from livi.network import Layout, as_layout
from livi.spec import Specified


class Prior(Specified, nn.Module):
    """log p(theta) for each row: (S, m) -> (S,)."""

    def log_prob(self, theta: Tensor) -> Tensor:
        raise NotImplementedError

    def differentiated(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """A function from rows to `log_prob` and its gradient, (S, m) -> (S,), (S, m), at the prior's present scales.

        To be called under torch.no_grad.
        """

        def both(theta: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                leaf = theta.detach().requires_grad_()
                values = self.log_prob(leaf)
                if not values.requires_grad:  # a flat prior
                    return values, torch.zeros_like(theta)
                (gradient,) = torch.autograd.grad(values.sum(), leaf, materialize_grads=True)
            return values.detach(), gradient

        return both

    def sample(self, num_samples: int, num_params: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        """Weight vectors from the prior, on its device and in its dtype. A prior need not be able to."""
        raise NotImplementedError(
            f"{type(self).__name__}: expected a prior that can be drawn from, such as livi.Normal(); define "
            "sample(num_samples, num_params, rng)."
        )

    def std(self, num_params: int) -> Tensor | None:  # noqa: ARG002
        """The present standard deviation of each of m weights, (m,); None where it is unknown, as here."""
        return None

    def log_prob_of_scales(self) -> Tensor | float:  # ()
        """The part of `log_prob` that is a density of the scales themselves. Here: 0."""
        return 0.0

    def split(self, chosen: Tensor) -> tuple[Prior, Prior]:  # noqa: ARG002
        """Two priors whose log densities add up to this one's: of the weights that are not chosen, and of the others.

        What both depend on, such as a learned scale of all weights, is one parameter in both.

        Args:
            chosen: (m,), of booleans.

        Raises:
            ValueError: there are no such two; the message says why.
        """
        raise ValueError(f"the prior is {type(self).__name__}, which does not split into two")


class _Scaled(Prior):
    """A prior with independent weights and a scale: global, per layer or per weight; fixed or learned (type-II).

    Args:
        scale: one number, one for each of `sizes`, or one for each weight.
        sizes: numbers of weights of consecutive layers, for a scale per layer.
        learned: make the scale a parameter of the bound, found by type-II maximum likelihood.
    """

    unit_std: ClassVar[float] = 1.0  # the standard deviation at scale 1

    def __init__(
        self,
        scale: float | Sequence[float] | Tensor = 1.0,
        *,
        sizes: Sequence[int] | None = None,
        learned: bool = False,
    ) -> None:
        super().__init__()
        values = checks.numbers(scale).to(torch.get_default_dtype()).detach().clone()
        if values.ndim > 1 or not bool((torch.isfinite(values) & (values > 0)).all()):
            raise ValueError(f"scale: expected positive numbers, none or one axis, got {scale!r}.")
        self.sizes = None if sizes is None else tuple(checks.positive_int("each of sizes", size) for size in sizes)
        if self.sizes is not None:
            if not self.sizes or (values.ndim and values.shape[0] != len(self.sizes)):
                raise ValueError(
                    f"scale: expected one number, or one for each of {len(self.sizes)} sizes, got {values.numel()}."
                )
            values = values.expand(len(self.sizes)).clone()
        self.learned = learned
        self.repeats: Tensor | None  # of each layer's scale; its sizes, where a GPU need not be given them
        self.register_buffer("repeats", None if self.sizes is None else torch.tensor(self.sizes), persistent=False)
        self.log_scale: Tensor
        if learned:
            self.log_scale = nn.Parameter(values.log())
        else:
            self.register_buffer("log_scale", values.log())

    @classmethod
    def for_layout(
        cls, layout: Layout, scale: float = 1.0, *, per_layer: bool = False, fan_in: bool = False, learned: bool = False
    ) -> Self:
        """With this layout's layers: one scale for each (`per_layer`), or scale / sqrt(fan-in) for each weight matrix
        (`fan_in`; vectors such as biases keep `scale`)."""
        layout = as_layout(layout)
        if fan_in and (per_layer or learned):
            raise ValueError("fan_in fixes a scale for each parameter; drop per_layer and learned, or drop fan_in.")
        if fan_in:
            values = torch.cat([torch.full((s.numel,), scale / math.sqrt(s.fan_in)) for s in layout.slots])
            prior = cls(values)
        else:
            prior = cls(scale, sizes=layout.group_sizes if per_layer else None, learned=learned)
        return prior.to(layout.device, layout.dtype)

    def scale(self) -> Tensor:
        """() or (m,)."""
        if self.sizes is None:
            return self.log_scale.exp()
        scales = zip(self.log_scale.exp(), self.sizes, strict=True)
        return torch.cat([scale.expand(size) for scale, size in scales])

    def std(self, num_params: int) -> Tensor:  # (m,)
        return self.unit_std * self.scale().detach().expand(num_params)

    def sample(self, num_samples: int, num_params: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        checks.positive_int("num_samples", num_samples)
        checks.rng("rng", rng)
        scale = self.scale().detach()
        if scale.ndim == 1 and scale.shape[0] != checks.positive_int("num_params", num_params):
            raise ValueError(f"num_params: expected {scale.shape[0]} weights as in the scale, got {num_params}.")
        return scale * self._unit((num_samples, num_params), rng)

    def _unit(self, shape: tuple[int, int], rng: torch.Generator | None) -> Tensor:
        """Independent draws at scale 1."""
        raise NotImplementedError

    def groups_of(self, num_params: int) -> Tensor:  # (m,)
        """The number of the scale that each of m weights has.

        Raises:
            ValueError: the scales are for another number of weights.
        """
        device, scales = self.log_scale.device, torch.arange(self.log_scale.numel(), device=self.log_scale.device)
        if self.log_scale.ndim == 0:
            return torch.zeros(num_params, dtype=torch.long, device=device)
        groups = scales if self.sizes is None else scales.repeat_interleave(torch.tensor(self.sizes, device=device))
        if len(groups) != num_params:
            raise ValueError(f"the prior has scales for {len(groups):,} weights, and there are {num_params:,}")
        return groups

    def _density(self, sizes: Callable[[Tensor], Tensor], degree: int, theta: Tensor, each: float) -> Tensor:
        """-1/degree sum sizes(theta / scale) - sum (log scale + each), where sizes(a x) = a^degree sizes(x).

        Added in double precision, as is the volume: of millions of weights it is a sum that single precision loses tens
        of nats of.
        """
        log_scale, count = self.log_scale.double(), theta.shape[-1]
        if self.log_scale.ndim == 0:
            energy = sizes(theta).sum(-1) * (-degree * log_scale).exp()
            volume = count * log_scale
        else:
            scale = self.scale()
            if scale.shape[0] != count:
                raise ValueError(f"theta: expected {scale.shape[0]} weights as in the scale, got {count}.")
            energy = sizes(theta / scale).sum(-1)
            volume = (log_scale if self.repeats is None else self.repeats * log_scale).sum()
        return (-energy.double() / degree - (volume + count * each)).to(theta.dtype)


class Normal(_Scaled):
    """Independent N(0, scale^2).

    >>> Normal(1.0).log_prob(torch.zeros(1, 2))
    tensor([-1.8379])
    """

    def log_prob(self, theta: Tensor) -> Tensor:  # (S, m) -> (S,)
        return self._density(torch.square, 2, theta, 0.5 * math.log(2.0 * math.pi))

    def differentiated(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """See `Prior.differentiated`."""
        return _of_normal(self, self.scale()) if type(self) is Normal else super().differentiated()

    def _unit(self, shape: tuple[int, int], rng: torch.Generator | None) -> Tensor:
        return normal(shape, rng, self.log_scale.dtype, self.log_scale.device)

    def split(self, chosen: Tensor) -> tuple[Prior, Prior]:
        """See `Prior.split`."""
        if type(self) is not Normal:
            return super().split(chosen)
        groups = self.groups_of(len(chosen))
        if self.log_scale.ndim == 0:
            other = Normal(torch.ones_like(self.log_scale), learned=self.learned).to(self.log_scale)
            other.log_scale = self.log_scale
            return self, other
        if self.learned:
            _check_apart(groups, chosen)
        return self._part(groups, ~chosen), self._part(groups, chosen)

    def _part(self, groups: Tensor, chosen: Tensor) -> Normal:
        kept, sizes = torch.unique_consecutive(groups[chosen], return_counts=True)
        layers = None if self.sizes is None else tuple(sizes.tolist())
        part = Normal(self.log_scale.new_ones(len(kept)), sizes=layers, learned=self.learned).to(self.log_scale)
        part.log_scale.data.copy_(self.log_scale.detach()[kept])
        return part


class Laplace(_Scaled):
    """Independent Laplace(0, scale), of standard deviation sqrt(2) scale: heavier tails, sharper peak."""

    unit_std = math.sqrt(2.0)

    def log_prob(self, theta: Tensor) -> Tensor:  # (S, m) -> (S,)
        return self._density(torch.abs, 1, theta, math.log(2.0))

    def _unit(self, shape: tuple[int, int], rng: torch.Generator | None) -> Tensor:
        # Half the difference of two chi-squared numbers of two degrees: exponential ones, without a log of 0.
        squares = normal((4, *shape), rng, self.log_scale.dtype, self.log_scale.device).square()
        return 0.5 * (squares[0] + squares[1] - squares[2] - squares[3])


class Relevance(Prior):
    """Independent N(0, s^2), a scale s learned for each input and group of weights: `prior=livi.Relevance.for_layout`.

    Inputs that do not matter get small scales by type-II maximum likelihood (automatic relevance determination; MacKay
    1994, Neal 1996). log s ~ N(log start, spread^2) a priori, so that a scale that the data say nothing about stays
    where it starts; `log_prob` counts that density relative to its peak.

    Args:
        groups: the number of each weight's group, from 0.
        start: a scale for each group to start from.
        spread: of the logarithms of the scales around it.
        gain: start scales are gain / sqrt(fan-in); only remembered.
        learned: False keeps the scales where they start.
    """

    def __init__(
        self, groups: Tensor, start: Tensor, *, spread: float = 1.0, gain: float = 1.5, learned: bool = True
    ) -> None:
        super().__init__()
        _check_groups(groups, start)
        if not bool((torch.isfinite(start) & (start > 0)).all()):
            raise ValueError(f"start: expected positive numbers, got {start.min().item()} among them.")
        self.spread, self.gain = checks.positive_float("spread", spread), checks.positive_float("gain", gain)
        self.groups: Tensor
        self.log_start: Tensor
        self.register_buffer("groups", groups.detach().clone())
        self.register_buffer("log_start", start.detach().log())
        self.learned = learned
        self.log_scale: Tensor
        if learned:
            self.log_scale = nn.Parameter(start.detach().log())
        else:
            self.register_buffer("log_scale", start.detach().log())

    @classmethod
    def for_layout(
        cls,
        layout: Layout,
        *,
        gain: float = 1.5,
        spread: float = 1.0,
        gains: Mapping[str, float] | None = None,
        learned: bool = True,
    ) -> Self:
        """A group for each column of the first weight matrix, which takes the inputs, and for each other parameter.

        Args:
            gains: others than `gain`, by parameter name.
        """
        groups: list[Tensor] = []
        start: list[float] = []
        first = next((slot for slot in as_layout(layout).slots if len(slot.shape) == 2), None)
        for slot in layout.slots:
            columns = slot.shape[1] if slot is first else 1
            scale = (gains or {}).get(slot.name, gain) / math.sqrt(slot.fan_in)
            groups.append(len(start) + torch.arange(columns, device=layout.device).repeat(slot.numel // columns))
            start += [scale] * columns
        scales = torch.tensor(start, device=layout.device)
        prior = cls(torch.cat(groups), scales, spread=spread, gain=gain, learned=learned)
        return prior.to(layout.device, layout.dtype)

    def check_loaded(self, state: Mapping[str, Tensor]) -> None:
        """Raise a ValueError where tensors of a file do not belong together."""
        _check_groups(state["groups"], state["log_start"])

    def scale(self) -> Tensor:  # (m,)
        # In double precision, as gradients of a scale add up over the weights that have it.
        return self.log_scale.double().exp().index_select(0, self.groups).to(self.log_scale.dtype)

    def std(self, num_params: int) -> Tensor:  # (m,)
        return self.scale().detach().expand(num_params)

    def log_prob(self, theta: Tensor) -> Tensor:  # (S, m) -> (S,)
        if theta.shape[-1] != len(self.groups):
            raise ValueError(f"theta: expected {len(self.groups)} weights as in groups, got {theta.shape[-1]}.")
        energy = 0.5 * (theta / self.scale()).square().sum(-1)
        volume = self.log_scale.double().index_select(0, self.groups).sum()
        constant = 0.5 * theta.shape[-1] * math.log(2.0 * math.pi)
        return (self.log_prob_of_scales().double() - energy.double() - (volume + constant)).to(theta.dtype)

    def differentiated(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """See `Prior.differentiated`."""
        return _of_normal(self, self.scale()) if type(self) is Relevance else super().differentiated()

    def log_prob_of_scales(self) -> Tensor:  # ()
        """The log density of the scales relative to its peak: what pulls them to where they started."""
        return -0.5 * ((self.log_scale - self.log_start) / self.spread).square().sum()

    def groups_of(self, num_params: int) -> Tensor:  # (m,)
        """The number of the scale that each of m weights has.

        Raises:
            ValueError: the groups are of another number of weights.
        """
        if len(self.groups) != num_params:
            raise ValueError(f"the prior has groups for {len(self.groups):,} weights, and there are {num_params:,}")
        return self.groups

    def split(self, chosen: Tensor) -> tuple[Prior, Prior]:
        """See `Prior.split`. A group without weights goes with the weights that are not chosen."""
        if type(self) is not Relevance:
            return super().split(chosen)
        groups = self.groups_of(len(chosen))
        _check_apart(groups, chosen)
        taken = torch.zeros(len(self.log_start), dtype=torch.bool, device=groups.device)
        taken[groups[chosen]] = True
        return self._part(groups[~chosen], ~taken), self._part(groups[chosen], taken)

    def _part(self, groups: Tensor, kept: Tensor) -> Relevance:
        """The prior of some weights, given by their groups, with the `kept` scales, which are numbered anew."""
        number = kept.long().cumsum(0) - 1
        start = torch.ones_like(self.log_start[kept])
        part = Relevance(number[groups], start, spread=self.spread, gain=self.gain, learned=self.learned)
        part.log_start.copy_(self.log_start[kept])
        part.log_scale.data.copy_(self.log_scale.detach()[kept])
        return part

    def sample(self, num_samples: int, num_params: int, rng: torch.Generator | None = None) -> Tensor:  # (S, m)
        checks.positive_int("num_samples", num_samples)
        checks.rng("rng", rng)
        if num_params != len(self.groups):
            raise ValueError(f"num_params: expected {len(self.groups)} weights as in groups, got {num_params}.")
        scale = self.scale().detach()
        return scale * normal((num_samples, num_params), rng, scale.dtype, scale.device)


class FunctionPrior(Prior):
    """Any log_prob: (S, m) -> (S,), differentiable and normalised (an unnormalised one shifts every bound)."""

    def __init__(self, log_prob: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = log_prob

    def log_prob(self, theta: Tensor) -> Tensor:
        values = self.function(theta)
        if not isinstance(values, Tensor) or values.shape != theta.shape[:1]:
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"log_prob: expected one value for each of {theta.shape[0]} samples, got {got}.")
        return values


@torch.no_grad()
def _of_normal(prior: Prior, scale: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:  # () or (m,)
    """`Prior.differentiated` of independent N(0, scale^2): -theta / scale^2, and half of its product with theta."""
    steepness = -scale.detach().square().reciprocal()
    peaks: dict[int, Tensor] = {}

    def both(theta: Tensor) -> tuple[Tensor, Tensor]:
        size = theta.shape[1]
        if size not in peaks:
            peaks[size] = prior.log_prob(theta.new_zeros(1, size))
        gradient = theta * steepness
        return torch.add(peaks[size], (theta * gradient).sum(-1), alpha=0.5), gradient

    return both


def _check_groups(groups: Tensor, start: Tensor) -> None:
    """Raise unless every weight has one of the scales."""
    if groups.ndim != 1 or start.ndim != 1 or int(groups.max()) >= len(start) or int(groups.min()) < 0:
        raise ValueError(
            f"groups: expected one number for each weight, from 0 to below {len(start)} as there are start scales, "
            f"got shape {tuple(groups.shape)} with values from {int(groups.min())} to {int(groups.max())}."
        )


def _check_apart(groups: Tensor, chosen: Tensor) -> None:
    """Raise where a learned scale belongs to chosen and to other weights."""
    if bool(torch.isin(groups[chosen], groups[~chosen]).any()):
        raise ValueError("a learned scale of the prior is shared by the last layer and other weights")
