"""A problem with its last layer integrated out: whether that is possible, and what is left to infer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from livi.family.last_layer.gaussian import LinearGaussian
from livi.family.last_layer.labels import LinearLogits
from livi.family.last_layer.logits import CONJUGATE, WORK
from livi.family.last_layer.marginal import Marginal, check_columns
from livi.family.last_layer.network import NotExactError, earlier_layout, find_last
from livi.model.data import Batch, Data, NotGatheredError, TensorData, check_size, gathered
from livi.model.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    GuardedGaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Multilabel,
    Weighted,
    pass_weights,
)
from livi.model.likelihoods.others import in_a_row
from livi.model.priors import Normal, Prior, Relevance
from livi.model.problem import Integrated, Problem
from livi.network import Layout, as_call, suitable_strategy

# Beyond so many examples, or multiplications for one sample's Gram matrix, the layer is sampled unless asked otherwise.
ROWS, LIMIT = 20_000, 5e7
_NUMBERS = (Gaussian, GuardedGaussian, HeteroscedasticGaussian)
_LABELS = (Categorical, Bernoulli, Multilabel)


def integrate_last_layer(
    problem: Problem,
    *,
    asked: bool = False,
    labels: bool = False,
    batch_size: int | None = None,
    sizes: Mapping[str, int | None] | None = None,
) -> Problem:
    """The problem of the earlier weights, whose likelihood is the evidence of their features: the same model.

    Args:
        asked: also where that takes long.
        labels: also of classes and labels, where the evidence is a lower bound of it.
        batch_size: that the user asked for; a step will need all examples.
        sizes: for how many weights the user's own parts are, by name.

    Raises:
        NotExactError: it is not possible; the message says why. Whatever costs most is looked at last.
    """
    layout, data, base, counts = problem.layout, problem.data, problem.likelihood, None
    weighted = isinstance(base, Weighted) and layout.forward is pass_weights
    if isinstance(base, Weighted) and weighted:
        base = base.base
        layout = Layout(layout.module, layout.patterns, scaling=layout.scaling)
    if type(base) not in (_NUMBERS if not labels else (*_NUMBERS, *_LABELS)):
        raise NotExactError(f"the likelihood is {type(base).__name__}, not Gaussian")
    if batch_size is not None and batch_size < data.num_data:
        raise NotExactError(f"every step needs all examples, and batches of {batch_size:,} were asked for")
    if data.num_data > ROWS and not asked:
        raise NotExactError(f"there are {data.num_data:,} examples, more than {ROWS:,}")
    try:
        if not isinstance(data, TensorData):
            check_size(data)
        inputs, targets = _some(data)
        varying = isinstance(base, HeteroscedasticGaussian)
        name = find_last(layout, inputs[0] if weighted else inputs, beside=varying)
        linear = layout.module.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        _check_targets(base, name, linear, targets)
        width = linear.in_features + 1
        multiplications = evidence_multiplications(base, data.num_data, width, linear.out_features)
        if multiplications > LIMIT and not asked:
            raise NotExactError(f"{data.num_data:,} examples of {width - 1:,} features take too long")
        earlier = earlier_layout(layout, name, beside=varying)
        for part, size in (sizes or {}).items():
            if size not in (None, earlier.num_params):
                raise NotExactError(
                    f"the {part} is of {size:,} weights, and {earlier.num_params:,} come before the last layer"
                )
        prior, last_prior = _split(problem.prior, layout, name)
        whole = gathered(data)
        _check_targets(base, name, linear, whole.targets)  # not of some of them alone
    except NotGatheredError as reason:
        raise NotExactError(str(reason)) from reason
    if weighted:
        whole, counts = TensorData(whole.inputs[0], whole.targets, whole.num_data), in_a_row(whole.inputs[1])
    evidence = _marginal(copy.deepcopy(base), linear.out_features, counts=counts, prior=last_prior)
    evidence.to(layout.device, layout.dtype)
    args, kwargs = as_call(whole.inputs)
    strategy = suitable_strategy(earlier, *args, **kwargs)
    integrated = Integrated(layout, name, multiplications, evidence.word)
    return Problem(earlier, whole, evidence, prior, strategy, integrated)


def _marginal(base: Likelihood, outputs: int, **options: Any) -> Marginal:
    if isinstance(base, Categorical | Bernoulli):
        return LinearLogits(base, classes=outputs, **options)
    assert isinstance(base, Gaussian | HeteroscedasticGaussian)
    return LinearGaussian(base, **options)


def _check_targets(base: Likelihood, name: str, linear: nn.Linear, targets: Tensor) -> None:
    """Check that there is one output for each target, or for each class, and that labels are valid."""
    if isinstance(base, Categorical):
        if targets.ndim > 1 or bool((targets == base.ignore_index).any()):
            raise NotExactError("not every example has one class")
        classes = targets.long()  # of uint8 the number of outputs would wrap
        if bool(((classes < 0) | (classes >= linear.out_features)).any()):
            raise NotExactError(f"not every class is one of the {linear.out_features} outputs of {name!r}")
        return
    if isinstance(base, Bernoulli) and not bool(((targets >= 0) & (targets <= 1)).all()):
        raise NotExactError("not every label is between 0 and 1")
    outputs = targets[:1].numel()
    if outputs != linear.out_features:
        raise NotExactError(f"an example has {outputs} targets, and {name!r} gives {linear.out_features} outputs")


def evidence_multiplications(base: Likelihood, rows: int, width: int, outputs: int) -> float:
    """Approximate multiplications of the evidence of one sample.

    Args:
        width: number of features, and one for the bias.
    """
    if isinstance(base, Categorical):
        return WORK * float(rows * width * (2 * width + 2 * min(CONJUGATE, outputs - 1) * outputs))
    if isinstance(base, Bernoulli):
        return WORK * float(rows * width * outputs * (2 * width + 2))
    factors = outputs if isinstance(base, Gaussian) and base.natural_log_std().numel() > 1 else 1
    return float(rows * width**2 + (factors - 1) * width**3)


def _split(prior: Prior, layout: Layout, name: str) -> tuple[Prior, Normal | Relevance]:
    """The prior of the earlier weights, and that of the last layer's."""
    linear = layout.module.get_submodule(name)
    assert isinstance(linear, nn.Linear)
    chosen = torch.zeros(layout.num_params, dtype=torch.bool, device=layout.device)
    for slot in layout.slots:
        chosen[slot.start : slot.stop] = slot.name.rpartition(".")[0] == name
    try:
        earlier, last = prior.split(chosen)
        if not isinstance(last, Normal | Relevance):
            raise NotExactError(f"the prior of the last layer is {type(last).__name__}, not normal")
        check_columns(last, linear.in_features, linear.out_features)
    except ValueError as reason:
        raise NotExactError(str(reason)) from reason
    return earlier, last


def _some(data: Data, most: int = 32) -> Batch:
    """A few examples, spread over all of the data where it is in memory."""
    inputs, targets = (data.inputs, data.targets) if isinstance(data, TensorData) else data.first()
    rows = torch.linspace(0, len(targets) - 1, min(most, len(targets)), device=targets.device).long()
    return pytree.tree_map(lambda leaf: leaf[rows], inputs), targets[rows]
