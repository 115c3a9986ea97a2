"""`InputScaling`: inputs in any units for a network that takes numbers of order one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

WIDEST = 10.0  # distance between a column's extremes, in spreads, so that rare values do not become huge


class InputScaling:
    """x -> (x - centre) / spread of a network's first argument: one pair of numbers for all of it, or one per column.

    It is part of how the network is called (`Layout`), so that whoever runs the network passes inputs in their own
    units. The numbers are kept in double precision on the CPU, and follow the inputs to their device.

    >>> scaling = InputScaling.of(torch.tensor([[1000.0, 0.0], [1002.0, 0.0], [1004.0, 0.0]]))
    >>> scaling(torch.tensor([[1004.0, 7.0]]))
    tensor([[1.2247, 7.0000]])
    """

    def __init__(self, centre: Sequence[float], spread: Sequence[float]) -> None:
        both = [torch.tensor(list(part), dtype=torch.float64, device="cpu") for part in (centre, spread)]
        self.centre, self.spread = both
        sound = len(centre) == len(spread) > 0 and all(bool(torch.isfinite(part).all()) for part in both)
        if not sound or not bool((self.spread > 0).all()):
            raise ValueError(
                f"inputs: expected as many finite centres as positive spreads, got {len(centre)} and {len(spread)}."
            )
        self._there: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, inputs: Tensor) -> InputScaling:
        """Scales each column of inputs (B, p) to mean 0 and deviation 1; inputs of other shapes as one column.

        A constant column stays constant, of size 1 at most, since it may be an intercept. One whose values are up to
        w > 10 standard deviations apart, such as a pixel that is rarely lit, is divided by w / 10 of these instead.
        """
        columns = inputs.detach().cpu().double()
        columns = columns if columns.ndim == 2 else columns.reshape(-1, 1)
        reach = (columns.amax(0) - columns.amin(0)) / WIDEST
        spread = torch.maximum(columns.std(0, correction=0), reach)
        size = columns.abs().amax(0)
        constant = spread <= 1e-12 * size
        centre = torch.where(constant, 0.0, columns.mean(0))
        return cls(centre.tolist(), torch.where(constant, size.clamp_min(1.0), spread).tolist())

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> InputScaling:
        """From what `facts` returned."""
        return cls(facts["centre"], facts["spread"])

    def facts(self) -> dict[str, list[float]]:
        """As a dict that JSON can hold."""
        return {"centre": self.centre.tolist(), "spread": self.spread.tolist()}

    def __call__(self, inputs: Tensor) -> Tensor:
        if len(self.centre) > 1 and inputs.shape[-1:] != self.centre.shape:
            raise ValueError(
                f"inputs: expected {len(self.centre)} columns, as in the fit, got shape {tuple(inputs.shape)}."
            )
        centre, spread = self._like(inputs.device, inputs.dtype)
        return (inputs - centre) / spread

    def _like(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if device.type == "cpu":
            return self.centre.to(dtype), self.spread.to(dtype)
        if (device, dtype) not in self._there:  # copied once, since a recorded step must not copy from the CPU
            self._there[device, dtype] = (self.centre.to(device, dtype), self.spread.to(device, dtype))
        return self._there[device, dtype]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputScaling) and self.facts() == other.facts()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"InputScaling({len(self.centre)})"


def scaled(scaling: InputScaling | None, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call with the first one scaled."""
    return args if scaling is None else (scaling(args[0]), *args[1:])
