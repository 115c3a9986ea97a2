"""One run: candidates are fitted to part of the training rows, and the best on the rest is fitted to all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from livi.experiments.uci.data import Fold, Split
from livi.experiments.uci.methods import Candidate, Method
from livi.model.likelihoods import Gaussian
from livi.posterior.interruption import completed
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import RegressionPrediction

PREDICTED = 200  # networks in a prediction
SHORTER = 0.5  # share of the steps in which a candidate is fitted
NOISES = torch.logspace(-4.0, 0.5, 91)  # tried on validation rows, in units of the targets' standard deviation


@dataclass(frozen=True)
class Choice:
    """The choice by validation rows: a candidate, its noise if that is chosen too, and the scores of all candidates."""

    candidate: Candidate
    noise: float | None = None
    scores: dict[str, float] = field(default_factory=dict)


def choose(method: Method, split: Split, *, steps: int, seed: int, device: str = "cpu") -> Choice:
    """The candidate with the highest mean log density of the validation rows, when fitted in half of the steps.

    A candidate that fails has no score. A single candidate with learned noise is not fitted at all.

    Raises:
        ArithmeticError: all candidates fail; the failure of the last one is the cause.
    """
    if len(method.candidates) == 1 and method.noise == "learned":
        return Choice(method.candidates[0])
    best: Choice | None = None
    scores: dict[str, float] = {}
    failure: Exception | None = None
    for candidate in method.candidates:
        try:
            shorter = max(1, round(SHORTER * steps))
            posterior = fitted(method, candidate, split.search, steps=shorter, seed=seed, device=device)
            prediction = predicted(posterior, split.search, seed)
        except (ArithmeticError, RuntimeError, ValueError) as error:
            failure = error
            continue
        noise = None if method.noise == "learned" else _validated_noise(prediction, split, method.noise)
        score = log_score(prediction if noise is None else _with_noise(prediction, noise, split.search), split.search)
        if not math.isfinite(score):
            continue
        scores[str(candidate)] = score
        if score == max(scores.values()):
            best = Choice(candidate, noise)
    if best is None:
        raise ArithmeticError(f"no candidate could be fitted: {failure}") from failure
    return Choice(best.candidate, best.noise, scores)


def fitted(
    method: Method,
    candidate: Candidate,
    fold: Fold,
    *,
    steps: int,
    seed: int,
    noise: float | None = None,
    device: str = "cpu",
) -> Posterior:
    """The posterior of a method with a candidate's prior, fitted in about this number of steps."""
    posterior: Posterior = method.fit(
        candidate.network(fold.inputs.shape[1], seed).to(device),
        fold.data,
        Gaussian(1.0, learned=True) if noise is None else Gaussian(noise),
        prior=candidate.prior,
        standardise=False,
        seed=seed,
        progress=False,
        **method.options(steps, len(fold.targets)),
    )
    return completed(posterior)


def predicted(posterior: Posterior, fold: Fold, seed: int) -> RegressionPrediction:
    """Predictions for the rows to score, in the targets' own units."""
    rng = torch.Generator(posterior.layout.device).manual_seed(seed)
    prediction = posterior.predict(fold.scored_inputs, num_samples=PREDICTED, rng=rng)
    assert isinstance(prediction, RegressionPrediction)
    return RegressionPrediction(prediction.means.cpu(), prediction.stds.cpu()).rescaled(fold.centre, fold.unit)


def log_score(prediction: RegressionPrediction, fold: Fold) -> float:
    return float(prediction.log_prob(torch.from_numpy(fold.scored_targets)).mean())


def best_noise(prediction: RegressionPrediction, fold: Fold) -> float:
    """The noise, in standard units, under which these networks give the scored rows the highest density."""
    scores = [log_score(_with_noise(prediction, float(noise), fold), fold) for noise in NOISES]
    return float(NOISES[int(torch.tensor(scores).nan_to_num(-math.inf).argmax())])


def _validated_noise(prediction: RegressionPrediction, split: Split, kind: str) -> float | None:
    """The best noise for the validation rows, as `Method.noise` asks; None if the noise is to be learned.

    It is learned if candidates were fitted to only some of the other rows, as the noise of a fit to all then differs.
    """
    if not split.searched_all:
        return None
    if kind == "mean":
        mean = prediction.means.mean(0, keepdim=True)
        return best_noise(RegressionPrediction(mean, torch.ones((), dtype=mean.dtype)), split.search)
    noise, targets = best_noise(prediction, split.search), torch.from_numpy(split.search.scored_targets)
    gain = _with_noise(prediction, noise, split.search).log_prob(targets) - prediction.log_prob(targets)
    worth = float(gain.mean()) > float(gain.std()) / math.sqrt(len(gain))
    return noise if kind == "validated" or worth else None


def _with_noise(prediction: RegressionPrediction, noise: float, fold: Fold) -> RegressionPrediction:
    std: Tensor = torch.as_tensor(noise * fold.unit, dtype=torch.float64)
    return RegressionPrediction(prediction.means, std)
