"""Whether to cut columns into pieces, chosen by trial: short MAP fits to some of the rows, scored on others of them.

Pieces help where the classes change at thresholds, as in tables that people have filled in, and hurt where they change
smoothly: which it is, a few seconds tell. Numbers: docs/benchmarks/classes.md.
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
from livi.tables.estimators.choice import repeated
from livi.tables.estimators.network import build_network
from livi.tables.estimators.scaling import Array

MOST_ROWS = 8_000  # of a trial
HELD = 0.25  # of which are scored
STEPS, RATE = 1_000, 3e-2  # at a third of the rate, a network of plain columns is behind what it comes to
MEMBERS = 2


class Trial(NamedTuple):
    """A number of pieces that was tried, and the mean log probability of the held-out labels with it."""

    pieces: int
    log_score: float


def trial_rows(weights: Array, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places of rows to fit to and of rows to score, each as often as it counts."""
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
    """The mean log probability of the labels of the second rows, by two networks fitted to the first."""
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
