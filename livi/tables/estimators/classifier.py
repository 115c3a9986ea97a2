"""`LIVIClassifier`: probabilities averaged over the posterior, and sets of classes, with scikit-learn's interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from livi.family.last_layer import LIMIT, evidence_multiplications
from livi.inference import Recipe
from livi.model.data import FULL_BATCH
from livi.model.defaults import SMALL
from livi.model.likelihoods import Categorical
from livi.model.priors import Prior
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import ClassificationPrediction
from livi.posterior.prediction.mixture import log_mean_exp
from livi.tables.estimators.base import ACTIVATION, HIDDEN, Estimator, check_alpha
from livi.tables.estimators.conformal import threshold
from livi.tables.estimators.network import threads
from livi.tables.estimators.piece_trials import TRIAL_STEPS, map_score, piece_trial_rows
from livi.tables.estimators.pieces import MAX_PIECES, Pieces, affordable
from livi.tables.estimators.prior import prior_of
from livi.tables.estimators.recipe import quick_recipe
from livi.tables.estimators.scaling import Array
from livi.tables.estimators.trial import Trial

PIECES_HIDDEN = (64, 64)
NARROW_HIDDEN = (80,)  # more than 300 weights, even with one column and two classes
_MAX_LABEL_BYTES = 2**24  # of labels in a file


class LIVIClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A neural network with a posterior over its weights, as a scikit-learn classifier.

    Inputs are standardised internally; labels may be anything that can be sorted.

    Args:
        hidden: widths of the hidden layers; () is a linear model. None is (50,), for one or two columns (80,), and with
            pieces (64, 64).
        activation: "relu", "tanh", "elu", "silu" or "gelu". None is "silu".
        prior_scale: standard deviation of the weights under the prior; "fan_in" for 3 / sqrt(fan-in), and 8 in place of
            3 in the last layer (with pieces 1 and 3); or "learned", which starts there and learns one scale per input
            and one per further layer. "auto" is "fan_in".
        pieces: the number of pieces that a column with more than two values is cut into, at its quantiles, as inputs
            besides the column itself (`livi.tables.estimators.pieces`); 0 for none. "auto" is 0 for up to 2,048 rows;
            for more it tries 0 and 16, or fewer so that there are at most 512 in all, on some of the rows.
        components: mixture components of the posterior.
        steps, budget, batch_size: as in `livi.fit`; None is its default. A budget such as "1 min" includes trials.
        interval: "posterior" takes `predict_set` from the predicted probabilities. "conformal" calibrates it on
            held-out rows, which guarantees coverage for exchangeable new rows, however good or bad the model is.
        calibration_size: share (or number) of the rows that a conformal fit holds out.
        num_samples: the number of networks drawn from the posterior for predictions, the same ones every time. "auto"
            uses as many as a row needs, 64 to 512: until the error of its probabilities is below 5 % of
            sqrt(p (1 - p)) (`monte_carlo_error`).
        device: where to fit and predict, as torch names it; None is the CPU.
        n_jobs: threads of torch while fitting and predicting; -1 is all processors, None leaves torch as it is.
        random_state: an integer, a RandomState or None, as everywhere in scikit-learn.
        verbose: 1 shows the progress of the fit.

    Attributes:
        classes_: the labels, sorted, in the order of the columns of `predict_proba`.
        pieces_: where columns were cut; None if they were not.
        trials_: what "auto" tried, with the log score of each on held-out rows; [] if there were no trials.
        posterior_: the `livi.Posterior` of the standardised problem.
        input_scaling_: shift and scale of the inputs, as numpy arrays.
        conformity_scores_: 1 - probability of the label of each held-out row, sorted; None without conformal sets.
        history_: the logged steps of the fit.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    >>> import numpy as np
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> y = np.where(np.abs(X[:, 0]) < 1, "near", "far")
    >>> model = LIVIClassifier(hidden=(10,), activation="tanh", steps=300, random_state=0).fit(X, y)
    >>> model.predict([[0.0], [3.0]])
    array(['near', 'far'], dtype='<U4')
    >>> model.predict_proba(X).shape, model.predict_set(X, alpha=0.1).dtype
    ((60, 2), dtype('bool'))
    >>> model.predictive(X).mutual_information.shape  # disagreement of the weight draws, in nats
    torch.Size([60])
    """

    def __init__(
        self,
        hidden: Any = None,
        *,
        activation: str | None = None,
        prior_scale: float | str = "auto",
        pieces: int | str = "auto",
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
        self.pieces = pieces
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
        """
        self._check_params()
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        X, y, weights = self._weighted_rows(X, y, sample_weight)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes, got one class, {self.classes_.tolist()[0]!r}.")
        self._draw_seed()
        fitted, held = self.split_rows(len(X))
        began = time.perf_counter()
        self._num_pieces = self._choose(X[fitted], labels[fitted], weights[fitted])
        spent = time.perf_counter() - began
        self._fit_posterior(
            X[fitted], labels[fitted], weights[fitted], Categorical(), spent=spent, checkpoint=checkpoint
        )
        self.conformity_scores_ = None
        if len(held):
            self.conformity_scores_ = np.sort(1.0 - self._probabilities(X[held])[np.arange(len(held)), labels[held]])
        return self

    def _check_params(self) -> None:
        super()._check_params()
        count: Any = self.pieces
        whole = hasattr(count, "__index__") and not isinstance(count, bool)
        if count != "auto" and not (whole and (count == 0 or 2 <= count <= MAX_PIECES)):
            raise ValueError(f"pieces: expected 0, 2 to {MAX_PIECES} or 'auto', got {count!r}.")

    def _choose(self, X: Array, labels: NDArray[Any], weights: Array) -> int:
        """The number of pieces: as set, or the better of none and some by trials. Sets trials_."""
        self.trials_: list[Trial[int]] = []
        if self.pieces != "auto":
            return int(self.pieces)
        count = affordable(X)
        if len(X) <= FULL_BATCH or count < 2:
            return 0
        rows = piece_trial_rows(weights, self.seed_)
        common: dict[str, Any] = {"classes": len(self.classes_), "activation": self.activation or ACTIVATION}
        common |= {"steps": min(TRIAL_STEPS, self.steps or TRIAL_STEPS), "device": self.device, "seed": self.seed_}
        scale = "fan_in" if isinstance(self.prior_scale, str) else self.prior_scale
        self._learn_input_scaling(X, weights)
        scores: dict[int, float] = {}
        for pieces in (0, count):
            self.pieces_ = Pieces.of(X, weights, pieces) if pieces else None
            if pieces and self.pieces_ is None:
                continue
            hidden = self._widths()
            prior = prior_of(scale, len(hidden), classes=True, pieces=self.pieces_ is not None)
            inputs = self.standardised_inputs(X)
            with threads(self.n_jobs):
                scores[pieces] = map_score(inputs, labels, rows, hidden=hidden, prior=prior, **common)
        self.trials_ = [Trial(pieces, score) for pieces, score in scores.items()]
        return max(scores, key=scores.__getitem__)

    def _cut(self, X: Array, weights: Array) -> Pieces | None:
        return Pieces.of(X, weights, self._num_pieces) if self._num_pieces else None

    def _widths(self) -> tuple[int, ...]:
        if self.hidden is not None:
            return super()._widths()
        return PIECES_HIDDEN if self.pieces_ is not None else NARROW_HIDDEN if self._is_narrow else HIDDEN

    @property
    def _is_narrow(self) -> bool:
        """True if the default network is so small, with few columns and classes, that `livi.fit` would take minutes."""
        columns, classes = getattr(self, "n_features_in_", SMALL), len(getattr(self, "classes_", ()))
        return HIDDEN[0] * (columns + 1) + (HIDDEN[0] + 1) * classes <= SMALL

    def _network_options(self) -> dict[str, Any]:
        return super()._network_options() | {"outputs": len(self.classes_)}

    def _prior(self) -> Prior | Callable[[Layout], Prior]:
        return prior_of(self.prior_scale, len(self._widths()), classes=True, pieces=self.pieces_ is not None)

    def _recipe(self, layout: Layout, num_rows: int) -> Recipe | None:
        """None if the last layer will be inferred given the others, else `quick_recipe`."""
        classes, features = layout.slots[-2].shape
        cost = evidence_multiplications(Categorical(), num_rows, features + 1, classes)
        whole = self.batch_size is None or self.batch_size >= num_rows
        given_others = cost <= LIMIT and whole and self._widths()
        return None if given_others else quick_recipe(layout, num_rows, self.components)

    def predict(self, X: Any) -> NDArray[Any]:  # (n,)
        """The most probable label of each row."""
        best = self.predict_proba(X).argmax(1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> Array:  # (n, k)
        """Probabilities of the classes, averaged over the posterior."""
        return self._probabilities(self._checked(X))

    def predict_log_proba(self, X: Any) -> Array:  # (n, k)
        """Log probabilities of the classes, finite even if a probability rounds to zero."""
        return self.read_predictive(self._checked(X), lambda part, _: (log_mean_exp(part.logits.log_softmax(2)),))[0]

    def predictive(self, X: Any) -> ClassificationPrediction:
        """The whole posterior predictive, with entropy and the mutual information of label and weights.

        The same networks predict all rows, 256 of them with `num_samples="auto"`.
        """
        prediction: ClassificationPrediction = self._predict(self._checked(X))
        return prediction

    def predict_set(self, X: Any, alpha: float = 0.1) -> NDArray[np.bool_]:  # (n, k)
        """The set of classes, as a mask, that holds the label with probability 1 - alpha; columns as in `classes_`.

        With `interval="posterior"` it is the smallest set of at least that probability. With "conformal" it holds the
        classes whose probability is at least that of all but a share alpha of the held-out labels (the LAC score): the
        smallest sets on average, empty for a row that resembles no class, and all classes, with a warning, if there
        are fewer than 1 / alpha - 1 held-out rows.
        """
        return self.sets_of(self.predict_proba(X), alpha)

    def sets_of(self, probabilities: Array, alpha: float) -> NDArray[np.bool_]:  # (n, k)
        """`predict_set` for rows whose probabilities are known."""
        check_alpha(alpha)
        if self.interval == "conformal":
            within: NDArray[np.bool_] = 1.0 - probabilities <= threshold(self._calibration_scores(), alpha)
            return within
        order = np.argsort(-probabilities, axis=1, kind="stable")
        ranked = np.take_along_axis(probabilities, order, axis=1)
        before = np.cumsum(ranked, axis=1) - ranked  # the probability of the more probable classes
        chosen = np.zeros(probabilities.shape, dtype=bool)
        np.put_along_axis(chosen, order, before < 1.0 - alpha, axis=1)
        return chosen

    def _probabilities(self, X: Array) -> Array:
        return self.read_predictive(X, lambda part, _: (part.probabilities,))[0]

    def _fitted_facts(self) -> dict[str, Any]:
        kind = "O" if self.classes_.dtype == object else self.classes_.dtype.str
        trials = [(trial.pieces, trial.log_score) for trial in self.trials_]
        return super()._fitted_facts() | {"classes_": (kind, self.classes_.tolist()), "trials_": trials}

    def _restore(self, facts: Mapping[str, Any], posterior: Posterior) -> Self:
        kind, labels = facts["classes_"]
        if np.dtype(kind).itemsize * len(labels) > _MAX_LABEL_BYTES:  # a damaged file may name any length
            raise ValueError(f"classes_: expected at most {_MAX_LABEL_BYTES:,} bytes of labels, got {kind}.")
        self.classes_ = np.array(labels, dtype=kind)
        self.trials_ = [Trial(int(pieces), float(score)) for pieces, score in facts.get("trials_", ())]
        return super()._restore(facts, posterior)
