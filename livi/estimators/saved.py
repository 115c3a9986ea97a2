"""Fitted estimators from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from livi import storage
from livi.estimators.base import Estimator
from livi.estimators.classifier import LIVIClassifier
from livi.estimators.network import build_network
from livi.estimators.regressor import LIVIRegressor
from livi.fitted import Posterior

_CLASSES: dict[str, type[Estimator]] = {kind.__name__: kind for kind in (LIVIRegressor, LIVIClassifier)}


def load(path: str | Path, device: Any = None) -> Any:
    """The estimator that `save` wrote. On the same machine its answers are the same, bit for bit.

    Args:
        device: where it goes; by default the CPU, wherever it was fitted.

    Raises:
        StorageError: no such file, cut short, damaged, or not of an estimator.
    """
    return load_with_extra(path, device)[0]


def load_with_extra(path: str | Path, device: Any = None) -> tuple[Any, dict[str, Any]]:
    """The estimator, and the `extra` that was saved along with it ({} where there was none)."""
    parts = storage.load_parts(path, _network, device)
    facts = parts.extra["estimator"]
    estimator = _CLASSES[facts["class"]](**facts["params"])
    estimator.set_params(device=device)
    posterior = Posterior(
        parts.sampler, parts.likelihood, parts.prior, buffers=parts.buffers, history=parts.history, plan=parts.plan
    )
    return estimator._restore(facts["fitted"], posterior), parts.extra["extra"]


def _network(extra: dict[str, Any]) -> nn.Module:
    facts = extra.get("estimator")
    if not isinstance(facts, dict) or facts.get("class") not in _CLASSES:
        raise ValueError("expected a saved estimator, got another posterior; read it with livi.load.")
    return build_network(**facts["network"])
