"""Trials of cutting columns into pieces: short MAP fits to some of the rows, scored on others.

Pieces help if the classes change at thresholds, as in tables that people have filled in, and hurt if they change
smoothly; a trial takes a few seconds. docs/benchmarks/classes.md has the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from livi.inference import Recipe
from livi.model.likelihoods import Categorical
from livi.posterior.prediction import ClassificationPrediction
from livi.rivals import fit_ensemble
from livi.tables.estimators.network import build_network
from livi.tables.estimators.scaling import Array
from livi.tables.estimators.trial import TrialRows

MAX_TRIAL_ROWS = 8_000
SCORED_SHARE = 0.25  # of a trial's rows
TRIAL_STEPS, MAP_RATE = 1_000, 3e-2  # at a third of the rate, the steps are too few for a network of plain columns
NUM_NETWORKS = 2


def piece_trial_rows(weights: Array, seed: int) -> TrialRows:
    """The rows of all trials of a classifier, each repeated by its weight."""
    return TrialRows.drawn(len(weights), seed, limit=MAX_TRIAL_ROWS, scored_share=SCORED_SHARE).repeated(weights)


def map_score(
    inputs: Array,  # (n, p), standardised
    labels: NDArray[Any],  # (n,)
    rows: TrialRows,
    *,
    hidden: tuple[int, ...],
    classes: int,
    activation: str,
    prior: Callable[..., Any] | Any,
    steps: int,
    device: Any,
    seed: int,
) -> float:
    """The mean log probability of the labels of the scored rows, under networks fitted to the others."""
    fitted, scored = rows
    net = build_network(inputs.shape[1], hidden, classes, activation, seed=seed, dtype=torch.float32)
    posterior = fit_ensemble(
        net,
        (inputs[fitted], labels[fitted]),
        Categorical(),
        members=NUM_NETWORKS,
        prior=prior,
        steps=steps,
        recipe=Recipe(map_rate=MAP_RATE),
        seed=seed,
        device=device,
        standardise=False,
    )
    layout = posterior.layout
    found = posterior.predict(
        torch.from_numpy(inputs[scored]).to(layout.device, layout.dtype), num_samples=NUM_NETWORKS
    )
    assert isinstance(found, ClassificationPrediction)
    chosen = found.probabilities[np.arange(len(scored)), torch.from_numpy(labels[scored]).to(layout.device)]
    return float(chosen.double().clamp_min(1e-15).log().mean())
