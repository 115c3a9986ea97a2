"""`Section`: a part of the report on a table model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livi.report.interactive import Figure


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading of its own."""

    name: str
    title: str
    body: str  # HTML
    figures: Sequence[Figure] = ()
    kicker: str = ""  # a line above the heading, at the first section of a kind
