"""Estimators in files."""

import numpy as np
import pandas as pd
import pytest
import torch
from support.short_estimators import SHORT, wave

import livi
from livi import LIVIClassifier, LIVIRegressor, StorageError
from livi.posterior.storage import read_checkpoint
from livi.running.progress import Progress
from livi.tables.estimators import load, load_with_extra
from livi.tables.estimators.network import build_network
from livi.tables.estimators.prior import prior_of
from livi.tables.estimators.target_models import Model

# So short a fit may rightly be told that it has not spread out yet.
pytestmark = pytest.mark.filterwarnings("ignore::livi.FitWarning")


@pytest.fixture(scope="module")
def regressor():
    return LIVIRegressor(**SHORT).fit(*wave())


@pytest.mark.parametrize(
    "options",
    [{}, {"noise": "varying", "hidden": [5, 4], "activation": "silu"}, {"hidden": (), "components": 2}],
    ids=["plain", "varying", "linear"],
)
def test_a_saved_regressor_answers_as_before(tmp_path, options):
    frame = pd.DataFrame(wave(40)[0], columns=["height", "width"])
    model = LIVIRegressor(**SHORT | {"steps": np.int64(20), "interval": "conformal"} | options).fit(frame, wave(40)[1])
    model.save(tmp_path / "model.livi")
    again = load(tmp_path / "model.livi")
    assert again.get_params() == model.get_params()
    assert again.feature_names_in_.tolist() == ["height", "width"]
    assert again.history_ == model.history_
    np.testing.assert_array_equal(again.predict_interval(frame, 0.2), model.predict_interval(frame, 0.2))
    np.testing.assert_array_equal(again.predict(frame, return_std=True), model.predict(frame, return_std=True))


@pytest.mark.parametrize("labels", [["a", "b"], [3, -1], [True, False], [2.0, 1.0]], ids=str)
def test_a_saved_classifier_answers_as_before_with_its_labels(tmp_path, labels):
    X, _ = wave(30)
    y = np.where(X[:, 0] > 0, *labels)
    for given in (y, y.astype(object) if isinstance(labels[0], str) else y):
        weights = np.random.default_rng(0).uniform(size=30)
        model = LIVIClassifier(**SHORT | {"steps": 10}).fit(X, given, sample_weight=weights)
        model.save(tmp_path / "model.livi", extra={"columns": ["height"], "limits": torch.arange(3)})
        again, extra = load_with_extra(tmp_path / "model.livi")
        assert again.classes_.dtype == model.classes_.dtype
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert extra["columns"] == ["height"]
        assert extra["limits"].tolist() == [0, 1, 2]


def test_a_classifier_with_more_labels_than_outputs_is_refused(tmp_path):
    X, _ = wave(10)
    model = LIVIClassifier(**SHORT | {"steps": 2}).fit(X, X[:, 0] > 0)
    model.classes_ = np.arange(4)
    model.save(tmp_path / "model.livi")
    with pytest.raises(StorageError, match="another classes_ than a fit has"):
        load(tmp_path / "model.livi")


def test_parameters_changed_after_the_fit_do_not_spoil_the_file(tmp_path, regressor):
    model = LIVIRegressor(**SHORT | {"steps": 2}).fit(*wave(10)).set_params(hidden=(99,), random_state=np.random)
    model.set_params(random_state=np.random.RandomState(0), device=torch.device("cpu"))
    model.save(tmp_path / "model.livi")
    again = load(tmp_path / "model.livi")
    np.testing.assert_array_equal(again.predict([[0.0, 0.0]]), model.predict([[0.0, 0.0]]))
    assert again.hidden == (99,)
    assert again.random_state is None


def test_files_of_something_else_are_refused(tmp_path, regressor):
    path = tmp_path / "model.livi"
    regressor.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(StorageError, match="complete file"):
        load(path)
    path.write_text("height,width\n")
    with pytest.raises(StorageError, match="safetensors"):
        load(path)
    regressor.posterior_.save(path)
    with pytest.raises(StorageError, match="expected a saved estimator, got another posterior"):
        load(path)
    with pytest.raises(StorageError, match="none of that name"):
        load(tmp_path / "missing.livi")


@pytest.mark.parametrize("varying", [False, True])
def test_the_last_bias_of_a_regression_starts_as_small_as_the_weights_beside_it(varying):
    layout = livi.Layout(build_network(3, (16,), 1, "tanh", varying=varying, dtype=torch.float64))
    scale = layout.unflatten(prior_of("auto", 1, classes=False)(layout).scale())
    prefix = "mean." if varying else ""
    torch.testing.assert_close(scale[f"{prefix}2.weight"], torch.full((1, 16), 1.5 / 4.0, dtype=torch.float64))
    torch.testing.assert_close(scale[f"{prefix}2.bias"], torch.tensor([1.5 / 4.0], dtype=torch.float64))
    torch.testing.assert_close(scale[f"{prefix}0.bias"], torch.full((16,), 1.5, dtype=torch.float64))


@pytest.mark.parametrize("kind", [LIVIRegressor, LIVIClassifier])
def test_a_file_without_rows_answers_alike_and_holds_none(tmp_path, kind):
    X, y = wave(40)
    model = kind(**SHORT).fit(X, y if kind is LIVIRegressor else (y > 0).astype(int))
    assert model.holds_rows_ == (kind is LIVIRegressor)
    model.save(tmp_path / "rowless.livi", rowless=True)
    again = load(tmp_path / "rowless.livi")
    assert not again.holds_rows_
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-9)
    assert not any(name.endswith(("inputs", "targets")) for name in again.posterior_.sampler.state_dict())


def test_files_of_before_target_scales_are_read_and_nothing_is_drawn_in():
    model = LIVIRegressor(**SHORT, target_scale="plain", noise="constant").fit(*wave(60))
    facts = model._fitted_facts()
    old = {name: value for name, value in facts.items() if name not in ("target_", "model_", "trials_", "input_reach_")}
    old["target_scaling_"] = facts["target_"]["scaling"]
    again = LIVIRegressor(**SHORT, noise="constant")._restore(old, model.posterior_)
    assert again.model_ == Model("plain", "constant")
    assert again.trials_ == []
    inside = wave(60)[0]
    np.testing.assert_array_equal(again.predict(inside), model.predict(inside))
    far = inside + 50.0 * inside.std(0)
    np.testing.assert_array_equal(again.standardised_inputs(far), again.input_scaling_.standardise(far))
    assert np.abs(model.standardised_inputs(far)).max() < 10.0


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
@pytest.mark.parametrize("kind", [LIVIRegressor, LIVIClassifier])
def test_an_interrupted_fit_goes_on_from_its_checkpoint(kind, tmp_path, monkeypatch):
    X, y = wave(40)
    model, path = kind(**SHORT | {"steps": 60}), tmp_path / "fit.part"
    y = y if kind is LIVIRegressor else y > 0
    whole = model.fit(X, y).predict(X)
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "show", stopped_at(30))
        model.set_params(verbose=1).fit(X, y, checkpoint=path)
    assert read_checkpoint(path)["state"]["step"] < 60
    np.testing.assert_array_equal(model.set_params(verbose=0).fit(X, y, checkpoint=path).predict(X), whole)


def stopped_at(step):
    """In place of `Progress.show`: Ctrl-C at this step."""

    def show(self, at, row):
        if self.unit == "steps" and at >= step and "bound" in row:
            raise KeyboardInterrupt

    return show


def test_chains_take_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="checkpoint: expected none for noise='network', whose chains cannot continue"):
        LIVIRegressor(noise="network").fit(*wave(20), checkpoint=tmp_path / "fit.part")
