"""The bound of a last layer of logits, and its posterior, against quadrature; and fits with one."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.last_layers import QUICK
from torch import nn
from torch.nn import functional as F

import livi
from livi.family.last_layer import Conditional, ExactLastLayer, LinearLogits, logits
from livi.family.last_layer.logits import Logits, conditional, log_evidence

NODES = 40


def features_of(rows=14, width=1, samples=2, seed=2):
    return torch.randn(samples, rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels_of(features, classes):
    """Noisy classes of the first set of features; of one class, yes or no."""
    noise = torch.rand(len(features[0]), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    score = 2.0 * features[0, :, 0] + 2.0 * (noise - 0.5)
    return torch.bucketize(score, torch.linspace(-1.0, 1.0, max(classes, 2) + 1, dtype=score.dtype)[1:-1])


def weights_grid(count):
    """Nodes and log weights of Gauss and Hermite's rule for so many standard normal weights."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(NODES))
    grid = torch.cartesian_prod(*[nodes] * count)
    log_weights = torch.cartesian_prod(*[(weights / weights.sum()).log()] * count).sum(1)
    return grid, log_weights


def by_quadrature(features, labels, classes, scale):
    """log p(labels | features), (S,), and the posterior mean of the one logit or of the contrasts with the last class.

    Contrasts with one class are correlated normals: w_j - w_C with w ~ N(0, scale^2), each.
    """
    count = features.shape[-1] + 1
    free = max(1, classes - 1)
    grid, log_weights = weights_grid(count * free)
    covariance = torch.eye(free, dtype=grid.dtype) + (1.0 if classes > 1 else 0.0)
    root = torch.linalg.cholesky(covariance)
    weights = scale * torch.einsum("gpk,jk->gpj", grid.unflatten(1, (count, free)), root)
    found = []
    for each in features:
        design = torch.cat([each, torch.ones_like(each[:, :1])], 1)
        logits = torch.einsum("np,gpj->gnj", design, weights)
        if classes == 1:
            joint = -nn.functional.softplus(torch.where(labels[:, None] > 0, -logits, logits)).sum((1, 2))
        else:
            whole = torch.cat([logits, torch.zeros_like(logits[..., :1])], 2)
            joint = whole.log_softmax(2)[:, torch.arange(len(labels)), labels].sum(1)
        evidence = torch.logsumexp(joint + log_weights, 0)
        share = (joint + log_weights - evidence).exp()
        found.append((evidence, torch.einsum("g,gpj->pj", share, weights)))
    return tuple(torch.stack(part) for part in zip(*found, strict=True))


def problem_of(classes, scale, features=None, counts=None):
    features = features_of() if features is None else features
    labels = labels_of(features, classes)
    shares = nn.functional.one_hot(labels, classes).double() if classes > 1 else labels.double()[:, None]
    log_scale = torch.full((features.shape[-1] + 1,), math.log(scale), dtype=torch.float64)
    return Logits(features, log_scale, shares, classes > 1, counts), labels


@pytest.mark.parametrize(("classes", "scale"), [(1, 1.0), (1, 2.0), (2, 1.0)])
def test_the_bound_is_below_the_evidence_and_close(classes, scale):
    problem, labels = problem_of(classes, scale)
    evidence, mean = by_quadrature(problem.features, labels, classes, scale)
    bound = log_evidence(problem)
    assert (bound < evidence).all()
    assert (bound > evidence - 0.15).all()
    found = conditional(problem).mean
    contrast = found if classes == 1 else found[..., :-1] - found[..., -1:]
    torch.testing.assert_close(contrast, mean, rtol=0.1, atol=0.05)


def test_so_it_is_for_three_classes(monkeypatch):
    monkeypatch.setattr("test_last_layer_logits.NODES", 16)
    problem, labels = problem_of(3, 1.0)
    evidence, mean = by_quadrature(problem.features, labels, 3, 1.0)
    found = conditional(problem)
    assert (found.log_evidence < evidence).all()
    assert (found.log_evidence > evidence - 0.4).all()
    torch.testing.assert_close(found.mean[..., :-1] - found.mean[..., -1:], mean, rtol=0.15, atol=0.1)


def test_two_classes_are_one_label_with_the_difference_of_their_weights():
    features = features_of(30, width=3)
    two, _ = problem_of(2, 0.7, features)
    one, _ = problem_of(1, 0.7 * math.sqrt(2.0), features)
    both = conditional(two), conditional(one)
    torch.testing.assert_close(both[0].log_evidence, both[1].log_evidence)
    torch.testing.assert_close(both[0].mean[..., 1:] - both[0].mean[..., :1], both[1].mean)


@pytest.mark.parametrize("classes", [1, 3])
def test_the_envelope_s_gradient_is_that_of_the_solved_bound(classes):
    counts = torch.linspace(0.5, 2.0, 8, dtype=torch.float64)
    problem, _ = problem_of(classes, 0.8, features_of(rows=8, samples=1), counts)

    def value(features, log_scale):
        return log_evidence(replace(problem, features=features, log_scale=log_scale), rounds=60)

    inputs = (problem.features.clone().requires_grad_(), problem.log_scale.clone().requires_grad_())
    assert torch.autograd.gradcheck(value, inputs, atol=1e-4)


@pytest.mark.parametrize("classes", [1, 3])
def test_a_row_that_counts_twice_is_two_rows(classes):
    counts = torch.tensor([1.0, 2.0] * 7, dtype=torch.float64)
    once, _ = problem_of(classes, 1.0, counts=counts)
    times = counts.long()
    rows = {"features": once.features.repeat_interleave(times, 1), "labels": once.labels.repeat_interleave(times, 0)}
    repeated = replace(once, **rows, counts=None)
    torch.testing.assert_close(log_evidence(once), log_evidence(repeated))
    torch.testing.assert_close(conditional(once).mean, conditional(repeated).mean)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_rounds_settle_where_the_classes_can_be_separated(scale):
    features = features_of(128, width=50, samples=1)
    labels = nn.functional.one_hot(features[0, :, :3].argmax(1), 3).double()
    problem = Logits(features, torch.full((51,), math.log(scale), dtype=torch.float64), labels, True)
    few, many, more = (float(log_evidence(problem, rounds)) for rounds in (8, 40, 80))
    assert few < many
    assert abs(many - more) < 0.1


def test_blocks_of_samples_change_nothing(monkeypatch):
    problem, _ = problem_of(3, 1.0, features_of(samples=5))
    whole = log_evidence(problem), *conditional(problem)
    monkeypatch.setattr("livi.family.last_layer.evidence._CPU_BLOCK", 1)
    torch.testing.assert_close((log_evidence(problem), *conditional(problem)), whole)


def test_draws_have_the_covariance_of_the_contrasts_and_the_prior_s_common_part():
    problem, labels = problem_of(3, 0.7)
    likelihood = LinearLogits(livi.Categorical(), classes=3, scale=0.7).double()
    found = likelihood.conditional(problem.features, labels)
    many = Conditional(*(part[:1].expand(40_000, *part.shape[1:]) for part in found[:2]), *found[2:])
    draws = likelihood.draw(many, torch.Generator().manual_seed(0))  # (S, P, T)
    inverse = torch.linalg.inv(found.factor[0, 0] @ found.factor[0, 0].mT)
    contrast = (draws[..., 0] - draws[..., 1]).T.cov()
    torch.testing.assert_close(contrast, 2.0 * 0.7**2 * inverse, rtol=0.1, atol=0.02)
    common = draws.mean(2).T.cov()
    torch.testing.assert_close(common, 0.7**2 / 3.0 * torch.eye(2, dtype=draws.dtype), rtol=0.1, atol=0.01)
    torch.testing.assert_close(draws.mean(0), found.mean[0], rtol=0, atol=0.02)


def rings(count=60):
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, generator=rng, dtype=torch.float64)
    return x, (x.square().sum(1) > 1.4).long()


def small(outputs):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs)).double()


def fitted(likelihood, **options):
    x, y = rings()
    net = small(2) if isinstance(likelihood, livi.Categorical) else small(1)
    y = y if isinstance(likelihood, livi.Categorical) else y.double()[:, None]
    options = {"recipe": QUICK, "progress": False, "last_layer": "conditional"} | options
    return livi.fit(net, (x, y), likelihood, **options)


@pytest.mark.parametrize("likelihood", [livi.Categorical(), livi.Bernoulli()], ids=lambda each: type(each).__name__)
def test_it_is_fitted_saved_continued_and_diagnosed(likelihood, tmp_path):
    posterior = fitted(likelihood, recipe=replace(QUICK, steps=100, map_steps=100))
    assert isinstance(posterior.sampler, ExactLastLayer)
    assert posterior.plan["last_layer"] == "conditional: 2"
    assert "a conditional last layer" in repr(posterior)
    assert type(posterior.likelihood) is type(likelihood)
    x, y = rings()
    probabilities = posterior.predict(x, num_samples=64).probabilities
    yes = probabilities[:, 1] if probabilities.ndim == 2 else probabilities
    assert float(((yes > 0.5) == (y == 1)).double().mean()) > 0.9
    posterior.save(tmp_path / "p.livi")
    again = livi.load(tmp_path / "p.livi", small(probabilities.shape[1] if probabilities.ndim == 2 else 1))
    assert torch.equal(*(each.sample(5, torch.Generator().manual_seed(0)) for each in (posterior, again)))
    assert "verdict" in str(again.diagnose(x, y, num_samples=16)).lower()
    assert fitted(likelihood, start=posterior, last_layer="exact if possible").plan["last_layer"] == "conditional: 2"


@pytest.mark.filterwarnings("ignore::livi.FitWarning")  # chains this short agree on nothing
def test_chains_go_on_from_it_with_all_weights():
    posterior = fitted(livi.Categorical())
    polished = livi.polish(posterior, chains=2, draws=16, steps=40, progress=False)
    assert polished.sample(3).shape == (3, 42)
    torch.testing.assert_close(polished.prior.scale(), torch.ones(42, dtype=torch.float64))


def test_a_classifier_has_one_by_default_and_takes_weights():
    x, y = rings(40)
    x = torch.cat([x, x.square()], 1)  # four columns and fifty units: more than 300 weights
    model = livi.LIVIClassifier(steps=10, random_state=0).fit(x.numpy(), y.numpy(), np.linspace(0.5, 2.0, 40))
    assert model.posterior_.plan["last_layer"] == "conditional: 2"
    assert model.holds_rows_
    torch.testing.assert_close(model.posterior_.sampler.likelihood.counts, torch.linspace(0.5, 2.0, 40).double())
    many = livi.LIVIClassifier(steps=1, batch_size=20, random_state=0).fit(x.numpy(), y.numpy())
    assert many.posterior_.plan["last_layer"] == "sampled"


def test_its_bound_is_above_that_of_a_sampled_last_layer():
    recipe = replace(QUICK, steps=150, map_steps=100)
    bounds = []
    for mode in ("conditional", "sampled"):
        history = fitted(livi.Categorical(), recipe=recipe, last_layer=mode).history
        bounds.append(sum(row["bound"] for row in history[-10:]) / 10)
    assert bounds[0] > bounds[1] + 2.0


def test_examples_without_a_class_are_refused():
    x, y = rings()
    y[3] = -100
    with pytest.raises(ValueError, match=r"last_layer='conditional': expected .* not every example has one class"):
        livi.plan(small(2), (x, y), livi.Categorical(), last_layer="conditional", recipe=QUICK)


def separable(size, classes):
    rng = torch.Generator().manual_seed(3)
    features = size * torch.randn(1, 300, 6, dtype=torch.float64, generator=rng)
    direction = torch.randn(6, classes, dtype=torch.float64, generator=rng)
    labels = (features[0] @ direction).argmax(1) if classes > 1 else (features[0] @ direction > 0).double()
    labels = F.one_hot(labels, classes).double() if classes > 1 else labels
    return logits.Logits(features, torch.zeros(7, dtype=torch.float64), labels, exclusive=classes > 1)


@pytest.mark.parametrize("classes", [1, 4])
@pytest.mark.parametrize("size", [0.3, 1.0, 10.0])
def test_labels_that_can_be_separated_are_soon_fitted_and_no_round_loses(size, classes):
    problem = separable(size, classes)
    found = [float(logits.log_evidence(problem, rounds)) for rounds in range(0, 40, 2)]
    best = float(logits.log_evidence(problem, 200))
    assert min(np.diff(found)) > -0.1
    assert float(logits.log_evidence(problem)) > best - 0.2 * abs(best)
    assert float(logits.log_evidence(problem, logits.MANY_ROUNDS)) > best - 0.01 * abs(best)
