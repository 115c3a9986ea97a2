"""Trials of a regressor, by which its model and spread are chosen: short fits to some rows, scored on others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from livi.posterior.interruption import completed
from livi.posterior.prediction import RegressionPrediction
from livi.tables.estimators.model_choice import (
    CHAIN_STEPS,
    SHORT_CHAIN_STEPS,
    TRIAL_STEPS,
    chosen,
    has_many,
    model_trial_rows,
    plausible,
)
from livi.tables.estimators.scaling import Array
from livi.tables.estimators.spread import USUAL_SPREAD, likely_spread
from livi.tables.estimators.target import modelled
from livi.tables.estimators.target_models import Model, sampled_like
from livi.tables.estimators.trial import Trial, TrialRows


@dataclass(frozen=True)
class Trials:
    """Trials of models on the same rows; each model is fitted once for a number of steps.

    Args:
        make: returns an unfitted regressor for a model and a number of steps.
        steps: the user's limit of the steps of a fit; None for none.
        counted: scores are probabilities of whole numbers, not densities, since some of the models are for counts.
    """

    make: Callable[[Model, int], Any]
    X: Array  # (n, p)
    y: Array  # (n,)
    weights: Array  # (n,)
    seed: int
    steps: int | None = None
    counted: bool = False
    _fits: dict[tuple[Model, int], Any] = field(default_factory=dict, repr=False)

    @cached_property
    def rows(self) -> TrialRows:
        """The rows of all trials. A fit is given their weights; where they are scored, they are repeated by these."""
        return model_trial_rows(len(self.y), self.seed)

    @cached_property
    def _repeated(self) -> TrialRows:
        return self.rows.repeated(self.weights)

    def best(self, models: list[Model], *, chains: bool) -> tuple[Model, list[Trial[Model]]]:
        """The best of these models by the scored rows, and all trials.

        Args:
            chains: also try the model that is sampled by chains.
        """
        if not self.counted and models[0].noise == "constant":
            rows = np.concatenate(self._repeated)
            mean, std = self.fitted(models[0]).predict(self.X[rows], return_std=True)
            models = plausible(models, self.X[rows], self.y[rows], mean, std)
        many = has_many(len(self.y))
        return chosen(
            models,
            self.scores,
            by_chains=sampled_like if chains else lambda _: None,
            short_trial=None if many else (lambda model: self.scores(model, SHORT_CHAIN_STEPS)),
            long_trial=(lambda model: self.scores(model, CHAIN_STEPS)) if many else None,
        )

    def scores(self, model: Model, max_steps: int | None = None) -> Array:  # (n,)
        """The log density, or probability, of each scored target."""
        trial, rows = self.fitted(model, max_steps), self._repeated.scored
        scores: Array = (trial.log_mass if self.counted else trial.log_density)(self.X[rows], self.y[rows])
        return scores

    def fitted(self, model: Model, max_steps: int | None = None) -> Any:
        """A regressor fitted for at most `max_steps` steps, by default those of a usual trial of the model.

        Raises:
            KeyboardInterrupt: Ctrl-C ended the fit.
        """
        steps = self._steps(model, max_steps)
        if (model, steps) not in self._fits:
            trial, rows = self.make(model, steps), self.rows.fitted
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about a fit that is short on purpose
                trial.fit(self.X[rows], self.y[rows], self.weights[rows])
            completed(trial.posterior_)
            self._fits[model, steps] = trial
        return self._fits[model, steps]

    def spread(self, model: Model) -> float:
        """The factor for the spread of the model's predictions; the usual one if the trial is not informative.

        It is not for constant targets, nor if a budget has cut the chains short, far from where those of the fit end.
        """
        if model.noise != "network":
            return 1.0
        trial, rows = self.fitted(model), self._repeated.scored
        if trial.target_.constant or trial.posterior_.plan["polish"]["steps"] < self._steps(model):
            return USUAL_SPREAD
        prediction = modelled(trial.predictive(self.X[rows]))
        assert isinstance(prediction, RegressionPrediction)

        def on_model_scale(values: Array) -> torch.Tensor:
            return torch.from_numpy(np.log(values) if model.target_scale == "log" else values).to(prediction.means)

        if not self.counted:
            return likely_spread(prediction, on_model_scale(self.y[rows]))
        return likely_spread(prediction, (on_model_scale(self.y[rows] - 0.5), on_model_scale(self.y[rows] + 0.5)))

    def _steps(self, model: Model, max_steps: int | None = None) -> int:
        max_steps = max_steps or (CHAIN_STEPS if model.noise == "network" else TRIAL_STEPS)
        return min(max_steps, self.steps or max_steps)
