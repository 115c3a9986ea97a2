"""Fits that were interrupted: Ctrl-C leaves what was found so far, which is no result of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar


class Planned(Protocol):
    """A posterior or a density: its plan says at which step its fit was interrupted."""

    @property
    def plan(self) -> Mapping[str, Any]: ...


Fit = TypeVar("Fit", bound=Planned)


def interrupted(fit: Planned) -> bool:
    return fit.plan.get("interrupted_at") is not None


def completed(fit: Fit) -> Fit:
    """What was fitted, if nothing interrupted the fit.

    Raises:
        KeyboardInterrupt: it was interrupted, so that it is not a result.
    """
    if interrupted(fit):
        raise KeyboardInterrupt
    return fit
