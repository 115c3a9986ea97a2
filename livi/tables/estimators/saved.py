"""Loading of fitted estimators from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from livi.posterior import storage
from livi.posterior.posterior import Posterior
from livi.tables.estimators.classifier import LIVIClassifier
from livi.tables.estimators.missing_values import NUM_VALUES
from livi.tables.estimators.network import build_network, network_facts
from livi.tables.estimators.regressor import LIVIRegressor

_CLASSES: dict[str, type[LIVIRegressor | LIVIClassifier]] = {
    "LIVIRegressor": LIVIRegressor,
    "LIVIClassifier": LIVIClassifier,
}
_MAX_THREADS, _MAX_SAMPLES = 4096, 10**6


def load(path: str | Path, device: Any = None) -> LIVIRegressor | LIVIClassifier:
    """The estimator that `save` wrote. On the same machine its predictions are the same, bit for bit.

    Args:
        device: the device to load it to; by default the CPU, wherever it was fitted.

    Raises:
        StorageError: no such file, a truncated or damaged one, or not an estimator.
    """
    return load_with_extra(path, device)[0]


def load_with_extra(path: str | Path, device: Any = None) -> tuple[LIVIRegressor | LIVIClassifier, dict[str, Any]]:
    """The estimator, and the `extra` that was saved with it ({} if there was none)."""
    parts = storage.load_parts(path, _network, device)
    facts, extra = parts.extra["estimator"], parts.extra.get("extra", {})
    try:
        estimator = _CLASSES[facts["class"]](**facts["params"] | {"device": device})
        estimator._restore(facts["fitted"], Posterior.from_parts(parts))
        _check(estimator, extra)
        return estimator, extra
    except Exception as error:  # a file can hold anything, so that anything may fail
        raise storage.StorageError(
            f"{path}: expected an estimator as this livi writes it, got {error}; use the version that saved it."
        ) from error


def _check(estimator: LIVIRegressor | LIVIClassifier, extra: Any) -> None:
    """Raise ValueError for values that no fit gives, such as contradicting sizes or absurd numbers."""
    net = network_facts(estimator.posterior_.layout.module)
    shapes = {np.shape(part) for part in estimator.input_scaling_}
    scores, columns = estimator.conformity_scores_, estimator.n_features_in_
    pieces = 0 if estimator.pieces_ is None else len(estimator.pieces_.columns)
    right = {
        "extra": isinstance(extra, dict),
        "n_features_in_": type(columns) is int and columns + pieces == net["inputs"],
        "feature_names_in_": len(getattr(estimator, "feature_names_in_", range(columns))) == columns,
        "input_scaling_": shapes == {(columns,)},
        "pieces_": estimator.pieces_ is None or estimator.pieces_.fits(columns),
        "usual_": estimator.usual_ is None or _are_usual(estimator.usual_, columns),
        "seed_": type(estimator.seed_) is int and 0 <= estimator.seed_ < 2**32,
        "n_jobs": estimator.n_jobs is None or -_MAX_THREADS <= estimator.n_jobs <= _MAX_THREADS,
        "num_samples": estimator.num_samples == "auto" or 1 <= int(estimator.num_samples) <= _MAX_SAMPLES,
        "interval": estimator.interval in ("posterior", "conformal"),
        "conformity_scores_": scores is None or np.ndim(scores) == 1,
        "classes_": len(getattr(estimator, "classes_", range(net["outputs"]))) == net["outputs"],
    }
    for name, fine in right.items():
        if not fine:
            raise ValueError(f"another {name} than a fit has")


def _are_usual(values: Any, columns: int) -> bool:
    return np.shape(values) == (NUM_VALUES, columns) and bool(np.isfinite(values).all())


def _network(extra: dict[str, Any]) -> nn.Module:
    facts = extra.get("estimator")
    if not isinstance(facts, dict) or facts.get("class") not in _CLASSES:
        raise ValueError("expected a saved estimator, got another posterior; read it with livi.load.")
    return build_network(**facts["network"])
