"""The common part of regressor and classifier: parameters, the fit on standardised data, saving to a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
from torch import nn

from livi.durations import seconds
from livi.family.last_layer import ExactLastLayer
from livi.inference import Recipe, fit
from livi.model.likelihoods import Likelihood
from livi.model.priors import Prior, Relevance
from livi.network import Layout
from livi.posterior import storage
from livi.posterior.posterior import Posterior
from livi.tables.estimators.answers import Answering, as_numpy
from livi.tables.estimators.missing_values import usual_values
from livi.tables.estimators.network import ACTIVATIONS, build_network, network_facts, threads, widths
from livi.tables.estimators.pieces import Pieces
from livi.tables.estimators.prior import PRIOR_SCALES
from livi.tables.estimators.row_weights import fit_weighted
from livi.tables.estimators.scaling import INPUT_REACH, Array, Scaling

# Defaults of the architecture.
HIDDEN = (50,)
ACTIVATION = "silu"


class Estimator(Answering, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no annotations
    """Base class of `LIVIRegressor` and `LIVIClassifier`.

    The parameters that both have are set by their `__init__`, where scikit-learn looks for them.
    """

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
        scale: float | str = self.prior_scale
        number = isinstance(scale, Real) and not isinstance(scale, bool) and 0 < scale < np.inf
        if not number and scale not in PRIOR_SCALES:
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
        *,
        spent: float,
        checkpoint: str | Path | None,
    ) -> None:
        """Standardise the inputs and fit; targets are standardised already. Sets posterior_ and how to scale inputs.

        Args:
            spent: seconds of the budget that trials have used.
            checkpoint: for `livi.fit`; the methods that take none do without.
        """
        self._learn_input_scaling(X, weights)
        self.pieces_ = self._cut(X, weights)
        inputs = self.standardised_inputs(X)
        net = build_network(inputs.shape[1], **self._network_options(), seed=self.seed_, dtype=torch.float32)
        method, options = self._method(net, len(X), checkpoint)
        options |= {
            "steps": None if self.steps is None else int(self.steps),
            "budget": None if self.budget is None else max(1e-3, seconds("budget", self.budget) - spent),
            "device": self.device,
            "seed": self.seed_,
            "progress": bool(self.verbose),
            "standardise": False,  # done already, with weights
        }
        with threads(self.n_jobs):
            posterior = fit_weighted(method, net, inputs, targets, weights, likelihood, **options)
        self._set_posterior(in_double(self._for_predictions(posterior)), self.seed_)

    def _learn_input_scaling(self, X: Array, weights: Array) -> None:
        """Set the scaling of the inputs, and the values that missing ones are replaced by."""
        self.input_scaling_, self.input_reach_ = Scaling.of_inputs(X, weights), INPUT_REACH
        self.usual_ = usual_values(X, weights, self.seed_)

    def _cut(self, X: Array, weights: Array) -> Pieces | None:  # noqa: ARG002
        """The pieces to add to the columns as inputs; None for none."""
        return None

    def _network_options(self) -> dict[str, Any]:
        """The arguments of `build_network` that depend on the model of the targets."""
        return {"hidden": self._widths(), "outputs": 1, "activation": self.activation or ACTIVATION}

    def _method(
        self, net: nn.Module, num_rows: int, checkpoint: str | Path | None
    ) -> tuple[Callable[..., Posterior], dict[str, Any]]:
        """The function that fits, and those of its options that not all methods have."""
        return fit, {
            "prior": self._prior(),
            "components": int(self.components),
            "recipe": self._recipe(Layout(net), num_rows),
            "batch_size": None if self.batch_size is None else int(self.batch_size),
            "checkpoint": checkpoint,
        }

    def _prior(self) -> Prior | Callable[[Layout], Prior]:
        raise NotImplementedError

    def _recipe(self, layout: Layout, num_rows: int) -> Recipe | None:
        """The schedule of the fit; None leaves it to `livi.fit`."""
        raise NotImplementedError

    def _for_predictions(self, posterior: Posterior) -> Posterior:
        """The posterior with the likelihood of predictions, where that is not the one of the fit."""
        return posterior

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


def check_alpha(alpha: float) -> float:
    """Return alpha, the share of misses, if it is strictly between 0 and 1."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha: expected a number strictly between 0 and 1, got {alpha!r}.")
    return float(alpha)


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
