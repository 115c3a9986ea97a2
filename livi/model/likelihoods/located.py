"""`Located`: targets in any units from outputs of order one, as centre + unit * output."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from livi import checks
from livi.model.likelihoods.base import REACH, RegressionLikelihood, described, log_positive, other_last_axis

Numbers = float | Sequence[float] | Tensor
FAR = 10.0  # root mean square of numbers above which, or below whose inverse, they are not of order one


class Located(RegressionLikelihood):
    """A density around a location centre + unit * output, in the targets' units: so are its scales.

    Both are one number, or one per output along the last axis. A likelihood made without them has 0 and 1.
    """

    centre: Tensor | None  # () or (k,)
    log_unit: Tensor | None

    def _keep_location(self, centre: Numbers, unit: Numbers) -> None:
        own = isinstance(centre, Tensor) or isinstance(unit, Tensor) or (centre, unit) != (0.0, 1.0)
        where = checks.numbers(centre)
        if where.ndim > 1 or not where.is_floating_point() or not bool(torch.isfinite(where).all()):
            raise ValueError(f"centre: expected a finite number, or one per output along one axis, got {centre!r}.")
        self.register_buffer("centre", where.detach().clone() if own else None)
        self.register_buffer("log_unit", log_positive("unit", unit) if own else None)

    def is_far(self, targets: Tensor) -> bool:
        """Whether the root mean square of an output's targets is above 10 or below 1/10."""
        return bool((far_from_one(columns_of(self.natural(targets)))).any())

    def standardised(self, targets: Tensor) -> Self | None:
        """A copy located at the mean and deviation of the targets: of each output for (N, k), else of all."""
        if self.centre is not None:
            return self
        columns = columns_of(targets)
        centre, unit = columns.mean(0), columns.std(0, correction=0)
        unit = torch.where(unit > 1e-12 * columns.abs().amax(0), unit, 1.0)
        single = len(centre) == 1
        return self._located_at(centre[0] if single else centre, unit[0] if single else unit)

    def _located_at(self, centre: Tensor, unit: Tensor) -> Self:
        """A copy with this location and the same scales."""
        other = copy.deepcopy(self)
        other.centre, other.log_unit = centre, unit.log()
        other._remember(centre=centre, unit=unit)
        return other

    def location(self, outputs: Tensor) -> Tensor:  # (S, B, ...)
        """The outputs in the targets' units."""
        if self.centre is None or self.log_unit is None:
            return outputs
        return self._each(self.centre, outputs) + self._each(self.log_unit, outputs).exp() * outputs

    def natural(self, targets: Tensor) -> Tensor:  # (B, ...)
        """Targets in the units of the outputs."""
        if self.centre is None or self.log_unit is None:
            return targets
        return (targets - self.centre) / self.log_unit.exp()

    def unit(self) -> Tensor | float:  # () or (k,)
        return 1.0 if self.log_unit is None else self.log_unit.exp()

    def out_of_reach(self, targets: Tensor, *, held: bool = False) -> str | None:
        if float(self.natural(targets).double().abs().median()) <= REACH:
            return None
        wanted = f"targets: expected values of order 1, got {described(targets)}; "
        if held:
            return (
                f"{wanted}train the network on (y - centre) / unit and pass {type(self).__name__}(centre=centre, "
                "unit=unit), which answers in units of y, or give the prior a scale that can reach them; with "
                "start='map' livi standardises them itself."
            )
        return (
            f"{wanted}pass standardise=True, which fits them in units of their own and answers in yours, or give the "
            "prior a scale that can reach them."
        )

    def _each(self, values: Tensor, outputs: Tensor) -> Tensor:
        if values.ndim and outputs.shape[-1] != len(values):
            raise other_last_axis(outputs, len(values), "centre and unit", "pass one centre and unit")
        return values


def columns_of(targets: Tensor) -> Tensor:  # (N, ...) -> (N, k) for k outputs, else (n, 1) of all numbers
    columns = targets.detach().cpu().double()
    return columns if columns.ndim == 2 and columns.shape[1] > 1 else columns.reshape(-1, 1)


def far_from_one(columns: Tensor) -> Tensor:  # (N, k) -> (k,)
    """Columns whose root mean square is above 10 or below 1/10; all zeros are neither."""
    size = columns.square().mean(0).sqrt()
    return (size > FAR) | ((size < 1.0 / FAR) & (size > 0.0))
