"""A problem is made once from what the user has, and gives the log joint density to every method."""

import pytest
import torch
from torch import nn

import livi
from livi.family.last_layer import NotExactError, integrate_last_layer


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))


def rows(count=40):
    x = torch.randn(count, 2, generator=torch.Generator().manual_seed(0))
    return x, x[:, :1] - x[:, 1:]


def test_the_density_is_that_of_likelihood_and_prior_over_all_data():
    x, y = rows()
    problem = livi.Problem.of(network(), (x, y), livi.Gaussian(0.5), prior=livi.Normal(2.0), batch_size=16)
    theta = problem.layout.flatten() + 0.1 * torch.randn(3, problem.layout.num_params)
    outputs = livi.apply_many(problem.layout, theta, x)
    log_likelihood, log_prior = problem.on_data(theta)
    torch.testing.assert_close(log_likelihood, livi.Gaussian(0.5).log_prob(outputs, y).sum(1))
    torch.testing.assert_close(log_prior, torch.distributions.Normal(0, 2.0).log_prob(theta).sum(1))
    batch = next(problem.data.epoch(0))
    scaled, _ = problem.on_batch(theta, batch)
    torch.testing.assert_close(scaled, 40 * problem.log_likelihood(theta, batch).mean(1))


def test_the_prior_of_all_data_is_evaluated_once():
    asked = []

    def log_prob(theta):
        asked.append(len(theta))
        return theta.sum(1)

    x = torch.linspace(-1, 1, 9)[:, None]
    problem = livi.Problem.of(
        nn.Linear(1, 1), (x, x), livi.Gaussian(1.0), prior=livi.FunctionPrior(log_prob), batch_size=3
    )
    _, log_prior = problem.on_data(torch.ones(4, 2))
    assert asked == [4]
    assert log_prior.tolist() == [2.0] * 4


def test_nothing_of_the_user_s_is_changed():
    net, likelihood, prior = network(), livi.Gaussian(), livi.Normal(1.0, learned=True)
    before = [p.detach().clone() for p in (*net.parameters(), *likelihood.parameters(), *prior.parameters())]
    problem = livi.Problem.of(net, rows(), likelihood, prior=prior)
    with torch.no_grad():
        for part in (problem.layout.module, problem.likelihood, problem.prior):
            for parameter in part.parameters():
                parameter.add_(1.0)
    after = [*net.parameters(), *likelihood.parameters(), *prior.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_prior_may_be_made_for_the_layout_and_must_be_one():
    wide = livi.Problem.of(
        network(), rows(), livi.Gaussian(), prior=lambda layout: livi.Normal(torch.full((layout.num_params,), 3.0))
    )
    torch.testing.assert_close(wide.prior.scale(), torch.full((17,), 3.0))
    with pytest.raises(TypeError, match=r"prior: expected a livi prior such as Normal\(1.0\), got float"):
        livi.Problem.of(network(), rows(), livi.Gaussian(), prior=0.3)


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        (livi.Normal, r"livi.Normal\(\)"),
        (livi.Laplace, r"livi.Laplace\(\)"),
        (livi.Relevance, r"livi.Relevance.for_layout"),
        (livi.FunctionPrior, "an object of it"),
    ],
)
def test_a_class_is_no_prior_and_the_error_says_how_to_make_one(kind, made):
    with pytest.raises(TypeError, match=rf"prior: .* got the class {kind.__name__}; pass .*{made}\.$"):
        livi.Problem.of(network(), rows(), livi.Gaussian(), prior=kind)


def test_the_last_layer_s_evidence_is_the_integral_over_its_weights():
    """log p(D | earlier) = log of the mean of p(D | earlier, last) over the last layer's prior."""
    x, y = (part.double() for part in rows(5))
    problem = livi.Problem.of(network().double(), (x, y), livi.Gaussian(1.0), prior=livi.Normal(0.5))
    left = integrate_last_layer(problem)
    assert left.integrated.name == "2"
    assert left.layout.num_params == 12
    earlier = problem.layout.flatten()[None, :12]
    evidence, log_prior = left.on_data(earlier)
    rng = torch.Generator().manual_seed(1)
    last = 0.5 * torch.randn(200_000, 5, generator=rng, dtype=torch.float64)
    whole = torch.cat([earlier.expand(len(last), -1), last], 1)
    values, _ = problem.on_data(whole)
    estimate = torch.logsumexp(values, 0) - torch.log(torch.tensor(float(len(last))))
    assert abs(float(evidence[0] - estimate)) < 0.05
    torch.testing.assert_close(log_prior, torch.distributions.Normal(0, 0.5).log_prob(earlier).sum(1))


def test_where_that_is_not_possible_the_reason_is_given():
    labels = (rows()[1][:, 0] > 0).long()
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    with pytest.raises(NotExactError, match="the likelihood is Categorical, not Gaussian"):
        integrate_last_layer(livi.Problem.of(net, (rows()[0], labels), livi.Categorical()))
    with pytest.raises(NotExactError, match="the generator is of 9 weights, and 12 come before the last layer"):
        integrate_last_layer(livi.Problem.of(network(), rows(), livi.Gaussian()), sizes={"generator": 9})


@pytest.mark.filterwarnings("ignore::livi.FitWarning")
def test_a_posterior_is_diagnosed_on_its_problem():
    options = {"recipe": livi.Recipe(steps=20, map_steps=20, num_samples=8), "progress": False, "last_layer": "sampled"}
    posterior = livi.fit(network(), rows(), livi.Gaussian(), **options)
    problem = livi.Problem.of(network(), rows(), livi.Gaussian(), batch_size=16)
    effort = livi.diagnostics.Effort(mean_field_steps=0)
    ours, theirs = (
        posterior.diagnose(*given, effort=effort, rng=torch.Generator().manual_seed(0), num_samples=32)
        for given in ((problem,), rows())
    )
    assert ours.bound.log_likelihood.value == pytest.approx(theirs.bound.log_likelihood.value, rel=1e-4)
    with pytest.raises(TypeError, match=r"diagnose: expected inputs and targets, batches or a livi\.Problem"):
        posterior.diagnose(rows()[0])


class OfOneDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, given):
        return self.layer(given["a"] + given["b"])


def test_a_network_that_takes_a_dict_whole_comes_with_a_remedy_that_works():
    x = torch.randn(20, 2)
    data, brief = ({"a": x, "b": x}, x[:, 0]), livi.Recipe(steps=5, map_steps=5, num_samples=4)
    with pytest.raises(TypeError, match=r"'a'; .* dict whole wants `forward=lambda net, \*\*d: net\(d\)`\.$"):
        livi.plan(OfOneDict(), data, livi.Gaussian(1.0))
    options = {"forward": lambda net, **d: net(d), "recipe": brief, "progress": False}
    posterior = livi.fit(OfOneDict(), data, livi.Gaussian(1.0), **options)
    assert posterior.predict(data[0]).mean.shape == (20,)
