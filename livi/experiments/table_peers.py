"""Methods of other, optional packages in the benchmark on tables, used as their authors advise.

Each is a function from a `Split` to its `Answer` for the test rows, as in `table_methods.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from livi.experiments.table_data import Run, Split
from livi.experiments.table_scores import Answer, band, classes, normal_band
from livi.posterior.prediction import RegressionPrediction
from livi.tables.estimators.scaling import Scaling


def fit_ngboost(split: Split, run: Run) -> Answer:
    """Natural gradient boosting of a Normal or of class probabilities."""
    ngboost, distributions = importlib.import_module("ngboost"), importlib.import_module("ngboost.distns")
    # The default learner with a seed: without one it breaks ties between splits by numpy's global state.
    tree = clone(importlib.import_module("ngboost.learners").default_tree_learner).set_params(random_state=run.seed)
    options: dict[str, Any] = {"Base": tree, "random_state": run.seed, "verbose": False}
    options |= {"n_estimators": 5} if run.quick else {}
    if split.task == "regression":
        model = ngboost.NGBRegressor(Dist=distributions.Normal, **options).fit(split.inputs, split.targets)
        found = model.pred_dist(split.test_inputs).params
        return normal_band(found["loc"], found["scale"], split.test_targets)
    kind = distributions.Bernoulli if split.num_classes == 2 else distributions.k_categorical(split.num_classes)
    model = ngboost.NGBClassifier(Dist=kind, **options).fit(split.inputs, split.targets)
    return classes(np.asarray(model.predict_proba(split.test_inputs), dtype=np.float64))


def fit_bde(split: Split, run: Run) -> Answer:
    """Microcanonical Langevin ensembles (Sommer et al. 2025) by sklearn-contrib-bde, as in its README.

    Except that members have up to 1,000 epochs in place of 200. Predictions are mixtures of the Gaussians of all draws,
    as those of livi are. XLA chooses its own number of threads, so seconds are comparable only on reserved cores.
    """
    from scipy.special import softplus

    bde, loss = importlib.import_module("bde"), importlib.import_module("bde.loss")
    inputs, targets = StandardScaler().fit(split.inputs), Scaling.of(split.targets, np.ones(len(split.targets)))
    schedule = {"epochs": 1000, "warmup_steps": 5000, "n_samples": 2000}
    model = bde.BdeRegressor(
        hidden_layers=[16, 16],
        n_members=8,
        seed=run.seed,
        loss=loss.GaussianNLL(),
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        n_thinning=2,
        patience=10,
        **({"epochs": 5, "warmup_steps": 50, "n_samples": 20} if run.quick else schedule),
    )
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bars
        rows = inputs.transform(split.inputs).astype(np.float32)
        model.fit(x=rows, y=targets.standardise(split.targets).astype(np.float32)[:, None])
        tested = inputs.transform(split.test_inputs).astype(np.float32)
        raw = np.array(model.predict(tested, raw=True), dtype=np.float64)  # (members, draws, rows, 2)
    raw = raw.reshape(-1, *raw.shape[2:])
    means, stds = (torch.from_numpy(part) for part in (raw[..., 0], softplus(raw[..., 1]) + 1e-6))
    shift, scale = map(float, targets)
    return band(RegressionPrediction(means, stds).rescaled(shift, scale), split.test_targets)


def fit_catboost(split: Split, run: Run) -> Answer:
    """CatBoost: for regression a Gaussian from ten virtual ensembles, for classes its default probabilities.

    Regression is as in its tutorial on uncertainty, but with its default learning rate: `RMSEWithUncertainty` with
    posterior sampling, up to 1,000 trees, as many as predict a held-out tenth of the rows best, and the sum of data and
    knowledge uncertainty as variance. CatBoost has no such method for several classes.
    """
    catboost = importlib.import_module("catboost")
    options: dict[str, Any] = {"random_seed": run.seed, "thread_count": 1, "verbose": False}
    options |= {"allow_writing_files": False} | ({"iterations": 20} if run.quick else {})
    if split.task == "classification":
        model = catboost.CatBoostClassifier(**options).fit(split.inputs, split.targets)
        return classes(np.asarray(model.predict_proba(split.test_inputs), dtype=np.float64))
    options |= {"loss_function": "RMSEWithUncertainty", "posterior_sampling": True}
    targets = Scaling.of(split.targets, np.ones(len(split.targets)))
    rows, held_rows, values, held_values = train_test_split(
        split.inputs, targets.standardise(split.targets), test_size=0.1, random_state=run.seed
    )
    model = catboost.CatBoostRegressor(**options).fit(rows, values, eval_set=(held_rows, held_values))
    found = model.virtual_ensembles_predict(
        split.test_inputs, prediction_type="TotalUncertainty", virtual_ensembles_count=10, thread_count=1
    )
    mean, knowledge, data = np.asarray(found, dtype=np.float64).T
    shift, scale = map(float, targets)
    return normal_band(shift + scale * mean, scale * np.sqrt(knowledge + data), split.test_targets)
