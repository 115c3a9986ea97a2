"""One point of a verdict, and the sizes of differences that matter to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "notice", "warning"]

# Nats below which a difference of bounds or entropies is of no consequence, and beyond which it is large.
SMALL, LARGE = 0.1, 1.0


@dataclass(frozen=True)
class Finding:
    """One point of the verdict: what was found, what it means, and what to do."""

    severity: Severity
    topic: str
    text: str
