"""Trials of cutting columns into pieces: short MAP fits to some of the rows, scored on others.

Pieces help if the classes change at thresholds, as in tables that people have filled in, and hurt if they change
smoothly; a trial takes a few seconds. docs/benchmarks/classes.md has the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from livi.inference import Recipe
from livi.model.likelihoods import Categorical
from livi.posterior.prediction import ClassificationPrediction
from livi.rivals import fit_ensemble
from livi.tables.estimators.network import build_network
from livi.tables.estimators.row_weights import repeated
from livi.tables.estimators.scaling import Array

MOST_ROWS = 8_000  # of a trial
HELD = 0.25  # share of a trial's rows that is scored
STEPS, RATE = 1_000, 3e-2  # at a third of the rate, 1,000 steps are too few for a network of plain columns
MEMBERS = 2  # networks fitted


class Trial(NamedTuple):
    """A number of pieces that was tried, and the mean log probability of the held-out labels with it."""

    pieces: int
    log_score: float


def trial_rows(weights: Array, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of rows to fit to and of rows to score, each repeated by its weight."""
    drawn = np.random.default_rng(seed).permutation(len(weights))[:MOST_ROWS]
    fitted, scored = (np.sort(rows) for rows in reversed(np.split(drawn, [round(HELD * len(drawn))])))
    return repeated(fitted, weights[fitted]), repeated(scored, weights[scored])


def map_score(
    inputs: Array,  # (n, p), standardised
    labels: NDArray[Any],  # (n,)
    rows: tuple[NDArray[np.intp], NDArray[np.intp]],
    *,
    hidden: tuple[int, ...],
    classes: int,
    activation: str,
    prior: Callable[..., Any] | Any,
    steps: int,
    device: Any,
    seed: int,
) -> float:
    """The mean log probability of the labels of the second `rows`, under two networks fitted to the first."""
    fitted, scored = rows
    net = build_network(inputs.shape[1], hidden, classes, activation, seed=seed, dtype=torch.float32)
    posterior = fit_ensemble(
        net,
        (inputs[fitted], labels[fitted]),
        Categorical(),
        members=MEMBERS,
        prior=prior,
        steps=steps,
        recipe=Recipe(map_rate=RATE),
        seed=seed,
        device=device,
        standardise=False,
    )
    layout = posterior.layout
    found = posterior.predict(torch.from_numpy(inputs[scored]).to(layout.device, layout.dtype), num_samples=MEMBERS)
    assert isinstance(found, ClassificationPrediction)
    chosen = found.probabilities[np.arange(len(scored)), torch.from_numpy(labels[scored]).to(layout.device)]
    return float(chosen.double().clamp_min(1e-15).log().mean())
