"""The Monte Carlo predictive: weight samples in, a prediction of the likelihood's kind out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from livi import checks
from livi.family.family import WeightSampler
from livi.model.likelihoods import (
    Bernoulli,
    Categorical,
    ClassificationLikelihood,
    ContaminatedGaussian,
    Likelihood,
    LogNormal,
    Multilabel,
    RegressionLikelihood,
)
from livi.network import Layout, Strategy
from livi.posterior.prediction.chunks import evaluate, joined
from livi.posterior.prediction.classification import ClassificationPrediction, sum_to_one
from livi.posterior.prediction.density import DensityPrediction, Drawable, DrawnPrediction
from livi.posterior.prediction.log_normal import LogNormalPrediction
from livi.posterior.prediction.mixture import check_outputs, differentiable_in, precise
from livi.posterior.prediction.networks import Networks, draw_networks, with_statistics
from livi.posterior.prediction.outputs import SampledOutputs
from livi.posterior.prediction.refusal import check_answers
from livi.posterior.prediction.regression import RegressionPrediction
from livi.posterior.prediction.shapes import NoiseShape

Prediction = RegressionPrediction | LogNormalPrediction | DensityPrediction | ClassificationPrediction | SampledOutputs

Batch = TypeVar("Batch")


def predict(
    sampler: WeightSampler,
    likelihood: Likelihood,
    inputs: Any,
    *,
    num_samples: int = 100,
    rng: torch.Generator | None = None,
    buffers: Mapping[str, Tensor] | None = None,
    calibration: Any = None,
    memory_limit: int | None = None,
    strategy: Strategy | None = None,
    theta: Tensor | None = None,  # (m,) or (S, m)
) -> Prediction:
    """The posterior predictive p(y | x, D) ~ 1/S sum_s p(y | x, theta_s), theta_s from the sampler.

    A RegressionLikelihood gives a RegressionPrediction, or, with a log_prob of its own, a DensityPrediction (a
    DrawnPrediction if it defines `sample`), and LogNormal a LogNormalPrediction; a ClassificationLikelihood gives a
    ClassificationPrediction, any other one SampledOutputs. The result has the device of the module and its dtype, or
    float32 for half precision.

    Args:
        inputs: a tensor, a tuple of positional or a dict of keyword arguments of the module.
        num_samples: S; the error of the predictive mean is the epistemic standard deviation over sqrt(S).
        buffers: BatchNorm statistics, shared or with S rows in front, as in `livi.apply_many`.
        calibration: inputs to measure BatchNorm statistics on for every theta, in place of `buffers`.
        memory_limit: bytes of activations at a time, `DEFAULT_MEMORY_LIMIT` where not given; changes
            nothing but rounding. See `evaluate` for how it is kept.
        strategy: as in `livi.apply_many`.
        theta: predict at these weights instead of draws. One vector is a deterministic network, without epistemic
            uncertainty.

    Raises:
        TypeError: the sampler, the likelihood or an input is of the wrong kind.
        ValueError: num_samples < 1; inputs on another device or of another dtype than the module.

    Cost: S forward passes, and as many on the calibration inputs if there are any. Memory: at most 256 MB of weights at
    a time, and the outputs, besides memory_limit.

    >>> from torch import nn
    >>> from livi.family.generators import MLP
    >>> from livi.model.likelihoods import Gaussian
    >>> from livi.family.implicit import ImplicitPosterior
    >>> layout = Layout(nn.Linear(2, 1))
    >>> posterior = ImplicitPosterior(layout, MLP(4, layout.num_params, hidden=(8,)))
    >>> prediction = predict(posterior, Gaussian(0.1), torch.ones(5, 2), num_samples=20)
    >>> prediction
    RegressionPrediction(num_samples=20, shape=(5,))
    """
    if not isinstance(sampler, WeightSampler):
        raise TypeError(
            f"sampler: expected an object with a layout and sample(num_samples, rng), got {type(sampler).__name__}."
        )
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood: expected a livi likelihood such as Gaussian(), got {type(likelihood).__name__}.")
    checks.positive_int("num_samples", num_samples)
    checks.rng("rng", rng)
    options: dict[str, Any] = {"memory_limit": memory_limit, "strategy": strategy}
    networks: Iterable[Networks]
    if theta is None:
        networks = draw_networks(sampler, num_samples, rng, buffers=buffers, calibration=calibration, **options)
    else:
        rows = theta[None] if isinstance(theta, Tensor) and theta.ndim == 1 else theta
        networks = [with_statistics(sampler.layout, rows, buffers or {}, calibration, **options)]
    outputs = outputs_of(networks, [inputs], lambda block, given: answers(sampler.layout, block, given, **options))
    return prediction_of(likelihood, outputs, rng)


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
    if isinstance(likelihood, RegressionLikelihood):
        if getattr(likelihood.log_prob, "__func__", None) is RegressionLikelihood.log_prob:
            return RegressionPrediction(*likelihood.moments(check_outputs(outputs)))
        if type(likelihood) is ContaminatedGaussian:
            return RegressionPrediction(*likelihood.moments(check_outputs(outputs)), NoiseShape(likelihood.parts()))
        if type(likelihood) is LogNormal:
            return LogNormalPrediction(RegressionPrediction(*likelihood.log_moments(precise(check_outputs(outputs)))))
        if not isinstance(likelihood, Drawable):
            return DensityPrediction(check_outputs(outputs), likelihood)
        seed = 0 if rng is None else int(torch.randint(2**31, (), generator=rng, device=rng.device))
        return DrawnPrediction(check_outputs(outputs), likelihood, seed)
    if isinstance(likelihood, ClassificationLikelihood):
        return _classification(likelihood, check_outputs(outputs))
    return SampledOutputs(outputs, likelihood)


def _classification(likelihood: ClassificationLikelihood, outputs: Tensor) -> ClassificationPrediction:
    if type(likelihood) is Categorical:
        return ClassificationPrediction(outputs, Categorical(ignore_index=likelihood.ignore_index))
    if type(likelihood) in (Bernoulli, Multilabel):
        return ClassificationPrediction(outputs, Bernoulli())
    # Of any other likelihood only the probabilities are known. Those that sum to one over axis 2 are of classes.
    samples = likelihood.probabilities(outputs)
    if isinstance(likelihood, Categorical):
        prediction = ClassificationPrediction.from_probabilities(samples, exclusive=True)
        return ClassificationPrediction(prediction.logits, Categorical(ignore_index=likelihood.ignore_index))
    exclusive = not isinstance(likelihood, Bernoulli) and sum_to_one(samples)
    return ClassificationPrediction.from_probabilities(samples, exclusive=exclusive)
