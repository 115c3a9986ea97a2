"""How many networks a row is asked of, what is left open by them, and that neither depends on anything else."""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from support.short_estimators import regions, wave

from livi.family.ensemble import Ensemble
from livi.posterior.posterior import Posterior
from livi.posterior.prediction import ClassificationPrediction, LogNormalPrediction, RegressionPrediction
from livi.tables.estimators import LIVIClassifier, LIVIRegressor, load
from livi.tables.estimators import answers as module
from livi.tables.estimators.draws import AUTO_NUM_SAMPLES, MAX_ERROR, Draws

SHORT = {"hidden": (8,), "activation": "tanh", "steps": 60, "random_state": 0}
ENDS = (0.05, 0.95)


def drawn(share, samples, repeats, seed=0):
    """Predictions of one target by independent sets of samples: a `share` of its std is what they disagree on."""
    rng = torch.Generator().manual_seed(seed)
    means = share * torch.randn(samples, repeats, generator=rng, dtype=torch.float64)
    return RegressionPrediction(means, torch.tensor(math.sqrt(1.0 - share**2), dtype=torch.float64))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("samples", [64, 256])
def test_the_monte_carlo_error_is_the_spread_of_repeated_predictions(share, samples):
    repeats = 600
    prediction = drawn(share, samples, repeats)
    answers = torch.stack([prediction.mean, *prediction.quantile(list(ENDS))])
    real = answers.std(1).max()  # of a prediction whose total standard deviation is one
    close = 0.15 + 3.0 / math.sqrt(2.0 * repeats)
    assert prediction.monte_carlo_error(ENDS).median() == pytest.approx(real.item(), rel=close)
    assert prediction.monte_carlo_error().median() == pytest.approx(share / math.sqrt(samples), rel=0.05)


def test_the_error_of_a_log_normal_is_that_of_its_own_quantiles():
    logs = drawn(0.3, 256, 600)
    prediction = LogNormalPrediction(RegressionPrediction(0.5 * logs.means, 0.5 * logs.stds))
    answers = torch.stack([prediction.mean, *prediction.quantile(list(ENDS))])
    real = answers.std(1).max() / prediction.total_std.median()
    assert prediction.monte_carlo_error(ENDS).median() == pytest.approx(real.item(), rel=0.2)


def test_the_error_of_probabilities_is_at_most_that_of_certain_networks():
    certain = torch.zeros(100, 1, 3, dtype=torch.float64)
    certain[torch.arange(100), 0, torch.arange(100) % 3] = 1.0
    prediction = ClassificationPrediction.from_probabilities(certain, exclusive=True)
    assert prediction.monte_carlo_error().item() == pytest.approx(1.0 / math.sqrt(100), rel=0.01)
    agreed = ClassificationPrediction(torch.zeros(5, 2, 3), prediction.likelihood)
    assert agreed.monte_carlo_error().tolist() == [0.0, 0.0]


def test_one_sample_leaves_everything_open_and_no_spread_nothing():
    assert drawn(0.5, 1, 2).monte_carlo_error(ENDS).tolist() == [math.inf, math.inf]
    assert RegressionPrediction(torch.zeros(3, 2), torch.tensor(1.0)).monte_carlo_error(ENDS).tolist() == [0.0, 0.0]


# --- estimators -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[LIVIRegressor, LIVIClassifier])
def estimator(request):
    return request.param(**SHORT).fit(*(wave() if request.param is LIVIRegressor else regions()))


def asked(estimator, X):
    errors, networks = estimator.read_predictive(X, lambda part, _: estimator.sampling(part))
    return errors, networks


def far_and_near():
    near = wave(60, 1)[0]
    return np.concatenate([near, 6.0 * near])


def test_rows_are_asked_of_networks_until_they_have_enough(estimator):
    errors, networks = asked(estimator, far_and_near())
    assert set(networks) <= set(AUTO_NUM_SAMPLES)
    assert len(set(networks)) > 1
    assert ((errors <= MAX_ERROR) | (networks == AUTO_NUM_SAMPLES[-1])).all()
    np.testing.assert_array_equal(estimator.monte_carlo_error(far_and_near()), errors)
    fixed = clone(estimator).set_params(num_samples=AUTO_NUM_SAMPLES[0])
    fixed.fit(*(wave() if isinstance(estimator, LIVIRegressor) else regions()))
    few, _ = asked(fixed, far_and_near())
    assert few.max() > errors.max()


def test_an_answer_depends_on_its_own_row_alone(estimator, monkeypatch):
    X = far_and_near()
    answer = estimator.predict if isinstance(estimator, LIVIRegressor) else estimator.predict_proba
    whole = answer(X)
    np.testing.assert_allclose(np.concatenate([answer(X[i : i + 1]) for i in range(0, len(X), 9)]), whole[::9], 1e-9)
    monkeypatch.setattr(module, "_CPU_BLOCK", 7 * AUTO_NUM_SAMPLES[0] * 8)
    np.testing.assert_allclose(answer(X), whole, 1e-9)


def test_threads_do_not_change_answers_and_leave_torch_as_it_was(estimator, tmp_path, monkeypatch):
    X = far_and_near()
    monkeypatch.setattr(module, "_CPU_BLOCK", 7 * AUTO_NUM_SAMPLES[0] * 8)  # 18 blocks
    answer = "predict" if isinstance(estimator, LIVIRegressor) else "predict_proba"
    alone, before = getattr(estimator, answer)(X), torch.get_num_threads()
    flags = (torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled())
    estimator.save(tmp_path / "model.livi")
    for _ in range(3):
        fresh = load(tmp_path / "model.livi").set_params(n_jobs=4)  # whose networks are drawn in threads too
        np.testing.assert_allclose(getattr(fresh, answer)(X), alone, 1e-9)
    assert torch.get_num_threads() == before
    assert (torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()) == flags


def test_a_file_without_rows_asks_the_same_networks(estimator, tmp_path):
    X = far_and_near()
    estimator.save(tmp_path / "rowless.livi", rowless=True)
    found = load(tmp_path / "rowless.livi")
    errors, networks = asked(estimator, X)
    others, same = asked(found, X)
    np.testing.assert_array_equal(same, networks)
    np.testing.assert_allclose(others, errors, 1e-6)


def test_as_many_as_asked_for_are_asked():
    model = LIVIRegressor(**SHORT, num_samples=20).fit(*wave())
    assert set(asked(model, far_and_near())[1]) == {20}
    assert model.predictive(far_and_near()).num_samples == 20
    with pytest.raises(ValueError, match="num_samples: expected a positive integer, got 'many'"):
        LIVIRegressor(num_samples="many").fit(*wave())


def test_members_that_are_sorted_by_chain_are_asked_in_a_random_order():
    model = LIVIRegressor(**SHORT, target_scale="plain", noise="constant").fit(*wave())
    layout = model.posterior_.layout
    theta = torch.arange(600.0)[:, None].expand(600, layout.num_params)
    draws = Draws(Posterior(Ensemble(layout, theta), model.posterior_.likelihood), "auto", seed=3)
    first = draws.between(0, 64)[:, 0]
    assert 150.0 < first.mean() < 450.0
    assert first.std() > 100.0
    again = Draws(Posterior(draws.ensemble(), model.posterior_.likelihood), "auto", seed=3)
    assert torch.equal(again.between(0, 512), draws.between(0, 512))
