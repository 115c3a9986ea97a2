"""`LIVIRegressor`: means, deviations, intervals and draws in the user's units, with scikit-learn's interface."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data
from torch import Tensor, nn

from livi.durations import seconds
from livi.inference import Recipe
from livi.model.defaults import SMALL
from livi.model.likelihoods import (
    Gaussian,
    GuardedGaussian,
    HeteroscedasticGaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
)
from livi.model.priors import Normal, Prior
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import DrawnPrediction, Prediction, RegressionPrediction
from livi.rivals import fit_langevin
from livi.tables.estimators.answers import as_numpy
from livi.tables.estimators.base import Estimator, check_alpha
from livi.tables.estimators.conformal import threshold
from livi.tables.estimators.draws import INTERVAL_ENDS
from livi.tables.estimators.model_choice import BUDGET_SHARE, MAX_CHAIN_ROWS, MIN_TABLE_ROWS, TRIAL_NUM_SAMPLES
from livi.tables.estimators.model_trials import Trials
from livi.tables.estimators.noise import NOISE_SPREAD, VARYING_FLOOR, first_noise, network_noise, with_outliers
from livi.tables.estimators.prior import prior_of
from livi.tables.estimators.recipe import count_recipe
from livi.tables.estimators.scaling import Array, Scaling
from livi.tables.estimators.spread import USUAL_SPREAD, few_rows_spread
from livi.tables.estimators.target import TARGET_SCALES, TargetPrediction, TargetScale, modelled, stretched
from livi.tables.estimators.target_models import NOISES, Model, candidates, check_targets
from livi.tables.estimators.trial import Trial

NETWORK_HIDDEN, NETWORK_ACTIVATION = (16, 16), "gelu"


class LIVIRegressor(RegressorMixin, Estimator):  # type: ignore[misc]
    """A neural network with a posterior over its weights, as a scikit-learn regressor.

    Inputs and target are standardised internally; predictions are in the units of y. For several targets, wrap it in
    `sklearn.multioutput.MultiOutputRegressor`.

    Args:
        hidden: widths of the hidden layers; () is a linear model. None is (50,), or (16, 16) for `noise="network"`.
        activation: "relu", "tanh", "elu", "silu" or "gelu". None is "silu", or "gelu" for `noise="network"`.
        target_scale: "plain" models the target as it is, "log" its logarithm, for positive targets whose noise grows
            with their size: predictions are then positive and skewed. "count" models counts 0, 1, 2, ... "auto" tries
            those that suit the targets on some of the rows.
        noise: "constant" learns one observation noise, "varying" one that is about log-linear in the inputs. Counts
            have "poisson" noise, whose variance is the mean, or "negative-binomial", whose variance is larger. With
            "network" a network outputs both mean and noise, and its weights are sampled by Markov chains
            (`livi.rivals.fit_langevin`) in place of a variational fit: on small tables its predictions are often the
            best, in a time that grows with the rows; `steps` are those of each chain, and `components` and
            `batch_size` are not used. On the plain scale its predictions allow one row in a thousand to be ten times
            as far off as others, and their spread is multiplied by a factor of about 0.95
            (`livi.tables.estimators.spread`). "auto" tries them all; chains only up to 10,000 rows, and if `hidden`,
            `activation`, `prior_scale`, `components` and `batch_size` are left at their defaults.
        prior_scale: standard deviation of the weights under the prior; "fan_in" for 1.5 / sqrt(fan-in); or "learned",
            which starts there and learns one scale per input and one per further layer, so that inputs without effect
            count for little. "auto" is "learned", or 1 for `noise="network"`, where only a number is allowed.
        components: mixture components of the posterior.
        steps, budget, batch_size: as in `livi.fit`; None is its default. A budget such as "1 min" includes trials.
        interval: "posterior" takes `predict_interval` from the posterior predictive. "conformal" calibrates it on
            held-out rows, which guarantees coverage for exchangeable new rows, however good or bad the model is.
        calibration_size: share (or number) of the rows that a conformal fit holds out.
        num_samples: the number of networks drawn from the posterior for predictions, the same ones every time. "auto"
            uses as many as a row needs, 64 to 512: until the errors of its mean and of the ends of its 90 % interval
            are below 5 % of its total standard deviation (`monte_carlo_error`).
        device: where to fit and predict, as torch names it; None is the CPU.
        n_jobs: threads of torch while fitting and predicting; -1 is all processors, None leaves torch as it is.
        random_state: an integer, a RandomState or None, as everywhere in scikit-learn.
        verbose: 1 shows the progress of the fit.

    Attributes:
        posterior_: the `livi.Posterior` of the standardised problem.
        input_scaling_: shift and scale of each input, as numpy arrays.
        target_: the scale of the target, and the factor of the spread of predictions.
        model_: the target scale and noise that were used.
        trials_: what "auto" tried, with the log score of each on held-out rows, per unit of y; [] if there were none.
        conformity_scores_: |y - median| / total std of each held-out row, sorted, on the scale that was modelled; None
            without conformal intervals.
        history_: the logged steps of the fit.
        relevance_: the learned prior scale of each input's weights, as a share of the largest.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    >>> import numpy as np
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> y = 1000 * np.sin(X[:, 0]) + 5000
    >>> model = LIVIRegressor(hidden=(10,), activation="tanh", steps=300, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:2], return_std=True)
    >>> mean.shape, std.shape, model.predict_interval(X, alpha=0.1).shape, model.sample_y(X, 7).shape
    ((2,), (2,), (60, 2), (60, 7))
    >>> model.score(X, y) > 0.9
    True
    """

    _is_trial = False  # trials are fitted with fewer samples per step

    def __init__(
        self,
        hidden: Any = None,
        *,
        activation: str | None = None,
        target_scale: str = "auto",
        noise: str = "auto",
        prior_scale: float | str = "auto",
        components: int = 1,
        steps: int | None = None,
        budget: float | str | None = None,
        batch_size: int | None = None,
        interval: str = "posterior",
        calibration_size: float | int = 0.2,
        num_samples: int | str = "auto",
        device: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.target_scale = target_scale
        self.noise = noise
        self.prior_scale = prior_scale
        self.components = components
        self.steps = steps
        self.budget = budget
        self.batch_size = batch_size
        self.interval = interval
        self.calibration_size = calibration_size
        self.num_samples = num_samples
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,  # (n, p)
        y: Any,  # (n,)
        sample_weight: Any = None,  # (n,)
        *,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Fit the posterior.

        Args:
            sample_weight: a row of weight w counts w times: the log likelihood is sum_i w_i log p(y_i | theta). A
                conformal fit counts every row that it holds out once.
            checkpoint: a file for the state of the fit, as in `livi.fit`; if it exists, the same fit continues from it.
                Chains cannot continue, so they are not tried, and an error with `noise="network"`.
        """
        self._check_params()
        if self.noise == "network" and checkpoint is not None:
            raise ValueError(
                "checkpoint: expected none for noise='network', whose chains cannot continue; leave it out."
            )
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        X, y, weights = self._weighted_rows(X, y.astype(np.float64), sample_weight)
        check_targets(self.target_scale, self.noise, y)
        self._draw_seed()
        fitted, held = self.split_rows(len(X))
        self._fit_rows(X[fitted], y[fitted], weights[fitted], checkpoint)
        self.conformity_scores_ = self._conformity(X[held], y[held]) if len(held) else None
        return self

    def _fit_rows(self, X: Array, y: Array, weights: Array, checkpoint: str | Path | None) -> None:
        """Choose a model of these targets, and fit it."""
        began = time.perf_counter()
        chains = checkpoint is None and self._tries_chains(len(X))
        self.model_, spread = self._choose(X, y, weights, chains=chains)
        if len(y) < MIN_TABLE_ROWS and not self._by_chains:
            spread *= few_rows_spread(float(weights.sum()))
        self.target_ = TargetScale.of(self.model_.target_scale, y, weights, spread)
        if self.target_.constant:
            warnings.warn(
                f"y: expected values that vary, got {y[0]:.8g} in all rows fitted to; that is predicted for every row, "
                "with a standard deviation of 0.",
                UserWarning,
                stacklevel=3,  # where fit was called
            )
        targets, spent = self.target_.standardise(y), time.perf_counter() - began
        likelihood = self._likelihood(X, targets, weights)
        if isinstance(likelihood, HeteroscedasticGaussian):
            targets = targets[:, None]
        self._fit_posterior(X, targets, weights, likelihood, spent=spent, checkpoint=checkpoint)

    def _check_params(self) -> None:
        super()._check_params()
        for name, value, allowed in (("noise", self.noise, NOISES), ("target_scale", self.target_scale, TARGET_SCALES)):
            if value not in (*allowed, "auto"):
                raise ValueError(f"{name}: expected one of {', '.join(allowed)} or auto, got {value!r}.")
        if self.noise == "network" and isinstance(self.prior_scale, str) and self.prior_scale != "auto":
            raise ValueError(f"prior_scale: expected a number for noise='network', got {self.prior_scale!r}.")

    def _likelihood(self, X: Array, targets: Array, weights: Array) -> Likelihood:
        """The likelihood of the chosen model, with the noise that a fit to these standardised targets begins with."""
        if self.model_.target_scale == "count":
            return Poisson(unit=None) if self.model_.noise == "poisson" else NegativeBinomial(unit=None)
        if self.model_.noise == "constant":
            start = first_noise(Scaling.of_inputs(X, weights).inputs(X), targets, weights)
            few = len(targets) < MIN_TABLE_ROWS
            return GuardedGaussian(start, NOISE_SPREAD) if few else Gaussian(start, learned=True)
        if self._by_chains:
            return network_noise(targets)
        return HeteroscedasticGaussian(floor=VARYING_FLOOR, learned=True)

    @property
    def _by_chains(self) -> bool:
        """Whether the network outputs mean and noise, and is sampled by Markov chains."""
        return self.model_.noise == "network"

    def _network_options(self) -> dict[str, Any]:
        options = super()._network_options()
        if not self._by_chains:
            return options | {"varying": self.model_.noise == "varying"}
        hidden = NETWORK_HIDDEN if self.hidden is None else options["hidden"]
        return {"hidden": hidden, "outputs": 2, "activation": self.activation or NETWORK_ACTIVATION, "spread": True}

    def _method(
        self, net: nn.Module, num_rows: int, checkpoint: str | Path | None
    ) -> tuple[Callable[..., Posterior], dict[str, Any]]:
        if not self._by_chains:
            return super()._method(net, num_rows, checkpoint)
        return fit_langevin, {"prior": Normal(1.0 if isinstance(self.prior_scale, str) else float(self.prior_scale))}

    def _prior(self) -> Prior | Callable[[Layout], Prior]:
        """For counts all layers are sampled, where learned scales prune too much."""
        counts = self.model_.target_scale == "count" and self.prior_scale == "auto"
        return prior_of("fan_in" if counts else self.prior_scale, len(self._widths()), classes=False)

    def _for_predictions(self, posterior: Posterior) -> Posterior:
        """On the log scale there are no outliers, since they would dominate the mean."""
        if isinstance(posterior.likelihood, GuardedGaussian):
            posterior.likelihood = posterior.likelihood.unguarded()
        return with_outliers(posterior) if self._by_chains and self.model_.target_scale == "plain" else posterior

    def _choose(self, X: Array, y: Array, weights: Array, *, chains: bool) -> tuple[Model, float]:
        """The model that the settings name, or the best of those they allow, and its spread factor. Sets trials_."""
        models = candidates(self.target_scale, self.noise, y)
        self.trials_: list[Trial[Model]] = []
        if len(models) == 1 or len(y) < MIN_TABLE_ROWS or np.ptp(y) == 0.0:
            return models[0], USUAL_SPREAD if models[0].noise == "network" and not self._is_trial else 1.0
        common: dict[str, Any] = {"interval": "posterior", "components": 1, "num_samples": 50, "verbose": 0}
        common |= {"random_state": self.seed_}
        if self.budget is not None:
            common["budget"] = BUDGET_SHARE * seconds("budget", self.budget) / (len(models) + 2 * chains)

        def make(model: Model, steps: int) -> LIVIRegressor:
            trial: LIVIRegressor = clone(self).set_params(**common, steps=steps, **model.settings)
            trial._is_trial = True
            return trial

        counted = any(model.target_scale == "count" for model in models)
        trials = Trials(make, X, y, weights, seed=self.seed_, steps=self.steps, counted=counted)
        best, self.trials_ = trials.best(models, chains=chains)
        return best, trials.spread(best)

    def _tries_chains(self, num_rows: int) -> bool:
        """Whether chains are tried: if there are few enough rows, and no parameter is set that they do not use."""
        settings = (self.hidden, self.activation, self.batch_size)
        left_open = all(each is None for each in settings) and (self.prior_scale, self.components) == ("auto", 1)
        return left_open and self.noise == "auto" and num_rows <= MAX_CHAIN_ROWS

    def _conformity(self, X: Array, y: Array) -> Array:  # (n, p), (n,) -> (n,)
        """Distances of the targets from the medians in total standard deviations, on the modelled scale, sorted."""
        values = np.log(y) if self.model_.target_scale == "log" else y
        median, std = self.read_predictive(X, lambda part, _: (modelled(part).quantile(0.5), modelled(part).total_std))
        away = np.abs(values - median)
        without_spread = np.where(away > 0.0, np.inf, 0.0)
        return np.sort(np.divide(away, std, out=without_spread, where=std > 0.0))

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:  # (n,) or two of them
        """The mean of the posterior predictive, and with `return_std` its total standard deviation."""
        mean, std = self.read_predictive(self._checked(X), lambda part, _: (part.mean, part.total_std))
        return (mean, std) if return_std else mean

    def predictive(self, X: Any) -> TargetPrediction:
        """The whole posterior predictive in the units of y: quantiles, epistemic and aleatoric parts, densities.

        The same networks predict all rows, 256 of them with `num_samples="auto"`.
        """
        prediction: TargetPrediction = self._predict(self._checked(X))
        return prediction

    def predict_interval(self, X: Any, alpha: float = 0.1) -> Array:  # (n, 2)
        """Lower and upper ends of intervals that hold y with probability 1 - alpha.

        With `interval="posterior"` it is the central interval of the predictive. With "conformal" it is median -+ q
        total std, on the scale that was modelled, with q from the held-out rows' `conformity_scores_`; infinite, with
        a warning, if there are fewer than 1 / alpha - 1 held-out rows.
        """
        check_alpha(alpha)
        X = self._checked(X)
        if self.interval == "conformal":
            reach = threshold(self._calibration_scores(), alpha)
            return np.stack(self.read_predictive(X, lambda part, _: stretched(part, reach)), axis=1)
        return np.stack(self.read_predictive(X, lambda part, _: part.interval(1.0 - alpha)), axis=1)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:  # (n, n_samples)
        """Targets drawn from the predictive. A column is one draw of the weights for all rows, plus noise."""
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        draws = self.predictive(X).sample(int(n_samples), torch.Generator().manual_seed(seed))
        return np.ascontiguousarray(as_numpy(draws).T)

    def log_density(self, X: Any, y: Any) -> Array:  # (n,)
        """The log of the predictive density of each target, per unit of y: the log score, higher is better.

        Not called `score_samples`, which in scikit-learn takes X alone.
        """
        X, y = self._checked(X), np.array(column_or_1d(y), dtype=np.float64)  # a copy: pandas' arrays are read-only
        check_consistent_length(X, y)
        targets = torch.from_numpy(y).to(self.posterior_.layout.device)
        return self.read_predictive(X, lambda part, rows: (part.log_prob(targets[torch.from_numpy(rows)]),))[0]

    def log_mass(self, X: Any, y: Any) -> Array:  # (n,)
        """The log probability of each count: of y under a model of counts, of y -+ 1/2 under one with a density."""
        X, y = self._checked(X), np.array(column_or_1d(y), dtype=np.float64)
        check_consistent_length(X, y)
        if self.model_.target_scale == "count":
            return self.log_density(X, y)
        targets = torch.from_numpy(y).to(self.posterior_.layout.device)

        def mass(part: TargetPrediction, rows: NDArray[np.intp]) -> tuple[Tensor]:
            some = targets[torch.from_numpy(rows)]
            return (part.log_mass(some - 0.5, some + 0.5),)

        return self.read_predictive(X, mass)[0]

    def _prediction(self, outputs: Tensor) -> TargetPrediction:
        likelihood = self.posterior_.likelihood
        if isinstance(likelihood, Poisson | NegativeBinomial) and self.target_.limits is not None:
            low, high = (limit - float(likelihood.log_unit) for limit in self.target_.limits)
            outputs = outputs.clamp(low, high)
        prediction: TargetPrediction = super()._prediction(outputs)
        return prediction

    def _recipe(self, layout: Layout, num_rows: int) -> Recipe | None:
        """For counts one of their own, as all layers are sampled; for trials one with few samples per step.

        Small networks keep the usual number of samples, since their generators have more latents than those few.
        """
        if self.model_.target_scale == "count":
            return count_recipe(layout, num_rows, self.components)
        return Recipe(num_samples=TRIAL_NUM_SAMPLES) if self._is_trial and layout.num_params > SMALL else None

    def _monte_carlo_error(self, prediction: TargetPrediction) -> Tensor:  # (n,)
        error = prediction.monte_carlo_error(INTERVAL_ENDS)
        return torch.zeros_like(error) if self.target_.constant else error

    def _in_units(self, prediction: Prediction) -> TargetPrediction:
        assert isinstance(prediction, RegressionPrediction | DrawnPrediction)
        return self.target_.in_units(prediction)

    def _fitted_facts(self) -> dict[str, Any]:
        trials = [{**trial.model._asdict(), "log_score": trial.log_score} for trial in self.trials_]
        chosen = {"target_": self.target_.to_facts(), "model_": self.model_._asdict(), "trials_": trials}
        return super()._fitted_facts() | chosen

    def _restore(self, facts: Mapping[str, Any], posterior: Posterior) -> Self:
        if "target_" in facts:
            self.target_, self.model_ = TargetScale.from_facts(facts["target_"]), Model.of_facts(facts["model_"])
        else:  # files from before there was a choice
            scaling = Scaling(*(np.asarray(float(part)) for part in facts["target_scaling_"]))
            self.target_, self.model_ = TargetScale("plain", scaling), Model("plain", self.noise)
        self.trials_ = [Trial(Model.of_facts(trial), trial["log_score"]) for trial in facts.get("trials_", ())]
        return super()._restore(facts, posterior)
