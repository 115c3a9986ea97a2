"""`Fitted`: the attributes of a fitted posterior that storage and diagnostics read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from livi.family.family import WeightSampler
from livi.model.likelihoods import Likelihood
from livi.model.priors import Prior


@runtime_checkable
class Fitted(Protocol):
    """A fitted posterior, such as `livi.Posterior`; its `calibration` inputs are used if it has any."""

    @property
    def sampler(self) -> WeightSampler: ...
    @property
    def likelihood(self) -> Likelihood: ...
    @property
    def prior(self) -> Prior | None: ...
    @property
    def buffers(self) -> Mapping[str, Tensor]: ...
