"""The common part of regressor and classifier: parameters, the fit on standardised data, saving to a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from livi.durations import seconds
from livi.family.ensemble import Ensemble
from livi.family.implicit import ImplicitPosterior
from livi.family.last_layer import ExactLastLayer
from livi.inference import Recipe, fit
from livi.inference.rules import Size, default_recipe
from livi.model.data import FULL_BATCH
from livi.model.likelihoods import (
    Categorical,
    HeteroscedasticGaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    Weighted,
    pass_weights,
)
from livi.model.priors import Relevance
from livi.network import Layout
from livi.posterior import storage
from livi.posterior.posterior import Posterior
from livi.tables.estimators.answers import Answering, as_numpy
from livi.tables.estimators.network import ACTIVATIONS, build_network, network_facts, threads, widths
from livi.tables.estimators.open_gaps import usual_values
from livi.tables.estimators.pieces import Pieces
from livi.tables.estimators.prior import SCALES, prior_of
from livi.tables.estimators.scaling import REACH, Array, Scaling

# Defaults of the architecture.
HIDDEN = (50,)
ACTIVATION = "silu"


class Estimator(Answering, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """Base class of `LIVIRegressor` and `LIVIClassifier`."""

    _checkpoint: str | Path | None = None  # for `livi.fit`; not a parameter, since it belongs to one fit and its data

    def __init__(
        self,
        hidden: Any = None,
        *,
        activation: str | None = None,
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

    @property
    def history_(self) -> list[dict[str, float]]:
        """A dict for each logged step of the fit, with the bound and its terms."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.history

    @property
    def relevance_(self) -> Array:  # (p,)
        """The learned prior scale of each input's weights, as a share of the largest.

        It limits how much the function varies with each standardised input: inputs without effect come close to zero.

        Raises:
            AttributeError: the scales were not learned, or the network has no hidden layers.
        """
        check_is_fitted(self, "posterior_")
        prior, net = self.posterior_.prior, network_facts(self.posterior_.layout.module)
        if not isinstance(prior, Relevance) or not prior.learned or not net["hidden"]:
            raise AttributeError(
                "relevance_: expected a fit with prior_scale='learned' and hidden layers, got another; fit again."
            )
        scales = as_numpy(prior.log_scale.exp())[: net["inputs"]].astype(np.float64)
        if self.pieces_ is not None:  # the effects of a column's pieces add to its own
            squares, scales = np.square(scales[self.n_features_in_ :]), scales[: self.n_features_in_]
            scales = np.sqrt(np.square(scales) + np.bincount(self.pieces_.columns, squares, len(scales)))
        shares: Array = scales / scales.max()
        return shares

    @property
    def holds_rows_(self) -> bool:
        """Whether the posterior and its files hold the training rows, which an integrated-out last layer needs."""
        check_is_fitted(self, "posterior_")
        return isinstance(self.posterior_.sampler, ExactLastLayer)

    def save(self, path: str | Path, extra: Mapping[str, Any] | None = None, *, rowless: bool = False) -> None:
        """Write the fitted estimator to one file, atomically and without pickle; `livi.estimators.load` reads it.

        Where the last layer is integrated out (`holds_rows_`), by default in a regression with up to 20,000 rows and a
        classification with up to about 1,000, the file holds all training rows: share it as you would share those, or
        write it with `rowless=True`.
        A `random_state` that is not an integer is saved as None, since only the fit needs it.

        Args:
            rowless: save the networks used in predictions, in place of the posterior: predictions are the same up to
                rounding, and the file holds no training rows, only 16 quantiles of each column to three digits.
            extra: anything to save with it, as numbers, strings, tensors, and dicts, lists and tuples of these;
                `livi.estimators.load_with_extra` gives it back.

        Raises:
            StorageError: the file cannot be written, or a value cannot be saved.
        """
        check_is_fitted(self, "posterior_")
        facts = {
            "class": type(self).__name__,
            "params": {name: _plain(value) for name, value in self.get_params(deep=False).items()},
            "network": network_facts(self.posterior_.layout.module),
            "fitted": self._fitted_facts(),
        }
        posterior = self._as_ensemble() if rowless else self.posterior_
        storage.save_posterior(path, posterior, extra={"estimator": facts, "extra": dict(extra or {})})

    def _as_ensemble(self) -> Posterior:
        """The posterior as an ensemble of the networks used in predictions."""
        own = self.posterior_
        return Posterior(self._draws.ensemble(), own.likelihood, own.prior, history=own.history, plan=own.plan)

    def _fitted_facts(self) -> dict[str, Any]:
        scores = self.conformity_scores_
        return {
            "n_features_in_": int(self.n_features_in_),
            "feature_names_in_": [str(name) for name in getattr(self, "feature_names_in_", ())],
            "seed_": self.seed_,
            "input_scaling_": tuple(torch.from_numpy(part) for part in self.input_scaling_),
            "input_reach_": self.input_reach_,
            "pieces_": None if self.pieces_ is None else self.pieces_.to_facts(),
            "usual_": None if self.usual_ is None else torch.from_numpy(self.usual_),
            "conformity_scores_": None if scores is None else torch.from_numpy(scores),
        }

    def _restore(self, facts: Mapping[str, Any], posterior: Posterior) -> Self:
        """Set the attributes of a fit from what `_fitted_facts` returned."""
        self._set_posterior(posterior, facts["seed_"])
        self.n_features_in_ = facts["n_features_in_"]
        if facts["feature_names_in_"]:
            self.feature_names_in_ = np.array(facts["feature_names_in_"], dtype=object)
        self.seed_ = facts["seed_"]
        self.input_scaling_ = Scaling(*(part.numpy() for part in facts["input_scaling_"]))
        self.input_reach_ = float(facts.get("input_reach_", math.inf))  # old files do not draw in distant inputs
        pieces = facts.get("pieces_")
        self.pieces_ = None if pieces is None else Pieces.from_facts(pieces)
        usual = facts.get("usual_")
        self.usual_ = None if usual is None else usual.numpy()
        scores = facts["conformity_scores_"]
        self.conformity_scores_ = None if scores is None else scores.numpy()
        return self

    # --- fitting ----------------------------------------------------------------------------------

    def _check_params(self) -> None:
        """Check the parameters that livi.fit does not; called by fit, as scikit-learn wants no checks in __init__."""
        self._widths()
        for name, value, allowed in (
            ("activation", self.activation or ACTIVATION, tuple(ACTIVATIONS)),
            ("interval", self.interval, ("posterior", "conformal")),
        ):
            if value not in allowed:
                raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}.")
        scale = self.prior_scale
        number = isinstance(scale, Real) and not isinstance(scale, bool) and 0 < scale < np.inf
        if not number and scale not in SCALES:
            raise ValueError(f"prior_scale: expected a positive number, 'auto', 'learned' or 'fan_in', got {scale!r}.")
        for name in ("components", "steps", "batch_size", "num_samples"):
            value = getattr(self, name)
            if (name, value) in (("steps", None), ("batch_size", None), ("num_samples", "auto")):
                continue
            if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
                raise ValueError(f"{name}: expected a positive integer, got {value!r}.")
        if self.budget is not None:
            seconds("budget", self.budget)
        if self.n_jobs is not None and (not hasattr(self.n_jobs, "__index__") or self.n_jobs == 0):
            raise ValueError(f"n_jobs: expected a number of threads, -1 for all, or None, got {self.n_jobs!r}.")

    def _widths(self) -> tuple[int, ...]:
        """The widths of the hidden layers."""
        return widths(HIDDEN if self.hidden is None else self.hidden)

    def _weighted_rows(
        self, X: Array, y: NDArray[Any], sample_weight: Any
    ) -> tuple[Array, NDArray[Any], Array]:  # (n, p), (n,), (n,)
        """The rows with a weight above zero, and their weights."""
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        counted = weights > 0
        if counted.sum() < 2:
            raise ValueError(
                f"sample_weight: expected at least two rows with a weight above zero, got {counted.sum()}."
            )
        return X[counted], y[counted], weights[counted]

    def _draw_seed(self) -> None:
        self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def split_rows(self, num_rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Indices of the rows to fit to, and of those held out to calibrate conformal predictions.

        Rows of weight zero are not counted.
        """
        check_is_fitted(self, "seed_")
        rows = np.arange(num_rows)
        if self.interval == "posterior":
            return rows, rows[:0]
        kept, held = train_test_split(rows, test_size=self.calibration_size, random_state=self.seed_)
        return np.sort(kept), np.sort(held)

    def _fit_posterior(
        self,
        X: Array,
        targets: NDArray[Any],
        weights: Array,
        likelihood: Likelihood,
        outputs: int,
        *,
        spent: float = 0.0,
    ) -> None:
        """Standardise the inputs and fit; targets are standardised already. Sets posterior_ and how to scale inputs.

        Args:
            spent: seconds of the budget that trials have used.
        """
        varying, classes = isinstance(likelihood, HeteroscedasticGaussian), isinstance(likelihood, Categorical)
        self._learn_input_scaling(X, weights)
        self.pieces_ = self._cut(X, weights)
        inputs = self.standardised_inputs(X)
        net = build_network(
            inputs.shape[1],
            self._widths(),
            outputs,
            self.activation or ACTIVATION,
            varying=varying,
            seed=self.seed_,
            dtype=torch.float32,
        )
        options: dict[str, Any] = {
            "prior": prior_of(
                self._prior_scale(likelihood), len(self._widths()), classes=classes, pieces=self.pieces_ is not None
            ),
            "components": int(self.components),
            "recipe": self._recipe(Layout(net), len(X)),
            "steps": None if self.steps is None else int(self.steps),
            "budget": None if self.budget is None else max(1e-3, seconds("budget", self.budget) - spent),
            "batch_size": None if self.batch_size is None else int(self.batch_size),
            "device": self.device,
            "seed": self.seed_,
            "progress": bool(self.verbose),
            "checkpoint": self._checkpoint,
            "standardise": False,  # done already, with weights
        }
        with threads(self.n_jobs):
            if np.all(weights == 1.0):
                posterior = fit(net, (inputs, targets), likelihood, **options)
            else:
                data = ((inputs, weights), targets)
                posterior = unweighted(fit(net, data, Weighted(likelihood), forward=pass_weights, **options))
        self._set_posterior(in_double(posterior), self.seed_)

    def _learn_input_scaling(self, X: Array, weights: Array) -> None:
        """Set the scaling of the inputs, and the values that missing ones are replaced by."""
        self.input_scaling_, self.input_reach_ = Scaling.of_inputs(X, weights), REACH
        self.usual_ = usual_values(X, weights, self.seed_)

    def _cut(self, X: Array, weights: Array) -> Pieces | None:  # noqa: ARG002
        """The pieces to add to the columns as inputs; None for none."""
        return None

    def _prior_scale(self, likelihood: Likelihood) -> float | str:
        """The scale to pass to `prior_of`. For counts all layers are sampled, where learned scales prune too much."""
        sampled = isinstance(likelihood, Poisson | NegativeBinomial)
        return "fan_in" if sampled and self.prior_scale == "auto" else self.prior_scale

    def _recipe(self, layout: Layout, num_rows: int) -> Recipe | None:  # noqa: ARG002
        """The schedule of the fit; None leaves it to `livi.fit`."""
        return None

    # --- predicting -------------------------------------------------------------------------------

    def _checked(self, X: Any) -> Array:  # (n, p)
        check_is_fitted(self, "posterior_")
        checked: Array = validate_data(self, X, reset=False, dtype=np.float64)
        return checked

    def monte_carlo_error(self, X: Any) -> Array:  # (n,)
        """The error of each row's prediction due to the finite number of networks, relative to its total std.

        It is the largest standard error of the mean and the ends of the 90 % interval (of the mean alone for counts),
        or of the classes' probabilities, relative to sqrt(p (1 - p)). With `num_samples="auto"` more networks, up to
        512, predict a row until it is below 0.05.
        """
        return self.read_predictive(self._checked(X), lambda part, _: self.sampling(part)[:1])[0]

    def _calibration_scores(self) -> Array:
        scores = self.conformity_scores_
        if scores is None:
            raise ValueError("interval: expected a fit with interval='conformal', got one without; fit again.")
        found: Array = scores
        return found


def quick_recipe(layout: Layout, num_rows: int, components: int) -> Recipe | None:
    """The recipe of a middle-sized network with sampled layers; None for others.

    It starts from the network's initial weights, at high rates, and is as good as a start from a MAP estimate in less
    time. Chosen on held-out training rows of three tables with classes, none of them large.
    """
    if not 300 < layout.num_params <= 5_000 or num_rows > FULL_BATCH:
        return None
    usual = default_recipe(Size(layout, num_rows, 1, num_rows * layout.num_params, classes=True))
    return replace(
        usual,
        steps=1000,
        map_steps=0,
        map_restarts=int(components),
        affine_rate=1e-2,
        nonlinear_rate=3e-3,
        hyper_rate=5e-2,
    )


def check_alpha(alpha: float) -> float:
    """Return alpha, the share of misses, if it is strictly between 0 and 1."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha: expected a number strictly between 0 and 1, got {alpha!r}.")
    return float(alpha)


def unweighted(posterior: Posterior) -> Posterior:
    """The posterior without the weights of rows: with the likelihood of a new example, over the network alone."""
    sampler, likelihood = posterior.sampler, posterior.likelihood
    if not isinstance(likelihood, Weighted):  # with an exact last layer it has no weights
        return posterior
    assert isinstance(sampler, ImplicitPosterior | Ensemble)
    if isinstance(sampler, Ensemble):
        ensemble = Ensemble(Layout(sampler.layout.module), sampler.theta).requires_grad_(False)
        return Posterior(ensemble, likelihood.base, posterior.prior, history=posterior.history, plan=posterior.plan)
    plain = ImplicitPosterior(Layout(sampler.layout.module), list(sampler.generators), list(sampler.noises))  # type: ignore[arg-type]
    return Posterior(plain, likelihood.base, posterior.prior, history=posterior.history, plan=posterior.plan)


def in_double(posterior: Posterior) -> Posterior:
    """Convert to double precision, so that the other rows of a block change a prediction by no more than 1e-12."""
    if posterior.layout.device.type != "mps":  # which has no float64
        assert isinstance(posterior.sampler, torch.nn.Module)
        for part in (posterior.sampler, posterior.likelihood, posterior.prior):
            if part is not None:
                part.double()
    return posterior


def _plain(value: Any) -> Any:
    """A parameter as it can be written to a file."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, torch.device):
        return str(value)
    return None if isinstance(value, (np.random.RandomState, np.random.Generator)) else value
