"""Scores of a fitted method on images: in distribution, out of it (M-C1, M3), and rotated or corrupted (M2, C2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Protocol

import torch
from torch import Tensor

from livi.experiments.images.problems import Sets
from livi.posterior import metrics
from livi.posterior.prediction import ClassificationPrediction

QUANTITIES = ("accuracy", "nll", "ece", "brier")
OTHERS = ("confidence", "auroc", "fpr95")
ALL_CORRUPTIONS = "corruption"  # the mean over several corruptions
GRID = 101  # points of an empirical distribution function of entropy, from 0 to log(classes)
CHUNK = 10_000  # images predicted at a time


class Predicts(Protocol):
    def predict(self, inputs: Tensor) -> ClassificationPrediction: ...


def scores(fitted: Predicts, sets: Sets, *, quick: bool = False) -> dict[str, Any]:
    """Every score, ready for JSON.

    - `accuracy`, `nll`, `ece` (15 bins of equal width, every prediction counted) and `brier` of the scored images.
    - `others`: for each OOD set the mean `confidence` (the highest probability), and `auroc` and `fpr95` of telling
      it from the scored images by confidence; `others_mean` their means over the sets.
    - `shifts`: for the rotation, or each corruption, its `levels`, and `nll`, `ece` and `accuracy` at each.
    - `entropy`: for the scored images and each OOD set the share of predictive entropies up to each of 101
      values from 0 to log(classes).

    Args:
        quick: only every third level, and only of the first rotation or corruption.
    """
    scored = Answers.of(fitted, sets.scored.inputs)
    ood = {name: Answers.of(fitted, inputs) for name, inputs in sets.others.items()}
    others = {name: ood_scores(scored, answers) for name, answers in ood.items()}
    every = {"scored": scored} | ood
    return {
        **scored.scores(sets.scored.labels),
        "others": others,
        "others_mean": _means(others),
        "shifts": dict(_shifts(fitted, sets, quick)),
        "entropy": {name: _distribution(answers.entropy, sets.problem.classes) for name, answers in every.items()},
    }


def comparable(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with `others_mean` over the OOD sets that all of them have, since sets are not equally hard.

    Each of these means is an entry of its own too, as `others_auroc`.
    """
    shared = shared_sets(rows)
    found = [
        dict(row) | {"others_mean": _means({name: row["others"][name] for name in shared})}
        if row.get("others")
        else dict(row)
        for row in rows
    ]
    return [row | {f"others_{name}": (row.get("others_mean") or {}).get(name) for name in OTHERS} for row in found]


def shared_sets(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The OOD sets that all rows with any have in common."""
    every = [row["others"] for row in rows if row.get("others")]
    return [name for name in every[0] if all(name in others for others in every)] if every else []


def shared_sets_note(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence that says which OOD sets are averaged, if not all rows have the same ones."""
    shared, every = shared_sets(rows), {name for row in rows for name in row.get("others") or {}}
    if len(shared) == len(every):
        return []
    named = ", ".join(shared) if shared else "none"
    return [f"Means over OOD sets are of those that all runs have: {named}."]


def shift_curve(row: Mapping[str, Any], shift: str, name: str) -> list[float] | None:
    """The levels of a rotation or corruption, or scores at them; `ALL_CORRUPTIONS` gives the mean. None if missing."""
    shifts: Mapping[str, Mapping[str, list[float]]] = row["shifts"]
    if shift == ALL_CORRUPTIONS and len(shifts) > 1:
        return [mean(values) for values in zip(*(curves[name] for curves in shifts.values()), strict=True)]
    return shifts[shift][name] if shift in shifts else None


def _means(others: Mapping[str, Mapping[str, float]]) -> dict[str, float] | None:
    return {each: mean(found[each] for found in others.values()) for each in OTHERS} if others else None


def averaged(logits: Tensor) -> Tensor:  # (S, n, C) -> (n, C)
    """The logarithm of the class probabilities averaged over draws."""
    return torch.logsumexp(torch.log_softmax(logits.double(), 2), 0) - math.log(len(logits))


@dataclass(frozen=True)
class Answers:
    """The log of the averaged class probabilities of images.

    It has `probabilities` and `label`, which livi.posterior.metrics needs.
    """

    logs: Tensor  # (n, C)

    @classmethod
    def of(cls, fitted: Predicts, inputs: Tensor) -> Answers:
        """The answers for these inputs, predicted in chunks, as the draws for all images would fill the memory."""
        return cls(torch.cat([averaged(fitted.predict(chunk).logits) for chunk in inputs.split(CHUNK)]))

    @property
    def probabilities(self) -> Tensor:
        return self.logs.exp()

    @property
    def label(self) -> Tensor:
        return self.logs.argmax(1)

    @property
    def confidence(self) -> Tensor:
        return self.logs.amax(1).exp()

    @property
    def entropy(self) -> Tensor:
        terms: Tensor = torch.special.entr(self.probabilities)
        return terms.sum(1)

    def log_prob(self, labels: Tensor) -> Tensor:
        return self.logs.gather(1, labels[:, None])[:, 0]

    def scores(self, labels: Tensor) -> dict[str, float]:
        return {name: metrics.METRICS[name](self, labels) for name in QUANTITIES}


def ood_scores(scored: Answers, ood: Answers) -> dict[str, float]:
    """Mean confidence on OOD images, and how well it tells them from scored ones."""
    unsure, unsure_ood = -scored.confidence, -ood.confidence
    return {
        "confidence": ood.confidence.mean().item(),
        "auroc": metrics.auroc(unsure_ood, unsure),
        "fpr95": metrics.fpr95(unsure_ood, unsure),
    }


def _shifts(fitted: Predicts, sets: Sets, quick: bool) -> Iterator[tuple[str, dict[str, list[float]]]]:
    for name, shift in list(sets.problem.shifts.items())[: 1 if quick else None]:
        levels = shift.levels[:: 3 if quick else 1]
        found = []
        for level in levels:
            inputs, labels = sets.shifted(name, level)
            found.append(Answers.of(fitted, inputs).scores(labels))
        curves = {score: [at_level[score] for at_level in found] for score in ("nll", "ece", "accuracy")}
        yield name, {"levels": list(levels)} | curves


def _distribution(entropy: Tensor, classes: int) -> list[float]:
    grid = torch.linspace(0.0, math.log(classes), GRID, dtype=entropy.dtype, device=entropy.device)
    below = torch.searchsorted(entropy.sort().values, grid, right=True)
    return [round(share, 6) for share in (below.double() / len(entropy)).tolist()]
