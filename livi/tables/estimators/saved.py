"""Fitted estimators from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from livi.posterior import storage
from livi.posterior.posterior import Posterior
from livi.tables.estimators.classifier import LIVIClassifier
from livi.tables.estimators.network import build_network
from livi.tables.estimators.regressor import LIVIRegressor

_CLASSES: dict[str, type[LIVIRegressor | LIVIClassifier]] = {
    "LIVIRegressor": LIVIRegressor,
    "LIVIClassifier": LIVIClassifier,
}


def load(path: str | Path, device: Any = None) -> LIVIRegressor | LIVIClassifier:
    """The estimator that `save` wrote. On the same machine its answers are the same, bit for bit.

    Args:
        device: where it goes; by default the CPU, wherever it was fitted.

    Raises:
        StorageError: no such file, cut short, damaged, or not of an estimator.
    """
    return load_with_extra(path, device)[0]


def load_with_extra(path: str | Path, device: Any = None) -> tuple[LIVIRegressor | LIVIClassifier, dict[str, Any]]:
    """The estimator, and the `extra` that was saved along with it ({} where there was none)."""
    parts = storage.load_parts(path, _network, device)
    facts = parts.extra["estimator"]
    posterior = Posterior.from_parts(parts)
    try:
        estimator = _CLASSES[facts["class"]](**facts["params"] | {"device": device})
        return estimator._restore(facts["fitted"], posterior), parts.extra["extra"]
    except (KeyError, TypeError) as error:
        raise storage.StorageError(
            f"{path}: expected an estimator as this livi writes it, got {error}; use the version that saved it."
        ) from error


def _network(extra: dict[str, Any]) -> nn.Module:
    facts = extra.get("estimator")
    if not isinstance(facts, dict) or facts.get("class") not in _CLASSES:
        raise ValueError("expected a saved estimator, got another posterior; read it with livi.load.")
    return build_network(**facts["network"])
