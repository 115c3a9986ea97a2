"""The result of a diagnosis: numbers, a verdict in words, a report to print, a dict to store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from torch import Tensor

from livi.posterior.diagnostics.estimate import Skipped
from livi.posterior.diagnostics.examination import Examination
from livi.posterior.diagnostics.finding import Finding, Severity
from livi.posterior.diagnostics.text import printed


@dataclass(frozen=True)
class Diagnosis(Examination):
    """What `diagnose` returns: the measurements and the findings. `print` shows both."""

    findings: tuple[Finding, ...]

    @property
    def severity(self) -> Severity:
        """The worst of the findings: "ok", "notice" or "warning"."""
        found = {finding.severity for finding in self.findings}
        return "warning" if "warning" in found else "notice" if "notice" in found else "ok"

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def noting(self, findings: Iterable[Finding]) -> Diagnosis:
        """A copy with further findings in front."""
        return replace(self, findings=(*findings, *self.findings))

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, lists and words for JSON; a number that is not finite becomes None."""
        result: dict[str, Any] = _plain(self)
        return result | {"severity": self.severity}

    def __str__(self) -> str:
        return printed(self, self.findings)


def _plain(value: Any) -> Any:
    if isinstance(value, Skipped):
        return {"skipped": value.reason}
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
