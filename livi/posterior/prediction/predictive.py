"""The Monte Carlo predictive: outputs at weight samples in, a prediction of the likelihood's kind out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

from livi.model.likelihoods import (
    Bernoulli,
    Categorical,
    ClassificationLikelihood,
    Likelihood,
    Logits,
    LogNormals,
    Normals,
    RegressionLikelihood,
)
from livi.network import Layout
from livi.posterior.prediction.chunks import evaluate, joined
from livi.posterior.prediction.classification import ClassificationPrediction, sum_to_one
from livi.posterior.prediction.density import DensityPrediction, Drawable, DrawnPrediction
from livi.posterior.prediction.log_normal import LogNormalPrediction
from livi.posterior.prediction.mixture import check_outputs, differentiable_in, precise
from livi.posterior.prediction.networks import Networks
from livi.posterior.prediction.outputs import SampledOutputs
from livi.posterior.prediction.refusal import check_answers
from livi.posterior.prediction.regression import RegressionPrediction
from livi.posterior.prediction.shapes import NoiseShape

Prediction = RegressionPrediction | LogNormalPrediction | DensityPrediction | ClassificationPrediction | SampledOutputs

Batch = TypeVar("Batch")


def answers(layout: Layout, networks: Networks, inputs: Any, name: str = "inputs", **options: Any) -> Any:
    """What these networks return, (S, B, ...); see `evaluate`, whose options are taken.

    Differentiable in inputs that require gradients; the networks are constants.

    Raises:
        ValueError: inputs are infinite, or NaN and answers too; they are called by this name.
    """
    with differentiable_in(inputs):
        outputs = evaluate(layout, networks.theta.detach(), inputs, buffers=networks.buffers, **options)
    check_answers(outputs, inputs, name)
    return outputs


def outputs_of(networks: Iterable[Networks], batches: Iterable[Batch], ask: Callable[[Networks, Batch], Any]) -> Any:
    """What all networks return on all batches of inputs, (S, B, ...).

    Networks that are held, in a list, are asked batch by batch, so that batches may come as they are read; others,
    which come block by block, are asked all batches one after the other, and these are held as they came.
    """
    if isinstance(networks, list):
        return joined([joined([ask(block, batch) for block in networks], 0) for batch in batches], 1)
    held = list(batches)
    return joined([joined([ask(block, batch) for batch in held], 1) for block in networks], 0)


def prediction_of(likelihood: Likelihood, outputs: Any, rng: torch.Generator | None = None) -> Prediction:
    """The prediction of the likelihood's kind from the network's outputs (S, B, ...) at S weight samples.

    Args:
        rng: decides the draws behind the quantiles of a likelihood of one's own, which are the same every time without
            it; else nothing is drawn.
    """
    with differentiable_in(outputs):
        return _prediction_of(likelihood, outputs, rng)


def _prediction_of(likelihood: Likelihood, outputs: Any, rng: torch.Generator | None) -> Prediction:
    if isinstance(likelihood, ClassificationLikelihood):
        return _classification(likelihood, precise(check_outputs(outputs)))
    if not isinstance(likelihood, RegressionLikelihood):
        return SampledOutputs(outputs, likelihood)
    outputs = precise(check_outputs(outputs))
    form = likelihood.closed_form(outputs)
    if isinstance(form, Normals):
        return RegressionPrediction(form.means, form.stds, NoiseShape(form.parts))
    if isinstance(form, LogNormals):
        return LogNormalPrediction(RegressionPrediction(form.means, form.stds))
    if not isinstance(likelihood, Drawable):
        return DensityPrediction(outputs, likelihood)
    seed = 0 if rng is None else int(torch.randint(2**31, (), generator=rng, device=rng.device))
    return DrawnPrediction(outputs, likelihood, seed)


def _classification(likelihood: ClassificationLikelihood, outputs: Tensor) -> ClassificationPrediction:
    form, exclusive = likelihood.closed_form(outputs), likelihood.exclusive
    if isinstance(form, Logits):
        logits = form.logits
    else:  # only the probabilities are known
        samples = likelihood.probabilities(outputs)
        exclusive = sum_to_one(samples) if exclusive is None else exclusive
        logits = ClassificationPrediction.from_probabilities(samples, exclusive=exclusive).logits
    if not exclusive:
        return ClassificationPrediction(logits, Bernoulli())
    ignored = {"ignore_index": likelihood.ignore_index} if isinstance(likelihood, Categorical) else {}
    return ClassificationPrediction(logits, Categorical(**ignored))
