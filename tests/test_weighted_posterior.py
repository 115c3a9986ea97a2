"""Posteriors of fits with weights of the examples: new examples need none, and answers are of the likelihood inside."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import livi
from livi.family.last_layer import LinearGaussian
from livi.posterior.metrics import score
from livi.posterior.prediction import ClassificationPrediction, DrawnPrediction, RegressionPrediction
from livi.sampling.chain_target import whole_problem

X = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
WEIGHTS = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
KINDS = {
    "sampled Gaussian": (livi.Gaussian(), "sampled", RegressionPrediction),
    "exact Gaussian": (livi.Gaussian(), "exact", RegressionPrediction),
    "StudentT": (livi.StudentT(), "sampled", DrawnPrediction),
    "classes": (livi.Categorical(), "sampled", ClassificationPrediction),
    "conditional classes": (livi.Categorical(), "conditional", ClassificationPrediction),
}


def network(outputs, normalised):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 4), nn.BatchNorm1d(4) if normalised else nn.Identity(), nn.Tanh(), nn.Linear(4, outputs)
    )


@pytest.fixture(params=KINDS)
def case(request):
    """A fit with weights, its targets, an untrained network like it, and what an answer is."""
    likelihood, last_layer, answer = KINDS[request.param]
    classes = answer is ClassificationPrediction
    targets = (X[:, 0] > 0).long() if classes else X.sum(1)
    net = network(2 if classes else 1, normalised=last_layer == "sampled")
    options = {"last_layer": last_layer, "recipe": livi.Recipe(steps=4, map_steps=4, map_restarts=1, num_samples=2)}
    rows = (slice(10, 40), slice(10))
    data, held = (((X[part], WEIGHTS[part]), targets[part]) for part in rows)
    weighted = livi.Weighted(likelihood)
    posterior = livi.fit(net, data, weighted, forward=livi.pass_weights, validation=held, progress=False, **options)
    return posterior, targets, net, answer


def test_new_examples_need_no_weights(case):
    posterior, targets, _, answer = case
    found = posterior.predict(X)
    assert isinstance(found, answer)
    assert "nll" in score(found, targets)
    with_weights = posterior.predict((X, WEIGHTS))
    batches = posterior.predict(DataLoader(TensorDataset(X, WEIGHTS, targets), 7))
    for other in (with_weights, batches):
        torch.testing.assert_close(other.log_prob(targets), found.log_prob(targets))
    assert posterior.functions(3)(X).shape[:2] == (3, 40)


def test_validation_is_of_the_likelihood_inside(case):
    posterior, targets, _, _ = case
    assert posterior.history[-1]["validation_nll"] == pytest.approx(
        score(posterior.predict(X[:10], num_samples=32), targets[:10])["nll"], rel=1e-6
    )


def test_they_are_saved_frozen_and_copied_like_others(case, path):
    posterior, targets, net, _ = case
    answer = posterior.predict(X).log_prob(targets)
    posterior.save(path)
    for other in (livi.load(path, net), posterior.frozen(100), copy.deepcopy(posterior)):
        torch.testing.assert_close(other.predict(X).log_prob(targets), answer)
    assert isinstance(pickle.loads(pickle.dumps(posterior)), livi.Posterior)


def test_diagnosis_takes_the_weights(case):
    posterior, targets, _, _ = case
    given = ((X[10:], WEIGHTS[10:]), targets[10:])
    assert posterior.diagnose(*given, num_samples=4).findings


def kept(posterior):
    """Posteriors of networks that are drawn from this one and kept."""
    pooled = livi.pool([posterior, posterior.frozen(8)], draws=16)
    return {"frozen": posterior.frozen(16), "pooled": pooled, "pooled again": livi.pool([pooled, posterior], draws=16)}


def test_kept_networks_take_weights_as_the_fit_did(case, path):
    posterior, targets, net, _ = case
    for name, other in kept(posterior).items():
        other.save(path)
        for one in (other, livi.load(path, net)):
            answer = one.predict(X, num_samples=16).log_prob(targets)
            assert torch.equal(one.predict((X, WEIGHTS), num_samples=16).log_prob(targets), answer), name
            assert one.diagnose((X[10:], WEIGHTS[10:]), targets[10:], num_samples=4).findings
            with pytest.raises(TypeError, match=r"expected the weights of the examples.*pass diagnose\(\(x, w\), y\)"):
                one.diagnose(X[10:], targets[10:], num_samples=4)


def test_chains_from_kept_networks_have_the_weighted_target(case):
    posterior, targets, _, _ = case
    given = (X[10:], WEIGHTS[10:]), targets[10:]
    theta = posterior.sample(3)

    def log_likelihood(fitted):
        problem = whole_problem(fitted, given, None)
        return problem.on_batch(theta, problem.data.first())[0]

    expected = log_likelihood(posterior)
    for other in kept(posterior).values():
        torch.testing.assert_close(log_likelihood(other), expected)


@pytest.mark.parametrize("method", [livi.polish, livi.reweight])
def test_polished_and_reweighted_posteriors_take_weights(method):
    data = ((X, WEIGHTS), X.sum(1))
    options = {"recipe": livi.Recipe(steps=30, map_steps=30), "progress": False, "polish": False}
    fitted = livi.fit(
        network(1, normalised=False), data, livi.Weighted(livi.Gaussian(0.3)), forward=livi.pass_weights, **options
    )
    assert fitted.exact_layer is not None
    few = {"steps": 40, "chains": 2, "draws": 16} if method is livi.polish else {"num_samples": 40, "draws": 16}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few steps
        found = method(fitted, progress=False, **few)
    assert isinstance(found.likelihood, livi.Weighted)
    assert torch.equal(found.predict((X, WEIGHTS)).mean, found.predict(X).mean)
    assert found.diagnose(*data, num_samples=4).findings


def test_wrappers_say_what_they_stand_in_front_of():
    gaussian = livi.Gaussian(0.5)
    weighted, features = livi.Weighted(gaussian), LinearGaussian(gaussian)
    assert gaussian.observed is weighted.observed is gaussian
    assert features.observed is features.noise
    assert features.needs_all_examples
    assert not weighted.needs_all_examples
    outputs, weights = torch.zeros(2, 3, 1), torch.ones(2, 3)
    assert gaussian.without_weights(outputs) == (gaussian, outputs, None)
    assert weighted.without_weights((outputs, weights)) == (gaussian, outputs, weights)
