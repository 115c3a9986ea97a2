"""Answers to several threads at once: those that one thread gets, from networks of every kind."""

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from support.samplers import x_for
from torch import nn

import livi
from livi import ImplicitPosterior, Layout, LIVIClassifier, LIVIRegressor, Posterior
from livi.posterior.diagnostics import Effort

PATIENCE = 120.0  # seconds until a test fails that would wait for ever

NETWORKS = {
    "perceptron": lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)),
    "layer norm": lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2)),
    "convolutional": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.Flatten(), nn.ReLU(), nn.Linear(4, 2)
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.TransformerEncoderLayer(2, 1, 4, batch_first=True), nn.Flatten(), nn.Linear(4, 2)
    ),
}
HAVE_STATISTICS = {"batch norm", "convolutional"}


@pytest.fixture(autouse=True)
def _often_another_thread():
    """Python goes on with another thread much more often than usual, so that what can go wrong does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def posterior_of(name):
    layout = Layout(NETWORKS[name]())
    sampler = ImplicitPosterior(layout, livi.MLP(5, layout.num_params, hidden=(6,)), livi.FixedNoise(0.1))
    calibration = x_for(16, 4) if name in HAVE_STATISTICS else None
    return Posterior(sampler, livi.Categorical(), livi.Normal(), calibration=calibration)


def at_once(*asked, rounds=4):
    """What each of these functions returns, called by several threads at once, round after round."""
    with ThreadPoolExecutor(4) as pool:
        calls = [[pool.submit(ask) for ask in asked] for _ in range(rounds)]
        return [[call.result(PATIENCE) for call in calls_of_round] for calls_of_round in calls]


def seeded():
    return torch.Generator().manual_seed(3)


def examined(posterior, x, targets):
    effort = Effort(num_latents=1, num_densities=1, num_importance=2, num_starts=1, num_prior=2, mean_field_steps=0)
    return torch.tensor(posterior.diagnose(x, targets, num_samples=8, rng=seeded(), effort=effort).bound.bound.value)


def questions(posterior):
    """One for each way in which networks of a posterior are drawn or asked."""
    x, draws = x_for(20, 4), posterior.functions(6, seeded())
    labels = (x.sum(1) > 0).long()
    return [
        lambda: posterior.predict(x, num_samples=10).logits,
        lambda: posterior.predict(x[:1], num_samples=7).logits,
        lambda: posterior.predict(x, num_samples=10, rng=seeded()).logits,
        lambda: posterior.predict(x, deterministic=True).logits,
        lambda: posterior.functions(6, seeded())(x),
        lambda: draws(x),
        lambda: posterior.frozen(8).predict(x, num_samples=8).logits,
        lambda: posterior.sample(5, seeded()),
        lambda: examined(posterior, x, labels),
        lambda: livi.apply_many(posterior.layout, draws.theta, x, buffers=draws.buffers),
        lambda: posterior.layout.apply(draws.theta[0], x),
    ]


@pytest.mark.parametrize("name", NETWORKS)
def test_several_threads_get_the_answers_of_one(name):
    posterior = posterior_of(name)
    asked = questions(posterior)
    alone = [ask().detach() for ask in asked]
    for answers in at_once(*asked, rounds=2):
        for found, expected in zip(answers, alone, strict=True):
            torch.testing.assert_close(found.detach(), expected)
    torch.testing.assert_close(asked[0](), alone[0])  # and one thread afterwards


def test_networks_are_drawn_once_for_all_threads(monkeypatch):
    posterior, asked = posterior_of("layer norm"), []
    sample = ImplicitPosterior.sample

    def counted(self, num_samples, rng=None):
        asked.append(num_samples)
        return sample(self, num_samples, rng)

    monkeypatch.setattr(ImplicitPosterior, "sample", counted)
    at_once(*[lambda: posterior.predict(x_for(3, 4), num_samples=10)] * 4)
    assert asked == [10]


def test_an_exact_last_layer_answers_several_threads():
    x = x_for(30, 4)
    net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 1))
    recipe = livi.Recipe(steps=3, map_steps=3, map_restarts=1, num_samples=2)
    posterior = livi.fit(net, (x, x.sum(1)), livi.Gaussian(0.3), recipe=recipe, progress=False)
    assert posterior.plan["last_layer"] == "exact: 2"
    asked = [
        lambda: posterior.predict(x, num_samples=10, rng=seeded()).means,
        lambda: posterior.sample(4, seeded()),
        lambda: examined(posterior, x, x.sum(1)),
    ]
    alone = [ask() for ask in asked]
    for answers in at_once(*asked):
        torch.testing.assert_close(answers, alone)


class Meeting(nn.Module):
    """Lets nobody past before as many threads are there as it waits for."""

    def __init__(self, barrier):
        super().__init__()
        self.layer, self.barrier = nn.Linear(4, 2), [barrier]  # in a list, so that it is shared by copies too

    def forward(self, x):
        self.barrier[0].wait(PATIENCE)
        return self.layer(x)


def test_posteriors_of_different_networks_do_not_wait_for_each_other():
    barrier, x = Barrier(2), x_for(3, 4)
    posteriors = []
    for _ in range(2):
        layout = Layout(Meeting(barrier))
        posteriors.append(Posterior(ImplicitPosterior(layout, livi.MLP(5, layout.num_params)), livi.Categorical()))
    answers = at_once(*[lambda p=p: p.predict(x, num_samples=3).logits for p in posteriors])
    assert all(answer.shape == (3, 3, 2) for each in answers for answer in each)


def test_fused_attention_is_as_it_was_when_all_threads_are_done():
    before = torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    posteriors = [posterior_of("attention") for _ in range(4)]
    asked = [lambda p=p: p.predict(x_for(5, 4), num_samples=3).logits for p in posteriors]
    alone = [ask() for ask in asked]
    for answers in at_once(*asked, rounds=10):
        torch.testing.assert_close(answers, alone)
    assert before == (torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled())
    assert before == (True, True)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda posterior: pickle.loads(pickle.dumps(posterior))])
def test_a_copy_answers_like_the_posterior_and_does_not_wait_for_it(again):
    posterior, x = posterior_of("batch norm"), x_for(6, 4)
    expected = posterior.predict(x, num_samples=5).logits
    other = again(posterior)
    with posterior.layout.turn, ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: other.predict(x, num_samples=5).logits).result(PATIENCE)
    torch.testing.assert_close(found, expected)


# --- estimators -----------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(60, 3))
MADE = {
    "constant noise": lambda: LIVIRegressor((8,), noise="constant", target_scale="plain", steps=5, random_state=0),
    "varying noise": lambda: LIVIRegressor((8,), noise="varying", target_scale="plain", steps=5, random_state=0),
    "classes": lambda: LIVIClassifier((8,), steps=5, random_state=0),
}


@pytest.fixture(scope="module", params=MADE)
def fitted(request):
    target = np.digitize(X[:, 0], [0.0]) if request.param == "classes" else X[:, 0]
    with torch.random.fork_rng():
        return MADE[request.param]().fit(X, target)


@pytest.mark.parametrize("inside", [1, 2])
def test_an_estimator_answers_several_threads(fitted, inside):
    """Whether they run the network itself, or copies of it on threads of their own, which is for many rows."""
    rows, many = X[:20], np.tile(X, (60, 1))
    model = copy.deepcopy(fitted).set_params(n_jobs=inside)
    asked = [lambda: model.predict(rows), lambda: model.predict(many), lambda: model.monte_carlo_error(rows)]
    other, before = copy.deepcopy(model), torch.get_num_threads()  # so that networks are drawn by several threads too
    alone = [other.predict(rows), other.predict(many), other.monte_carlo_error(rows)]
    try:
        for answers in at_once(*asked, rounds=2):
            for found, expected in zip(answers, alone, strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-9)
    finally:
        torch.set_num_threads(before)
