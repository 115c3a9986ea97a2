"""The methods of the benchmark on tables: each is a function from a `Split` to its `Answer` for the test rows.

Every method has its defaults and no tuning. Inputs are standardised for those that need it; the networks of livi and
of the ensemble are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from livi.experiments.table_data import Run, Split
from livi.experiments.table_peers import fit_bde, fit_catboost, fit_ngboost
from livi.experiments.table_scores import LEVEL, Answer, Band, Classes, band, classes, normal_band
from livi.experiments.table_vbll import fit_vbll
from livi.model.likelihoods import Categorical, Gaussian
from livi.posterior.interruption import completed
from livi.posterior.prediction import ClassificationPrediction, RegressionPrediction
from livi.rivals import fit_ensemble
from livi.tables.estimators import LIVIClassifier, LIVIRegressor
from livi.tables.estimators.base import ACTIVATION, HIDDEN
from livi.tables.estimators.network import build_network
from livi.tables.estimators.prior import prior_of
from livi.tables.estimators.scaling import Scaling

GP_ROWS = {"regression": 2000, "classification": 500}  # the cost of a Gaussian process grows with their cube
MEMBERS = 5

Method = Callable[[Split, Run], Answer]


def fit_livi(split: Split, run: Run, **options: Any) -> Answer:
    """`LIVIRegressor()` or `LIVIClassifier()` with their defaults, except for these options.

    Raises:
        KeyboardInterrupt: the fit was interrupted, so that its answer is not a result.
    """
    options |= {"random_state": run.seed}
    options |= {"steps": 20, "num_samples": 20} if run.quick else {}
    model: LIVIRegressor | LIVIClassifier = (
        LIVIRegressor(**options) if split.task == "regression" else LIVIClassifier(**options)
    )
    model.fit(split.inputs, split.targets)
    completed(model.posterior_)
    rows = split.test_inputs
    if isinstance(model, LIVIClassifier):
        return classes(model.predict_proba(rows), model.predict_set(rows, 1.0 - LEVEL))
    return band(model.predictive(rows), split.test_targets, model.predict_interval(rows, 1.0 - LEVEL))


def fit_conformal(split: Split, run: Run) -> Answer:
    """`fit_livi` with conformal intervals or sets, for which a fifth of the rows is held out of the fit."""
    return fit_livi(split, run, interval="conformal")


def fit_constant(split: Split, run: Run) -> Answer:
    """`fit_livi` on the untransformed target, with one noise for all rows; no other model is tried."""
    return fit_livi(split, run, target_scale="plain", noise="constant")


def fit_varying(split: Split, run: Run) -> Answer:
    """`fit_livi` on the untransformed target, with a noise that may vary with the inputs."""
    return fit_livi(split, run, target_scale="plain", noise="varying")


def fit_network(split: Split, run: Run) -> Answer:
    """`fit_livi` on the untransformed target, with a network for mean and noise, sampled by Markov chains."""
    return fit_livi(split, run, target_scale="plain", noise="network")


def fit_deep_ensemble(split: Split, run: Run) -> Answer:
    """Five MAP estimates of the estimator's network with a learned noise, under the prior that its fits start from."""
    weights = np.ones(len(split.inputs))
    scaling = Scaling.of(split.inputs, weights)
    inputs, test = (scaling.standardise(part).astype(np.float32) for part in (split.inputs, split.test_inputs))
    outputs = 1 if split.task == "regression" else split.num_classes
    net = build_network(inputs.shape[1], HIDDEN, outputs, ACTIVATION, seed=run.seed, dtype=torch.float32)
    options: dict[str, Any] = {
        "prior": prior_of("fan_in", len(HIDDEN), classes=split.task == "classification"),
        "members": MEMBERS,
        "seed": run.seed,
        "steps": 20 if run.quick else None,
    }
    target_scaling = Scaling.of(np.asarray(split.targets, dtype=np.float64), weights)
    if split.task == "regression":
        data = (inputs, target_scaling.standardise(split.targets).astype(np.float32))
        posterior = fit_ensemble(net, data, Gaussian(1.0, learned=True), **options)
    else:
        posterior = fit_ensemble(net, (inputs, split.targets), Categorical(), **options)
    rng = torch.Generator().manual_seed(run.seed)
    prediction = posterior.predict(torch.from_numpy(test), num_samples=MEMBERS, rng=rng)
    if isinstance(prediction, ClassificationPrediction):
        precise = ClassificationPrediction(prediction.logits.double(), prediction.likelihood)
        return classes(precise.probabilities.numpy())
    assert isinstance(prediction, RegressionPrediction)
    shift, scale = map(float, target_scaling)
    return band(prediction.rescaled(shift, scale), split.test_targets)


def fit_gaussian_process(split: Split, run: Run) -> Answer:
    """An exact Gaussian process with a length scale for each input.

    For classes by Laplace's approximation, one against the rest, with a single length scale, since more take hours.
    """
    limit = rows_used("gp", split.task, len(split.inputs), run.quick)
    rows = np.random.default_rng(run.seed).permutation(len(split.inputs))[:limit]
    scales = np.ones(split.inputs.shape[1]) if split.task == "regression" else 1.0
    kernel = ConstantKernel() * RBF(scales) + WhiteKernel()
    options: dict[str, Any] = {"n_restarts_optimizer": 1, "random_state": run.seed}
    options |= {"optimizer": None} if run.quick else {}
    if split.task == "classification":
        return _classified(GaussianProcessClassifier(kernel, **options), split, rows)
    model = make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True, **options))
    mean, std = model.fit(split.inputs[rows], split.targets[rows]).predict(split.test_inputs, return_std=True)
    return normal_band(mean, std, split.test_targets)


def fit_ridge(split: Split, run: Run) -> Answer:
    """The linear models: BayesianRidge, LogisticRegression."""
    if split.task == "classification":
        return _classified(LogisticRegression(max_iter=20 if run.quick else 1000), split)
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(split.inputs, split.targets)
    mean, std = model.predict(split.test_inputs, return_std=True)
    return normal_band(mean, std, split.test_targets)


def fit_boosting(split: Split, run: Run) -> Answer:
    """Histogram gradient boosting: squared error for the mean, and two quantile losses for the ends of the interval.

    Where the two quantiles cross, they are swapped.
    """
    options: dict[str, Any] = {"random_state": run.seed} | ({"max_iter": 5} if run.quick else {})
    if split.task == "classification":
        return _classified(HistGradientBoostingClassifier(**options), split)
    tail = 0.5 * (1.0 - LEVEL)
    losses: list[dict[str, Any]] = [{}, *({"loss": "quantile", "quantile": q} for q in (tail, 1.0 - tail))]
    mean, low, high = (
        HistGradientBoostingRegressor(**loss, **options).fit(split.inputs, split.targets).predict(split.test_inputs)
        for loss in losses
    )
    return Band(mean, np.minimum(low, high), np.maximum(low, high), None, None)


METHODS: dict[str, Method] = {
    "livi": fit_livi,
    "constant": fit_constant,
    "varying": fit_varying,
    "network": fit_network,
    "conformal": fit_conformal,
    "ensemble": fit_deep_ensemble,
    "gp": fit_gaussian_process,
    "ridge": fit_ridge,
    "boosting": fit_boosting,
    "ngboost": fit_ngboost,
    "catboost": fit_catboost,
    "vbll": fit_vbll,
    "bde": fit_bde,
}
FOR_TASK = dict.fromkeys(("constant", "varying", "network", "bde"), "regression")  # methods for one task only
PACKAGES = {  # module, and its name for pip
    "ngboost": ("ngboost", "ngboost"),
    "catboost": ("catboost", "catboost"),
    "vbll": ("vbll", "vbll"),
    "bde": ("bde", "sklearn-contrib-bde"),
}


def available_methods() -> tuple[str, ...]:
    """The methods whose packages are installed."""
    return tuple(name for name in METHODS if name not in PACKAGES or find_spec(PACKAGES[name][0]) is not None)


def check_installed(names: tuple[str, ...]) -> None:
    """Raise for a method whose package is missing."""
    for name in names:
        if name not in available_methods():
            package = PACKAGES[name][1]
            raise ValueError(
                f"methods: expected the package {package} to be installed, got none; `pip install {package}`."
            )


def rows_used(method: str, task: str, rows: int, quick: bool) -> int:
    """The number of training rows that a method takes."""
    return min(rows, 100 if quick else GP_ROWS[task]) if method == "gp" else rows


def _classified(model: Any, split: Split, rows: Any = slice(None)) -> Classes:
    pipeline = make_pipeline(StandardScaler(), model).fit(split.inputs[rows], split.targets[rows])
    found = np.zeros((len(split.test_inputs), split.num_classes))
    found[:, pipeline.classes_] = pipeline.predict_proba(split.test_inputs)
    return classes(found)
