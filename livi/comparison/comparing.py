"""`livi.compare`: the same problem, split and budget for every method."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from torch import Tensor, nn

from livi import checks
from livi.comparison.result import Comparison, comparison_of
from livi.inference import FitWarning, Recipe, plan
from livi.inference.options import PlanOptions, check_options, joined_options
from livi.inference.plans import Plan
from livi.inference.rules import Size, default_recipe
from livi.inference.validation import split_off
from livi.model.data import NotGatheredError, as_data, gathered
from livi.model.likelihoods import Categorical, Gaussian, Likelihood
from livi.model.problem import Problem
from livi.network.modes import with_gradients
from livi.posterior import metrics
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import ClassificationPrediction, Prediction, RegressionPrediction
from livi.report.compared import Compared
from livi.rivals import METHODS, method_named
from livi.rivals.methods import Budget
from livi.rivals.options import OF_PROBLEM

DEFAULT_METHODS = ("livi", "ensemble", "mean_field", "swag", "map")
LEVELS = np.linspace(0.0, 1.0, 101)
BINS = 10  # of confidence
LENGTHS = {"steps", "budget"}  # what sets the number of steps on a bound, as an option or in a recipe

Chosen = Sequence[str] | Mapping[str, Mapping[str, Any] | Callable[..., Posterior]]


@dataclass(frozen=True)
class _Candidate:
    """A method and how it is called."""

    name: str
    title: str
    fit: Callable[..., Posterior]
    options: dict[str, Any]


@dataclass(frozen=True)
class _HeldOut:
    inputs: Any
    targets: Tensor
    units: tuple[float, float] | None
    num_samples: int

    def predict(self, posterior: Posterior) -> Prediction:
        prediction = posterior.predict(self.inputs, num_samples=self.num_samples)
        if self.units is not None and isinstance(prediction, RegressionPrediction):
            return prediction.rescaled(*self.units)
        return prediction

    def answers(self) -> Tensor:
        """The targets, in the units of the predictions."""
        return self.targets if self.units is None else self.units[0] + self.units[1] * self.targets.double()


@with_gradients
def compare(
    net: nn.Module,
    data: Any,
    likelihood: Likelihood | None = None,
    methods: Chosen = DEFAULT_METHODS,
    *,
    validation: Any = 0.2,
    gradients: int | None = None,
    num_samples: int = 100,
    seed: int = 0,
    progress: bool = True,
    units: tuple[float, float] | None = None,
    **options: Any,
) -> Comparison:
    """Fit several methods to one's own problem with equal budgets, and score them on held-out examples.

    Equal means gradients: of the log joint density, at one weight vector and on one batch. One on all the data, as
    those with a last layer integrated out, counts as many as there are batches. `livi.rivals.METHODS` says how each
    method spends them: MAP fits and steps on a bound become longer, an ensemble has more members, chains more draws.
    Gradients are the same on every machine, seconds are not; both are in the result. A method that fails, or whose
    package is missing, is listed with the reason.

    Args:
        net, data: as for `livi.fit`.
        likelihood: by default Gaussian() for targets that are numbers, Categorical() for whole ones.
        methods: names of `livi.rivals.METHODS`; or by names of your own, options of a method, with its name as
            "method" where it is another, or a function `(net, data, likelihood, *, seed, progress, **options)`.
        validation: the share of the data that is held out, as in `livi.fit`, or held-out data.
        gradients: the budget of each method; by default what `livi.fit` would take on this problem.
        num_samples: networks drawn for predictions.
        progress: say on stderr what is being fitted.
        units: centre and spread by which targets were standardised, so that scores are in the user's units.
        **options: of `livi.Problem.of` such as `prior`, passed to every method.

    Raises:
        ValueError: a method is not known, or none has a result.
        TypeError: there is no such option; the message names the nearest.

    >>> import torch
    >>> x = torch.linspace(-1, 1, 50)[:, None]
    >>> net = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))
    >>> found = compare(net, (x, x**2), methods=["map", "ensemble"], gradients=500, progress=False)
    >>> sorted(found.to_dict()["methods"])
    ['ensemble', 'map']
    """
    seed = checks.seed(seed)
    checks.positive_int("num_samples", num_samples)
    _check_options(options)
    if isinstance(validation, Real):
        data, validation = split_off(data, float(validation), seed)
    problem_of = {name: value for name, value in options.items() if name != "recipe"}
    likelihood = likelihood or _by_targets(net, data, problem_of)
    problem = Problem.of(net, data, likelihood, **problem_of)

    def planned(given: Mapping[str, Any]) -> Plan:
        own = {name: value for name, value in given.items() if name in PlanOptions.__annotations__}
        return plan(net, data, likelihood, seed=seed, **joined_options(options, own))

    total = None if gradients is None else checks.positive_int("gradients", gradients)
    budgets = _Budgets(total, problem, options.get("recipe") or Recipe(), planned({}), planned)
    candidates = [_candidate(name, chosen, budgets) for name, chosen in _named(methods).items()]
    held = _held_out(validation, problem, options, units, num_samples)
    rows, posteriors = [], {}
    for candidate in candidates:
        if progress:
            print(f"fitting {candidate.title}", file=sys.stderr, flush=True)
        row, posterior = _compared(candidate, (net, data, likelihood), held, {"seed": seed, **options}, budgets.batches)
        rows.append(row)
        if posterior is not None:
            posteriors[candidate.name] = posterior
    return comparison_of(rows, posteriors, budgets.gradients, problem.data.num_data, len(held.targets), seed)


def _check_options(options: Mapping[str, Any]) -> None:
    for name in ("steps", "budget"):
        if name in options:
            raise TypeError(f"compare: got {name!r}, but methods have equal budgets in gradients: pass gradients=...")
    check_options("compare", options, [*OF_PROBLEM, "recipe"])


def _named(methods: Chosen) -> dict[str, Mapping[str, Any] | Callable[..., Posterior]]:
    if isinstance(methods, str):
        raise TypeError(f"methods: expected names in a list, got the text {methods!r}; put it in brackets.")
    named = dict(methods) if isinstance(methods, Mapping) else {name: {} for name in methods}
    if not named:
        raise ValueError("methods: expected at least one, got none; see livi.rivals.METHODS.")
    return named


def _candidate(name: str, chosen: Mapping[str, Any] | Callable[..., Posterior], budgets: _Budgets) -> _Candidate:
    if not isinstance(chosen, Mapping):
        return _Candidate(name, name, chosen, {})
    of = str(chosen.get("method", name))
    method = method_named(of)
    given = {option: value for option, value in chosen.items() if option != "method"}
    budget = budgets.of_livi(given) if of == "livi" else budgets.of_rival(given)
    spent = {} if budget is None else method.spend(budget)
    if LENGTHS & (given.keys() | (given.get("recipe") or Recipe()).named):
        spent.pop("steps", None)
    return _Candidate(name, method.title if name in METHODS else name, method.fit, joined_options(spent, given))


@dataclass(frozen=True)
class _Budgets:
    """The budget of every method, given options of its own.

    Args:
        given: the number of gradients that was asked for; None for those of livi's plan.
        prepared: livi's plan.
        planned: makes livi's plan with options of a method's own.
    """

    given: int | None
    problem: Problem
    recipe: Recipe
    prepared: Plan
    planned: Callable[[Mapping[str, Any]], Plan]

    @property
    def batches(self) -> int:
        return self.problem.data.steps_per_epoch

    @property
    def gradients(self) -> int:
        return self._weight(self.prepared) * self.prepared.gradients if self.given is None else self.given

    def of_livi(self, given: Mapping[str, Any]) -> Budget | None:
        """The budget of livi without what its chains take; None leaves the length of the fit to the rules."""
        own = bool(given.keys() & PlanOptions.__annotations__)
        if self.given is None and not own:
            return None
        prepared = self.planned(given) if own else self.prepared
        total = self.gradients // self._weight(prepared)
        # Chains take their part of the plan; in proportion, where the budget is smaller than the plan's.
        chains = round(prepared.gradients_of_chains * min(1.0, total / prepared.gradients))
        return Budget(total - chains, prepared.recipe_of_all, self.batches)

    def of_rival(self, given: Mapping[str, Any]) -> Budget:
        """The budget of another method, with the samples and MAP fits that its components take together."""
        components = given.get("components") or 1
        asked = (given.get("recipe") or Recipe()).joined(self.recipe)
        recipe = asked.over(default_recipe(Size.of(self.problem), components))
        together = {
            "num_samples": components * recipe.num_samples,
            "map_restarts": max(recipe.map_restarts, components),
        }
        return Budget(self.gradients, replace(recipe, **together), self.batches)

    def _weight(self, prepared: Plan) -> int:
        """The batches that a gradient of this plan is on: all of them, with a last layer integrated out."""
        return 1 if prepared.problem.integrated is None else self.batches


def _compared(
    candidate: _Candidate, problem: tuple[Any, ...], held: _HeldOut, options: dict[str, Any], batches: int
) -> tuple[Compared, Posterior | None]:
    name, title = candidate.name, candidate.title
    started = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            posterior = candidate.fit(*problem, progress=False, **joined_options(options, candidate.options))
        fitted = time.perf_counter()
        prediction = held.predict(posterior)
        predicted = time.perf_counter()
        answers = held.answers()
        scores = _scores(prediction, answers)
        if not math.isfinite(scores["nll"]):
            raise ArithmeticError(f"expected finite predictions, got a negative log likelihood of {scores['nll']:g}.")
        row = Compared(
            name,
            title,
            scores=scores,
            log_prob=prediction.log_prob(answers).double().cpu().numpy()[_counted(prediction, answers)],
            curve=_curve(prediction, answers),
            seconds=fitted - started,
            prediction_seconds=predicted - fitted,
            gradients=gradients_of(posterior, batches),
            notes=tuple(dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, FitWarning))),
        )
    except Exception as error:  # whatever a method raises, even a user's own, the others are still compared
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        return Compared(name, title, trouble=f"missing key {reason}" if isinstance(error, KeyError) else reason), None
    return row, posterior


def _held_out(
    validation: Any, problem: Problem, options: Mapping[str, Any], units: tuple[float, float] | None, num_samples: int
) -> _HeldOut:
    layout = problem.layout
    unpack = options.get("unpack") if not isinstance(validation, (tuple, list)) else None
    given = as_data(validation, device=layout.device, dtype=layout.dtype, unpack=unpack)
    try:
        whole = gathered(given)
    except NotGatheredError as reason:
        raise ValueError(
            f"validation: expected each example once, in every epoch, but {reason}; pass a loader with "
            "drop_last=False and without augmentation, or (X, y)."
        ) from reason
    return _HeldOut(whole.inputs, whole.targets, units, num_samples)


def _by_targets(net: nn.Module, data: Any, options: Mapping[str, Any]) -> Likelihood:
    parameter = next(net.parameters())
    found = as_data(data, device=parameter.device, dtype=parameter.dtype, unpack=options.get("unpack"))
    return Gaussian() if found.first()[1].is_floating_point() else Categorical()


def gradients_of(posterior: Posterior, batches: int = 1) -> int | None:
    """How many gradients a fit took, from its plan; one on all data counts as many as there are batches.

    None if the plan does not say.

    Args:
        batches: of an epoch, for a fit with its last layer integrated out, all of whose gradients are on all data.
    """
    facts = posterior.plan
    polish, total = facts.get("polish"), facts.get("gradients")
    if total is None:
        return None
    if polish is not None:
        chains = polish["chains"] + len(polish["dropped"])
        total += int(chains * polish["gradients"] * facts.get("steps_per_epoch", 1))
    return int(total if facts.get("last_layer", "sampled") == "sampled" else batches * total)


def _scores(prediction: Any, targets: Tensor) -> dict[str, float]:
    scores = metrics.score(prediction, targets)
    if hasattr(prediction, "cdf"):
        scores["coverage"] = metrics.coverage(prediction, targets)
    return scores


def _curve(prediction: Any, targets: Tensor) -> tuple[Any, Any] | None:
    """Calibration: coverage of central intervals by level; for classes, accuracy by confidence."""
    if isinstance(prediction, ClassificationPrediction):
        return _reliability(prediction, targets)
    if not hasattr(prediction, "cdf"):
        return None
    central = (2.0 * metrics.pit(prediction, targets).double().flatten().cpu() - 1.0).abs().numpy()
    return LEVELS, (central[:, None] <= LEVELS).mean(0)


def _reliability(prediction: ClassificationPrediction, targets: Tensor) -> tuple[Any, Any] | None:
    if targets.ndim != 1 or not metrics.METRICS["accuracy"].applies_to(prediction, targets):
        return None
    counted = _counted(prediction, targets)
    confidence = prediction.confidence.double().cpu().numpy()[counted]
    right = (prediction.label.cpu() == targets.cpu().long()).numpy()[counted]
    groups = [group for group in np.array_split(np.argsort(confidence), BINS) if len(group)]
    pairs = [(confidence[group].mean(), right[group].mean()) for group in groups]
    return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def _counted(prediction: Any, targets: Tensor) -> Any:  # (B,) of bool
    """Which examples are scored: all except those whose label is `ignore_index`."""
    ignored = getattr(prediction, "ignore_index", None)
    if ignored is None or targets.ndim != 1:
        return np.ones(len(targets), np.bool_)
    return (targets != ignored).cpu().numpy()
