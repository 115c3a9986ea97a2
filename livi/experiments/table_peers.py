"""Methods of other packages in the benchmark on tables, as their authors advise; the packages are optional.

Each is one function, as in `table_methods.py`: a split in, its answers for the test rows out.
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
    # The default learner, which would break ties between splits by numpy's global state.
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

    But for 1,000 epochs of its members at most, in place of 200. Answers are mixtures of the Gaussians of all draws, as
    those of livi are. XLA takes what threads it likes, so that seconds are comparable only on cores set aside.
    """
    from scipy.special import softplus

    bde, loss = importlib.import_module("bde"), importlib.import_module("bde.loss")
    inputs, targets = StandardScaler().fit(split.inputs), Scaling.of(split.targets, np.ones(len(split.targets)))
    lengths = {"epochs": 1000, "warmup_steps": 5000, "n_samples": 2000}
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
        **({"epochs": 5, "warmup_steps": 50, "n_samples": 20} if run.quick else lengths),
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
    """CatBoost: of targets mean and variance with those of ten virtual ensembles, of classes their probabilities.

    Targets as in its tutorial on uncertainty, but with its default rate: `RMSEWithUncertainty` with posterior sampling,
    as many of 1,000 trees as a tenth of the rows, held out, are predicted best by, and a Gaussian with data and
    knowledge uncertainty together. There is no such thing for several classes, which have its defaults.
    """
    catboost = importlib.import_module("catboost")
    options: dict[str, Any] = {"random_seed": run.seed, "thread_count": 1, "verbose": False}
    options |= {"allow_writing_files": False} | ({"iterations": 20} if run.quick else {})
    if split.task == "classification":
        model = catboost.CatBoostClassifier(**options).fit(split.inputs, split.targets)
        return classes(np.asarray(model.predict_proba(split.test_inputs), dtype=np.float64))
    options |= {"loss_function": "RMSEWithUncertainty", "posterior_sampling": True}
    targets = Scaling.of(split.targets, np.ones(len(split.targets)))
    rows, held, known, unseen = train_test_split(
        split.inputs, targets.standardise(split.targets), test_size=0.1, random_state=run.seed
    )
    model = catboost.CatBoostRegressor(**options).fit(rows, known, eval_set=(held, unseen))
    found = model.virtual_ensembles_predict(
        split.test_inputs, prediction_type="TotalUncertainty", virtual_ensembles_count=10, thread_count=1
    )
    mean, knowledge, data = np.asarray(found, dtype=np.float64).T
    shift, scale = map(float, targets)
    return normal_band(shift + scale * mean, scale * np.sqrt(knowledge + data), split.test_targets)
