"""Classification behind scikit-learn's interface: probabilities averaged over the posterior, and sets of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from livi.family.last_layer import LIMIT, evidence_multiplications
from livi.inference import Recipe
from livi.model.likelihoods import Categorical
from livi.network import Layout
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import ClassificationPrediction
from livi.posterior.prediction.mixture import log_mean_exp
from livi.tables.estimators.base import Estimator, check_alpha, quick_recipe
from livi.tables.estimators.conformal import threshold
from livi.tables.estimators.scaling import Array

_MOST_BYTES = 2**24  # of labels in a file


class LIVIClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A neural network with a posterior over its weights, as a scikit-learn classifier.

    Inputs are standardised inside; labels may be anything that can be sorted.

    Args:
        hidden: widths of the hidden layers; () is a linear model. None is (50,).
        activation: "relu", "tanh", "elu", "silu" or "gelu". None is "silu".
        prior_scale: standard deviation of the weights under the prior; "fan_in" for 3 / sqrt(fan-in), and 8 in place of
            3 in the last layer; or "learned", starting there, for one an input and one a further layer. "auto" is
            "fan_in".
        components: mixture components of the posterior.
        steps, budget, batch_size: of `livi.fit`; None leaves them to it.
        interval: "posterior" takes `predict_set` from the predicted probabilities. "conformal" holds out rows to
            calibrate it on, which guarantees coverage for new rows like the old whatever the model is worth.
        calibration_size: share (or number) of the rows that a conformal fit holds out.
        num_samples: networks drawn from the posterior behind a prediction, the same ones every time. "auto" asks as
            many as a row needs, 64 to 512: until its probabilities are known to 5 % of sqrt(p (1 - p))
            (`monte_carlo_error`), or no more are left.
        device: where to fit and predict, as torch names it; None is the CPU.
        n_jobs: threads of torch while fitting and predicting; -1 is all processors, None leaves torch as it is.
        random_state: an integer, a RandomState or None, as everywhere in scikit-learn.
        verbose: 1 shows the progress of the fit.

    Attributes:
        classes_: the labels, sorted, in the order of the columns of `predict_proba`.
        posterior_: the `livi.Posterior`, over the standardised problem.
        input_scaling_: shift and scale of the inputs, as numpy arrays.
        conformity_scores_: 1 - probability of the label of the held-out rows, sorted; None without conformal sets.
        history_: the course of the fit.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    >>> import numpy as np
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> y = np.where(np.abs(X[:, 0]) < 1, "near", "far")
    >>> model = LIVIClassifier(hidden=(10,), activation="tanh", steps=300, random_state=0).fit(X, y)
    >>> model.predict([[0.0], [3.0]])
    array(['near', 'far'], dtype='<U4')
    >>> model.predict_proba(X).shape, model.predict_set(X, alpha=0.1).dtype
    ((60, 2), dtype('bool'))
    >>> model.predictive(X).mutual_information.shape  # what the weight draws disagree on, in nats
    torch.Size([60])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # (n, p), (n,), (n,)
        """Fit the posterior.

        Args:
            sample_weight: a row of weight w counts w times: the log likelihood is sum_i w_i log p(y_i | theta). A
                conformal fit counts every row that it holds out once.
        """
        self._check_params()
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        X, y, weights = self._weighted_rows(X, y, sample_weight)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes, got one class, {self.classes_[0]!r}.")
        self._draw_seed()
        kept, held = self.split_rows(len(X))
        self._fit_posterior(X[kept], labels[kept], weights[kept], Categorical(), len(self.classes_))
        self.conformity_scores_ = None
        if len(held):
            self.conformity_scores_ = np.sort(1.0 - self._probabilities(X[held])[np.arange(len(held)), labels[held]])
        return self

    def _recipe(self, layout: Layout, num_rows: int) -> Recipe | None:
        """That of `livi.fit` where the last layer will be inferred given the others, else `quick_recipe`."""
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
        """Their logarithms, which stay finite where a probability rounds to zero."""
        return self.read_predictive(self._checked(X), lambda part, _: (log_mean_exp(part.logits.log_softmax(2)),))[0]

    def predictive(self, X: Any) -> ClassificationPrediction:
        """The whole posterior predictive: entropy, and the mutual information that is due to the weights.

        All rows by the same networks, 256 of them with `num_samples="auto"`.
        """
        prediction: ClassificationPrediction = self._predict(self._checked(X))
        return prediction

    def predict_set(self, X: Any, alpha: float = 0.1) -> NDArray[np.bool_]:  # (n, k)
        """Which classes are in a set that holds the label with probability 1 - alpha; columns as in `classes_`.

        By the posterior, the smallest set of at least that probability. Conformal, the classes whose probability is
        at least that of all but a share alpha of the held-out labels (the LAC score): smallest on average, and empty
        for a row that conforms to no class. All classes, with a warning, where held-out rows are fewer than
        1 / alpha - 1.
        """
        check_alpha(alpha)
        probabilities = self.predict_proba(X)
        if self.interval == "conformal":
            within: NDArray[np.bool_] = 1.0 - probabilities <= threshold(self._calibration_scores(), alpha)
            return within
        order = np.argsort(-probabilities, axis=1, kind="stable")
        ranked = np.take_along_axis(probabilities, order, axis=1)
        before = np.cumsum(ranked, axis=1) - ranked  # of the more probable classes: is there a need for this one?
        chosen = np.zeros(probabilities.shape, dtype=bool)
        np.put_along_axis(chosen, order, before < 1.0 - alpha, axis=1)
        return chosen

    def _probabilities(self, X: Array) -> Array:
        return self.read_predictive(X, lambda part, _: (part.probabilities,))[0]

    def _fitted_facts(self) -> dict[str, Any]:
        kind = "O" if self.classes_.dtype == object else self.classes_.dtype.str
        return super()._fitted_facts() | {"classes_": (kind, self.classes_.tolist())}

    def _restore(self, facts: Mapping[str, Any], posterior: Posterior) -> Self:
        kind, labels = facts["classes_"]
        if np.dtype(kind).itemsize * len(labels) > _MOST_BYTES:  # a file may ask for labels of any length
            raise ValueError(f"classes_: expected at most {_MOST_BYTES:,} bytes of labels, got {kind}.")
        self.classes_ = np.array(labels, dtype=kind)
        return super()._restore(facts, posterior)
